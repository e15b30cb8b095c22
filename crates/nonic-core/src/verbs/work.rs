//! Work requests as they are posted, and completions as they are polled.
//!
//! These are the program-facing values. [`crate::verbs::wqe`] holds a request while the NIC works on it.

use crate::verbs::memory::{SgFault, Sge, WindowBind};
use bitflags::bitflags;
use nonic_wire::Qpn;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

/// A span of the peer's memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct RemoteAddress {
    /// Address of the first byte, in the rkey's address space.
    pub va: u64,
    /// The key the peer gave out.
    pub rkey: u32,
}

/// What a send-queue work request asks for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum SendOp {
    /// A message into the peer's next receive.
    Send,
    /// The same, with 32 bits for the peer's completion.
    SendWithImmediate(u32),
    /// The same, revoking one of the peer's keys on arrival.
    SendWithInvalidate(u32),
    /// Bytes into the peer's memory.
    Write(RemoteAddress),
    /// The same, consuming a receive to deliver 32 bits.
    WriteWithImmediate(RemoteAddress, u32),
    /// Bytes from the peer's memory.
    Read(RemoteAddress),
    /// Replace the peer's 8-byte word by `swap` if it equals `compare`; the old value lands locally.
    CompareSwap {
        /// The word.
        remote: RemoteAddress,
        /// What it must equal.
        compare: u64,
        /// What replaces it.
        swap: u64,
    },
    /// Add to the peer's 8-byte word; the old value lands locally.
    FetchAdd {
        /// The word.
        remote: RemoteAddress,
        /// What to add.
        add: u64,
    },
    /// Replace the peer's 8-byte word by the request's 8 bytes, so that no reader sees half of them.
    AtomicWrite(RemoteAddress),
    /// Have the peer make sure that what was written to its memory before has the effect asked for.
    Flush(Flush),
    /// Revoke a local key, in order with the other requests.
    LocalInvalidate(u32),
    /// Bind a memory window, in order with the other requests.
    BindWindow(WindowBind),
}

impl SendOp {
    /// Operations that concern this NIC alone.
    pub fn is_local(self) -> bool {
        matches!(self, SendOp::LocalInvalidate(_) | SendOp::BindWindow(_))
    }

    /// Operations that take a receive of the peer's for their bytes.
    pub(crate) fn is_send(self) -> bool {
        matches!(
            self,
            SendOp::Send | SendOp::SendWithImmediate(_) | SendOp::SendWithInvalidate(_)
        )
    }

    /// Operations that the peer answers each on its own: the number of those under way is limited.
    pub(crate) fn is_answered(self) -> bool {
        self.fetches() || matches!(self, SendOp::AtomicWrite(_) | SendOp::Flush(_))
    }

    /// READ and atomics: operations whose answer carries data.
    pub fn fetches(self) -> bool {
        matches!(self, SendOp::Read(_)) || self.is_atomic()
    }

    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. })
    }

    /// What its completion says that it was.
    pub fn completion_opcode(self) -> CompletionOpcode {
        match self {
            SendOp::Send | SendOp::SendWithImmediate(_) | SendOp::SendWithInvalidate(_) => {
                CompletionOpcode::Send
            }
            SendOp::Write(_) | SendOp::WriteWithImmediate(..) => CompletionOpcode::Write,
            SendOp::Read(_) => CompletionOpcode::Read,
            SendOp::CompareSwap { .. } => CompletionOpcode::CompareSwap,
            SendOp::FetchAdd { .. } => CompletionOpcode::FetchAdd,
            SendOp::AtomicWrite(_) => CompletionOpcode::AtomicWrite,
            SendOp::Flush(_) => CompletionOpcode::Flush,
            SendOp::LocalInvalidate(_) => CompletionOpcode::LocalInvalidate,
            SendOp::BindWindow(_) => CompletionOpcode::BindWindow,
        }
    }
}

