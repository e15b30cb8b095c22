//! Requests for send queues, as a program plans them: what each asks for, where its bytes are, and how it should end.
//!
//! Everything here is plain data. It knows nothing of the wire: RoCE and iWARP programs post the same requests.

use super::content::{Content, Pieces};
use nonic_core::{CompletionOpcode, SendFlags, Status};

/// A request for a send queue, planned.
pub(crate) struct Op {
    pub(crate) kind: Kind,
    pub(crate) length: u32,
    pub(crate) source: Source,
    pub(crate) flags: SendFlags,
    pub(crate) expect: Expect,
    pub(crate) posted_ns: u64,
    pub(crate) outcome: Option<Status>,
    /// A WRITE whose bytes were seen in place.
    pub(crate) verified: bool,
}

impl Op {
    pub(crate) fn new(kind: Kind, length: u32, source: Source, flags: SendFlags, expect: Expect) -> Self {
        Op {
            kind,
            length,
            source,
            flags,
            expect,
            posted_ns: 0,
            outcome: None,
            verified: false,
        }
    }
}

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Send {
        immediate: Option<u32>,
    },
    /// Revokes the peer's export.
    SendInvalidate {
        export: usize,
    },
    Write {
        cell: usize,
        version: usize,
        how: Writing,
    },
    /// Has the peer flush a cell.
    Flush {
        cell: usize,
    },
    /// From the peer's pool, at this offset.
    ReadPool {
        offset: u32,
    },
    ReadCell {
        cell: usize,
        version: usize,
    },
    /// `guess` picks what a compare-and-swap compares with.
    Atomic {
        word: usize,
        change: Change,
        guess: bool,
        entry: usize,
    },
    /// Binds an own window.
    BindWindow {
        export: usize,
    },
    LocalInvalidate {
        export: usize,
    },
    Datagram {
        to: Target,
        immediate: Option<u32>,
        wrong_qkey: bool,
    },
    Bad(Bad),
}

impl Kind {
    /// What its completion is called.
    pub(crate) fn opcode(self) -> CompletionOpcode {
        match self {
            Kind::Send { .. } | Kind::SendInvalidate { .. } | Kind::Datagram { .. } => CompletionOpcode::Send,
            Kind::Write {
                how: Writing::Atomic, ..
            } => CompletionOpcode::AtomicWrite,
            Kind::Write { .. } => CompletionOpcode::Write,
            Kind::Flush { .. } => CompletionOpcode::Flush,
            Kind::BindWindow { .. } => CompletionOpcode::BindWindow,
            Kind::ReadPool { .. } | Kind::ReadCell { .. } => CompletionOpcode::Read,
            Kind::Atomic {
                change: Change::Add(_),
                ..
            } => CompletionOpcode::FetchAdd,
            Kind::Atomic { .. } => CompletionOpcode::CompareSwap,
            Kind::LocalInvalidate { .. } => CompletionOpcode::LocalInvalidate,
            Kind::Bad(bad) => match bad {
                Bad::WriteUnknownKey
                | Bad::WriteImmediateUnknownKey
                | Bad::WriteOutOfBounds
                | Bad::WriteReadOnly => CompletionOpcode::Write,
                Bad::ReadUnknownKey | Bad::ReadOutOfBounds | Bad::ReadIntoReadOnly => CompletionOpcode::Read,
                Bad::AtomicWithoutRight | Bad::AtomicUnaligned => CompletionOpcode::FetchAdd,
                Bad::SendInvalidateUnknownKey | Bad::LocalUnknownKey | Bad::LocalOutOfBounds => {
                    CompletionOpcode::Send
                }
                Bad::LocalInvalidateForbidden => CompletionOpcode::LocalInvalidate,
            },
        }
    }

    /// Whether it takes one of the peer's receives.
    pub(crate) fn is_message(self) -> bool {
        matches!(
            self,
            Kind::Send { .. }
                | Kind::SendInvalidate { .. }
                | Kind::Write {
                    how: Writing::WithImmediate(_),
                    ..
                }
                | Kind::Bad(Bad::SendInvalidateUnknownKey)
        )
    }

    /// Whether it brings bytes of the peer: its success is the peer's answer.
    pub(crate) fn is_fetch(self) -> bool {
        matches!(
            self.opcode(),
            CompletionOpcode::Read | CompletionOpcode::CompareSwap | CompletionOpcode::FetchAdd
        )
    }

    /// Whether the NIC executes it without its peer.
    pub(crate) fn is_local(self) -> bool {
        matches!(self, Kind::LocalInvalidate { .. } | Kind::BindWindow { .. })
    }
}

/// What an atomic does.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Add(u64),
    Swap { compare: u64, swap: u64 },
}

impl Change {
    pub(crate) fn apply(self, value: u64) -> u64 {
        match self {
            Change::Add(add) => value.wrapping_add(add),
            Change::Swap { compare, swap } if compare == value => swap,
            Change::Swap { .. } => value,
        }
    }
}

/// The kinds of WRITE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Writing {
    Plain,
    WithImmediate(u32),
    Atomic,
}

/// Where a datagram goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    Qp(usize),
    Group,
}

/// Requests that must fail, and touch nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bad {
    WriteUnknownKey,
    WriteImmediateUnknownKey,
    WriteOutOfBounds,
    WriteReadOnly,
    ReadUnknownKey,
    ReadOutOfBounds,
    AtomicWithoutRight,
    AtomicUnaligned,
    SendInvalidateUnknownKey,
    LocalUnknownKey,
    LocalOutOfBounds,
    ReadIntoReadOnly,
    LocalInvalidateForbidden,
}

/// How a request should end, if nothing else goes wrong before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expect {
    Success,
    /// The peer refuses it.
    Refused(Status),
    /// It fails at home.
    Local(Status),
}

/// Where the bytes of a request are, or go.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// Sent from the pool.
    Pool(Content),
    /// Sent from the pool, copied when posted.
    Inline(Content),
    /// Sent from where an earlier READ of the same queue pair puts this content.
    Fetched(Pieces, Content),
    /// Where fetched bytes go: pieces of the queue pair's arena; and what they should be.
    Target(Pieces, Content),
}

impl Source {
    pub(crate) fn content(&self) -> &Content {
        match self {
            Source::Pool(content)
            | Source::Inline(content)
            | Source::Fetched(_, content)
            | Source::Target(_, content) => content,
        }
    }
}
