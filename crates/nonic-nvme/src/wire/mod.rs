//! The formats of NVMe over Fabrics on RDMA: commands, completions, descriptors of data, and the structures they carry.
//!
//! Everything is little-endian. Parsing refuses only what is too short; [`crate::controller`] checks the values before
//! it acts on them. Fields that neither side of this crate uses are not named.

mod command;
mod completion;
mod connect;
mod discovery;
mod identify;
mod private_data;
mod property;
mod sgl;

pub use command::{Command, ConnectFields, FabricsType, Feature, PropertyFields, admin, nvm};
pub use completion::{Completion, Status};
pub use connect::{ConnectData, Nqn};
pub use discovery::{DISCOVERY_HEADER, DiscoveryEntry, RdmaProvider, discovery_log};
pub use identify::{
    ControllerKind, IdentifyController, IdentifyNamespace, cns, namespace_descriptors, namespace_list,
};
pub use private_data::{Accept, CmRequest, Refusal};
pub use property::{Capabilities, Configuration, Property, VERSION_1_4};
pub use sgl::{KeyedSgl, SGL_LENGTH, Sgl, SglError};

/// Bytes of a command without data.
pub const COMMAND_LENGTH: usize = 64;
/// Bytes of a completion.
pub const COMPLETION_LENGTH: usize = 16;
/// Bytes of the structures that Identify returns.
pub const IDENTIFY_LENGTH: usize = 4096;
/// Bytes of the data of a Connect command.
pub const CONNECT_DATA_LENGTH: usize = 1024;

fn read_u16(bytes: &[u8], at: usize) -> u16 {
    bytes
        .get(at..at + 2)
        .map_or(0, |found| u16::from_le_bytes([found[0], found[1]]))
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from(read_u16(bytes, at)) | u32::from(read_u16(bytes, at + 2)) << 16
}

fn read_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from(read_u32(bytes, at)) | u64::from(read_u32(bytes, at + 4)) << 32
}

/// Copies `value` to `at`.
fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Text in a field of fixed length, cut if it is longer and padded.
fn put_text(bytes: &mut [u8], at: usize, length: usize, text: &str, padding: u8) {
    let field = &mut bytes[at..at + length];
    field.fill(padding);
    let fits = text.len().min(length);
    field[..fits].copy_from_slice(&text.as_bytes()[..fits]);
}

/// Text of a field, without the zeros and spaces it is padded with.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim_end().to_owned()
}
