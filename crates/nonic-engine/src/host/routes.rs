//! Routes: which UDP port to send to.
//!
//! A peer listens on port 4791 of its address. A peer process on this host can be reached without the detour over that
//! port, where packets may land with another process: asked through its inbox ([`Message::WhereAreYou`]), it tells its own
//! port. This table remembers the answers. It refuses answers to questions it did not ask. It never asks about addresses of
//! other hosts: any local process can take a name for such an address, and could tell us a wrong port.
//!
//! A testing aid: without the shortcut (`NONIC_NO_SHORTCUT`), the table asks no process and every packet goes to port 4791,
//! as it would from another host.

use crate::host::locality::Locality;
use crate::host::{ANSWERS_WITHIN, Block, BlockName, Delivery, Message, Outbox};
use crate::netdev::LocalAddress;
use crate::socket::ROCE_PORT;
use nonic_core::Time;
use std::collections::HashMap;
use std::time::Duration;

/// How long an answer is believed. A dead process's block may pass to another.
const BELIEVED_FOR: Duration = Duration::from_secs(5);

/// How long an owner is not asked again for a queue pair that is being connected. Less than a block takes to pass to
/// another process by chance; and a process whose end was heard of is forgotten at once.
const FRESH_FOR: Duration = Duration::from_millis(100);

/// The most destinations remembered; beyond, the table starts afresh.
const MAX_ENTRIES: usize = 65_536;

/// What is known of one block on one address.
#[derive(Copy, Clone, Debug)]
struct Route {
    /// Its owner's own port; without one, packets take the detour over port 4791.
    direct: Option<u16>,
    /// Since when its owner owes an answer, if it does. Asking once more does not make that later.
    asked: Option<Time>,
    /// When its owner was last asked, or answered.
    at: Time,
}

impl Route {
    /// Whether its owner has answered a moment ago.
    fn is_fresh(&self, now: Time) -> bool {
        self.direct.is_some() && self.asked.is_none() && now.since(self.at) < FRESH_FOR
    }

    /// Whether its owner was asked a moment ago and has not answered. A process that is stopped does not, and is not waited for
    /// again and again.
    fn is_awaited(&self, now: Time) -> bool {
        self.asked.is_some_and(|asked| now.since(asked) < ANSWERS_WITHIN)
    }
}

/// Ports of same-host peers.
#[derive(Debug)]
pub(crate) struct Routes {
    table: HashMap<BlockName, Route>,
    /// The one used last: most batches go where the one before went.
    latest: Option<(BlockName, Route)>,
    /// Whether processes of this host are reached directly.
    shortcut: bool,
    locality: Locality,
}

impl Routes {
    /// An empty table. With `shortcut`, processes of this host are reached directly.
    pub(crate) fn new(shortcut: bool) -> Self {
        Routes {
            table: HashMap::new(),
            latest: None,
            shortcut,
            locality: Locality::default(),
        }
    }

    /// Whether an address is this host's.
    pub(crate) fn is_local(&mut self, now: Time, address: LocalAddress) -> bool {
        self.locality.is_local(now, address)
    }

    /// The port to send to for a queue pair of the peer; asks in the background if nothing recent is known.
    pub(crate) fn port(&mut self, now: Time, to: LocalAddress, qpn: u32, outbox: &mut Outbox) -> u16 {
        let Some(block) = self.block(qpn) else {
            return ROCE_PORT;
        };
        let name = BlockName { address: to, block };
        let route = match self.latest {
            Some((latest, route)) if latest == name && now.since(route.at) < BELIEVED_FOR => route,
            _ => match self.table.get(&name) {
                Some(route) if now.since(route.at) < BELIEVED_FOR => *route,
                _ => self.ask(now, name, outbox),
            },
        };
        self.latest = Some((name, route));
        route.direct.unwrap_or(ROCE_PORT)
    }

    /// Asks for a block's port again, unless its owner has just answered. Whether an answer is worth waiting for.
    pub(crate) fn refresh(&mut self, now: Time, to: LocalAddress, qpn: u32, outbox: &mut Outbox) -> bool {
        let Some(block) = self.block(qpn) else {
            return false;
        };
        let name = BlockName { address: to, block };
        match self.table.get(&name) {
            Some(route) if route.is_fresh(now) => false,
            _ => self.ask(now, name, outbox).is_awaited(now),
        }
    }

    /// The owner of a block has ended.
    pub(crate) fn forget(&mut self, who: BlockName) {
        self.latest = None;
        self.table.remove(&who);
    }

    /// Whether the answer for a queue pair has come, or is no longer worth waiting for.
    pub(crate) fn is_settled(&self, now: Time, to: LocalAddress, qpn: u32) -> bool {
        let Some(block) = Block::of_qpn(qpn) else {
            return true;
        };
        let route = self.table.get(&BlockName { address: to, block });
        route.is_none_or(|route| !route.is_awaited(now))
    }

