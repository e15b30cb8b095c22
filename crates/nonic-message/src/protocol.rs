//! The protocol of messages as a machine without I/O: frames in, frames and READs out.
//!
//! It reads no clock, owns no memory of the NIC and never blocks. Read [`Machine`] first, then [`Frame`] (what travels) and
//! [`Greeting`] (what the two sides tell each other when they connect). `docs/messages.md` has it byte by byte.

mod frame;
mod greeting;
mod machine;
#[cfg(test)]
mod tests;

pub use frame::{Frame, FrameError, HEADER_BYTES, Kind, OFFER_BYTES, Remote, VERSION};
pub use greeting::{GREETING_BYTES, Greeting, GreetingError};
pub use machine::{Action, Ended, Machine, OFFERS, ProtocolError, ReadId, Role, Taken, Violation};
