//! Two connected nodes and the link between them.

use super::node::Remote;
use super::{LaneHost, MANY, Node, Setup, Wire};
use nonic_core::{Destination, Psn, Qpn};
use std::time::Duration;

pub struct Pair {
    pub a: Node,
    pub b: Node,
    /// The lanes between the two, if there are any.
    pub lanes: Option<LaneHost>,
}

/// The sender of a packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Side {
    A,
    B,
}

/// What the link does to a packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Fate {
    Deliver,
    Drop,
    Duplicate,
}

impl Pair {
    pub fn new(setup: &Setup) -> Pair {
        let mut pair = Pair::unconnected(setup);
        let (a, b) = (pair.a.qpn, pair.b.qpn);
        pair.connect(a, b);
        pair
    }

    /// The same before their queue pairs are connected.
    pub fn unconnected(setup: &Setup) -> Pair {
        let mut pair = Pair {
            a: Node::new(1, setup),
            b: Node::new(2, setup),
            lanes: setup.lanes.then(LaneHost::default),
        };
        if let Some(host) = pair.lanes.clone() {
            host.join(&mut pair.a);
            host.join(&mut pair.b);
        }
        pair
    }

    pub fn rc() -> Pair {
        Pair::new(&Setup::rc())
    }

    /// Two processes of one host.
    pub fn local() -> Pair {
        Pair::new(&Setup::local())
    }

    /// The lanes between the two.
    pub fn host(&self) -> LaneHost {
        self.lanes.clone().expect("the two have lanes")
    }

    pub fn uc() -> Pair {
        Pair::new(&Setup::uc())
    }

    pub fn ud() -> Pair {
        Pair::new(&Setup::ud())
    }

    /// Connects a queue pair of each.
    pub fn connect(&mut self, a: Qpn, b: Qpn) {
        let setup = self.a.setup.clone();
        let (first, second) = (Psn::new(setup.first_psn), Psn::new(setup.second_psn));
        let at_b = Remote {
            ip: self.b.ip,
            qpn: b,
            psn: second,
        };
        let at_a = Remote {
            ip: self.a.ip,
            qpn: a,
            psn: first,
        };
        self.a.connect(a, &at_b, first);
        self.b.connect(b, &at_a, second);
    }

    /// A second connection between the two nodes.
    pub fn connect_more(&mut self) -> (Qpn, Qpn) {
        let (a, b) = (self.a.add_qp(), self.b.add_qp());
        self.connect(a, b);
        (a, b)
    }

    /// Where the first node's datagrams go.
    pub fn to_b(&self) -> Destination {
        Destination {
            gid_index: 0,
            ip: self.b.ip,
            qpn: self.b.qpn,
            qkey: self.b.setup.qkey,
        }
    }

    /// Carries packets both ways until neither side has more; returns how many.
    #[track_caller]
    pub fn exchange(&mut self) -> usize {
        self.exchange_with(|_, _| Fate::Deliver)
    }

    /// The same, asking about each packet.
    #[track_caller]
    pub fn exchange_with(&mut self, mut fate: impl FnMut(Side, &Wire) -> Fate) -> usize {
        let mut carried = 0;
        loop {
            let (from_a, from_b) = (self.a.transmit(), self.b.transmit());
            let working =
                self.exchange_records() + self.a.nic.ready_queue_pairs() + self.b.nic.ready_queue_pairs();
            if from_a.is_empty() && from_b.is_empty() && working == 0 {
                return carried;
            }
            carried += from_a.len() + from_b.len() + working;
            assert!(carried < MANY, "the two never stop talking");
            for wire in &from_a {
                deliver(&mut self.b, wire, fate(Side::A, wire));
            }
            for wire in &from_b {
                deliver(&mut self.a, wire, fate(Side::B, wire));
            }
        }
    }

    /// Executes all records that wait and returns their answers. How many answers there were.
    pub fn exchange_records(&mut self) -> usize {
        let Some(host) = self.lanes.clone() else {
            return 0;
        };
        let (a, b) = (&mut self.a, &mut self.b);
        while host.deliver(a, b).is_some() || host.deliver(b, a).is_some() {}
        host.answer(a) + host.answer(b)
    }

    /// Lets time pass for both.
    pub fn advance(&mut self, duration: Duration) {
        self.a.advance(duration);
        self.b.advance(duration);
    }
}

fn deliver(to: &mut Node, wire: &Wire, fate: Fate) {
    let copies = match fate {
        Fate::Drop => 0,
        Fate::Deliver => 1,
        Fate::Duplicate => 2,
    };
    for _ in 0..copies {
        to.receive(wire);
    }
}
