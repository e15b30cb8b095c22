//! One node whose peer is the test: it writes the peer's packets by hand and reads the node's.

use super::node::Remote;
use super::{Node, Setup, Wire};
use nonic_core::{Psn, Qpn};
use nonic_wire::{Aeth, Bth, Flow, Headers, Opcode, ROCE_PORT, Syndrome};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::{Deref, DerefMut};

/// The node is `setup.first`: its requests start at `setup.first_psn`, the peer's at `setup.second_psn`.
pub struct Solo {
    pub node: Node,
    /// The imagined peer.
    pub peer: Remote,
}

impl Deref for Solo {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

impl DerefMut for Solo {
    fn deref_mut(&mut self) -> &mut Node {
        &mut self.node
    }
}

impl Solo {
    pub fn new(setup: &Setup) -> Solo {
        let mut node = Node::new(1, setup);
        let ip = if setup.ipv6 {
            IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 99))
        } else {
            IpAddr::V4(Ipv4Addr::new(10, 0, 0, 99))
        };
        let peer = Remote {
            ip,
            qpn: Qpn::new(0x777),
            psn: Psn::new(setup.second_psn),
        };
        node.connect(node.qpn, &peer, Psn::new(setup.first_psn));
        Solo { node, peer }
    }

    pub fn rc() -> Solo {
        Solo::new(&Setup::rc())
    }

    pub fn uc() -> Solo {
        Solo::new(&Setup::uc())
    }

    pub fn ud() -> Solo {
        Solo::new(&Setup::ud())
    }

    /// The flow of the peer's packets.
    pub fn flow(&self) -> Flow {
        Flow {
            src: self.peer.ip,
            dst: self.node.ip,
            src_port: 49_152,
            dst_port: ROCE_PORT,
        }
    }

    /// Headers of the peer's `index`-th request packet.
    pub fn headers(&self, opcode: Opcode, index: u32) -> Headers {
        let mut headers = Headers::new(Bth::new(opcode, self.node.qpn, self.peer.psn.add(index)));
        headers.bth.ack_request = true;
        headers
    }

    /// Feeds the peer's `index`-th request packet.
    pub fn request(&mut self, opcode: Opcode, index: u32, payload: &[u8]) {
        let headers = self.headers(opcode, index);
        self.feed(headers, payload);
    }

    /// Feeds the peer's `index`-th request packet after a last touch to its headers.
    pub fn request_with(
        &mut self,
        opcode: Opcode,
        index: u32,
        payload: &[u8],
        touch: impl FnOnce(&mut Headers),
    ) {
        let mut headers = self.headers(opcode, index);
        touch(&mut headers);
        self.feed(headers, payload);
    }

    /// Feeds an answer to our `index`-th packet.
    pub fn answer(&mut self, index: u32, syndrome: Syndrome) {
        self.respond(Opcode::RC_ACKNOWLEDGE, index, syndrome, &[]);
    }

    /// Feeds an answer of any kind to our `index`-th packet.
    pub fn respond(&mut self, opcode: Opcode, index: u32, syndrome: Syndrome, payload: &[u8]) {
        let psn = Psn::new(self.node.setup.first_psn).add(index);
        let mut headers = Headers::new(Bth::new(opcode, self.node.qpn, psn));
        headers.aeth = Aeth { syndrome, msn: 0 };
        self.feed(headers, payload);
    }

    pub fn feed(&mut self, headers: Headers, payload: &[u8]) {
        let wire = Wire::build(self.flow(), headers, payload);
        self.node.receive(&wire);
    }
}
