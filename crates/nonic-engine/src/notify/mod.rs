//! Notification of the program: channels with a descriptor, and doorbells for threads and tasks.

mod channel;
mod doorbell;

pub use channel::{Channel, Notify};
pub use doorbell::Doorbell;