    /// Takes an answer.
    pub(crate) fn answered(&mut self, now: Time, who: BlockName, udp_port: u16) {
        if let Some(route) = self.table.get_mut(&who) {
            if route.asked.is_some() {
                self.latest = None;
                *route = Route {
                    direct: Some(udp_port),
                    asked: None,
                    at: now,
                };
            }
        }
    }

    /// The block whose owner may be reached directly.
    fn block(&self, qpn: u32) -> Option<Block> {
        self.shortcut.then(|| Block::of_qpn(qpn)).flatten()
    }

    fn ask(&mut self, now: Time, name: BlockName, outbox: &mut Outbox) -> Route {
        if self.table.len() >= MAX_ENTRIES {
            self.table.clear();
        }
        self.latest = None;
        // What was known stays in use until the answer: switching back and forth would reorder packets.
        let before = self.table.get(&name);
        let known = before.and_then(|route| route.direct);
        let unanswered = before.and_then(|route| route.asked);
        let asked = self
            .locality
            .is_local(now, name.address)
            .then(|| outbox.post(name, &Message::WhereAreYou).unwrap_or(Delivery::Gone));
        let route = match asked {
            Some(Delivery::Sent) => Route {
                direct: known,
                asked: unanswered.or(Some(now)),
                at: now,
            },
            Some(Delivery::Full) => Route {
                direct: known,
                asked: None,
                at: now,
            },
            // No process on this host has that block: it is a peer elsewhere.
            Some(Delivery::Gone) | None => Route {
                direct: None,
                asked: None,
                at: now,
            },
        };
        self.table.insert(name, route);
        route
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{BlockClaim, Heard, InboxBuffer, InboxName};
    use std::net::IpAddr;

    fn at(ms: u64) -> Time {
        Time::from_ns(ms * 1_000_000)
    }

    /// Makes the owner of a block, which was asked, say where it is.
    fn answer(routes: &mut Routes, now: Time, owner: &mut BlockClaim, outbox: &mut Outbox) {
        let mut buffer = InboxBuffer::new();
        let asked = owner.inbox_mut().recv(&mut buffer).expect("it is open");
        assert_eq!(asked, Some(Message::WhereAreYou));
        owner.inbox().reply(&Message::IAm { udp_port: 7 });
        let Some(Heard::IAm { who, udp_port }) = outbox.poll() else {
            panic!("it answered");
        };
        let InboxName::Block(who) = who else {
            panic!("a block was asked");
        };
        routes.answered(now, who, udp_port);
    }

    #[test]
    fn who_has_just_told_is_not_asked_again_unless_it_has_ended() {
        let address = LocalAddress::from(IpAddr::from([127, 71, 3, 1]));
        let mut owner = BlockClaim::claim(address).expect("plenty");
        let qpn = u32::from(owner.block().number()) << 12 | 5;
        let (mut routes, mut outbox) = (Routes::new(true), Outbox::new().expect("descriptors"));
        assert!(
            routes.refresh(at(0), address, qpn, &mut outbox),
            "nothing is known"
        );
        assert!(
            routes.refresh(at(1), address, qpn, &mut outbox),
            "it has not answered"
        );
        answer(&mut routes, at(2), &mut owner, &mut outbox);
        answer(&mut routes, at(2), &mut owner, &mut outbox);
        assert!(!routes.refresh(at(101), address, qpn, &mut outbox));
        assert_eq!(routes.port(at(101), address, qpn, &mut outbox), 7);
        assert!(routes.refresh(at(102), address, qpn, &mut outbox), "a while ago");
        answer(&mut routes, at(102), &mut owner, &mut outbox);
        let name = owner.name();
        drop(owner);
        routes.forget(name);
        assert!(
            !routes.refresh(at(103), address, qpn, &mut outbox),
            "nobody is there"
        );
        assert_eq!(routes.port(at(103), address, qpn, &mut outbox), ROCE_PORT);
    }

    #[test]
    fn an_owner_that_does_not_answer_is_waited_for_once() {
        let address = LocalAddress::from(IpAddr::from([127, 71, 3, 2]));
        let mut owner = BlockClaim::claim(address).expect("plenty");
        let qpn = u32::from(owner.block().number()) << 12 | 5;
        let (mut routes, mut outbox) = (Routes::new(true), Outbox::new().expect("descriptors"));
        assert!(routes.refresh(at(0), address, qpn, &mut outbox));
        assert!(!routes.is_settled(at(499), address, qpn));
        assert!(routes.is_settled(at(500), address, qpn));
        assert!(
            !routes.refresh(at(600), address, qpn, &mut outbox),
            "asked again, not waited for again"
        );
        answer(&mut routes, at(700), &mut owner, &mut outbox);
        assert_eq!(routes.port(at(701), address, qpn, &mut outbox), 7);
        assert!(routes.refresh(at(900), address, qpn, &mut outbox), "it is back");
    }
}
