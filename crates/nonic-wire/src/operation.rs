//! The parts of an opcode: a transport service and an operation.

use crate::HeaderSet;

/// The transport service a packet belongs to: the upper three bits of its opcode.
///
/// Reliable datagram is absent on purpose: no implementation of it exists, and its opcodes are refused.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Extended reliable connection.
    Xrc,
    /// Congestion notification, which has a single opcode of its own.
    Cnp,
}

impl Service {
    /// The bits this service contributes to the opcode.
    pub(crate) const fn base(self) -> u8 {
        match self {
            Service::Rc => 0x00,
            Service::Uc => 0x20,
            Service::Ud => 0x60,
            Service::Cnp => 0x80,
            Service::Xrc => 0xa0,
        }
    }
}

/// What a packet does, independent of the service: the lower five bits of its opcode.
#[repr(u8)]
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash)]
#[expect(
    missing_docs,
    reason = "each name is the operation's name in the specification"
)]
pub enum Operation {
    SendFirst = 0x00,
    SendMiddle = 0x01,
    SendLast = 0x02,
    SendLastWithImmediate = 0x03,
    SendOnly = 0x04,
    SendOnlyWithImmediate = 0x05,
    WriteFirst = 0x06,
    WriteMiddle = 0x07,
    WriteLast = 0x08,
    WriteLastWithImmediate = 0x09,
    WriteOnly = 0x0a,
    WriteOnlyWithImmediate = 0x0b,
    ReadRequest = 0x0c,
    ReadResponseFirst = 0x0d,
    ReadResponseMiddle = 0x0e,
    ReadResponseLast = 0x0f,
    ReadResponseOnly = 0x10,
    Acknowledge = 0x11,
    AtomicAcknowledge = 0x12,
    CompareSwap = 0x13,
    FetchAdd = 0x14,
    SendLastWithInvalidate = 0x16,
    SendOnlyWithInvalidate = 0x17,
    Flush = 0x1c,
    AtomicWrite = 0x1d,
    /// Congestion notification. Not a five-bit operation: the number only keeps it apart from the others.
    Cnp = 0x81,
}

impl Operation {
    /// Starts a message of several packets.
    pub const fn is_first(self) -> bool {
        use Operation::*;
        matches!(self, SendFirst | WriteFirst | ReadResponseFirst)
    }

    /// Continues a message and does not end it.
    pub const fn is_middle(self) -> bool {
        use Operation::*;
        matches!(self, SendMiddle | WriteMiddle | ReadResponseMiddle)
    }

    /// Ends a message of several packets.
    pub const fn is_last(self) -> bool {
        use Operation::*;
        matches!(
            self,
            SendLast
                | SendLastWithImmediate
                | SendLastWithInvalidate
                | WriteLast
                | WriteLastWithImmediate
                | ReadResponseLast
        )
    }

    /// A whole message in one packet.
    pub const fn is_only(self) -> bool {
        !self.is_first() && !self.is_middle() && !self.is_last()
    }

    /// Travels from requester to responder and takes a PSN of its own.
    pub const fn is_request(self) -> bool {
        !self.is_response() && !matches!(self, Operation::Cnp)
    }

    /// Travels from responder to requester.
    pub const fn is_response(self) -> bool {
        use Operation::*;
        self.is_read_response() || matches!(self, Acknowledge | AtomicAcknowledge)
    }

    /// Part of a SEND, with or without immediate or invalidate.
    pub const fn is_send(self) -> bool {
        use Operation::*;
        matches!(
            self,
            SendFirst
                | SendMiddle
                | SendLast
                | SendLastWithImmediate
                | SendLastWithInvalidate
                | SendOnly
                | SendOnlyWithImmediate
                | SendOnlyWithInvalidate
        )
    }

    /// Part of an RDMA WRITE, with or without immediate.
    pub const fn is_write(self) -> bool {
        use Operation::*;
        matches!(
            self,
            WriteFirst
                | WriteMiddle
                | WriteLast
                | WriteLastWithImmediate
                | WriteOnly
                | WriteOnlyWithImmediate
        )
    }

    /// Part of the answer to an RDMA READ (a flush or atomic write is answered with the same operation).
    pub const fn is_read_response(self) -> bool {
        use Operation::*;
        matches!(
            self,
            ReadResponseFirst | ReadResponseMiddle | ReadResponseLast | ReadResponseOnly
        )
    }

    /// Compare and swap, or fetch and add.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Operation::CompareSwap | Operation::FetchAdd)
    }

    /// Carries four bytes of immediate data.
    pub const fn has_immediate(self) -> bool {
        use Operation::*;
        matches!(
            self,
            SendLastWithImmediate | SendOnlyWithImmediate | WriteLastWithImmediate | WriteOnlyWithImmediate
        )
    }

    /// Names a key that the responder invalidates on completion.
    pub const fn has_invalidate(self) -> bool {
        matches!(
            self,
            Operation::SendLastWithInvalidate | Operation::SendOnlyWithInvalidate
        )
    }

    /// May have bytes behind its headers.
    pub const fn carries_payload(self) -> bool {
        self.is_send()
            || self.is_write()
            || self.is_read_response()
            || matches!(self, Operation::AtomicWrite | Operation::Cnp)
    }

    /// The extension headers the operation itself needs; the service may add its own.
    pub(crate) const fn headers(self) -> HeaderSet {
        use Operation::*;
        match self {
            SendFirst | SendMiddle | SendLast | SendOnly | WriteMiddle | WriteLast | ReadResponseMiddle
            | Cnp => HeaderSet::NONE,
            SendLastWithImmediate | SendOnlyWithImmediate | WriteLastWithImmediate => HeaderSet::IMMEDIATE,
            WriteFirst | WriteOnly | ReadRequest | AtomicWrite => HeaderSet::RETH,
            WriteOnlyWithImmediate => HeaderSet::RETH.union(HeaderSet::IMMEDIATE),
            ReadResponseFirst | ReadResponseLast | ReadResponseOnly | Acknowledge => HeaderSet::AETH,
            AtomicAcknowledge => HeaderSet::AETH.union(HeaderSet::ATOMIC_ACK),
            CompareSwap | FetchAdd => HeaderSet::ATOMIC,
            SendLastWithInvalidate | SendOnlyWithInvalidate => HeaderSet::IETH,
            Flush => HeaderSet::FETH.union(HeaderSet::RETH),
        }
    }
}
