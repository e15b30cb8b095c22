//! A NIC whose queue pair sends packets, which the test carries.

use super::bench::{Bench, Parts};
use super::{MANY, Setup, Wire};
use nonic_core::{
    Arrival, Data, Destination, Endpoint, MAX_BATCH_LEN, NicConfig, PostError, Psn, QpInit, Qpn, SendFlags,
    SendOp, SendRequest, Service,
};
use nonic_wire::{Flow, ROCE_PORT};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Everything one queue pair must know about another.
#[derive(Copy, Clone, Debug)]
pub struct Remote {
    pub ip: IpAddr,
    pub qpn: Qpn,
    pub psn: Psn,
}

/// A bench whose queue pair sends packets.
pub type Node = Bench<Datagrams>;

/// What a [`Node`] has beside its bench.
pub struct Datagrams {
    pub ip: IpAddr,
    pub setup: Setup,
}

impl Node {
    /// The `number`-th node, with one queue pair in INIT.
    pub fn new(number: u8, setup: &Setup) -> Node {
        Node::configured(number, setup, setup.nic_config())
    }

    /// The same with a NIC of another kind than the setup's.
    pub fn configured(number: u8, setup: &Setup, config: NicConfig) -> Node {
        let ip = if setup.ipv6 {
            IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number)))
        } else {
            IpAddr::V4(Ipv4Addr::new(10, 0, 0, number))
        };
        let parts = Parts {
            config,
            memory: setup.memory,
            cq_capacity: setup.cq_capacity,
            capacity: setup.capacity,
            srq: setup.srq,
            invalidatable: false,
        };
        let carrier = Datagrams {
            ip,
            setup: setup.clone(),
        };
        let mut node = Bench::assemble(number, parts, carrier);
        node.nic.add_endpoint(Endpoint {
            ip,
            port: 50_000 + u16::from(number),
        });
        node.qpn = node.add_qp();
        node
    }

    pub fn qp_init(&self) -> QpInit {
        self.init_with(self.setup.service, self.setup.capacity, self.setup.signal_all)
    }

    /// One more queue pair like the first, in INIT.
    pub fn add_qp(&mut self) -> Qpn {
        let qpn = self
            .nic
            .create_qp(self.qp_init())
            .expect("the queue pair is created");
        let to_init = self.setup.to_init();
        self.modify(qpn, &to_init).expect("RESET to INIT");
        qpn
    }

    /// Destroys a queue pair; whether there was one.
    pub fn destroy_qp(&mut self, qpn: Qpn) -> bool {
        self.nic.destroy_qp(self.now, qpn)
    }

    /// Takes a queue pair from INIT to RTS.
    #[track_caller]
    pub fn connect(&mut self, qpn: Qpn, peer: &Remote, sq_psn: Psn) {
        let (to_rtr, to_rts) = (self.setup.to_rtr(peer), self.setup.to_rts(sq_psn));
        self.modify(qpn, &to_rtr).expect("INIT to RTR");
        self.modify(qpn, &to_rts).expect("RTR to RTS");
    }

    /// Posts a datagram from the node's memory.
    pub fn post_to(
        &mut self,
        wr_id: u64,
        op: SendOp,
        (offset, length): (usize, u32),
        destination: Destination,
    ) -> Result<(), PostError> {
        let sges = [self.sge(offset, length)];
        let request = SendRequest {
            wr_id,
            op,
            data: Data::Sges(&sges),
            flags: SendFlags::SIGNALED,
            destination: Some(destination),
        };
        self.nic.post_send(self.now, self.qpn, &request)
    }

    /// Posts requests as one list: each with its number, what it is, and where its bytes are.
    pub fn post_list(&mut self, requests: &[(u64, SendOp, (usize, u32))]) {
        for (index, (wr_id, op, (offset, length))) in requests.iter().enumerate() {
            let sges = [self.sge(*offset, *length)];
            let request = SendRequest {
                wr_id: *wr_id,
                op: *op,
                data: Data::Sges(&sges),
                flags: SendFlags::SIGNALED,
                destination: None,
            };
            let more = index + 1 < requests.len();
            let posted = self.nic.post_of_list(self.now, self.qpn, &request, more);
            posted.expect("it is posted");
        }
    }

    /// Everything the NIC has to send now, packet by packet.
    #[track_caller]
    pub fn transmit(&mut self) -> Vec<Wire> {
        let mut packets = Vec::new();
        let mut buffer = vec![0; MAX_BATCH_LEN];
        while let Some(batch) = self
            .nic
            .poll_transmit(self.now, self.setup.max_segments, &mut buffer)
        {
            assert!(batch.len > 0 && batch.segments > 0, "a batch without packets");
            for (index, bytes) in buffer[..batch.len].chunks(batch.segment_size).enumerate() {
                packets.push(Wire {
                    flow: batch.flow,
                    identification: index as u16,
                    bytes: bytes.to_vec(),
                });
            }
            assert!(packets.len() < MANY, "the NIC sends without end");
        }
        packets
    }

    /// Hands the NIC one packet from the wire.
    pub fn receive(&mut self, wire: &Wire) {
        self.receive_marked(wire, false);
    }

    /// The same, and whether a router marked it on its way.
    pub fn receive_marked(&mut self, wire: &Wire, congested: bool) {
        let arrival = Arrival {
            src: SocketAddr::new(wire.flow.src, wire.flow.src_port),
            dst: wire.flow.dst,
            stride: wire.bytes.len(),
            congested,
        };
        self.nic.handle_datagram(self.now, &arrival, &wire.bytes);
    }

    pub fn receive_all<'a>(&mut self, packets: impl IntoIterator<Item = &'a Wire>) {
        packets.into_iter().for_each(|wire| self.receive(wire));
    }

    /// Lets time pass and runs the timers that came due.
    pub fn advance(&mut self, duration: Duration) {
        self.now = self.now + duration;
        self.nic.handle_timeout(self.now);
    }

    /// The flow of packets from here to `to`.
    pub fn flow_to(&self, to: IpAddr) -> Flow {
        Flow {
            src: self.ip,
            dst: to,
            src_port: self.nic.endpoints()[0].port,
            dst_port: ROCE_PORT,
        }
    }

    pub fn is_datagram(&self) -> bool {
        self.setup.service == Service::Ud
    }
}
