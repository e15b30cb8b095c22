//! A message of the peer that is arriving, whichever transport brings it.
//!
//! It places bytes and counts them. Whether a packet or segment is the next one, and what the peer hears of a fault, is the transport's
//! to know.

use crate::direct::{LocalBytes, LocalMemory};
use crate::placement::{InboundWrite, MAX_MESSAGE};
use crate::verbs::memory::{Access, Keys, SgFault};
use crate::verbs::rq::RecvWqe;

/// The message whose packets are arriving.
#[derive(Debug, Default)]
pub(crate) enum InboundMessage {
    #[default]
    None,
    Send(InboundSend),
    Write(InboundWrite),
}

/// A message that fills a receive.
#[derive(Debug)]
pub(crate) struct InboundSend {
    pub(crate) wqe: RecvWqe,
    received: u32,
}

/// Why bytes of a message were not placed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Misplaced {
    /// No message may be so long.
    TooLong,
    /// The receive does not take them.
    Receive(SgFault),
}

impl InboundMessage {
    /// A message begins that fills this receive.
    pub(crate) fn send(wqe: RecvWqe) -> Self {
        InboundMessage::Send(InboundSend::new(wqe))
    }

    pub(crate) fn is_none(&self) -> bool {
        matches!(self, InboundMessage::None)
    }

    /// Ends the message; its receive, if it has one.
    pub(crate) fn take_send(&mut self) -> Option<InboundSend> {
        match std::mem::take(self) {
            InboundMessage::Send(inbound) => Some(inbound),
            _ => None,
        }
    }
}

impl InboundSend {
    /// Nothing of it has come.
    #[inline]
    pub(crate) fn new(wqe: RecvWqe) -> Self {
        InboundSend { wqe, received: 0 }
    }

    /// Bytes that have come.
    pub(crate) fn received(&self) -> u32 {
        self.received
    }

    /// Whether none has.
    pub(crate) fn is_untouched(&self) -> bool {
        self.received == 0
    }

    /// How long it would be with so many bytes more.
    pub(crate) fn length_with(&self, bytes: usize) -> u64 {
        u64::from(self.received) + bytes as u64
    }

    /// Where the next bytes go, if the receive takes so many more.
    pub(crate) fn room_for<'a>(&'a self, keys: &'a Keys, bytes: u32) -> Result<LocalBytes<'a>, Misplaced> {
        let length = self.length_with(bytes as usize);
        if length > u64::from(MAX_MESSAGE) {
            return Err(Misplaced::TooLong);
        }
        let target = &self.wqe.target;
        target
            .check(keys, Access::LOCAL_WRITE)
            .map_err(Misplaced::Receive)?;
        if length > target.length() {
            return Err(Misplaced::Receive(SgFault::Length));
        }
        Ok(LocalBytes {
            memory: LocalMemory::List(target, keys),
            offset: u64::from(self.received),
            length: bytes,
        })
    }

    /// So many bytes are there now.
    pub(crate) fn filled(&mut self, bytes: u32) {
        self.received += bytes;
    }

    /// Places the next bytes.
    #[inline]
    pub(crate) fn place(&mut self, keys: &Keys, payload: &[u8]) -> Result<(), Misplaced> {
        let length = self.length_with(payload.len());
        if length > u64::from(MAX_MESSAGE) {
            return Err(Misplaced::TooLong);
        }
        self.wqe
            .place(keys, self.received, payload)
            .map_err(Misplaced::Receive)?;
        self.received = length as u32;
        Ok(())
    }
}
