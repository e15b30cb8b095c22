//! ATOMIC_WRITE and FLUSH: requests that the peer answers with a READ response without data.

use crate::support::{Node, Pair, Setup, Solo, ms};
use crate::{completed, post, sent};
use nonic_core::{
    Access, CompletionOpcode, Data, Fault, Flush, FlushRange, HeapRegion, KeySpec, Placement, PostError,
    QpState, Region, RemoteAddress, SendFlags, SendOp, Status,
};
use nonic_wire::{NakCode, Opcode, Reth, Syndrome};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const INVALID: Syndrome = Syndrome::nak(NakCode::InvalidRequest);
const ACCESS: Syndrome = Syndrome::nak(NakCode::RemoteAccessError);

/// A pair whose queue pairs permit everything there is.
fn pair() -> Pair {
    let setup = Setup::rc();
    Pair::new(&Setup {
        access: setup.access | Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT,
        ..setup
    })
}

fn atomic_write(node: &mut Node, wr_id: u64, remote: RemoteAddress, value: u64) {
    let bytes = value.to_ne_bytes();
    node.post(
        wr_id,
        SendOp::AtomicWrite(remote),
        Data::Inline(&bytes),
        SendFlags::SIGNALED,
    )
    .expect("the request is posted");
}

/// A flush of 100 bytes of the second node, whose key permits it.
fn flush(pair: &mut Pair, placement: Placement) -> Flush {
    let key = pair.b.register(|spec| {
        spec.access |= Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT;
    });
    Flush {
        remote: RemoteAddress {
            va: key.iova(),
            rkey: key.value(),
        },
        length: 100,
        placement,
        range: FlushRange::Named,
    }
}

fn post_flush(node: &mut Node, wr_id: u64, flush: Flush) {
    node.post(wr_id, SendOp::Flush(flush), Data::Sges(&[]), SendFlags::SIGNALED)
        .expect("the request is posted");
}

#[test]
fn an_atomic_write_replaces_the_word_and_is_answered_by_an_empty_response() {
    let mut pair = pair();
    pair.b.set_word(16, 5);
    let remote = pair.b.remote(16);
    atomic_write(&mut pair.a, 1, remote, 0x1122_3344_5566_7788);
    let request = sent!(pair.a, [RC_ATOMIC_WRITE]);
    assert_eq!(request[0].headers().reth.dma_len, 8);
    pair.b.receive_all(&request);
    assert_eq!(pair.b.word(16), 0x1122_3344_5566_7788);
    let answer = sent!(pair.b, [RC_RDMA_READ_RESPONSE_ONLY]);
    assert_eq!(answer[0].payload(), []);
    assert_eq!(answer[0].psn(), request[0].psn());
    assert_eq!(answer[0].headers().aeth.msn, 1);
    pair.a.receive_all(&answer);
    let done = completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(done[0].opcode, CompletionOpcode::AtomicWrite);
    assert_eq!(done[0].byte_len, 0);
}

#[test]
fn an_atomic_write_may_come_from_registered_memory_that_is_only_read() {
    let mut pair = pair();
    pair.a.set_word(0, 77);
    let key = pair.a.register(|spec| spec.access = Access::empty());
    let sge = nonic_core::Sge {
        lkey: key.value(),
        ..pair.a.sge(0, 8)
    };
    let remote = pair.b.remote(8);
    let op = SendOp::AtomicWrite(remote);
    let flags = SendFlags::SIGNALED;
    pair.a.post(1, op, Data::Sges(&[sge]), flags).expect("posted");
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(pair.b.word(8), 77);
}

#[test]
fn an_atomic_write_is_eight_bytes_and_needs_no_inline_capacity() {
    let mut setup = Setup::rc();
    setup.capacity.max_inline_data = 0;
    let mut pair = Pair::new(&setup);
    let op = SendOp::AtomicWrite(pair.b.remote(0));
    let flags = SendFlags::SIGNALED;
    let mut post = |bytes: &[u8]| pair.a.post(1, op, Data::Inline(bytes), flags);
    assert_eq!(post(&[0; 7]), Err(PostError::Length));
    assert_eq!(post(&[0; 9]), Err(PostError::Inline));
    assert_eq!(post(&[0; 8]), Ok(()));
}