/// What to flush, and what for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Flush {
    /// Where the range begins; with [`FlushRange::WholeKey`] only the key counts.
    pub remote: RemoteAddress,
    /// How many bytes.
    pub length: u32,
    /// What the flush is to achieve: at least one effect.
    pub placement: Placement,
    /// How much is flushed.
    pub range: FlushRange,
}

/// How much a FLUSH is about. Values are those on the wire.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum FlushRange {
    /// The range that is named.
    Named = 0,
    /// All that the key covers.
    WholeKey = 1,
}

bitflags! {
    /// What a FLUSH is to achieve. Bit values are those on the wire.
    #[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
    pub struct Placement: u8 {
        /// All observers see what was written.
        const GLOBAL = 1;
        /// What was written survives a loss of power.
        const PERSISTENT = 1 << 1;
    }
}

bitflags! {
    /// Modifiers of a send-queue work request. Bit values are those of `ibv_send_flags`.
    #[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
    pub struct SendFlags: u32 {
        /// Wait until earlier READs and atomics are complete.
        const FENCE = 1;
        /// Ask for a completion on success (failure always completes).
        const SIGNALED = 1 << 1;
        /// Wake a peer that armed for solicited completions only.
        const SOLICITED = 1 << 2;
    }
}

/// Where the bytes of a request are.
#[derive(Copy, Clone, Debug)]
pub enum Data<'a> {
    /// In registered memory; fetched or filled later.
    Sges(&'a [Sge]),
    /// Here; copied while posting.
    Inline(&'a [u8]),
}

impl Data<'_> {
    /// How many bytes.
    #[inline]
    pub fn length(&self) -> u64 {
        match self {
            Data::Sges([sge]) => u64::from(sge.length),
            Data::Sges(sges) => sges.iter().map(|sge| u64::from(sge.length)).sum(),
            Data::Inline(bytes) => bytes.len() as u64,
        }
    }
}

/// A datagram's destination: what an address handle and the request say together. For XRC, the SRQ a request
/// is for: see [`Destination::srq`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Destination {
    /// Which of the NIC's own addresses to send from: an index in its GID table.
    pub gid_index: u8,
    /// The peer's address, or a multicast group.
    pub ip: IpAddr,
    /// The peer's queue pair; [`Qpn::MULTICAST`] for a group.
    pub qpn: Qpn,
    /// The key the peer's queue pair expects. With the bit [`Destination::OWN_QKEY`], the sending queue pair's own is sent
    /// instead, whatever the rest says.
    pub qkey: u32,
}

impl Destination {
    /// The bit of a Q_Key that stands for the sending queue pair's own.
    pub const OWN_QKEY: u32 = 1 << 31;

    /// The destination of an XRC request: a shared receive queue at the connected peer, by its number. Only
    /// the number counts, which stands where a datagram's queue pair does.
    pub fn srq(number: u32) -> Self {
        Destination {
            gid_index: 0,
            ip: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            qpn: Qpn::new(number),
            qkey: 0,
        }
    }
}

/// A work request for the send queue.
#[derive(Copy, Clone, Debug)]
pub struct SendRequest<'a> {
    /// The program's own number for it, returned in its completion.
    pub wr_id: u64,
    /// The operation.
    pub op: SendOp,
    /// Its bytes.
    pub data: Data<'a>,
    /// Modifiers.
    pub flags: SendFlags,
    /// The destination; only for datagram and XRC queue pairs.
    pub destination: Option<Destination>,
}

/// A work request for a receive queue.
#[derive(Copy, Clone, Debug)]
pub struct RecvRequest<'a> {
    /// The program's own number for it.
    pub wr_id: u64,
    /// Where the message goes.
    pub sges: &'a [Sge],
}

