//! The test bench: NICs with one iWARP queue pair each, explicit time, and a stream that does what the test says.
//!
//! - [`End`] is a [`Bench`] whose queue pair sends over a stream. It never sends by itself.
//! - [`Pair`] is two connected ends. [`Pair::exchange`] carries bytes both ways, in chunks of any size, and does with the streams what
//!   the queue pairs ask for.
//! - [`Peer`] is the other end of a stream played by the test: it writes segments by hand and reads what comes.

pub use crate::support::IOVA;

use crate::support::{self, Bench, MANY, Parts, outcomes};
use nonic_core::iwarp::{
    IwarpConfig, Rtr, StreamClosed, StreamEnd, StreamEvent, StreamParams, StreamReading, StreamRole,
};
use nonic_core::{Access, Nic, NicConfig, QpAttributes, QpCapacity, QpInit, Qpn, SendOp, Service, Status};
use nonic_wire::iwarp::{Deframer, Framer, Framing, Header, Segment, Terminate};
use std::time::Duration;

/// TCP's segment size.
pub const MSS: usize = 1448;

/// What a test may choose.
#[derive(Clone, Debug)]
pub struct Setup {
    pub crc: bool,
    pub markers: bool,
    pub ird: u16,
    pub ord: u16,
    pub rtr: Option<Rtr>,
    pub srq: bool,
    pub iwarp: IwarpConfig,
    pub memory: usize,
    pub capacity: QpCapacity,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            crc: true,
            markers: false,
            ird: 4,
            ord: 4,
            rtr: Some(Rtr::Write),
            srq: false,
            iwarp: IwarpConfig::default(),
            memory: 256 << 10,
            capacity: QpCapacity {
                max_send_wr: 64,
                max_recv_wr: 64,
                max_send_sge: 8,
                max_recv_sge: 8,
                max_inline_data: 512,
            },
        }
    }
}

impl Setup {
    pub fn params(&self, role: StreamRole) -> StreamParams {
        StreamParams {
            role,
            crc: self.crc,
            markers: self.markers,
            ird: self.ird,
            ord: self.ord,
            rtr: self.rtr,
        }
    }

    pub fn framing(&self) -> Framing {
        Framing {
            crc: self.crc,
            markers: self.markers,
        }
    }
}

/// A bench whose queue pair sends over a stream.
pub type End = Bench<Stream>;

/// What an [`End`] has beside its bench.
pub struct Stream {
    /// Stream events other than those that the bench acts on by itself.
    pub told: Vec<StreamEvent>,
    /// Whether this end has ended its half, and whether it has closed the stream.
    pub finished: bool,
    pub closed: bool,
    heard_end: bool,
    pub mss: usize,
    capacity: QpCapacity,
}

impl End {
    /// The `number`-th end, its queue pair in INIT.
    pub fn new(number: u8, setup: &Setup) -> End {
        let parts = Parts {
            config: NicConfig {
                iwarp: setup.iwarp,
                ..NicConfig::default()
            },
            memory: setup.memory,
            cq_capacity: 1024,
            capacity: setup.capacity,
            srq: setup.srq,
            invalidatable: true,
        };
        let stream = Stream {
            told: Vec::new(),
            finished: false,
            closed: false,
            heard_end: false,
            mss: MSS,
            capacity: setup.capacity,
        };
        let mut end = Bench::assemble(number, parts, stream);
        end.qpn = end.add_qp();
        end
    }

    pub fn qp_init(&self) -> QpInit {
        self.init_with(Service::Rc, self.capacity, true)
    }

    pub fn add_qp(&mut self) -> Qpn {
        let init = self.qp_init();
        let qpn = self.nic.create_iwarp_qp(init).expect("the queue pair is created");
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let set = QpAttributes {
            access: Some(access),
            ..QpAttributes::default()
        };
        self.modify(qpn, &set).expect("rights may be given");
        qpn
    }

