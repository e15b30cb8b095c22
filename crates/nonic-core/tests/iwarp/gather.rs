//! Output in pieces: the same bytes as in one buffer, with payload left where it is.

use crate::iwarp::bench::{End, IOVA, Peer, Setup, pattern, solo};
use nonic_core::iwarp::{StreamGather, StreamRole};
use nonic_core::memory::Region;
use nonic_core::{Data, RemoteAddress, SendFlags, SendOp, Status};
use nonic_wire::iwarp::{Header, ReadRequest};
use std::sync::Arc;

/// Collects pieces, and reads memory as a system call would.
struct Pieces {
    stream: Vec<u8>,
    limit: usize,
    pieces: usize,
    copied: usize,
    direct: usize,
}

impl StreamGather for Pieces {
    fn room(&self) -> usize {
        self.limit - self.stream.len()
    }

    fn pieces(&self) -> usize {
        self.pieces
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.stream.extend_from_slice(bytes);
        self.copied += bytes.len();
        self.pieces -= 1;
    }

    fn memory(&mut self, region: &Arc<dyn Region>, offset: usize, length: usize) {
        let start = self.stream.len();
        self.stream.resize(start + length, 0);
        region
            .read(offset, &mut self.stream[start..])
            .expect("it is within the region");
        self.direct += length;
        self.pieces -= 1;
    }
}

fn gather(end: &mut End, limit: usize, pieces: usize) -> Pieces {
    let mut sink = Pieces {
        stream: Vec::new(),
        limit,
        pieces,
        copied: 0,
        direct: 0,
    };
    let length = end.nic.gather_stream(end.now, end.qpn, 1448, &mut sink);
    assert_eq!(length, sink.stream.len());
    sink
}

fn plain() -> Setup {
    Setup {
        crc: false,
        ..Setup::default()
    }
}

/// An end with some of everything to send.
fn busy(setup: &Setup) -> End {
    let (mut end, mut peer) = solo(setup);
    end.fill(0, &pattern(1, 20_000));
    let request = ReadRequest {
        sink_stag: 1,
        sink_to: 0,
        size: 5000,
        source_stag: end.key.value(),
        source_to: IOVA + 7,
    };
    let frame = peer.frame(Header::ReadRequest { msn: 1, request }, &[]);
    end.receive(&frame);
    let to = RemoteAddress { va: 64, rkey: 5 };
    end.send(1, SendOp::Send, 3, 3001);
    end.send(2, SendOp::Write(to), 0, 10_000);
    let sges: Vec<_> = (0..8).map(|i| end.sge(i * 100, 50)).collect();
    end.post(3, SendOp::Write(to), Data::Sges(&sges), SendFlags::empty())
        .expect("posted");
    end.post(4, SendOp::Send, Data::Inline(b"inline"), SendFlags::empty())
        .expect("posted");
    end.send(5, SendOp::Read(to), 0, 10);
    end
}

#[test]
fn pieces_add_up_to_the_same_stream() {
    let whole = busy(&plain()).transmit();
    let mut end = busy(&plain());
    assert!(end.nic.can_gather_stream(end.qpn));
    let sink = gather(&mut end, usize::MAX, usize::MAX);
    assert!(sink.stream == whole);
    assert!(sink.direct > 17_000, "{} bytes were not copied", sink.direct);
    assert!(sink.copied < 1500, "{} bytes were copied", sink.copied);
}

#[test]
fn pieces_may_be_asked_for_a_few_at_a_time() {
    let whole = busy(&plain()).transmit();
    for (limit, pieces) in [(1500, usize::MAX), (usize::MAX, 10), (3000, 20)] {
        let mut end = busy(&plain());
        let mut stream = Vec::new();
        loop {
            let sink = gather(&mut end, limit, pieces);
            if sink.stream.is_empty() {
                break;
            }
            stream.extend(sink.stream);
        }
        assert!(stream == whole, "{limit} {pieces}");
        end.nic.stream_written(end.now, end.qpn, stream.len());
        assert_eq!(end.completed(), [1, 2, 3, 4].map(|id| (id, Status::Success)));
    }
}

#[test]
fn streams_with_crcs_or_markers_are_not_sent_in_pieces() {
    for setup in [
        Setup::default(),
        Setup {
            markers: true,
            ..plain()
        },
    ] {
        let mut end = End::new(1, &setup);
        end.attach(&setup.params(StreamRole::Initiator));
        end.send(1, SendOp::Send, 0, 100);
        assert!(!end.nic.can_gather_stream(end.qpn));
        assert!(gather(&mut end, usize::MAX, usize::MAX).stream.is_empty());
        let mut peer = Peer::new(&setup);
        let out = end.transmit();
        assert_eq!(peer.read(&out).len(), 2, "nothing is lost");
    }
}

#[test]
fn a_revoked_key_ends_a_stream_in_pieces_too() {
    let (mut end, mut peer) = solo(&plain());
    let key = end.register(|_| {});
    let sges = [nonic_core::Sge {
        lkey: key.value(),
        ..end.sge(0, 5000)
    }];
    end.post(1, SendOp::Send, Data::Sges(&sges), SendFlags::empty())
        .expect("posted");
    let first = gather(&mut end, 1500, usize::MAX);
    assert_eq!(peer.read(&first.stream).len(), 1);
    end.nic.keys().revoke(key.value());
    let rest = gather(&mut end, usize::MAX, usize::MAX);
    peer.read_terminate(&rest.stream);
    assert_eq!(end.completed(), [(1, Status::LocalProtection)]);
}
