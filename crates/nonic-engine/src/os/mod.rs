//! What the engine asks of the operating system beyond packets.

pub mod descriptors;
