//! The private data of the connection manager's messages, by which the two ends agree on an NVMe queue while they connect.

use super::{put, read_u16};

/// What the host says in its request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct CmRequest {
    /// Which queue this will be; 0 is the admin queue.
    pub qid: u16,
    /// How many completions the host has receives for.
    pub hrqsize: u16,
    /// The host's queue of commands: its size less one.
    pub hsqsize: u16,
    /// The controller that an I/O queue belongs to; 0 from hosts that do not tell.
    pub cntlid: u16,
}

impl CmRequest {
    const LENGTH: usize = 32;

    /// Reads it from private data, which may be padded.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        if bytes.len() < Self::LENGTH {
            return Err(Refusal::InvalidLength);
        }
        if read_u16(bytes, 0) != 0 {
            return Err(Refusal::InvalidFormat);
        }
        Ok(CmRequest {
            qid: read_u16(bytes, 2),
            hrqsize: read_u16(bytes, 4),
            hsqsize: read_u16(bytes, 6),
            cntlid: read_u16(bytes, 8),
        })
    }

    /// Its bytes.
    pub fn emit(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        for (index, value) in [0, self.qid, self.hrqsize, self.hsqsize, self.cntlid]
            .into_iter()
            .enumerate()
        {
            put(&mut bytes, 2 * index, &value.to_le_bytes());
        }
        bytes
    }
}

/// What the target says when it accepts.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Accept {
    /// How many commands the target has receives for.
    pub crqsize: u16,
}

impl Accept {
    /// Its bytes.
    pub fn emit(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        put(&mut bytes, 2, &self.crqsize.to_le_bytes());
        bytes
    }

    /// Reads it; nothing if the format is not known.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        (bytes.len() >= 4 && read_u16(bytes, 0) == 0).then(|| Accept {
            crqsize: read_u16(bytes, 2),
        })
    }
}

/// Why the target does not accept.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Refusal {
    /// The private data has the wrong length.
    InvalidLength = 1,
    /// The format of the private data is not known.
    InvalidFormat = 2,
    /// There can be no such queue.
    InvalidQueueId = 3,
    /// The queue of commands is too long, or has no entry.
    InvalidQueueSize = 4,
    /// Nothing is left for one more queue.
    NoResources = 6,
}

impl Refusal {
    /// Its bytes.
    pub fn emit(self) -> [u8; 4] {
        let mut bytes = [0; 4];
        put(&mut bytes, 2, &(self as u16).to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_comes_back() {
        let request = CmRequest {
            qid: 1,
            hrqsize: 128,
            hsqsize: 127,
            cntlid: 9,
        };
        let bytes = request.emit();
        assert_eq!(bytes[..10], [0, 0, 1, 0, 128, 0, 127, 0, 9, 0]);
        assert_eq!(CmRequest::parse(&bytes), Ok(request));
        assert_eq!(CmRequest::parse(&bytes[..31]), Err(Refusal::InvalidLength));
        let mut other = bytes;
        other[0] = 1;
        assert_eq!(CmRequest::parse(&other), Err(Refusal::InvalidFormat));
    }

    #[test]
    fn an_answer_says_how_many_commands_fit_or_why_not() {
        assert_eq!(
            Accept::parse(&Accept { crqsize: 32 }.emit()),
            Some(Accept { crqsize: 32 })
        );
        assert_eq!(Refusal::NoResources.emit(), [0, 0, 6, 0]);
    }
}
