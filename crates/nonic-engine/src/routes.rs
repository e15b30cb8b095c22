//! Which UDP port to send to.
//!
//! A peer listens on port 4791 of its address. A peer process on this host can be reached without the detour
//! over whoever holds that port: asked through its inbox ([`Message::WhereAreYou`]), it tells its own port.
//! This table remembers the answers. It refuses answers nobody asked for.

use crate::netdev::LocalAddress;
use crate::registry::{Block, BlockName, Delivery, Message, Outbox};
use nonic_core::{Entropy, Time};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

/// How long an answer is believed. A dead process's block may pass to another.
const BELIEVED_FOR: Duration = Duration::from_secs(5);

/// The most destinations remembered; beyond, the table starts afresh.
const MAX_ENTRIES: usize = 65_536;

/// What is known of one block on one address.
#[derive(Copy, Clone, Debug)]
enum Route {
    /// Asked; the token an answer must carry.
    Asked { token: u64, at: Time },
    /// Its own port.
    Direct { port: u16, at: Time },
    /// Nobody on this host has that block: it is a peer elsewhere.
    Elsewhere { at: Time },
}

/// Ports of same-host peers.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    table: HashMap<BlockName, Route>,
}

impl Routes {
    /// The port to send to for a queue pair of the peer; asks in the background if nothing is known.
    pub(crate) fn port(&mut self, now: Time, to: LocalAddress, qpn: u32, asker: &mut Asker<'_>) -> u16 {
        let Some(block) = Block::of_qpn(qpn) else { return crate::socket::ROCE_PORT };
        let name = BlockName { address: to, block };
        match self.table.get(&name) {
            Some(Route::Direct { port, at }) if now.since(*at) < BELIEVED_FOR => return *port,
            Some(Route::Elsewhere { at } | Route::Asked { at, .. }) if now.since(*at) < BELIEVED_FOR => {}
            Some(Route::Direct { port, .. }) => {
                // Keep using it while asking again: switching back and forth would reorder packets.
                let port = *port;
                self.ask(now, name, asker);
                if let Some(Route::Asked { .. }) = self.table.get(&name) {
                    self.table.insert(name, Route::Direct { port, at: now });
                }
                return port;
            }
            _ => self.ask(now, name, asker),
        }
        crate::socket::ROCE_PORT
    }

    /// Asks for a block's port, forgetting what was known. Whether an answer may come.
    pub(crate) fn refresh(&mut self, now: Time, to: LocalAddress, qpn: u32, asker: &mut Asker<'_>) -> bool {
        let Some(block) = Block::of_qpn(qpn) else { return false };
        let name = BlockName { address: to, block };
        self.ask(now, name, asker);
        matches!(self.table.get(&name), Some(Route::Asked { .. }))
    }

    /// Whether the answer for a queue pair has come (or none will).
    pub(crate) fn is_settled(&self, to: LocalAddress, qpn: u32) -> bool {
        let Some(block) = Block::of_qpn(qpn) else { return true };
        !matches!(self.table.get(&BlockName { address: to, block }), Some(Route::Asked { .. }))
    }

    /// Takes an answer.
    pub(crate) fn answered(&mut self, now: Time, who: BlockName, udp_port: u16, token: u64) {
        if let Some(route @ Route::Asked { .. }) = self.table.get_mut(&who)
            && matches!(route, Route::Asked { token: asked, .. } if *asked == token)
        {
            *route = Route::Direct { port: udp_port, at: now };
        }
    }

    fn ask(&mut self, now: Time, name: BlockName, asker: &mut Asker<'_>) {
        if self.table.len() >= MAX_ENTRIES {
            self.table.clear();
        }
        let token = u64::from(asker.entropy.next_u32()) << 32 | u64::from(asker.entropy.next_u32());
        let question = Message::WhereAreYou { reply_to: asker.reply_to, token };
        let route = match asker.outbox.post(&name, &question) {
            Ok(Delivery::Sent) => Route::Asked { token, at: now },
            // A full inbox is asked again when the answer would have expired; packets take the detour.
            Ok(Delivery::Full | Delivery::Gone) | Err(_) => Route::Elsewhere { at: now },
        };
        self.table.insert(name, route);
    }
}

/// What is needed to ask a question.
pub(crate) struct Asker<'a> {
    pub(crate) outbox: &'a Outbox,
    pub(crate) reply_to: BlockName,
    pub(crate) entropy: &'a mut dyn Entropy,
}

/// The socket address of a peer, with the scope link-local addresses need.
pub(crate) fn peer_address(to: LocalAddress, port: u16) -> SocketAddr {
    to.with_port(port)
}
