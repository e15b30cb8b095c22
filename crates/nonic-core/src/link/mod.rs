//! The network between two NICs, as far as it needs no operating system: packets that travel together, and the faults a
//! network has.
//!
//! The same [`FaultInjector`] disturbs the simulator's links and the engine's (`NONIC_FAULTS`), so what is proved in
//! virtual time is what happens on sockets.

mod faults;
mod prng;
mod train;

pub use faults::{
    Delivered, FaultCounts, FaultInjector, FaultRule, Faults, Filter, Frequency, PacketKind, Shortage,
    UnknownPacketKind,
};
pub use prng::{Prng, mix};
pub use train::Train;
