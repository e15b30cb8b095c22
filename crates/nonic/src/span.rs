//! `tracing` spans: what a task waits for and how long, inside the span that the program is in.
//!
//! | name | target, level | from | until | fields |
//! |---|---|---|---|---|
//! | `request` | `nonic::request`, TRACE | an awaited request is made | its completion is delivered | `op`, `qpn`, `bytes`, `outcome` |
//! | `connect` | `nonic::cm`, DEBUG | a peer is asked | it has answered, or is given up | `peer`, `outcome` |
//!
//! Explicitly posted requests have no span: a program that polls for completions sees them anyway. Without a subscriber
//! that is interested, a span costs one relaxed load; without the feature `tracing` it is nothing.

use nonic_core::{CompletionOpcode, Qpn};
use std::fmt::Display;
use std::net::SocketAddr;

/// An open span, or nothing if no subscriber is interested.
#[derive(Debug, Default)]
pub(crate) struct Span(#[cfg(feature = "tracing")] Option<tracing::Span>);

#[cfg(feature = "tracing")]
impl Span {
    pub(crate) fn of_request(qpn: Qpn, op: CompletionOpcode, bytes: impl FnOnce() -> u64) -> Self {
        // The fields are computed only if a subscriber is interested.
        Self::if_heard(tracing::trace_span!(
            target: "nonic::request",
            "request",
            op = %op,
            qpn = %format_args!("{:#08x}", qpn.value()),
            bytes = bytes(),
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

#[cfg(not(feature = "tracing"))]
impl Span {
    pub(crate) fn of_request(_qpn: Qpn, _op: CompletionOpcode, _bytes: impl FnOnce() -> u64) -> Self {
        Span()
    }

    pub(crate) fn of_connecting(_peer: SocketAddr) -> Self {
        Span()
    }

    pub(crate) fn end(&mut self, _outcome: &dyn Display) {}
}
