//! Negotiation of READ depths, and of the initiator's ready message (RFC 6581 §9).

use super::StartupConfig;
use crate::iwarp::params::Rtr;
use nonic_wire::iwarp::{self as wire, Enhanced};

/// READs and atomics that one side answers (`ird`) and has under way (`ord`) at a time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Depths {
    pub(super) ird: u16,
    pub(super) ord: u16,
}

impl Depths {
    /// What a program asks for, within what there is.
    pub(super) fn limited(ird: u16, ord: u16, config: &StartupConfig) -> Self {
        Depths {
            ird: ird.min(config.max_ird),
            ord: ord.min(config.max_ord),
        }
    }

    /// A responder's depths for the Request of a peer, and what its Reply says about them.
    pub(super) fn answer(self, asked: &Enhanced, config: &StartupConfig) -> (Self, Enhanced) {
        let mut reply = Enhanced::default();
        let ord = if asked.ird == Enhanced::NOT_NEGOTIATED {
            reply.ord = Enhanced::NOT_NEGOTIATED;
            self.ord
        } else {
            reply.ord = self.ord.min(asked.ird);
            reply.ord
        };
        let ird = if asked.ord == Enhanced::NOT_NEGOTIATED {
            reply.ird = Enhanced::NOT_NEGOTIATED;
            self.ird
        } else {
            // As many as the peer wants, within what there is: it has to lower its wish to what the Reply says.
            reply.ird = self.ird.max(asked.ord.min(config.max_ird));
            reply.ird
        };
        (Depths { ird, ord }, reply)
    }

    /// An initiator's depths after the Reply; `None` if the peer wants more than there is.
    pub(super) fn settle(self, reply: &Enhanced, config: &StartupConfig) -> Option<Self> {
        let ord = match reply.ird {
            Enhanced::NOT_NEGOTIATED => self.ord,
            ird => self.ord.min(ird),
        };
        let ird = match reply.ord {
            Enhanced::NOT_NEGOTIATED => self.ird,
            ord if ord > self.ird.max(config.max_ird) => return None,
            ord => self.ird.max(ord),
        };
        Some(Depths { ird, ord })
    }
}

/// The ready messages that this side can send.
pub(super) const OFFERED: wire::Rtr = wire::Rtr {
    send: false,
    write: true,
    read: true,
};

/// The one that a responder chooses: a WRITE if it can, which costs the peer nothing. Exactly one, because some hardware takes two
/// for a mismatch. If it was offered none that it knows, it names one all the same (RFC 6581 §9.2), and the initiator gives up.
pub(super) fn choose(offered: wire::Rtr) -> Rtr {
    match offered {
        wire::Rtr {
            write: false,
            read: true,
            ..
        } => Rtr::Read,
        _ => Rtr::Write,
    }
}

/// The one that an initiator sends; `None` if the responder wants one that it does not have.
pub(super) fn chosen(reply: wire::Rtr) -> Option<Rtr> {
    match reply {
        wire::Rtr { write: true, .. } => Some(Rtr::Write),
        wire::Rtr { read: true, .. } => Some(Rtr::Read),
        _ => None,
    }
}

/// How a choice is written in a Reply.
pub(super) fn named(rtr: Rtr) -> wire::Rtr {
    wire::Rtr {
        send: false,
        write: rtr == Rtr::Write,
        read: rtr == Rtr::Read,
    }
}
