//! The unreliable services: connected (UC) and datagram (UD).
//!
//! Sending is the same for both ([`Sender`]): a request is complete when its last packet is written. What
//! differs is receiving: [`UcReceiver`] reassembles messages and drops those with a gap; [`UdReceiver`]
//! takes single packets from anyone who knows the Q_Key.

mod sender;
mod uc;
mod ud;

pub(crate) use sender::Sender;
pub(crate) use uc::UcReceiver;
pub(crate) use ud::UdReceiver;
