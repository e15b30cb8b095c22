//! How RoCE says that a request is not executed: a NAK, or that no receive is posted.

use crate::placement::Refused;
use crate::verbs::memory::SgFault;
use crate::verbs::work::Status;
use nonic_wire::NakCode;

/// Why a request is not executed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// No receive is posted: come again.
    NotReady,
    /// Never. With what the receive in progress, if any, completes.
    Nak(NakCode, Status),
}

impl Refusal {
    /// The request makes no sense here.
    pub(crate) const INVALID: Refusal = Refusal::Nak(NakCode::InvalidRequest, Status::LocalQpOperation);
    /// The peer may not do that to this memory.
    pub(crate) const ACCESS: Refusal = Refusal::Nak(NakCode::RemoteAccessError, Status::LocalQpOperation);
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Operation | Refused::Length | Refused::Alignment => Refusal::INVALID,
            Refused::Key(_) | Refused::Memory => Refusal::ACCESS,
        }
    }
}

/// A receive that cannot take the message: what the peer hears, and how the receive ends. A message that is too long is
/// the sender's fault, a receive with a wrong key is ours: InfiniBand's chapter on the transport layer tells the NAKs
/// apart accordingly.
impl From<SgFault> for Refusal {
    fn from(fault: SgFault) -> Self {
        match fault {
            SgFault::Length => Refusal::Nak(NakCode::InvalidRequest, Status::LocalLength),
            SgFault::Protection => Refusal::Nak(NakCode::RemoteOperationalError, Status::LocalProtection),
        }
    }
}
