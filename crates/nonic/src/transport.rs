//! Transport services as types: a method that a service does not offer does not exist.

use nonic_core::Service;

mod sealed {
    pub trait Sealed {}
}

/// A transport service.
///
/// ```
/// use nonic::{QueuePair, Transport};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let domain = nonic::Device::open("roce_lo")?.domain();
/// # let (left, right) = (domain.pair::<nonic::Rc>()?, domain.pair::<nonic::Rc>()?);
/// # let (here, there) = (left.endpoint(), right.endpoint());
/// # let (left, right) = (left.connect(&there)?, right.connect(&here)?);
/// fn describe<T: Transport>(pair: &QueuePair<T>) -> String {
///     format!("{} is in {:?}", pair.endpoint(), pair.state())
/// }
/// println!("{}", describe(&left));
/// # let _ = right;
/// # Ok(()) }
/// ```
pub trait Transport: sealed::Sealed + Send + Sync + 'static {
    /// Its number in the core.
    #[doc(hidden)]
    const SERVICE: Service;
}

/// A service with one peer per queue pair.
///
/// ```
/// use nonic::{Connected, Domain, QueuePair, Rc, Uc};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// fn connected<T: Connected>(domain: &Domain) -> Result<[QueuePair<T>; 2], Box<dyn std::error::Error>> {
///     let (left, right) = (domain.pair::<T>()?, domain.pair::<T>()?);
///     let (here, there) = (left.endpoint(), right.endpoint());
///     Ok([left.connect(&there)?, right.connect(&here)?])
/// }
/// # let domain = nonic::Device::open("roce_lo")?.domain();
/// let (reliable, unreliable) = (connected::<Rc>(&domain)?, connected::<Uc>(&domain)?);
/// # Ok(()) }
/// ```
pub trait Connected: Transport {}

/// A service that delivers everything in order or fails: offers READ and atomics.
///
/// ```
/// use nonic::{Access, Lease, QueuePair, Reliable, RemoteSlice};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let domain = nonic::Device::open("roce_lo")?.domain();
/// # let (left, right) = (domain.pair::<nonic::Rc>()?, domain.pair::<nonic::Rc>()?);
/// # let (here, there) = (left.endpoint(), right.endpoint());
/// # let (left, right) = (left.connect(&there)?, right.connect(&here)?);
/// fn fetch<T: Reliable>(pair: &QueuePair<T>, into: Lease, from: RemoteSlice) -> Result<Lease, nonic::RequestFailed> {
///     pair.read(into, from).wait()
/// }
/// let shelf = domain.lease_from(b"a book")?.expose(Access::REMOTE_READ)?;
/// assert_eq!(&fetch(&left, domain.lease(6)?, shelf.remote())?[..], b"a book");
/// # Ok(()) }
/// ```
pub trait Reliable: Connected {}

/// A service that sends single packets to any queue pair.
///
/// ```
/// use nonic::{Datagram, Lease, Peer, QueuePair, Ud};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// fn tell_all<T: Datagram>(pair: &QueuePair<T>, mut text: Lease, peers: &[Peer]) -> Result<(), nonic::RequestFailed> {
///     for peer in peers {
///         text = pair.send_to(text, *peer).wait()?;
///     }
///     Ok(())
/// }
/// # let domain = nonic::Device::open("roce_lo")?.domain();
/// let (left, right) = (domain.pair::<Ud>()?.activate()?, domain.pair::<Ud>()?.activate()?);
/// tell_all(&left, domain.lease_from(b"news")?, &[Peer::from(&right.endpoint())])?;
/// # Ok(()) }
/// ```
pub trait Datagram: Transport {}

/// Reliable connected: everything arrives once and in order, or the queue pair fails.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let domain = nonic::Device::open("roce_lo")?.domain();
/// let (left, right) = (domain.pair::<nonic::Rc>()?, domain.pair::<nonic::Rc>()?);
/// let (here, there) = (left.endpoint(), right.endpoint());
/// let (left, right) = (left.connect(&there)?, right.connect(&here)?);
/// let receive = right.recv(domain.lease(64)?);
/// left.send_bytes(b"hello").wait()?; // done when it has arrived
/// assert_eq!(receive.wait()?.bytes(), b"hello");
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub enum Rc {}

/// Extended reliable connected: as [`Rc`], but only one end of a connection sends, and each request names its receive
/// queue. See [`XrcDomain`](crate::XrcDomain).
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// # let queue = device.completion_queue(0)?;
/// # let patience = Some(std::time::Duration::from_secs(10));
/// let reachable = device.xrc_domain();
/// let receives = reachable.receive_queue(&domain, &queue, 16)?;
/// receives.recv(1, domain.lease(64)?)?;
/// let (initiator, target) = (domain.pair::<nonic::Xrc>()?, reachable.target()?);
/// let (here, there) = (initiator.endpoint(), target.endpoint());
/// let (initiator, _target) = (initiator.connect(&there)?, target.connect(&here)?);
/// initiator.toward(receives.number()).send_bytes(b"hello").wait()?;
/// assert_eq!(queue.wait(patience)?.expect("it has arrived").id, 1);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub enum Xrc {}

/// Unreliable connected: a message arrives whole and in order, or not at all.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let domain = nonic::Device::open("roce_lo")?.domain();
/// let (left, right) = (domain.pair::<nonic::Uc>()?, domain.pair::<nonic::Uc>()?);
/// let (here, there) = (left.endpoint(), right.endpoint());
/// let (left, right) = (left.connect(&there)?, right.connect(&here)?);
/// let receive = right.recv(domain.lease(64)?);
/// left.send_bytes(b"hello").wait()?; // done when it has left
/// match receive.wait_within(std::time::Duration::from_millis(100)) {
///     Ok(received) => assert_eq!(received?.bytes(), b"hello"),
///     Err(_) => println!("lost, or late"),
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub enum Uc {}

/// Unreliable datagram: single packets, to any queue pair whose address and Q_Key are known.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let domain = nonic::Device::open("roce_lo")?.domain();
/// let (left, right) = (domain.pair::<nonic::Ud>()?.activate()?, domain.pair::<nonic::Ud>()?.activate()?);
/// let receive = right.recv(domain.lease(40 + 64)?); // a network header of 40 bytes is in front
/// left.send_to(domain.lease_from(b"hello")?, &right.endpoint()).wait()?; // done when it has left
/// match receive.wait_within(std::time::Duration::from_millis(100)) {
///     Ok(received) => assert_eq!(&received?.bytes()[40..], b"hello"),
///     Err(_) => println!("lost, or late"),
/// }
/// # Ok(()) }
/// ```
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
