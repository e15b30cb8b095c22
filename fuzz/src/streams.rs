//! iWARP queue pairs under a hostile peer and a careless program.
//!
//! The input is read as a script: segments (well-formed and framed, in order or not), nonsense, answers, work requests, ends of streams,
//! state changes and time. Whatever it says:
//! - nothing panics, and asking for bytes comes to an end;
//! - what is sent is well-formed, and nothing follows a Terminate;
//! - no byte outside the registered range changes, nor one behind a key that forbids it;
//! - every request ends in exactly one completion, in order;
//! - nothing piles up, and no wait is for ever.

use arbitrary::{Arbitrary, Unstructured};
use nonic_core::iwarp::{Rtr, StreamClosed, StreamEvent, StreamParams, StreamReading, StreamRole};
use nonic_core::{
    Access, CompletionQueue, CqId, Data, HeapRegion, KeySpec, KeyTable, Nic, NicConfig, PdId, QpAttributes,
    QpCapacity, QpInit, QpState, Qpn, RecvRequest, RemoteAddress, SeededEntropy, SendFlags, SendOp,
    SendRequest, Service, Sge, Time,
};
use nonic_wire::iwarp::{
    AtomicOperation, AtomicRequest, Deframer, Framer, Framing, Header, ReadRequest, Segment, SendKind, Tagged,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Runs the script in `bytes`, as far as a fuzzer's patience goes.
pub fn script(bytes: &[u8]) {
    run(bytes, 200);
}

/// Runs at most `max_actions` steps of the script in `bytes`.
pub fn run(bytes: &[u8], max_actions: usize) {
    let mut script = Unstructured::new(bytes);
    let Ok(setup) = script.arbitrary::<Setup>() else {
        return;
    };
    let mut world = World::new(&setup);
    for _ in 0..max_actions {
        if script.is_empty() {
            break;
        }
        let Ok(action) = script.arbitrary::<Action>() else {
            break;
        };
        world.act(&action);
    }
    world.finish();
}

const MARGIN: usize = 512;
const RANGE: usize = 16 << 10;
const IOVA: u64 = 0x10_0000;
const UNTOUCHED: u8 = 0xa5;
const KEY: u32 = 0x100;
const READ_ONLY_KEY: u32 = 0x200;
const INVALIDATABLE_KEY: u32 = 0x300;
const QUEUE_DEPTH: u32 = 16;
const MSS: usize = 1448;

#[derive(Arbitrary, Copy, Clone, Debug)]
struct Setup {
    crc: bool,
    markers: bool,
    initiator: bool,
    promised: bool,
    by_read: bool,
    ird: u8,
    ord: u8,
}

impl Setup {
    fn stream(&self) -> (StreamParams, Framing) {
        let rtr = if self.by_read { Rtr::Read } else { Rtr::Write };
        let role = match self.initiator {
            true => StreamRole::Initiator,
            false => StreamRole::Responder,
        };
        let params = StreamParams {
            role,
            crc: self.crc,
            markers: self.markers,
            ird: u16::from(self.ird % 9),
            ord: u16::from(self.ord % 9),
            rtr: self.promised.then_some(rtr),
        };
        let framing = Framing {
            crc: self.crc,
            markers: self.markers,
        };
        (params, framing)
    }

    /// The `number`-th setup after this one.
    fn turned(&self, number: u8) -> Self {
        let bit = |bit: u8| number & bit != 0;
        Setup {
            crc: self.crc ^ bit(1),
            markers: self.markers ^ bit(8),
            initiator: self.initiator ^ bit(2),
            promised: self.promised ^ bit(4),
            by_read: self.by_read ^ bit(16),
            ird: self.ird.wrapping_add(number),
            ord: self.ord.wrapping_add(number),
        }
    }
}

/// One step of a script. Numbers are reduced to what exists, so that most steps do something.
#[derive(Arbitrary, Debug)]
enum Action {
    Segment(Box<Crafted>),
    Answer { length: Option<u16> },
    Noise { bytes: Vec<u8>, how: u8 },
    Send { op: u8, length: u16, flags: u8 },
    Receive { length: u16 },
    Poll { room: u32, taken: u16 },
    Advance { ms: u16 },
    Close { how: u8 },
    Move { to: u8 },
    Revoke,
}

#[derive(Arbitrary, Debug)]
struct Crafted {
    kind: u8,
    key: u8,
    to: u16,
    /// What is wrong with it; mostly nothing.
    wrong: u8,
    last: bool,
    flag: bool,
    length: u16,
    value: u64,
    cut: u16,
}

impl Crafted {
    /// A wild value in the place with this number, if that is what is wrong.
    fn wild(&self, number: u8) -> Option<u64> {
        (self.wrong % 64 == number).then_some(self.value)
    }

    fn stag(&self) -> u32 {
        match self.key % 32 {
            0 => READ_ONLY_KEY,
            1..4 => INVALIDATABLE_KEY,
            4 => 0xdead,
            _ => KEY,
        }
    }

    fn to(&self) -> u64 {
        self.wild(1)
            .unwrap_or(IOVA + u64::from(self.to) % (RANGE as u64 - 2000))
    }

    fn length(&self) -> u32 {
        u32::from(self.length % 2000)
    }

    fn atomic(&self) -> AtomicRequest {
        AtomicRequest {
            operation: match self.flag {
                true => AtomicOperation::FetchAdd,
                false => AtomicOperation::CompareSwap,
            },
            request_id: self.value as u32,
            stag: self.stag(),
            to: self.to() & !7,
            add_swap: self.value,
            add_swap_mask: self.value.rotate_left(7),
            compare: 0,
            compare_mask: self.value.rotate_left(13),
        }
    }
}

struct World {
    nic: Nic,
    now: Time,
    qpn: Qpn,
    memory: Arc<HeapRegion>,
    send_cq: Arc<CompletionQueue>,
    recv_cq: Arc<CompletionQueue>,
    next_id: u64,
    sends: VecDeque<u64>,
    receives: VecDeque<u64>,
    framer: Framer,
    deframer: Deframer,
    send_msn: u32,
    send_offset: u32,
    read_msn: u32,
    atomic_msn: u32,
    /// What was asked of the peer.
    asked: VecDeque<Header>,
    terminated: bool,
    disconnected: u32,
    closed: bool,
    setup: Setup,
    streams: u8,
}

impl World {
    fn new(setup: &Setup) -> Self {
        let keys = Arc::new(KeyTable::new());
        let pd = keys.alloc_pd();
        let memory = Arc::new(HeapRegion::new(vec![UNTOUCHED; 2 * MARGIN + RANGE]));
        let all = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        register(&keys, pd, &memory, KEY, all);
        register(&keys, pd, &memory, READ_ONLY_KEY, Access::REMOTE_READ);
        register(&keys, pd, &memory, INVALIDATABLE_KEY, all);
        let mut nic = Nic::new(NicConfig::default(), keys, Box::new(SeededEntropy::new(1)));
        let send_cq = Arc::new(CompletionQueue::new(CqId(1), 1000));
        let recv_cq = Arc::new(CompletionQueue::new(CqId(2), 1000));
        let init = QpInit {
            service: Service::Rc,
            pd,
            send_cq: send_cq.clone(),
            recv_cq: recv_cq.clone(),
            srq: None,
            capacity: QpCapacity {
                max_send_wr: QUEUE_DEPTH,
                max_recv_wr: QUEUE_DEPTH,
                ..QpCapacity::default()
            },
            signal_all: true,
        };
        let qpn = nic.create_iwarp_qp(init).expect("there is room");
        let now = Time::from_ns(1);
        let set = QpAttributes {
            access: Some(all - Access::LOCAL_WRITE),
            ..QpAttributes::default()
        };
        nic.modify_qp(now, qpn, &set).expect("rights may be given");
        let (params, framing) = setup.stream();
        nic.stream_attach(now, qpn, &params).expect("it is fresh");
        World {
            nic,
            now,
            qpn,
            memory,
            send_cq,
            recv_cq,
            next_id: 1,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            framer: Framer::new(Framing {
                markers: false,
                ..framing
            }),
            deframer: Deframer::new(framing),
            send_msn: 1,
            send_offset: 0,
            read_msn: 1,
            atomic_msn: 1,
            asked: VecDeque::new(),
            terminated: false,
            disconnected: 0,
            closed: false,
            setup: *setup,
            streams: 0,
        }
    }

    fn act(&mut self, action: &Action) {
        if self.closed {
            self.reconnect();
        }
        match action {
            Action::Segment(crafted) => self.segment(crafted),
            Action::Answer { length } => self.answer(*length),
            // Most streams do not survive this, so it is rare.
            Action::Noise { how, .. } if how % 16 > 1 => {}
            Action::Noise { bytes, how } => {
                let bytes = &bytes[..bytes.len().min(4000)];
                if how % 16 == 0 {
                    let mut out = (bytes.len() as u16).to_be_bytes().to_vec();
                    out.extend_from_slice(bytes);
                    self.framer.seal(&mut out, 0);
                    self.feed(&out, 7);
                } else {
                    self.feed(bytes, 3);
                }
            }
            Action::Send { op, length, flags } => self.send(*op, *length, *flags),
            Action::Receive { length } => self.receive(*length),
            Action::Poll { room, taken } => self.poll(*room as usize % 70_000, usize::from(*taken)),
            Action::Advance { ms } => {
                self.now = self.now + Duration::from_millis(u64::from(*ms));
                self.nic.handle_timeout(self.now);
            }
            Action::Close { how } => {
                let how = match how % 32 {
                    0 => StreamClosed::Broken,
                    1 => StreamClosed::ByPeer,
                    _ => return,
                };
                self.nic.stream_closed(self.now, self.qpn, how);
            }
            Action::Move { to } => {
                let state = match to % 64 {
                    0 => QpState::Sqd,
                    1 => QpState::Sqe,
                    2 => QpState::Error,
                    _ => return,
                };
                self.go_to(state);
            }
            Action::Revoke => {
                let _ = self.nic.keys().try_revoke(INVALIDATABLE_KEY);
            }
        }
        self.check();
    }

    /// Another stream, as different as the first one's numbers make it.
    fn reconnect(&mut self) {
        self.check();
        assert!(
            self.sends.is_empty() && self.receives.is_empty(),
            "every request ends"
        );
        assert_eq!(self.disconnected, 1);
        self.streams += 1;
        self.go_to(QpState::Reset);
        self.go_to(QpState::Init);
        let turned = self.setup.turned(self.streams);
        let (params, framing) = turned.stream();
        self.nic
            .stream_attach(self.now, self.qpn, &params)
            .expect("it is fresh");
        self.framer = Framer::new(Framing {
            markers: false,
            ..framing
        });
        self.deframer = Deframer::new(framing);
        (self.send_msn, self.send_offset, self.read_msn, self.atomic_msn) = (1, 0, 1, 1);
        self.asked.clear();
        (self.terminated, self.disconnected, self.closed) = (false, 0, false);
    }

    fn go_to(&mut self, state: QpState) {
        let set = QpAttributes {
            state: Some(state),
            ..QpAttributes::default()
        };
        // A refused move changes nothing.
        let _ = self.nic.modify_qp(self.now, self.qpn, &set);
    }

    fn segment(&mut self, crafted: &Crafted) {
        let header = self.header(crafted);
        let length = crafted.length();
        match header {
            Header::Send { last: true, .. } | Header::Immediate { .. } => {
                self.send_msn = self.send_msn.wrapping_add(1);
                self.send_offset = 0;
            }
            Header::Send { .. } => self.send_offset += length,
            Header::ReadRequest { .. } | Header::AtomicRequest { .. } => {
                self.read_msn = self.read_msn.wrapping_add(1);
            }
            _ => {}
        }
        let payload = vec![crafted.value as u8; length as usize];
        self.frame(header, &payload, usize::from(crafted.cut));
    }

    /// What would be right next, but for what the script has wrong.
    fn header(&self, crafted: &Crafted) -> Header {
        let (stag, to) = (crafted.stag(), crafted.to());
        let wrong_msn = crafted.wild(2).map(|value| value as u32);
        let wrong_mo = crafted.wild(3).map(|value| value as u32);
        let send_msn = wrong_msn.unwrap_or(self.send_msn);
        let read_msn = wrong_msn.unwrap_or(self.read_msn);
        let tagged = Tagged {
            last: crafted.last,
            stag,
            to,
        };
        match crafted.kind % 32 {
            0..8 => Header::Write(tagged),
            8..16 => Header::Send {
                kind: SendKind {
                    solicited: false,
                    invalidate_stag: (crafted.flag && crafted.last).then_some(INVALIDATABLE_KEY),
                },
                msn: send_msn,
                mo: wrong_mo.unwrap_or(self.send_offset),
                last: crafted.last,
            },
            // Within a SEND it would be out of place.
            16..20 if self.send_offset == 0 => Header::Immediate {
                solicited: crafted.flag,
                msn: send_msn,
                data: crafted.value,
            },
            20..24 => Header::AtomicRequest {
                msn: read_msn,
                request: crafted.atomic(),
            },
            24..31 => Header::ReadRequest {
                msn: read_msn,
                request: ReadRequest {
                    sink_stag: 7,
                    sink_to: crafted.value,
                    size: crafted.length(),
                    source_stag: stag,
                    source_to: to,
                },
            },
            _ => Header::ReadResponse(tagged),
        }
    }

    /// Answers the oldest request of ours, rightly if no other length is given.
    fn answer(&mut self, length: Option<u16>) {
        let Some(asked) = self.asked.pop_front() else {
            return;
        };
        match asked {
            Header::ReadRequest { request, .. } => {
                let length = length.map_or(request.size as usize, usize::from);
                let header = Header::ReadResponse(Tagged {
                    last: true,
                    stag: request.sink_stag,
                    to: request.sink_to,
                });
                self.frame(header, &vec![1; length.min(60_000)], 1000);
            }
            Header::AtomicRequest { request, .. } => {
                let header = Header::AtomicResponse {
                    msn: self.atomic_msn,
                    request_id: request.request_id,
                    original: 5,
                };
                self.atomic_msn = self.atomic_msn.wrapping_add(1);
                self.frame(header, &[], 1000);
            }
            _ => {}
        }
    }

    fn frame(&mut self, header: Header, payload: &[u8], cut: usize) {
        let payload = if header.carries_payload() { payload } else { &[] };
        let mut out = Vec::new();
        self.framer.frame(&Segment { header, payload }, &mut out);
        self.feed(&out, cut);
    }

    /// Hands bytes in, in two pieces, as long as they are wanted.
    fn feed(&mut self, bytes: &[u8], cut: usize) {
        let (first, second) = bytes.split_at(cut.min(bytes.len()));
        for part in [first, second] {
            if self.nic.stream_reading(self.qpn) != StreamReading::Blocked {
                self.nic.stream_received(self.now, self.qpn, part);
            }
        }
    }

    fn send(&mut self, op: u8, length: u16, flags: u8) {
        let remote = RemoteAddress { va: 64, rkey: 5 };
        let length = u32::from(length) % (RANGE as u32 / 2);
        let (op, length) = match op % 8 {
            0 | 1 => (SendOp::Send, length),
            2 => (SendOp::Write(remote), length),
            3 => (SendOp::Read(remote), length),
            4 => (SendOp::WriteWithImmediate(remote, 9), length),
            5 => (SendOp::FetchAdd { remote, add: 1 }, 8),
            6 => (SendOp::SendWithInvalidate(7), length),
            _ => (SendOp::LocalInvalidate(INVALIDATABLE_KEY), 0),
        };
        let lkey = if flags & 0x40 != 0 { INVALIDATABLE_KEY } else { KEY };
        let sges = [Sge {
            addr: IOVA + RANGE as u64 / 2,
            length,
            lkey,
        }];
        let request = SendRequest {
            wr_id: self.next_id,
            op,
            data: Data::Sges(if length == 0 { &[] } else { &sges }),
            flags: SendFlags::from_bits_truncate(u32::from(flags)),
            destination: None,
        };
        if self.nic.post_send(self.now, self.qpn, &request).is_ok() {
            self.sends.push_back(self.next_id);
            self.next_id += 1;
        }
    }

    fn receive(&mut self, length: u16) {
        let sges = [Sge {
            addr: IOVA,
            length: u32::from(length) % RANGE as u32,
            lkey: KEY,
        }];
        let request = RecvRequest {
            wr_id: self.next_id,
            sges: &sges,
        };
        if self.nic.post_recv(self.qpn, &request).is_ok() {
            self.receives.push_back(self.next_id);
            self.next_id += 1;
        }
    }

    /// Takes what is to be sent, which must be well-formed, and tells that some of it was taken.
    fn poll(&mut self, room: usize, taken: usize) {
        let mut buffer = vec![0; room];
        let mut total = 0;
        for _ in 0..10_000 {
            let length = self
                .nic
                .poll_stream_transmit(self.now, self.qpn, MSS, &mut buffer);
            if length == 0 {
                self.nic.stream_written(self.now, self.qpn, total.min(taken));
                return;
            }
            total += length;
            let mut chunk = &buffer[..length];
            while let Some(ulpdu) = self.deframer.next(&mut chunk).expect("we frame rightly") {
                assert!(!self.terminated, "nothing follows a Terminate");
                let segment = Segment::parse(ulpdu).expect("we speak rightly");
                self.terminated = matches!(segment.header, Header::Terminate { .. });
                if matches!(
                    segment.header,
                    Header::ReadRequest { .. } | Header::AtomicRequest { .. }
                ) {
                    self.asked.push_back(segment.header);
                }
            }
            assert!(self.deframer.is_at_boundary(), "FPDUs are whole");
        }
        panic!("the queue pair sends without end");
    }

    fn check(&mut self) {
        self.nic.publish();
        while self.nic.poll_event().is_some() {}
        while let Some(event) = self.nic.poll_stream_event() {
            match event {
                StreamEvent::Receive(_) => {
                    self.nic.stream_received(self.now, self.qpn, &[]);
                }
                StreamEvent::Disconnected(..) => self.disconnected += 1,
                StreamEvent::Close(_) => {
                    assert!(!self.closed, "a stream is closed once");
                    self.closed = true;
                }
                _ => {}
            }
        }
        self.nic.publish();
        let (sends, receives) = (&mut self.sends, &mut self.receives);
        let take = |queue: &mut VecDeque<u64>, id| assert_eq!(queue.pop_front(), Some(id), "in order, once");
        self.send_cq
            .poll(1000, |done| take(sends, done.wr_id))
            .expect("there was room");
        self.recv_cq
            .poll(1000, |done| take(receives, done.wr_id))
            .expect("there was room");
        assert!(self.disconnected <= 1, "a connection ends once");
        assert!(self.nic.usage().timers < 200, "timers pile up");
        self.memory.with(|bytes| {
            let margins = bytes[..MARGIN].iter().chain(&bytes[MARGIN + RANGE..]);
            assert!(
                margins.copied().all(|byte| byte == UNTOUCHED),
                "a byte outside changed"
            );
        });
    }

    /// Every wait ends, and so does every request.
    fn finish(mut self) {
        self.go_to(QpState::Error);
        for _ in 0..10 {
            self.now = self.now + Duration::from_secs(10);
            self.nic.handle_timeout(self.now);
            self.check();
        }
        assert!(self.closed, "the stream is given back");
        assert_eq!(self.disconnected, 1);
        assert!(
            self.sends.is_empty() && self.receives.is_empty(),
            "every request ends"
        );
        assert_eq!(self.nic.poll_timeout(), None, "nothing is waited for");
    }
}

fn register(keys: &KeyTable, pd: PdId, memory: &Arc<HeapRegion>, value: u32, access: Access) {
    let spec = KeySpec {
        pd,
        region: memory.clone(),
        offset: MARGIN,
        length: RANGE as u64,
        iova: IOVA,
        access,
        bound_qp: None,
        invalidatable: value == INVALIDATABLE_KEY,
    };
    let key = keys.register_as(value, spec).expect("it is possible");
    assert!(key.is_some(), "the key is free");
}
