//! PSNs wrap at 24 bits, and the longest message spans half of them.

use crate::support::{Fate, Pair, Setup, Side, Solo, ms, pattern};
use crate::{completed, post, received, recv, sent};
use nonic_core::{
    Access, Data, Fault, KeySpec, PathMtu, Psn, QpState, Region, SendFlags, SendOp, Sge, Status,
};
use nonic_wire::{Opcode, Reth, Syndrome};
use std::sync::Arc;

#[test]
fn everything_works_across_the_wrap() {
    for first_psn in [0xff_fffe, 0xff_ffff, 0, 0x7f_ffff, 0x80_0000] {
        let mut pair = Pair::new(&Setup {
            first_psn,
            second_psn: first_psn,
            ..Setup::rc()
        });
        let bytes = pattern(1, 3000);
        pair.a.fill(0, &bytes);
        let remote = pair.b.remote(8192);
        recv!(pair.b, 9, 0, 4096);
        post!(pair.a, 1, SendOp::Send, 0, 3000);
        post!(pair.a, 2, SendOp::Write(remote), 0, 3000);
        post!(pair.a, 3, SendOp::Read(remote), 8192, 3000);
        post!(pair.a, 4, SendOp::FetchAdd { remote, add: 0 }, 0, 8);
        pair.exchange();
        assert_eq!(pair.a.completions().len(), 4, "{first_psn:#x}");
        received!(pair.b, [(9, Status::Success)]);
        assert_eq!(pair.a.bytes(8192, 3000), bytes);
    }
}

#[test]
fn losses_at_the_wrap_are_repaired() {
    for lost in 0..12 {
        let mut pair = Pair::new(&Setup {
            first_psn: 0xff_fffd,
            ..Setup::rc()
        });
        let bytes = pattern(1, 6000);
        pair.a.fill(0, &bytes);
        let remote = pair.b.remote(8192);
        post!(pair.a, 1, SendOp::Write(remote), 0, 6000);
        post!(pair.a, 2, SendOp::Read(remote), 64 << 10, 6000);
        let mut count = 0;
        let mut lose = |_: Side, _: &crate::support::Wire| {
            count += 1;
            if count == lost + 1 {
                Fate::Drop
            } else {
                Fate::Deliver
            }
        };
        pair.exchange_with(&mut lose);
        pair.advance(ms(70));
        pair.exchange_with(&mut lose);
        completed!(pair.a, [(1, Status::Success), (2, Status::Success)]);
        assert_eq!(pair.a.bytes(64 << 10, 6000), bytes);
    }
}