#[test]
fn a_repeated_atomic_write_is_answered_again_and_not_executed_again() {
    let mut pair = pair();
    let remote = pair.b.remote(0);
    atomic_write(&mut pair.a, 1, remote, 1);
    let request = pair.a.transmit();
    pair.b.receive_all(&request);
    let first = sent!(pair.b, [RC_RDMA_READ_RESPONSE_ONLY]);
    pair.b.set_word(0, 9);
    pair.b.receive_all(&request);
    let second = sent!(pair.b, [RC_RDMA_READ_RESPONSE_ONLY]);
    assert_eq!(first[0].bytes, second[0].bytes);
    assert_eq!(pair.b.word(0), 9);
}

#[test]
fn a_lost_answer_to_an_atomic_write_is_asked_for_again() {
    let mut pair = pair();
    let remote = pair.b.remote(0);
    atomic_write(&mut pair.a, 1, remote, 1);
    post!(pair.a, 2, SendOp::Write(remote), 64, 8);
    let requests = pair.a.transmit();
    pair.b.receive_all(&requests);
    let answers = sent!(pair.b, [RC_RDMA_READ_RESPONSE_ONLY, RC_ACKNOWLEDGE]);
    // The acknowledgement behind it has overtaken it; that it was lost shows when it stays away.
    pair.a.receive(&answers[1]);
    completed!(pair.a, []);
    sent!(pair.a, []);
    pair.advance(ms(1));
    pair.exchange();
    completed!(pair.a, [(1, Status::Success), (2, Status::Success)]);
}

#[test]
fn atomic_writes_count_among_those_under_way() {
    let mut pair = Pair::new(&Setup {
        max_rd_atomic: 2,
        ..Setup::rc()
    });
    let remote = pair.b.remote(0);
    for wr_id in 1..=3 {
        atomic_write(&mut pair.a, wr_id, remote, wr_id);
    }
    sent!(pair.a, [RC_ATOMIC_WRITE, RC_ATOMIC_WRITE]);
}

#[test]
fn a_fenced_request_waits_for_an_atomic_write() {
    let mut pair = pair();
    let remote = pair.b.remote(0);
    atomic_write(&mut pair.a, 1, remote, 1);
    let data = [pair.a.sge(64, 8)];
    let flags = SendFlags::SIGNALED | SendFlags::FENCE;
    pair.a
        .post(2, SendOp::Write(remote), Data::Sges(&data), flags)
        .expect("posted");
    sent!(pair.a, [RC_ATOMIC_WRITE]);
}

#[test]
fn atomic_write_and_flush_need_fetches_and_reliability() {
    let none = Setup {
        max_rd_atomic: 0,
        ..Setup::rc()
    };
    let flags = SendFlags::SIGNALED;
    for (setup, error) in [
        (none, PostError::NoFetches),
        (Setup::uc(), PostError::Unsupported),
    ] {
        let mut pair = Pair::new(&setup);
        let op = SendOp::AtomicWrite(pair.b.remote(0));
        assert_eq!(pair.a.post(1, op, Data::Inline(&[0; 8]), flags), Err(error));
        let op = SendOp::Flush(flush(&mut pair, Placement::GLOBAL));
        assert_eq!(pair.a.post(1, op, Data::Sges(&[]), flags), Err(error));
    }
}

/// What the node answers to an ATOMIC_WRITE with these headers and bytes.
#[track_caller]
fn answer_to(solo: &mut Solo, reth: Reth, payload: &[u8]) -> Syndrome {
    solo.request_with(Opcode::RC_ATOMIC_WRITE, 0, payload, |headers| {
        headers.reth = reth;
    });
    let answers = sent!(solo, [RC_ACKNOWLEDGE]);
    assert_eq!(solo.state(), QpState::Error);
    assert_eq!(solo.word(0), 0);
    answers[0].syndrome()
}

