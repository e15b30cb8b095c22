//! One NIC, its memory, its completion queues and its queue pair.

use super::{Bytes, MANY, Setup, Wire};
use nonic_core::{
    Access, Arrival, Completion, CompletionQueue, CqId, Data, Destination, Endpoint, Event, HeapRegion, Key,
    KeySpec, KeyTable, MAX_BATCH_LEN, ModifyError, Nic, PdId, PostError, Psn, QpAttributes, QpInit, QpState,
    Qpn, ReceiveQueue, RecvRequest, RemoteAddress, SeededEntropy, SendFlags, SendOp, SendRequest, Service,
    Sge, SrqId, Time,
};
use nonic_wire::{Flow, ROCE_PORT};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Everything one queue pair must know about another.
#[derive(Copy, Clone, Debug)]
pub struct Remote {
    pub ip: IpAddr,
    pub qpn: Qpn,
    pub psn: Psn,
}

pub struct Node {
    pub nic: Nic,
    pub now: Time,
    pub ip: IpAddr,
    pub pd: PdId,
    pub send_cq: Arc<CompletionQueue>,
    pub recv_cq: Arc<CompletionQueue>,
    pub srq: Option<Arc<ReceiveQueue>>,
    /// The queue pair that methods without a number mean.
    pub qpn: Qpn,
    pub memory: Arc<HeapRegion>,
    /// Covers all of `memory` with every right.
    pub key: Arc<Key>,
    pub setup: Setup,
}

/// Where the node's memory begins for its peers; not the same as its offset, so that mixing them up shows.
pub const IOVA: u64 = 0x7f00_0001_0000;

