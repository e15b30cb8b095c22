//! What remains of a reliable connection whose queue pair was destroyed: the answers its peer still gets.
//!
//! - Requests that had been executed are acknowledged, as a duplicate always is. Nothing is acknowledged that was not
//!   executed.
//! - All others end soon: a NAK with [`Bth::SELECTIVE`] says that the queue pair is gone. The request then completes
//!   with the status that silence would have led to, so programs see nothing new, but after [`GRACE`] at most.
//! - The same NAK can be sent unasked, as a farewell, when the queue pair is destroyed: the program may close its
//!   device next, and then no process is left to answer.

use crate::roce::emit::Hop;
use crate::time::Time;
use nonic_wire::{Aeth, Bth, Headers, NakCode, Operation, Packet, Psn, Service, Syndrome};
use std::time::Duration;

/// The NAK code that says that the queue pair is gone, if the header has [`Bth::SELECTIVE`].
pub(crate) const GONE: NakCode = NakCode::RemoteOperationalError;

/// A request that will never be answered fails after this time, or when its retries would have run out. Some programs
/// exit while their peers still have requests under way that no program needs (`ibv_srq_pingpong`): they count on the
/// peer being gone too before those fail, and with the usual timeout they have half a second.
pub(crate) const GRACE: Duration = Duration::from_millis(500);

/// What is left of a destroyed queue pair.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Departure {
    /// The way to the peer.
    pub(crate) hop: Hop,
    pub(crate) service: Service,
    /// An acknowledgement to the peer: everything before its PSN was executed, and so many messages.
    pub(crate) bth: Bth,
    pub(crate) msn: u32,
    /// Whether the peer was seen to run nonic: only then is it bidden farewell.
    pub(crate) kin: bool,
    /// When it was last answered.
    pub(crate) answered_at: Option<Time>,
}

impl Departure {
    /// The answer to a request of the peer.
    pub(crate) fn answer(&self, packet: &Packet<'_>) -> Option<Headers> {
        let bth = &packet.headers.bth;
        let operation = bth.opcode.operation();
        let expected = self.bth.psn;
        let executed = bth.psn.distance_from(expected) < 0;
        let placed = operation.is_send() || operation.is_write();
        let (psn, syndrome, resv7) = match (executed, placed) {
            (true, true) => (expected.prev(), Syndrome::ack(), 0),
            // Its answer is lost, and cannot be given again.
            (true, false) => (bth.psn, Syndrome::nak(GONE), Bth::SELECTIVE),
            (false, _) => (expected, Syndrome::nak(GONE), Bth::SELECTIVE),
        };
        is_request(operation).then(|| self.headers(psn, syndrome, resv7))
    }

    /// The answer sent unasked: everything before this PSN was executed, and nothing else will be.
    pub(crate) fn farewell(&self) -> Headers {
        self.headers(self.bth.psn, Syndrome::nak(GONE), Bth::SELECTIVE)
    }

    fn headers(&self, psn: Psn, syndrome: Syndrome, resv7: u8) -> Headers {
        let mut headers = Headers::new(self.bth);
        (headers.bth.psn, headers.bth.resv7) = (psn, resv7);
        headers.aeth = Aeth {
            syndrome,
            msn: self.msn,
        };
        headers
    }
}

fn is_request(operation: Operation) -> bool {
    operation.is_send()
        || operation.is_write()
        || matches!(
            operation,
            Operation::ReadRequest
                | Operation::CompareSwap
                | Operation::FetchAdd
                | Operation::AtomicWrite
                | Operation::Flush
        )
}
