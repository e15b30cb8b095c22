//! The operating system, as far as the engine needs it for more than packets.

pub(crate) mod bell;
pub(crate) mod clock;
pub mod descriptors;
pub(crate) mod entropy;
pub mod eventfd;
#[cfg(any(all(test, not(loom)), feature = "fuzzing"))]
pub(crate) mod hostile_memory;
pub mod netdev;
pub(crate) mod peer_socket;
pub mod pinning;
pub(crate) mod poller;
pub(crate) mod scheduling;
pub(crate) mod shared_memory;
pub(crate) mod signals;
pub(crate) mod socket_option;
pub(crate) mod thread;