#[test]
fn a_duplicate_from_before_the_wrap_is_a_duplicate() {
    let mut solo = Solo::new(&Setup {
        second_psn: 0xff_ffff,
        ..Setup::rc()
    });
    recv!(solo, 1, 0, 8);
    recv!(solo, 2, 0, 8);
    solo.request(Opcode::RC_SEND_ONLY, 0, b"old.");
    solo.request(Opcode::RC_SEND_ONLY, 1, b"new.");
    solo.request(Opcode::RC_SEND_ONLY, 0, b"old.");
    received!(solo, [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(solo.nic.counters().rx_duplicates, 1);
    assert_eq!(sent!(solo, [RC_ACKNOWLEDGE])[0].psn(), Psn::new(0));
}

/// Two GiB that are there only in name: writes vanish, reads are zeros.
struct Vast;

const TWO_GIB: u32 = 1 << 31;

impl Region for Vast {
    fn len(&self) -> usize {
        TWO_GIB as usize
    }

    fn read(&self, _: usize, out: &mut [u8]) -> Result<(), Fault> {
        out.fill(0);
        Ok(())
    }

    fn write(&self, _: usize, _: &[u8]) -> Result<(), Fault> {
        Ok(())
    }

    fn compare_swap(&self, _: usize, _: u64, _: u64) -> Result<u64, Fault> {
        Err(Fault)
    }

    fn fetch_add(&self, _: usize, _: u64) -> Result<u64, Fault> {
        Err(Fault)
    }
}

fn vast_key(node: &mut crate::support::Node) -> u32 {
    let spec = KeySpec {
        pd: node.pd,
        region: Arc::new(Vast),
        offset: 0,
        length: u64::from(TWO_GIB),
        iova: 0,
        access: Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE,
        bound_qp: None,
        invalidatable: false,
    };
    node.nic.register(spec).expect("registered").value()
}

#[test]
fn a_read_of_two_gib_at_the_smallest_mtu_spans_half_the_sequence() {
    let mut solo = Solo::new(&Setup {
        mtu: PathMtu::Mtu256,
        max_segments: 1,
        ..Setup::rc()
    });
    let rkey = vast_key(&mut solo);
    let packets = TWO_GIB / 256;
    assert_eq!(packets, 1 << 23);
    let whole = Reth {
        va: 0,
        rkey,
        dma_len: TWO_GIB,
    };
    solo.request_with(Opcode::RC_RDMA_READ_REQUEST, 0, &[], |headers| {
        headers.reth = whole
    });
    let mut buffer = vec![0; nonic_core::MAX_BATCH_LEN];
    let now = solo.now;
    assert!(solo.nic.poll_transmit(now, 1, &mut buffer).is_some());
    // The first PSN is as far from the expected one as can be, and still a duplicate, which is being
    // answered already; the next request is what is expected.
    solo.request_with(Opcode::RC_RDMA_READ_REQUEST, 5, &[], |headers| {
        headers.reth = Reth {
            va: 5 * 256,
            dma_len: TWO_GIB - 5 * 256,
            ..whole
        };
    });
    recv!(solo, 1, 0, 8);
    solo.request(Opcode::RC_SEND_ONLY, packets, b"done");
    received!(solo, [(1, Status::Success)]);
    assert_eq!(solo.state(), QpState::Rts);
}

#[test]
fn a_read_of_two_gib_is_asked_for_in_pieces() {
    let mut solo = Solo::new(&Setup {
        mtu: PathMtu::Mtu256,
        ..Setup::rc()
    });
    let lkey = vast_key(&mut solo);
    let remote = solo.remote(0);
    let element = Sge {
        addr: 0,
        length: TWO_GIB,
        lkey,
    };
    solo.post(
        1,
        SendOp::Read(remote),
        Data::Sges(&[element]),
        SendFlags::SIGNALED,
    )
    .expect("two GiB is the limit, not beyond it");
    let requests = solo.transmit();
    let lengths: Vec<u32> = requests.iter().map(|wire| wire.headers().reth.dma_len).collect();
    let asked: u32 = lengths.iter().sum();
    assert!(asked <= solo.setup.window.initial, "{asked} bytes at once");
    assert!(
        lengths.len() > 1,
        "in pieces: the next is asked for before all have come"
    );
    let mut place = 0;
    for packets in lengths.iter().map(|length| length / 256) {
        for index in 0..packets {
            let opcode = match index {
                0 => Opcode::RC_RDMA_READ_RESPONSE_FIRST,
                last if last + 1 == packets => Opcode::RC_RDMA_READ_RESPONSE_LAST,
                _ => Opcode::RC_RDMA_READ_RESPONSE_MIDDLE,
            };
            solo.respond(opcode, place, Syndrome::ack(), &[0; 256]);
            place += 1;
        }
    }
    assert!(!solo.transmit().is_empty());
    assert_eq!(solo.state(), QpState::Rts);
}

#[test]
fn more_than_two_gib_cannot_be_posted() {
    let mut solo = Solo::rc();
    let lkey = vast_key(&mut solo);
    let element = Sge {
        addr: 0,
        length: TWO_GIB,
        lkey,
    };
    let more = Sge { length: 1, ..element };
    let posted = solo.post(1, SendOp::Send, Data::Sges(&[element, more]), SendFlags::empty());
    assert_eq!(posted, Err(nonic_core::PostError::Length));
}

#[test]
fn a_send_that_never_ends_is_refused_at_two_gib() {
    // Three elements of two GiB: more room than a message may have.
    let mut solo = Solo::new(&Setup {
        mtu: PathMtu::Mtu4096,
        ..Setup::rc()
    });
    let lkey = vast_key(&mut solo);
    let element = Sge {
        addr: 0,
        length: TWO_GIB,
        lkey,
    };
    solo.post_recv(1, &[element; 3]).expect("posted");
    let payload = [0; 4096];
    let mut wire = crate::support::Wire::build(
        solo.flow(),
        {
            let mut headers = solo.headers(Opcode::RC_SEND_FIRST, 0);
            headers.bth.ack_request = false;
            headers
        },
        &payload,
    );
    solo.receive(&wire);
    let middle = {
        let mut headers = solo.headers(Opcode::RC_SEND_MIDDLE, 1);
        headers.bth.ack_request = false;
        headers
    };
    wire = crate::support::Wire::build(solo.flow(), middle, &payload);
    for index in 1..TWO_GIB / 4096 {
        // Only the PSN differs from packet to packet.
        let psn = solo.peer.psn.add(index).value().to_be_bytes();
        wire.bytes[9..12].copy_from_slice(&psn[1..]);
        wire.seal();
        solo.receive(&wire);
    }
    assert_eq!(solo.state(), QpState::Rts, "two GiB are allowed");
    solo.request(Opcode::RC_SEND_LAST, TWO_GIB / 4096, &[0; 1]);
    assert_eq!(solo.state(), QpState::Error);
    received!(solo, [(1, Status::LocalQpOperation)]);
}
