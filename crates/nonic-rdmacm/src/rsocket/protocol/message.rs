//! The word at the end of each write: three bits say what it is, the others how much.

const KIND_SHIFT: u32 = 29;
const VALUE_MASK: u32 = (1 << KIND_SHIFT) - 1;

const DATA: u32 = 0;
const CREDITS: u32 = 4;
const IOMAP: u32 = 6;
const CONTROL: u32 = 7;

const DISCONNECT: u32 = 0;
const KEEPALIVE: u32 = 1;
const SHUTDOWN: u32 = 2;

/// What one side tells the other.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// So many bytes were written to the ring.
    Data(u32),
    /// The receiver may be sent messages up to this number, and there may be a new target.
    Credits(u16),
    /// An entry of the list of mapped buffers has changed.
    Iomap(u16),
    /// The sender neither sends nor receives any more.
    Disconnect,
    /// Nothing: the sender wants to know whether we are alive, which the acknowledgement says.
    Keepalive,
    /// The sender does not send any more.
    Shutdown,
}

impl Message {
    /// The length of one in a SEND.
    pub(crate) const LEN: usize = 4;

    /// As it is in immediate data.
    pub(crate) fn encode(self) -> u32 {
        let (kind, value) = match self {
            Message::Data(length) => (DATA, length & VALUE_MASK),
            Message::Credits(limit) => (CREDITS, u32::from(limit)),
            Message::Iomap(index) => (IOMAP, u32::from(index)),
            Message::Disconnect => (CONTROL, DISCONNECT),
            Message::Keepalive => (CONTROL, KEEPALIVE),
            Message::Shutdown => (CONTROL, SHUTDOWN),
        };
        kind << KIND_SHIFT | value
    }

    /// As it is in a SEND to a peer with this byte order. Immediate data has an order of its own; this is memory like any other.
    pub(crate) fn emit(self, big_endian: bool) -> [u8; Self::LEN] {
        match big_endian {
            true => self.encode().to_be_bytes(),
            false => self.encode().to_le_bytes(),
        }
    }

    /// `None`: it has no meaning today.
    pub(crate) fn decode(word: u32) -> Option<Self> {
        let value = word & VALUE_MASK;
        match (word >> KIND_SHIFT, value) {
            (DATA, length) => Some(Message::Data(length)),
            // rdma-core adds before it cuts: only the lower half counts.
            (CREDITS, limit) => Some(Message::Credits(limit as u16)),
            (IOMAP, index) => Some(Message::Iomap(index as u16)),
            (CONTROL, DISCONNECT) => Some(Message::Disconnect),
            (CONTROL, KEEPALIVE) => Some(Message::Keepalive),
            (CONTROL, SHUTDOWN) => Some(Message::Shutdown),
            _ => None,
        }
    }
}
