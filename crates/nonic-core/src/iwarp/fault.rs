//! Errors that end a stream, and the Terminate that tells the peer.

use crate::placement::Refused;
use crate::verbs::event::Event;
use crate::verbs::memory::KeyError;
use crate::verbs::work::Status;
use nonic_wire::Qpn;
use nonic_wire::iwarp::{SegmentError, Terminate, TerminateCode as Code};

/// A stream cannot go on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct StreamFault {
    /// The Terminate for the peer.
    pub(super) terminate: Terminate,
    /// The request that failed, and how; all others are flushed.
    pub(super) failed: Option<(u64, Status)>,
    /// Whether a completion reports it to the program already.
    pub(super) reported: bool,
}

impl StreamFault {
    /// The peer sent something wrong.
    pub(super) fn about(code: Code, ulpdu: &[u8]) -> Self {
        StreamFault {
            terminate: Terminate::about(code, ulpdu),
            failed: None,
            reported: false,
        }
    }

    /// It is about no segment.
    pub(super) fn local(code: Code) -> Self {
        StreamFault {
            terminate: Terminate::new(code),
            failed: None,
            reported: false,
        }
    }

    /// A request of this side failed.
    pub(super) fn request(number: u64, status: Status) -> Self {
        StreamFault {
            failed: Some((number, status)),
            reported: true,
            ..StreamFault::local(Code::RDMAP_CATASTROPHIC)
        }
    }

    /// The event that reports it to the program, unless a completion does.
    pub(super) fn event(&self, qpn: Qpn) -> Option<Event> {
        let code = self.terminate.code;
        match (code.layer, code.etype) {
            _ if self.reported => None,
            (0 | 1, 1) => Some(Event::QpAccessError(qpn)),
            (0 | 1, 2) => Some(Event::QpRequestError(qpn)),
            _ => Some(Event::QpFatal(qpn)),
        }
    }
}

/// Why a segment is not taken: the Terminate's code, and whether a completion reports it to the program already.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    pub(super) code: Code,
    pub(super) failed: Option<(u64, Status)>,
    pub(super) reported: bool,
}

impl Refusal {
    /// The same, reported by the completion of a receive.
    pub(super) fn reported(code: Code) -> Self {
        Refusal {
            reported: true,
            ..Refusal::from(code)
        }
    }

    /// About the segment it was found in.
    pub(super) fn about(self, ulpdu: &[u8]) -> StreamFault {
        StreamFault {
            terminate: Terminate::about(self.code, ulpdu),
            failed: self.failed,
            reported: self.reported,
        }
    }
}

impl From<Code> for Refusal {
    fn from(code: Code) -> Self {
        Refusal {
            code,
            failed: None,
            reported: false,
        }
    }
}

impl From<SegmentError> for Refusal {
    fn from(error: SegmentError) -> Self {
        Refusal::from(error.terminate_code())
    }
}

/// How DDP refuses tagged segments. It has no code for rights: a key that does not permit writing is as good as none.
pub(super) fn tagged(refused: Refused) -> Code {
    match refused {
        Refused::Key(KeyError::Bounds) | Refused::Length => Code::DDP_TAGGED_BOUNDS,
        Refused::Key(KeyError::Domain) => Code::DDP_TAGGED_STAG_OF_OTHER_STREAM,
        Refused::Memory => Code::DDP_CATASTROPHIC,
        _ => Code::DDP_TAGGED_INVALID_STAG,
    }
}

/// How RDMAP refuses what a peer reads, changes by an atomic or invalidates.
pub(super) fn protection(refused: Refused) -> Code {
    match refused {
        Refused::Key(KeyError::Bounds) | Refused::Length => Code::RDMAP_BOUNDS,
        Refused::Key(KeyError::Domain) => Code::RDMAP_STAG_OF_OTHER_STREAM,
        Refused::Key(KeyError::Rights) | Refused::Operation => Code::RDMAP_ACCESS_RIGHTS,
        Refused::Key(KeyError::NotInvalidatable) => Code::RDMAP_PROTECTION_CANNOT_INVALIDATE,
        Refused::Alignment => Code::RDMAP_STREAM_CATASTROPHIC,
        Refused::Memory => Code::RDMAP_CATASTROPHIC,
        Refused::Key(_) => Code::RDMAP_INVALID_STAG,
    }
}

/// The status of a request that the peer complains about.
pub(super) fn status(code: Code) -> Status {
    match (code.layer, code.etype) {
        (0 | 1, 1) => Status::RemoteAccess,
        _ => Status::RemoteOperation,
    }
}