#[test]
fn a_malformed_atomic_write_is_refused() {
    for (va, dma_len, length) in [(0, 8, 4), (0, 8, 12), (0, 4, 8), (4, 8, 8)] {
        let mut solo = Solo::rc();
        let remote = solo.remote(va);
        let reth = Reth {
            va: remote.va,
            rkey: remote.rkey,
            dma_len,
        };
        let payload = vec![1; length];
        assert_eq!(answer_to(&mut solo, reth, &payload), INVALID);
    }
}

#[test]
fn an_atomic_write_needs_the_right_to_write() {
    let mut solo = Solo::new(&Setup {
        access: Access::REMOTE_ATOMIC | Access::REMOTE_READ,
        ..Setup::rc()
    });
    let remote = solo.remote(0);
    let reth = |remote: RemoteAddress| Reth {
        va: remote.va,
        rkey: remote.rkey,
        dma_len: 8,
    };
    assert_eq!(answer_to(&mut solo, reth(remote), &[1; 8]), INVALID);

    let mut solo = Solo::rc();
    let key = solo.register(|spec| spec.access = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC);
    let rkey = key.value();
    let remote = RemoteAddress {
        rkey,
        ..solo.remote(0)
    };
    assert_eq!(answer_to(&mut solo, reth(remote), &[1; 8]), ACCESS);
}

#[test]
fn an_answer_with_data_is_none_to_an_atomic_write() {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    atomic_write(&mut solo, 1, remote, 1);
    solo.transmit();
    solo.respond(Opcode::RC_RDMA_READ_RESPONSE_ONLY, 0, Syndrome::ack(), &[0; 8]);
    completed!(solo, [(1, Status::BadResponse)]);
}

#[test]
fn a_flush_names_its_range_and_is_answered_by_an_empty_response() {
    let mut pair = pair();
    let asked = flush(&mut pair, Placement::GLOBAL);
    post_flush(&mut pair.a, 1, asked);
    let request = sent!(pair.a, [RC_FLUSH]);
    let headers = request[0].headers();
    assert_eq!((headers.reth.va, headers.reth.dma_len), (asked.remote.va, 100));
    assert_eq!((headers.feth.placement, headers.feth.selectivity), (1, 0));
    assert_eq!(request[0].payload(), []);
    pair.b.receive_all(&request);
    let answer = sent!(pair.b, [RC_RDMA_READ_RESPONSE_ONLY]);
    pair.a.receive_all(&answer);
    let done = completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(done[0].opcode, CompletionOpcode::Flush);
}

#[test]
fn a_repeated_flush_is_answered_again() {
    let mut pair = pair();
    let asked = flush(&mut pair, Placement::GLOBAL);
    post_flush(&mut pair.a, 1, asked);
    let request = pair.a.transmit();
    pair.b.receive_all(&request);
    sent!(pair.b, [RC_RDMA_READ_RESPONSE_ONLY]);
    pair.b.receive_all(&request);
    sent!(pair.b, [RC_RDMA_READ_RESPONSE_ONLY]);
}

#[test]
fn a_flush_of_a_whole_key_needs_no_range() {
    let mut pair = pair();
    let mut asked = flush(&mut pair, Placement::GLOBAL);
    asked.range = FlushRange::WholeKey;
    asked.remote.va = 1;
    post_flush(&mut pair.a, 1, asked);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
}

#[test]
fn a_flush_must_stay_in_its_key() {
    let mut pair = pair();
    let mut asked = flush(&mut pair, Placement::GLOBAL);
    asked.length = pair.b.setup.memory as u32 + 1;
    post_flush(&mut pair.a, 1, asked);
    pair.exchange();
    completed!(pair.a, [(1, Status::RemoteAccess)]);
}

