//! Packets of the network workload: small values without bytes, and the packets of real devices.

/// Bytes of a frame beside the payload of a request: preamble and gap, Ethernet, IPv4, UDP, BTH, ICRC.
pub(super) const HEADERS: u32 = 20 + 18 + 20 + 8 + 12 + 4;

/// Bytes an acknowledgement or a notification takes on a wire.
pub(super) const ANSWER: u32 = 20 + 64;

/// The most ranges that an acknowledgement tells of. Real ones tell of more; the one that changed stands first, so
/// what is left out is told by the next.
pub(super) const RANGES: usize = 4;

/// Packets of a flow that arrived: the first, and one past the last.
pub(super) type Held = (u32, u32);

/// A packet on its way.
#[derive(Copy, Clone, Debug)]
pub(super) struct Packet {
    pub(super) flow: u32,
    pub(super) from: u16,
    pub(super) to: u16,
    /// On the wire.
    pub(super) bytes: u32,
    /// Which of several paths it takes, unless each packet takes another.
    pub(super) entropy: u32,
    /// Whether it may be marked.
    pub(super) markable: bool,
    pub(super) marked: bool,
    pub(super) what: What,
}

/// What a packet says.
#[derive(Copy, Clone, Debug)]
pub(super) enum What {
    Data(Data),
    Ack(Ack),
    /// The peer lacks this packet, and threw away what came after it.
    Nak {
        missing: u32,
    },
    /// A congestion notification.
    Notification,
    /// Bytes of a device: where they are kept.
    Device {
        at: u32,
    },
}

#[derive(Copy, Clone, Debug)]
pub(super) struct Data {
    pub(super) number: u32,
    /// Whether the peer shall answer.
    pub(super) ask: bool,
    /// Whether it was sent before.
    pub(super) again: bool,
    pub(super) sent_ns: u64,
}

#[derive(Copy, Clone, Debug)]
pub(super) struct Ack {
    /// Everything before this packet has arrived.
    pub(super) next: u32,
    /// What has arrived beyond it; empty ranges say nothing.
    pub(super) held: [Held; RANGES],
    /// When the packet was sent that this answers, if it asked for it and was sent once.
    pub(super) echo_ns: Option<u64>,
}
