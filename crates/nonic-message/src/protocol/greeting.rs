//! Greetings: the limits that the two sides exchange in the private data of the connection's request and answer.

use super::frame::{OFFER_BYTES, VERSION};

/// Bytes of a greeting.
pub const GREETING_BYTES: usize = 20;

const MAGIC: [u8; 4] = *b"nmsg";

/// What one side takes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// Messages it takes before its program has taken any.
    pub credits: u16,
    /// The longest frame, header included.
    pub frame_bytes: u32,
    /// The longest message.
    pub message_bytes: u64,
}

/// Why private data is not a greeting.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GreetingError {
    /// The peer speaks something else.
    #[error("the peer does not speak the protocol of messages")]
    Foreign,
    /// The peer speaks another version.
    #[error("the peer speaks version {0} of the protocol of messages, and this is version {VERSION}")]
    Version(u8),
    /// The numbers make no sense.
    #[error("the peer's greeting makes no sense")]
    Invalid,
}

impl Greeting {
    /// As private data.
    pub fn emit(&self) -> [u8; GREETING_BYTES] {
        let mut bytes = [0; GREETING_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[6..8].copy_from_slice(&self.credits.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.frame_bytes.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.message_bytes.to_be_bytes());
        bytes
    }

    /// Reads private data, which may be padded.
    pub fn parse(bytes: &[u8]) -> Result<Self, GreetingError> {
        let bytes: &[u8; GREETING_BYTES] = bytes.first_chunk().ok_or(GreetingError::Foreign)?;
        let [m0, m1, m2, m3, version, _, c0, c1, f0, f1, f2, f3, message @ ..] = *bytes;
        if [m0, m1, m2, m3] != MAGIC {
            return Err(GreetingError::Foreign);
        }
        if version != VERSION {
            return Err(GreetingError::Version(version));
        }
        let greeting = Greeting {
            credits: u16::from_be_bytes([c0, c1]),
            frame_bytes: u32::from_be_bytes([f0, f1, f2, f3]),
            message_bytes: u64::from_be_bytes(message),
        };
        if greeting.credits == 0 || (greeting.frame_bytes as usize) < OFFER_BYTES {
            return Err(GreetingError::Invalid);
        }
        Ok(greeting)
    }
}