#[test]
fn a_flush_must_be_for_something() {
    let mut pair = pair();
    let asked = flush(&mut pair, Placement::empty());
    let flags = SendFlags::SIGNALED;
    let posted = pair.a.post(1, SendOp::Flush(asked), Data::Sges(&[]), flags);
    assert_eq!(posted, Err(PostError::Unsupported));
}

#[test]
fn a_flush_needs_the_queue_pairs_permission() {
    let mut pair = Pair::rc();
    let asked = flush(&mut pair, Placement::GLOBAL);
    post_flush(&mut pair.a, 1, asked);
    pair.exchange();
    completed!(pair.a, [(1, Status::RemoteInvalidRequest)]);
}

#[test]
fn a_flush_needs_the_keys_permission() {
    let mut pair = pair();
    let mut asked = flush(&mut pair, Placement::GLOBAL);
    asked.remote = pair.b.remote(0);
    post_flush(&mut pair.a, 1, asked);
    pair.exchange();
    completed!(pair.a, [(1, Status::RemoteAccess)]);
}

#[test]
fn ordinary_memory_cannot_be_made_to_persist() {
    let mut pair = pair();
    let asked = flush(&mut pair, Placement::GLOBAL | Placement::PERSISTENT);
    post_flush(&mut pair.a, 1, asked);
    pair.exchange();
    completed!(pair.a, [(1, Status::RemoteAccess)]);
}

/// Memory that notes how much of it was made to persist.
struct Persistent {
    memory: HeapRegion,
    persisted: AtomicUsize,
}

impl Region for Persistent {
    fn len(&self) -> usize {
        self.memory.len()
    }

    fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), Fault> {
        self.memory.read(offset, out)
    }

    fn write(&self, offset: usize, data: &[u8]) -> Result<(), Fault> {
        self.memory.write(offset, data)
    }

    fn compare_swap(&self, offset: usize, compare: u64, swap: u64) -> Result<u64, Fault> {
        self.memory.compare_swap(offset, compare, swap)
    }

    fn fetch_add(&self, offset: usize, add: u64) -> Result<u64, Fault> {
        self.memory.fetch_add(offset, add)
    }

    fn persist(&self, _offset: usize, length: usize) -> Result<(), Fault> {
        self.persisted.fetch_add(length, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn persistent_memory_is_told_what_to_keep() {
    let mut pair = pair();
    let memory = Arc::new(Persistent {
        memory: HeapRegion::zeroed(4096),
        persisted: AtomicUsize::new(0),
    });
    let pd = pair.b.pd;
    let key = pair.b.nic.register(KeySpec {
        pd,
        region: memory.clone(),
        offset: 0,
        length: 4096,
        iova: 0,
        access: Access::FLUSH_PERSISTENT,
        bound_qp: None,
        invalidatable: false,
    });
    let asked = Flush {
        remote: RemoteAddress {
            va: 0,
            rkey: key.expect("registered").value(),
        },
        length: 300,
        placement: Placement::PERSISTENT,
        range: FlushRange::Named,
    };
    post_flush(&mut pair.a, 1, asked);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(memory.persisted.load(Ordering::Relaxed), 300);
}

#[test]
fn a_flood_of_flushes_costs_bounded_memory() {
    let mut solo = Solo::new(&Setup {
        access: Access::FLUSH_GLOBAL,
        ..Setup::rc()
    });
    let key = solo.register(|spec| spec.access |= Access::FLUSH_GLOBAL);
    for index in 0..2000 {
        solo.request_with(Opcode::RC_FLUSH, index, &[], |headers| {
            headers.reth.rkey = key.value();
            headers.reth.va = key.iova();
            headers.feth.placement = 1;
        });
    }
    let answers = solo.transmit().len();
    assert!((100..=520).contains(&answers), "{answers} answers");
    assert_eq!(solo.state(), QpState::Rts);
}
