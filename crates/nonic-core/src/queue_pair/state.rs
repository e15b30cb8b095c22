//! The queue pair state machine, as one table.
//!
//! A row says: from this state to that one, a queue pair of this service needs these attributes and may be
//! given those besides. Everything else is refused, and the refusal names the attributes at fault. Any
//! state may go to RESET or to ERR without attributes.

use super::mask::AttributeMask as Mask;
use nonic_wire::Service;
use std::fmt;

/// The state of a queue pair. Values are those of `ibv_qp_state`.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum QpState {
    /// Just created; nothing can be posted.
    #[default]
    Reset = 0,
    /// Receives can be posted.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send: all of it works.
    Rts = 3,
    /// The send queue is draining or drained; receiving goes on.
    Sqd = 4,
    /// The send queue failed; receiving goes on (UC and UD).
    Sqe = 5,
    /// In error: everything is flushed.
    Error = 6,
}

impl QpState {
    /// Every state.
    pub const ALL: [QpState; 7] = [
        QpState::Reset,
        QpState::Init,
        QpState::Rtr,
        QpState::Rts,
        QpState::Sqd,
        QpState::Sqe,
        QpState::Error,
    ];

    /// Whether packets from peers are taken.
    pub(crate) fn receives(self) -> bool {
        matches!(self, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe)
    }

    /// Whether responses to our own requests still matter.
    pub(crate) fn requests(self) -> bool {
        matches!(self, QpState::Rts | QpState::Sqd)
    }
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QpState::Reset => "RESET",
            QpState::Init => "INIT",
            QpState::Rtr => "RTR",
            QpState::Rts => "RTS",
            QpState::Sqd => "SQD",
            QpState::Sqe => "SQE",
            QpState::Error => "ERR",
        })
    }
}

/// What a transition asks for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Transition {
    /// Attributes that must be given.
    pub required: Mask,
    /// Attributes that may be given besides.
    pub optional: Mask,
}

/// Why `modify` was refused.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ModifyError {
    /// There is no such transition.
    #[error("a {service:?} queue pair cannot go from {from} to {to}")]
    NoTransition {
        /// The service.
        service: Service,
        /// Where it is.
        from: QpState,
        /// Where it was asked to go.
        to: QpState,
    },
    /// Attributes are missing.
    #[error("{from} to {to} also needs {missing}")]
    Missing {
        /// Where it is.
        from: QpState,
        /// Where it was asked to go.
        to: QpState,
        /// What was not given.
        missing: Named,
    },
    /// Attributes were given that this transition does not take.
    #[error("{from} to {to} does not take {forbidden}")]
    Forbidden {
        /// Where it is.
        from: QpState,
        /// Where it was asked to go.
        to: QpState,
        /// What should not have been given.
        forbidden: Named,
    },
    /// A value is out of range.
    #[error("the value given for {0} is out of range")]
    Invalid(Named),
    /// No such queue pair.
    #[error("no such queue pair")]
    NoSuchQp,
}

/// A mask that prints as the names of its attributes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Named(pub Mask);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = self.0.iter_names().map(|(name, _)| name);
        f.write_str(names.next().unwrap_or("nothing"))?;
        names.try_for_each(|name| write!(f, ", {name}"))
    }
}

/// Looks the transition up.
pub fn transition(service: Service, from: QpState, to: QpState) -> Option<Transition> {
    if matches!(to, QpState::Reset | QpState::Error) {
        return Some(Transition {
            required: Mask::STATE,
            optional: Mask::empty(),
        });
    }
    let (required, mut optional) = match service {
        Service::Rc => reliable(from, to),
        Service::Xrc => extended(from, to),
        Service::Uc => unreliable(from, to),
        Service::Ud => datagram(from, to),
        _ => None,
    }?;
    if to == QpState::Rts {
        optional |= Mask::RATE_LIMIT;
    }
    // Naming the state one is in is allowed everywhere; moving requires it.
    let (required, optional) = if from == to {
        (required, optional | Mask::STATE)
    } else {
        (required | Mask::STATE, optional)
    };
    Some(Transition { required, optional })
}

/// Checks a `modify` from `from` that gives `given`; returns the state it leads to.
pub(crate) fn check(
    service: Service,
    from: QpState,
    to: Option<QpState>,
    given: Mask,
) -> Result<QpState, ModifyError> {
    let to = to.unwrap_or(from);
    let transition = transition(service, from, to).ok_or(ModifyError::NoTransition { service, from, to })?;
    let missing = transition.required - given;
    if !missing.is_empty() {
        return Err(ModifyError::Missing {
            from,
            to,
            missing: Named(missing),
        });
    }
    let forbidden = given - transition.required - transition.optional;
    if !forbidden.is_empty() {
        return Err(ModifyError::Forbidden {
            from,
            to,
            forbidden: Named(forbidden),
        });
    }
    Ok(to)
}

