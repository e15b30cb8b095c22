//! How RoCE refuses a request: with a NAK, or with an RNR NAK because no receive is posted.

use crate::placement::Refused;
use crate::queue_pair::Misplaced;
use crate::record::RefusalReason;
use crate::verbs::memory::SgFault;
use crate::verbs::work::Status;
use nonic_wire::NakCode;

/// Why a request is not executed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// No receive is posted: the peer is asked to come again.
    NotReady,
    /// Refused for good: the NAK's code, the status with which the receive in progress, if any, completes, and why.
    Nak(NakCode, Status, RefusalReason),
}

impl Refusal {
    /// The request makes no sense here.
    pub(crate) const INVALID: Refusal = Refusal::invalid(RefusalReason::Malformed);

    /// The request is not allowed here, or not like this.
    pub(crate) const fn invalid(reason: RefusalReason) -> Self {
        Refusal::Nak(NakCode::InvalidRequest, Status::LocalQpOperation, reason)
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        let code = match refused {
            Refused::Operation | Refused::Length | Refused::Alignment => NakCode::InvalidRequest,
            Refused::Key(_) | Refused::Memory => NakCode::RemoteAccessError,
        };
        Refusal::Nak(code, Status::LocalQpOperation, refused.into())
    }
}

/// A receive that cannot take the message: the NAK for the peer, and how the receive ends. A message that is too long
/// is the sender's fault, a receive with a wrong key is ours: InfiniBand's chapter on the transport layer tells the
/// NAKs apart accordingly. The caller, which has the receive, fills in the lengths.
impl From<Misplaced> for Refusal {
    fn from(misplaced: Misplaced) -> Self {
        match misplaced {
            Misplaced::TooLong => Refusal::invalid(RefusalReason::Length),
            Misplaced::Receive(fault) => fault.into(),
        }
    }
}

impl From<SgFault> for Refusal {
    fn from(fault: SgFault) -> Self {
        match fault {
            SgFault::Length => Refusal::Nak(
                NakCode::InvalidRequest,
                Status::LocalLength,
                RefusalReason::ReceiveTooShort {
                    message: 0,
                    receive: 0,
                },
            ),
            SgFault::Protection => Refusal::Nak(
                NakCode::RemoteOperationalError,
                Status::LocalProtection,
                RefusalReason::ReceiveKey,
            ),
        }
    }
}
