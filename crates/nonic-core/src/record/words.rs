//! Events of a queue pair as phrases, as logs, `nonic show` and explanations print them. What led to an event and what to
//! try next is not said here, but in `nonic-explain`.

use super::{LocalFault, QpEvent, StreamLoss};
use crate::verbs::memory::KeyError;
use std::fmt;

impl fmt::Display for QpEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QpEvent::Moved(state) => write!(f, "went to {state}"),
            QpEvent::NoReceive => f.write_str("a message found no receive; the peer is to come again"),
            QpEvent::PeerNotReady { retries_left: None } => f.write_str("the peer has no receive"),
            QpEvent::PeerNotReady {
                retries_left: Some(left),
            } => write!(f, "the peer has no receive; {left} retries left"),
            QpEvent::PeerMissesPacket(psn) => {
                write!(f, "the peer misses packet {}: sent again from there", psn.value())
            }
            QpEvent::PeerExpectsOther {
                expected: Some(expected),
                first,
            } => write!(
                f,
                "the peer expects packet {}, the first one sent was {}",
                expected.value(),
                first.value()
            ),
            QpEvent::PeerExpectsOther {
                expected: None,
                first,
            } => write!(
                f,
                "the peer expects another packet than {}, the first one sent",
                first.value()
            ),
            QpEvent::Silence => f.write_str("no answer for longer than usual: sending again"),
            QpEvent::TimedOut { retries_left, .. } => {
                write!(f, "no answer within the timeout; {retries_left} retries left")
            }
            QpEvent::PeerRefused(code) => write!(f, "the peer refused a request: {code:?}"),
            QpEvent::PeerGone => f.write_str("the peer's queue pair was destroyed"),
            QpEvent::PeerTerminated(code) => write!(f, "the peer ended the stream: {code}"),
            QpEvent::Terminated(code) => write!(f, "ended the stream: {code}"),
            QpEvent::StreamLost(StreamLoss::PeerClosed) => f.write_str("the peer closed the connection"),
            QpEvent::StreamLost(StreamLoss::Broken) => f.write_str("the TCP connection broke"),
            QpEvent::StreamLost(StreamLoss::NotReady) => {
                f.write_str("the peer did not send the first message that it had promised")
            }
            QpEvent::Refused(refused) => {
                write!(f, "refused the peer's {}: {:?}", refused.kind, refused.reason)
            }
            QpEvent::Dropped(kind, reason) => write!(f, "dropped the peer's {kind}: {reason:?}"),
            QpEvent::LocalFault(fault) => fault.fmt(f),
            QpEvent::Failed(failed) => {
                write!(f, "{} {} failed: {}", failed.opcode, failed.wr_id, failed.status)
            }
            QpEvent::QueueOverflow => f.write_str("the completion queue overflowed"),
            QpEvent::DeviceFailed => f.write_str("the device failed"),
        }
    }
}

/// What is wrong with the key.
impl fmt::Display for LocalFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lkey = self.lkey;
        match (self.error, &self.key) {
            (KeyError::Unknown, _) => write!(f, "there is no key {lkey:#x} here"),
            (KeyError::Revoked, _) => write!(f, "the key {lkey:#x} was valid and has been revoked"),
            (KeyError::Domain, _) => {
                write!(
                    f,
                    "the key {lkey:#x} belongs to another protection domain than the queue pair"
                )
            }
            (KeyError::Rights, Some(key)) => write!(
                f,
                "the key {lkey:#x} does not permit the local NIC to do that; it permits {:?}",
                key.access
            ),
            (KeyError::Bounds, Some(key)) => write!(
                f,
                "{} bytes at {:#x} are out of bounds of the key {lkey:#x}, which covers {} bytes from {:#x}",
                self.length, self.addr, key.length, key.iova
            ),
            (error, _) => write!(f, "the key {lkey:#x}: {error}"),
        }
    }
}