    pub fn attach(&mut self, params: &StreamParams) {
        self.nic
            .stream_attach(self.now, self.qpn, params)
            .expect("the queue pair is fresh");
    }

    #[track_caller]
    pub fn send(&mut self, wr_id: u64, op: SendOp, offset: usize, length: u32) {
        self.try_send(wr_id, op, offset, length)
            .expect("the request is posted");
    }

    #[track_caller]
    pub fn recv(&mut self, wr_id: u64, offset: usize, length: u32) {
        self.try_recv(wr_id, offset, length)
            .expect("the receive is posted");
    }

    /// What there is to send now, all of it taken by TCP.
    pub fn transmit(&mut self) -> Vec<u8> {
        let bytes = self.poll_transmit();
        self.nic.stream_written(self.now, self.qpn, bytes.len());
        self.act();
        bytes
    }

    /// What there is to send now, none of it taken by TCP.
    pub fn poll_transmit(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut buffer = vec![0; Nic::stream_buffer_len()];
        loop {
            let length = self
                .nic
                .poll_stream_transmit(self.now, self.qpn, self.mss, &mut buffer);
            if length == 0 {
                return out;
            }
            out.extend_from_slice(&buffer[..length]);
            assert!(out.len() < 100 << 20, "the queue pair sends without end");
        }
    }

    pub fn receive(&mut self, bytes: &[u8]) -> StreamReading {
        let reading = self.nic.stream_received(self.now, self.qpn, bytes);
        self.act();
        reading
    }

    /// Does with the stream what the queue pair asks for.
    pub fn act(&mut self) {
        while let Some(event) = self.nic.poll_stream_event() {
            match event {
                StreamEvent::Transmit(_) => {}
                StreamEvent::Finish(_) => self.finished = true,
                StreamEvent::Close(_) => self.closed = true,
                other => self.told.push(other),
            }
        }
    }

    pub fn completed(&mut self) -> Vec<(u64, Status)> {
        outcomes(&self.completions())
    }

    pub fn received(&mut self) -> Vec<(u64, Status)> {
        outcomes(&self.receptions())
    }

    /// What the bench was told since it was last asked.
    pub fn told(&mut self) -> Vec<StreamEvent> {
        self.act();
        std::mem::take(&mut self.told)
    }

    /// Why the connection ended, which it must have.
    #[track_caller]
    pub fn end(&mut self) -> StreamEnd {
        let ends: Vec<StreamEnd> = self
            .told()
            .iter()
            .filter_map(|event| match event {
                StreamEvent::Disconnected(_, end) => Some(*end),
                _ => None,
            })
            .collect();
        assert_eq!(ends.len(), 1, "it ends once: {ends:?}");
        ends[0]
    }

    /// Whether nothing more comes from here.
    fn has_ended(&self) -> bool {
        self.finished || self.closed
    }

    /// The other end's half has ended, if it has; returns whether that is news.
    fn hear_end(&mut self, ended: bool) -> bool {
        let news = ended && !self.closed && !std::mem::replace(&mut self.heard_end, ended);
        if news {
            self.nic.stream_closed(self.now, self.qpn, StreamClosed::ByPeer);
            self.act();
        }
        news
    }

    pub fn advance(&mut self, duration: Duration) {
        self.now = self.now + duration;
        self.nic.handle_timeout(self.now);
        self.act();
    }
}

/// Two connected ends. The first is the initiator.
pub struct Pair {
    pub a: End,
    pub b: End,
    /// Bytes that are carried at once.
    pub chunk: usize,
}

impl Pair {
    pub fn new() -> Pair {
        Pair::with(&Setup::default())
    }

    /// Two ends whose ready message has been exchanged.
    pub fn with(setup: &Setup) -> Pair {
        let mut pair = Pair::attached(setup);
        pair.exchange();
        pair.a.told();
        pair.b.told();
        pair
    }