/// How a work request ended. Values are those of `ibv_wc_status`.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[repr(u8)]
#[non_exhaustive]
pub enum Status {
    /// As asked.
    #[error("success")]
    Success = 0,
    /// The message does not fit the receive, or is too long for the service.
    #[error("local length error: the message does not fit the posted buffer")]
    LocalLength = 1,
    /// The queue pair is in no state for it.
    #[error("local queue pair operation error")]
    LocalQpOperation = 2,
    /// A local key does not permit the access.
    #[error("local protection error: an lkey does not cover or permit the access")]
    LocalProtection = 4,
    /// The queue pair was, or went, in the error state before this request's turn.
    #[error("flushed: the queue pair is in the error state")]
    Flushed = 5,
    /// A memory window could not be bound as asked.
    #[error("memory window bind error")]
    WindowBind = 6,
    /// The peer's answer makes no sense.
    #[error("bad response from the peer")]
    BadResponse = 7,
    /// The peer found the request malformed or not allowed.
    #[error("remote invalid request")]
    RemoteInvalidRequest = 9,
    /// The peer's key does not permit the access.
    #[error("remote access error: the rkey does not cover or permit the access")]
    RemoteAccess = 10,
    /// The peer could not carry it out.
    #[error("remote operation error")]
    RemoteOperation = 11,
    /// The peer did not answer.
    #[error("transport retries exhausted: the peer does not answer")]
    RetryExceeded = 12,
    /// The peer never had a receive ready.
    #[error("receiver-not-ready retries exhausted: the peer posted no receive")]
    RnrRetryExceeded = 13,
}

/// How a request ends whose bytes could not be copied.
impl From<SgFault> for Status {
    fn from(fault: SgFault) -> Self {
        match fault {
            SgFault::Protection => Status::LocalProtection,
            SgFault::Length => Status::LocalLength,
        }
    }
}

/// What completed. Values are those of `ibv_wc_opcode`.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum CompletionOpcode {
    /// A SEND of any kind.
    Send = 0,
    /// An RDMA WRITE.
    Write = 1,
    /// An RDMA READ.
    Read = 2,
    /// A compare-and-swap.
    CompareSwap = 3,
    /// A fetch-and-add.
    FetchAdd = 4,
    /// A memory window's binding.
    BindWindow = 5,
    /// A LOCAL_INV.
    LocalInvalidate = 6,
    /// A FLUSH.
    Flush = 8,
    /// An ATOMIC_WRITE.
    AtomicWrite = 9,
    /// A receive, by a SEND.
    Recv = 128,
    /// A receive, by a WRITE_WITH_IMM.
    RecvWriteWithImmediate = 129,
}

/// As the specification calls it: `WRITE`, `compare-and-swap`.
impl fmt::Display for CompletionOpcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CompletionOpcode::Send => "SEND",
            CompletionOpcode::Write => "WRITE",
            CompletionOpcode::Read => "READ",
            CompletionOpcode::CompareSwap => "compare-and-swap",
            CompletionOpcode::FetchAdd => "fetch-and-add",
            CompletionOpcode::BindWindow => "binding of a memory window",
            CompletionOpcode::LocalInvalidate => "LOCAL_INV",
            CompletionOpcode::Flush => "FLUSH",
            CompletionOpcode::AtomicWrite => "ATOMIC_WRITE",
            CompletionOpcode::Recv | CompletionOpcode::RecvWriteWithImmediate => "receive",
        })
    }
}

/// The one completion of a work request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The request's `wr_id`.
    pub wr_id: u64,
    /// How it ended.
    pub status: Status,
    /// What it was.
    pub opcode: CompletionOpcode,
    /// Bytes received or fetched (with [`Completion::grh`], including its 40 bytes).
    pub byte_len: u32,
    /// The peer's immediate data.
    pub immediate: Option<u32>,
    /// The local key the peer's SEND_WITH_INV revoked.
    pub invalidated_rkey: Option<u32>,
    /// The queue pair it belongs to.
    pub qpn: Qpn,
    /// The sender's queue pair; only for datagrams.
    pub src_qp: Qpn,
    /// Whether the buffer's first 40 bytes hold the network header; only for datagrams.
    pub grh: bool,
    /// Whether that header is IPv4's, in its last 20 bytes.
    pub ipv4: bool,
}