impl Node {
    /// The `number`-th node, with one queue pair in INIT.
    pub fn new(number: u8, setup: &Setup) -> Node {
        let ip = if setup.ipv6 {
            IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number)))
        } else {
            IpAddr::V4(Ipv4Addr::new(10, 0, 0, number))
        };
        let keys = Arc::new(KeyTable::new());
        let pd = keys.alloc_pd();
        let entropy = Box::new(SeededEntropy::new(u64::from(number)));
        let mut nic = Nic::new(setup.nic_config(), Arc::clone(&keys), entropy);
        nic.add_endpoint(Endpoint {
            ip,
            port: 50_000 + u16::from(number),
        });
        let memory = Arc::new(HeapRegion::zeroed(setup.memory));
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let key = nic
            .register(KeySpec {
                pd,
                region: memory.clone(),
                offset: 0,
                length: setup.memory as u64,
                iova: IOVA,
                access,
                bound_qp: None,
                invalidatable: false,
            })
            .expect("the memory is registered");
        let srq = setup
            .srq
            .then(|| Arc::new(ReceiveQueue::shared(SrqId(1), pd, 64, 32)));
        let mut node = Node {
            nic,
            now: Time::from_ns(1_000_000_000),
            ip,
            pd,
            send_cq: Arc::new(CompletionQueue::new(CqId(1), setup.cq_capacity)),
            recv_cq: Arc::new(CompletionQueue::new(CqId(2), setup.cq_capacity)),
            srq,
            qpn: Qpn::new(0),
            memory,
            key,
            setup: setup.clone(),
        };
        node.qpn = node.add_qp();
        node
    }

    pub fn qp_init(&self) -> QpInit {
        QpInit {
            service: self.setup.service,
            pd: self.pd,
            send_cq: self.send_cq.clone(),
            recv_cq: self.recv_cq.clone(),
            srq: self.srq.clone(),
            capacity: self.setup.capacity,
            signal_all: self.setup.signal_all,
        }
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

    pub fn modify(&mut self, qpn: Qpn, set: &QpAttributes) -> Result<(), ModifyError> {
        self.nic.modify_qp(self.now, qpn, set)
    }

    /// Moves the queue pair without other attributes.
    #[track_caller]
    pub fn go_to(&mut self, state: QpState) {
        let set = QpAttributes {
            state: Some(state),
            ..QpAttributes::default()
        };
        self.modify(self.qpn, &set).expect("the move is allowed");
    }

    /// Takes a queue pair from INIT to RTS.
    #[track_caller]
    pub fn connect(&mut self, qpn: Qpn, peer: &Remote, sq_psn: Psn) {
        let (to_rtr, to_rts) = (self.setup.to_rtr(peer), self.setup.to_rts(sq_psn));
        self.modify(qpn, &to_rtr).expect("INIT to RTR");
        self.modify(qpn, &to_rts).expect("RTR to RTS");
    }

    pub fn state(&self) -> QpState {
        self.nic.qp_state(self.qpn).expect("the queue pair exists")
    }

    /// A scatter/gather element over the node's memory.
    pub fn sge(&self, offset: usize, length: u32) -> Sge {
        Sge {
            addr: IOVA + offset as u64,
            length,
            lkey: self.key.value(),
        }
    }

    /// What this node would tell its peer about an offset in its memory.
    pub fn remote(&self, offset: usize) -> RemoteAddress {
        RemoteAddress {
            va: IOVA + offset as u64,
            rkey: self.key.value(),
        }
    }

    /// Registers part of the memory again, under other conditions.
    pub fn register(&mut self, change: impl FnOnce(&mut KeySpec)) -> Arc<Key> {
        let mut spec = KeySpec {
            pd: self.pd,
            region: self.memory.clone(),
            offset: 0,
            length: self.setup.memory as u64,
            iova: IOVA,
            access: Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC,
            bound_qp: None,
            invalidatable: true,
        };
        change(&mut spec);
        self.nic.register(spec).expect("the memory is registered")
    }

    pub fn keys(&self) -> Arc<KeyTable> {
        Arc::clone(self.nic.keys())
    }

    pub fn fill(&self, offset: usize, bytes: &[u8]) {
        self.memory
            .with(|memory| memory[offset..offset + bytes.len()].copy_from_slice(bytes));
    }

    pub fn bytes(&self, offset: usize, length: usize) -> Bytes {
        let copy = |memory: &mut [u8]| memory[offset..offset + length].to_vec();
        Bytes(self.memory.with(copy))
    }

    pub fn word(&self, offset: usize) -> u64 {
        let bytes = self.bytes(offset, 8);
        u64::from_ne_bytes(bytes.0.try_into().expect("eight bytes"))
    }

    pub fn set_word(&self, offset: usize, value: u64) {
        self.fill(offset, &value.to_ne_bytes());
    }

    pub fn try_send(&mut self, wr_id: u64, op: SendOp, offset: usize, length: u32) -> Result<(), PostError> {
        self.post(
            wr_id,
            op,
            Data::Sges(&[self.sge(offset, length)]),
            SendFlags::SIGNALED,
        )
    }

    /// Posts with all there is to choose; datagrams go to `Node::post_to`.
    pub fn post(
        &mut self,
        wr_id: u64,
        op: SendOp,
        data: Data<'_>,
        flags: SendFlags,
    ) -> Result<(), PostError> {
        let request = SendRequest {
            wr_id,
            op,
            data,
            flags,
            destination: None,
        };
        self.nic.post_send(self.now, self.qpn, &request)
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

    pub fn try_recv(&mut self, wr_id: u64, offset: usize, length: u32) -> Result<(), PostError> {
        self.post_recv(wr_id, &[self.sge(offset, length)])
    }

    pub fn post_recv(&mut self, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        let request = RecvRequest { wr_id, sges };
        match &self.srq {
            Some(srq) => Ok(srq.post(&request, self.nic.keys())?),
            None => self.nic.post_recv(self.qpn, &request),
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

    /// Publishes and takes the send completions.
    pub fn completions(&mut self) -> Vec<Completion> {
        self.nic.publish();
        drain(&self.send_cq)
    }

    /// Publishes and takes the receive completions.
    pub fn receptions(&mut self) -> Vec<Completion> {
        self.nic.publish();
        drain(&self.recv_cq)
    }

    pub fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.nic.poll_event()).take(MANY).collect()
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

fn drain(cq: &CompletionQueue) -> Vec<Completion> {
    let mut completions = Vec::new();
    cq.poll(MANY, |completion| completions.push(completion))
        .expect("the completion queue has not overflowed");
    completions
}