type Row = Option<(Mask, Mask)>;

const INIT_BASE: Mask = Mask::PKEY_INDEX.union(Mask::PORT);
const CONNECT: Mask = Mask::PATH
    .union(Mask::PATH_MTU)
    .union(Mask::DEST_QPN)
    .union(Mask::RQ_PSN);

fn reliable(from: QpState, to: QpState) -> Row {
    use QpState::{Init, Reset, Rtr, Rts, Sqd};
    let tune = Mask::ACCESS_FLAGS | Mask::MIN_RNR_TIMER;
    let requester = Mask::TIMEOUT | Mask::RETRY_CNT | Mask::RNR_RETRY | Mask::SQ_PSN | Mask::MAX_RD_ATOMIC;
    Some(match (from, to) {
        (Reset, Init) => (INIT_BASE | Mask::ACCESS_FLAGS, Mask::empty()),
        (Init, Init) => (Mask::empty(), INIT_BASE | Mask::ACCESS_FLAGS),
        (Init, Rtr) => (
            CONNECT | Mask::MAX_DEST_RD_ATOMIC | Mask::MIN_RNR_TIMER,
            Mask::ACCESS_FLAGS | Mask::PKEY_INDEX,
        ),
        (Rtr, Rts) => (requester, tune),
        (Rts, Rts) => (Mask::empty(), tune),
        (Rts, Sqd) => (Mask::empty(), Mask::empty()),
        (Sqd, Rts) => (Mask::empty(), tune),
        (Sqd, Sqd) => (
            Mask::empty(),
            tune | Mask::PATH
                | Mask::TIMEOUT
                | Mask::RETRY_CNT
                | Mask::RNR_RETRY
                | Mask::MAX_RD_ATOMIC
                | Mask::MAX_DEST_RD_ATOMIC
                | Mask::PKEY_INDEX
                | Mask::PORT,
        ),
        _ => return None,
    })
}

/// As [`reliable`], but what only one of the two halves has any use for may be left out.
fn extended(from: QpState, to: QpState) -> Row {
    let (required, optional) = reliable(from, to)?;
    let dispensable = match (from, to) {
        (QpState::Init, QpState::Rtr) => Mask::MAX_DEST_RD_ATOMIC | Mask::MIN_RNR_TIMER,
        (QpState::Rtr, QpState::Rts) => Mask::RETRY_CNT | Mask::RNR_RETRY | Mask::MAX_RD_ATOMIC,
        _ => Mask::empty(),
    };
    Some((required - dispensable, optional | (required & dispensable)))
}

fn unreliable(from: QpState, to: QpState) -> Row {
    use QpState::{Init, Reset, Rtr, Rts, Sqd, Sqe};
    Some(match (from, to) {
        (Reset, Init) => (INIT_BASE | Mask::ACCESS_FLAGS, Mask::empty()),
        (Init, Init) => (Mask::empty(), INIT_BASE | Mask::ACCESS_FLAGS),
        (Init, Rtr) => (CONNECT, Mask::ACCESS_FLAGS | Mask::PKEY_INDEX),
        (Rtr, Rts) => (Mask::SQ_PSN, Mask::ACCESS_FLAGS),
        (Rts, Rts) | (Sqd, Rts) | (Sqe, Rts) => (Mask::empty(), Mask::ACCESS_FLAGS),
        (Rts, Sqd) => (Mask::empty(), Mask::empty()),
        (Sqd, Sqd) => (Mask::empty(), Mask::PATH | Mask::ACCESS_FLAGS | Mask::PKEY_INDEX),
        _ => return None,
    })
}

fn datagram(from: QpState, to: QpState) -> Row {
    use QpState::{Init, Reset, Rtr, Rts, Sqd, Sqe};
    Some(match (from, to) {
        (Reset, Init) => (INIT_BASE | Mask::QKEY, Mask::empty()),
        (Init, Init) => (Mask::empty(), INIT_BASE | Mask::QKEY),
        (Init, Rtr) => (Mask::empty(), Mask::PKEY_INDEX | Mask::QKEY),
        (Rtr, Rts) => (Mask::SQ_PSN, Mask::QKEY),
        (Rts, Rts) | (Sqd, Rts) | (Sqe, Rts) => (Mask::empty(), Mask::QKEY),
        (Rts, Sqd) => (Mask::empty(), Mask::empty()),
        (Sqd, Sqd) => (Mask::empty(), Mask::PKEY_INDEX | Mask::QKEY),
        _ => return None,
    })
}
