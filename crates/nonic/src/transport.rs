//! The services a queue pair can have, as types: a method a service does not offer does not exist.

use nonic_core::Service;

mod sealed {
    pub trait Sealed {}
}

/// A transport service.
pub trait Transport: sealed::Sealed + Send + Sync + 'static {
    /// Its number in the core.
    #[doc(hidden)]
    const SERVICE: Service;
}

/// Talks to one peer.
pub trait Connected: Transport {}

/// Delivers everything, in order, or fails: offers READ and atomics.
pub trait Reliable: Connected {}

/// Talks to anyone, one packet at a time.
pub trait Datagram: Transport {}

/// Reliable connected: everything arrives once and in order, or the queue pair fails.
#[derive(Debug)]
pub enum Rc {}

/// Extended reliable connected: as [`Rc`], but a connection has one end that sends, and each request names the receive queue that it is
/// for. See [`XrcDomain`](crate::XrcDomain).
#[derive(Debug)]
pub enum Xrc {}

/// Unreliable connected: a message arrives whole and in order, or not at all.
#[derive(Debug)]
pub enum Uc {}

/// Unreliable datagram: single packets, to anyone whose address and Q_Key are known.
#[derive(Debug)]
pub enum Ud {}

impl sealed::Sealed for Rc {}
impl sealed::Sealed for Xrc {}
impl sealed::Sealed for Uc {}
impl sealed::Sealed for Ud {}

impl Transport for Rc {
    const SERVICE: Service = Service::Rc;
}

impl Transport for Xrc {
    const SERVICE: Service = Service::Xrc;
}

impl Transport for Uc {
    const SERVICE: Service = Service::Uc;
}

impl Transport for Ud {
    const SERVICE: Service = Service::Ud;
}

impl Connected for Rc {}
impl Connected for Xrc {}
impl Connected for Uc {}
impl Reliable for Rc {}
impl Reliable for Xrc {}
impl Datagram for Ud {}
