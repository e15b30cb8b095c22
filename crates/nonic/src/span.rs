//! Spans of `tracing`: what a task waits for, with its time, inside whatever span the program is in.
//!
//! | name | target, level | from | until | fields |
//! |---|---|---|---|---|
//! | `request` | `nonic::request`, TRACE | an awaited request is made | its completion is delivered | `op`, `qpn`, `bytes`, `outcome` |
//! | `connect` | `nonic::cm`, DEBUG | a peer is asked | it has answered, or is given up | `peer`, `outcome` |
//!
//! Requests of the explicit form have none: whoever polls for completions need not be told of them. Where nobody listens a span costs one
//! relaxed load; without the feature `tracing` it is nothing.

use crate::memory::Buffers;
use crate::outstanding::Work;
use nonic_core::Qpn;
use std::fmt::Display;
use std::net::SocketAddr;

/// A span that is open, unless nobody listens.
#[derive(Debug, Default)]
pub(crate) struct Span(#[cfg(feature = "tracing")] Option<tracing::Span>);

#[cfg(feature = "tracing")]
impl Span {
    pub(crate) fn of_request(qpn: Qpn, work: &Work, buffers: &Buffers) -> Self {
        // What the fields are is worked out only if somebody listens.
        Self::if_heard(tracing::trace_span!(
            target: "nonic::request",
            "request",
            op = %opcode(work),
            qpn = %format_args!("{:#08x}", qpn.value()),
            bytes = buffers.bytes() + inline_bytes(work),
            outcome = tracing::field::Empty,
        ))
    }

    pub(crate) fn of_connecting(peer: SocketAddr) -> Self {
        Self::if_heard(tracing::debug_span!(
            target: "nonic::cm",
            "connect",
            peer = %peer,
            outcome = tracing::field::Empty,
        ))
    }

    fn if_heard(span: tracing::Span) -> Self {
        Span((!span.is_disabled()).then_some(span))
    }

    /// It ends here, like this.
    pub(crate) fn end(&mut self, outcome: &dyn Display) {
        if let Some(span) = self.0.take() {
            span.record("outcome", tracing::field::display(outcome));
        }
    }
}

/// What the completion will say that it was.
#[cfg(feature = "tracing")]
fn opcode(work: &Work) -> nonic_core::CompletionOpcode {
    match work {
        Work::Send { op, .. } => op.completion_opcode(),
        Work::Receive => nonic_core::CompletionOpcode::Recv,
    }
}

/// How many bytes are sent that are not in buffers.
#[cfg(feature = "tracing")]
fn inline_bytes(work: &Work) -> u64 {
    match work {
        Work::Send { inline, .. } => inline.as_ref().map_or(0, |bytes| bytes.len() as u64),
        Work::Receive => 0,
    }
}

#[cfg(not(feature = "tracing"))]
impl Span {
    pub(crate) fn of_request(_qpn: Qpn, _work: &Work, _buffers: &Buffers) -> Self {
        Span()
    }

    pub(crate) fn of_connecting(_peer: SocketAddr) -> Self {
        Span()
    }

    pub(crate) fn end(&mut self, _outcome: &dyn Display) {}
}
