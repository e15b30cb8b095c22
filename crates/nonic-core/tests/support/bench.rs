//! One NIC on a test bench: its memory, its completion queues and its queue pair, whatever its transport.
//!
//! What carries the bytes of the queue pair is the bench's parameter: packets ([`Node`](super::Node)) or a stream (`End` of
//! the iWARP tests). Each adds its own way to transmit and receive. Tests reach the fields of the carrier as if they were the bench's.

use super::{Bytes, MANY};
use nonic_core::{
    Access, Completion, CompletionQueue, CqId, Data, Event, HeapRegion, Key, KeySpec, KeyTable, ModifyError,
    Nic, NicConfig, PdId, PostError, QpAttributes, QpCapacity, QpInit, QpState, Qpn, ReceiveQueue,
    RecvRequest, RemoteAddress, SeededEntropy, SendFlags, SendOp, SendRequest, Service, Sge, SrqId, Time,
};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Where the memory begins for peers; not the same as its offset, so that mixing them up shows.
pub const IOVA: u64 = 0x7f00_0001_0000;

/// What every bench has to choose.
pub struct Parts {
    pub config: NicConfig,
    /// Bytes of memory.
    pub memory: usize,
    pub cq_capacity: usize,
    pub capacity: QpCapacity,
    /// Whether the queue pairs share a receive queue.
    pub srq: bool,
    /// Whether the peer may invalidate the key of all memory.
    pub invalidatable: bool,
}

pub struct Bench<C> {
    pub nic: Nic,
    pub now: Time,
    pub pd: PdId,
    pub send_cq: Arc<CompletionQueue>,
    pub recv_cq: Arc<CompletionQueue>,
    pub srq: Option<Arc<ReceiveQueue>>,
    /// The queue pair that methods without a number mean.
    pub qpn: Qpn,
    pub memory: Arc<HeapRegion>,
    /// Covers all of `memory` with every right.
    pub key: Arc<Key>,
    pub carrier: C,
}

impl<C> Deref for Bench<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.carrier
    }
}

impl<C> DerefMut for Bench<C> {
    fn deref_mut(&mut self) -> &mut C {
        &mut self.carrier
    }
}

impl<C> Bench<C> {
    /// The `number`-th bench, still without a queue pair.
    pub fn assemble(number: u8, parts: Parts, carrier: C) -> Bench<C> {
        let keys = Arc::new(KeyTable::new());
        let pd = keys.alloc_pd();
        let entropy = Box::new(SeededEntropy::new(u64::from(number)));
        let mut nic = Nic::new(parts.config, keys, entropy);
        let memory = Arc::new(HeapRegion::zeroed(parts.memory));
        let key = nic
            .register(KeySpec {
                invalidatable: parts.invalidatable,
                ..all_of(&memory, pd)
            })
            .expect("the memory is registered");
        let shared = || ReceiveQueue::shared(SrqId(1), pd, 64, parts.capacity.max_recv_sge as usize);
        Bench {
            nic,
            now: Time::from_ns(1_000_000_000),
            pd,
            send_cq: Arc::new(CompletionQueue::new(CqId(1), parts.cq_capacity)),
            recv_cq: Arc::new(CompletionQueue::new(CqId(2), parts.cq_capacity)),
            srq: parts.srq.then(|| Arc::new(shared())),
            qpn: Qpn::new(0),
            memory,
            key,
            carrier,
        }
    }

    /// What a queue pair of this bench is created with.
    pub fn init_with(&self, service: Service, capacity: QpCapacity, signal_all: bool) -> QpInit {
        QpInit {
            service,
            pd: self.pd,
            send_cq: self.send_cq.clone(),
            recv_cq: self.recv_cq.clone(),
            srq: self.srq.clone(),
            capacity,
            signal_all,
        }
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

    pub fn state(&self) -> QpState {
        self.nic.qp_state(self.qpn).expect("the queue pair exists")
    }

    /// A scatter/gather element over the memory.
    pub fn sge(&self, offset: usize, length: u32) -> Sge {
        Sge {
            addr: IOVA + offset as u64,
            length,
            lkey: self.key.value(),
        }
    }

    /// What the peer would be told about an offset in the memory.
    pub fn remote(&self, offset: usize) -> RemoteAddress {
        RemoteAddress {
            va: IOVA + offset as u64,
            rkey: self.key.value(),
        }
    }

    /// Registers the memory again, under other conditions.
    pub fn register(&mut self, change: impl FnOnce(&mut KeySpec)) -> Arc<Key> {
        let mut spec = all_of(&self.memory, self.pd);
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

    pub fn try_recv(&mut self, wr_id: u64, offset: usize, length: u32) -> Result<(), PostError> {
        self.post_recv(wr_id, &[self.sge(offset, length)])
    }

    pub fn post_recv(&mut self, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        let request = RecvRequest { wr_id, sges };
        match &self.srq {
            Some(srq) => Ok(srq.post(&request)?),
            None => self.nic.post_recv(self.qpn, &request),
        }
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
}

/// All of the memory with every right, for a key that the peer may invalidate.
fn all_of(memory: &Arc<HeapRegion>, pd: PdId) -> KeySpec {
    KeySpec {
        pd,
        region: memory.clone(),
        offset: 0,
        length: memory.with(|bytes| bytes.len()) as u64,
        iova: IOVA,
        access: Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC,
        bound_qp: None,
        invalidatable: true,
    }
}

fn drain(cq: &CompletionQueue) -> Vec<Completion> {
    let mut completions = Vec::new();
    cq.poll(MANY, |completion| completions.push(completion))
        .expect("the completion queue has not overflowed");
    completions
}