    /// Two ends that have not sent anything.
    pub fn attached(setup: &Setup) -> Pair {
        let mut pair = Pair {
            a: End::new(1, setup),
            b: End::new(2, setup),
            chunk: usize::MAX,
        };
        pair.b.attach(&setup.params(StreamRole::Responder));
        pair.a.attach(&setup.params(StreamRole::Initiator));
        pair
    }

    /// Carries bytes and ends of halves both ways until neither side has more; returns how many bytes.
    #[track_caller]
    pub fn exchange(&mut self) -> usize {
        let mut carried = 0;
        for _ in 0..MANY {
            let (from_a, from_b) = (self.a.transmit(), self.b.transmit());
            let (a_ended, b_ended) = (self.a.has_ended(), self.b.has_ended());
            deliver(&mut self.b, &from_a, self.chunk);
            deliver(&mut self.a, &from_b, self.chunk);
            let ended = [self.b.hear_end(a_ended), self.a.hear_end(b_ended)];
            carried += from_a.len() + from_b.len();
            if from_a.is_empty() && from_b.is_empty() && ended == [false, false] {
                return carried;
            }
        }
        panic!("the two never stop talking");
    }

    /// Lets time pass for both.
    pub fn advance(&mut self, duration: Duration) {
        self.a.advance(duration);
        self.b.advance(duration);
    }
}

fn deliver(to: &mut End, bytes: &[u8], chunk: usize) {
    for part in bytes.chunks(chunk.max(1)) {
        to.receive(part);
    }
}

/// The other end of a stream, played by the test.
pub struct Peer {
    framer: Framer,
    deframer: Deframer,
}

impl Peer {
    pub fn new(setup: &Setup) -> Peer {
        Peer {
            framer: Framer::new(Framing {
                markers: false,
                ..setup.framing()
            }),
            deframer: Deframer::new(setup.framing()),
        }
    }

    /// The FPDU of a segment.
    pub fn frame(&mut self, header: Header, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.framer.frame(&Segment { header, payload }, &mut out);
        out
    }

    /// The FPDU of any bytes.
    pub fn frame_raw(&mut self, ulpdu: &[u8]) -> Vec<u8> {
        let mut out = (ulpdu.len() as u16).to_be_bytes().to_vec();
        out.extend_from_slice(ulpdu);
        self.framer.seal(&mut out, 0);
        out
    }

    /// The segments of a stream.
    #[track_caller]
    pub fn read(&mut self, mut bytes: &[u8]) -> Vec<(Header, Vec<u8>)> {
        let mut segments = Vec::new();
        while let Some(ulpdu) = self.deframer.next(&mut bytes).expect("frames are right") {
            let segment = Segment::parse(ulpdu).expect("segments are right");
            segments.push((segment.header, segment.payload.to_vec()));
        }
        assert!(self.deframer.is_at_boundary(), "FPDUs are whole");
        segments
    }

    /// The Terminate that is all there is in a stream.
    #[track_caller]
    pub fn read_terminate(&mut self, bytes: &[u8]) -> Terminate {
        let segments = self.read(bytes);
        let [(Header::Terminate { msn: 1 }, body)] = &segments[..] else {
            panic!("not a Terminate alone: {segments:?}");
        };
        Terminate::parse(body, true).expect("it has a code").0
    }
}

/// An end whose peer is the test, as responder, with the ready message behind it.
pub fn solo(setup: &Setup) -> (End, Peer) {
    let mut end = End::new(1, setup);
    end.attach(&setup.params(StreamRole::Responder));
    let mut peer = Peer::new(setup);
    let ready = peer.frame(
        Header::Write(nonic_wire::iwarp::Tagged {
            last: true,
            stag: 1,
            to: 0,
        }),
        &[],
    );
    end.receive(&ready);
    end.told();
    (end, peer)
}

/// A recognisable byte sequence: `seed` decides where it starts.
pub fn pattern(seed: u8, length: usize) -> Vec<u8> {
    support::pattern(seed, length).0
}
