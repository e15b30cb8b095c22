//! A whole NIC under a hostile peer and a careless program.
//!
//! The input is read as a script: packets (nonsense, or well-formed with a valid ICRC), work requests, state
//! changes and time. Whatever it says:
//! - nothing panics, and asking for packets comes to an end;
//! - no byte outside the registered range changes, nor one behind a key that forbids it;
//! - every request ends in exactly one completion, in order;
//! - nothing piles up.

use arbitrary::{Arbitrary, Unstructured};
use nonic_core::{
    Access, AckTimeout, Arrival, Completion, CompletionQueue, CqId, Data, Destination, Endpoint, Flush,
    FlushRange, HeapRegion, KeySpec, KeyTable, MAX_BATCH_LEN, Nic, NicConfig, Path, PathMtu, PdId, Placement,
    Psn, QpAttributes, QpCapacity, QpInit, QpState, Qpn, ReceiveQueue, RecvRequest, RemoteAddress, RnrTimer,
    SeededEntropy, SendFlags, SendOp, SendRequest, Service, Sge, SrqId, Time, WindowBind, WindowKind,
    XrcDomain,
};
use nonic_wire::{
    Aeth, AtomicEth, Bth, Deth, Feth, Flow, Headers, Opcode, Packet, ROCE_PORT, Reth, Syndrome,
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Runs the script in `bytes`, as far as a fuzzer's patience goes.
pub fn packets(bytes: &[u8]) {
    run(bytes, 200);
}

/// Runs at most `max_actions` steps of the script in `bytes`.
pub fn run(bytes: &[u8], max_actions: usize) {
    let mut world = World::new();
    let mut script = Unstructured::new(bytes);
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

const US: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
/// The queue pairs, by index.
const SERVICES: [Service; 6] = [
    Service::Rc,
    Service::Rc,
    Service::Uc,
    Service::Ud,
    Service::Xrc,
    Service::Xrc,
];
/// The index of the datagram queue pair.
const DATAGRAM: usize = 3;
/// The index of the queue pair that sends to the peer's SRQs.
const INITIATOR: usize = 4;
/// The index of the queue pair that serves our SRQ.
const TARGET: usize = 5;
const DOMAIN: XrcDomain = XrcDomain(1);
const QKEY: u32 = 0x1111;
const MTU: usize = 256;
const START_PSN: u32 = 0xff_fffa;

/// Memory: a margin that no request may touch, the registered range, another margin.
const MARGIN: usize = 512;
const RANGE: usize = 16 << 10;
const IOVA: u64 = 0x10_0000;
const UNTOUCHED: u8 = 0xa5;

const KEY: u32 = 0x100;
const READ_ONLY_KEY: u32 = 0x200;
const INVALIDATABLE_KEY: u32 = 0x300;

const REMOTE: Access = Access::REMOTE_READ
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::FLUSH_GLOBAL);

/// More timers than queue pairs need; a few are left over when deadlines move.
const MAX_TIMERS: usize = 200;

/// More packets than these scripts can ask for before the next poll.
const MAX_PACKETS_PER_POLL: usize = 50_000;
const QUEUE_DEPTH: u32 = 64;

/// One step of a script. Numbers are reduced to what exists, so that most steps do something.
#[derive(Arbitrary, Debug)]
enum Action {
    Packet(Box<Crafted>),
    Noise {
        bytes: Vec<u8>,
        sealed: bool,
        to: Option<u8>,
    },
    Send {
        qp: u8,
        op: Operation,
        length: u16,
        flags: u8,
    },
    Receive {
        qp: u8,
        length: u16,
    },
    Advance {
        us: u32,
    },
    Poll,
    Publish,
    Move {
        qp: u8,
        to: u8,
    },
    Revoke,
}

#[derive(Arbitrary, Debug)]
enum Operation {
    Send,
    SendWithImmediate,
    SendWithInvalidate,
    Write,
    WriteWithImmediate,
    Read,
    CompareSwap,
    FetchAdd,
    LocalInvalidate,
    BindWindow,
    AtomicWrite,
    Flush,
}

/// A well-formed packet.
#[derive(Arbitrary, Debug)]
struct Crafted {
    qp: u8,
    opcode: u8,
    psn: PsnChoice,
    ack_request: bool,
    solicited: bool,
    key: KeyChoice,
    at: u16,
    length: Length,
    syndrome: u8,
    value: u64,
    payload: u16,
    from_elsewhere: bool,
}

#[derive(Arbitrary, Debug)]
enum PsnChoice {
    /// The next request of this peer.
    Next,
    /// A request sent before.
    Before(u8),
    /// One that leaves a gap.
    Gap(u8),
    /// An answer to what the NIC sent last, or shortly before.
    Answer(u8),
    Any(u32),
}

#[derive(Arbitrary, Debug)]
enum KeyChoice {
    Good,
    ReadOnly,
    Invalidatable,
    Window,
    Any(u32),
}

#[derive(Arbitrary, Debug)]
enum Length {
    OfPayload,
    Short(u16),
    Any(u32),
}

struct World {
    nic: Nic,
    now: Time,
    memory: Arc<HeapRegion>,
    read_only: Arc<HeapRegion>,
    keys: Arc<KeyTable>,
    qps: Vec<Side>,
    /// The key of a window that requests bind.
    window: u32,
    srq: Arc<ReceiveQueue>,
    srq_number: u32,
}

/// A queue pair and what the peer and the program remember of it.
struct Side {
    qpn: Qpn,
    send_cq: Arc<CompletionQueue>,
    recv_cq: Arc<CompletionQueue>,
    next_psn: Psn,
    last_sent: Psn,
    next_send: u64,
    next_recv: u64,
    done_sends: u64,
    done_recvs: u64,
}

impl World {
    fn new() -> World {
        let keys = Arc::new(KeyTable::new());
        let pd = keys.alloc_pd();
        let entropy = Box::new(SeededEntropy::new(7));
        let mut nic = Nic::new(NicConfig::default(), Arc::clone(&keys), entropy);
        nic.add_endpoint(Endpoint {
            ip: US,
            port: ROCE_PORT,
        });
        let memory = Arc::new(HeapRegion::new(vec![UNTOUCHED; RANGE + 2 * MARGIN]));
        let read_only = Arc::new(HeapRegion::new(vec![UNTOUCHED; RANGE]));
        let spec = KeySpec {
            pd,
            region: memory.clone(),
            offset: MARGIN,
            length: RANGE as u64,
            iova: IOVA,
            access: REMOTE | Access::LOCAL_WRITE | Access::MW_BIND,
            bound_qp: None,
            invalidatable: false,
        };
        let invalidatable = KeySpec {
            invalidatable: true,
            ..spec.clone()
        };
        let other = KeySpec {
            region: read_only.clone(),
            offset: 0,
            access: Access::REMOTE_READ,
            ..spec.clone()
        };
        for (value, spec) in [
            (KEY, spec),
            (INVALIDATABLE_KEY, invalidatable),
            (READ_ONLY_KEY, other),
        ] {
            let registered = keys.register_as(value, spec);
            assert!(matches!(registered, Ok(Some(_))));
        }
        let window = nic.alloc_window(pd, WindowKind::Type1).expect("a window");
        let srq = Arc::new(ReceiveQueue::shared(SrqId(1), pd, QUEUE_DEPTH as usize, 4));
        let mut world = World {
            nic,
            now: Time::from_ns(1),
            memory,
            read_only,
            keys,
            qps: Vec::new(),
            window,
            srq,
            srq_number: 0,
        };
        for service in SERVICES {
            world.connect(service, pd);
        }
        world
    }

    fn connect(&mut self, service: Service, pd: PdId) {
        let index = self.qps.len() as u32;
        let cq = |id| Arc::new(CompletionQueue::new(CqId(id), 4096));
        let (send_cq, recv_cq) = (cq(2 * index), cq(2 * index + 1));
        let capacity = QpCapacity {
            max_send_wr: QUEUE_DEPTH,
            max_recv_wr: QUEUE_DEPTH,
            ..QpCapacity::default()
        };
        let init = QpInit {
            service,
            pd,
            send_cq: send_cq.clone(),
            recv_cq: recv_cq.clone(),
            srq: None,
            capacity,
            signal_all: true,
        };
        let qpn = if index as usize == TARGET {
            let added = self.nic.add_xrc_srq(DOMAIN, self.srq.clone(), recv_cq.clone());
            self.srq_number = added.expect("a number");
            self.nic.create_xrc_target(DOMAIN).expect("a target")
        } else {
            let qpn = Qpn::new(0x10 + index);
            self.nic.create_qp_with(qpn, init).expect("the number is free")
        };
        for set in bring_up(service, Qpn::new(0x90 + index)) {
            self.nic
                .modify_qp(self.now, qpn, &set)
                .expect("the way to RTS is open");
        }
        self.qps.push(Side {
            qpn,
            send_cq,
            recv_cq,
            next_psn: Psn::new(START_PSN),
            last_sent: Psn::new(START_PSN),
            next_send: 0,
            next_recv: 0,
            done_sends: 0,
            done_recvs: 0,
        });
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Packet(crafted) => self.craft(crafted),
            Action::Noise { bytes, sealed, to } => self.noise(bytes, *sealed, *to),
            Action::Send {
                qp,
                op,
                length,
                flags,
            } => self.send(*qp, op, *length, *flags),
            Action::Receive { qp, length } => self.receive(*qp, *length),
            Action::Advance { us } => {
                self.now = self.now + Duration::from_micros(u64::from(*us));
                self.nic.handle_timeout(self.now);
            }
            Action::Poll => self.poll(),
            Action::Publish => self.nic.publish(),
            Action::Move { qp, to } => self.move_to(*qp, *to),
            Action::Revoke => {
                self.keys.revoke(INVALIDATABLE_KEY);
            }
        }
    }

    fn craft(&mut self, crafted: &Crafted) {
        let index = usize::from(crafted.qp) % self.qps.len();
        let side = &mut self.qps[index];
        let psn = match crafted.psn {
            PsnChoice::Next => side.next_psn,
            PsnChoice::Before(count) => side.next_psn.sub(u32::from(count) + 1),
            PsnChoice::Gap(count) => side.next_psn.add(u32::from(count) + 1),
            PsnChoice::Answer(count) => side.last_sent.sub(u32::from(count)),
            PsnChoice::Any(psn) => Psn::new(psn),
        };
        let opcode = Opcode::ALL[usize::from(crafted.opcode) % Opcode::ALL.len()];
        let mut headers = Headers::new(Bth::new(opcode, side.qpn, psn));
        let payload_len = if opcode.operation().carries_payload() {
            usize::from(crafted.payload) % (MTU + 8)
        } else {
            usize::from(crafted.payload / 0xff00)
        };
        fill_headers(&mut headers, crafted, payload_len, self.window);
        if crafted.value & 7 != 7 {
            headers.xrc_srqn = self.srq_number;
        }
        if let PsnChoice::Next = crafted.psn {
            side.next_psn = psn.add(places(&headers));
        }
        let payload = vec![crafted.value as u8; payload_len];
        let mut bytes = Vec::new();
        let icrc = [0; 4];
        Packet {
            headers,
            payload: &payload,
            icrc,
        }
        .emit_into(&mut bytes);
        self.deliver(&mut bytes, true, crafted.from_elsewhere);
    }

    fn noise(&mut self, bytes: &[u8], sealed: bool, to: Option<u8>) {
        let mut bytes = bytes.to_vec();
        // Nonsense for a queue pair that exists gets further.
        if let (Some(to), Some(place)) = (to, bytes.get_mut(5..8)) {
            let qpn = self.qps[usize::from(to) % self.qps.len()].qpn.value();
            place.copy_from_slice(&qpn.to_be_bytes()[1..]);
        }
        self.deliver(&mut bytes, sealed, false);
    }

    fn deliver(&mut self, bytes: &mut [u8], sealed: bool, from_elsewhere: bool) {
        let src = if from_elsewhere {
            IpAddr::V4(Ipv4Addr::new(10, 0, 0, 66))
        } else {
            PEER
        };
        let flow = Flow {
            src,
            dst: US,
            src_port: ROCE_PORT,
            dst_port: ROCE_PORT,
        };
        if sealed {
            nonic_wire::icrc::seal(&flow, 0, bytes);
        }
        let arrival = Arrival {
            src: SocketAddr::new(src, ROCE_PORT),
            dst: US,
            stride: bytes.len(),
            congested: false,
        };
        self.nic.handle_datagram(self.now, &arrival, bytes);
    }

    fn send(&mut self, qp: u8, op: &Operation, length: u16, flags: u8) {
        let index = usize::from(qp) % self.qps.len();
        let side = &mut self.qps[index];
        let remote = RemoteAddress { va: 0x4000, rkey: 1 };
        let datagram = index == DATAGRAM;
        let op = match op {
            _ if datagram => SendOp::Send,
            Operation::Send => SendOp::Send,
            Operation::SendWithImmediate => SendOp::SendWithImmediate(7),
            Operation::SendWithInvalidate => SendOp::SendWithInvalidate(7),
            Operation::Write => SendOp::Write(remote),
            Operation::WriteWithImmediate => SendOp::WriteWithImmediate(remote, 7),
            Operation::Read => SendOp::Read(remote),
            Operation::CompareSwap => SendOp::CompareSwap {
                remote,
                compare: 1,
                swap: 2,
            },
            Operation::FetchAdd => SendOp::FetchAdd { remote, add: 1 },
            Operation::LocalInvalidate => SendOp::LocalInvalidate(INVALIDATABLE_KEY),
            Operation::BindWindow => SendOp::BindWindow(WindowBind {
                window: self.window,
                rkey: self.window,
                lkey: if flags & 0x40 == 0 { KEY } else { READ_ONLY_KEY },
                va: IOVA + u64::from(length),
                length: u64::from(length),
                access: REMOTE,
            }),
            Operation::AtomicWrite => SendOp::AtomicWrite(remote),
            Operation::Flush => SendOp::Flush(Flush {
                remote,
                length: u32::from(length),
                placement: Placement::GLOBAL,
                range: FlushRange::Named,
            }),
        };
        let length = match op {
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } | SendOp::AtomicWrite(_) => 8,
            SendOp::LocalInvalidate(_) | SendOp::BindWindow(_) | SendOp::Flush(_) => 0,
            _ if datagram => u32::from(length) % (MTU as u32 + 1),
            // Now and then longer than the registered range, which must end in a protection error.
            _ => u32::from(length) % (RANGE as u32 + 64),
        };
        let lkey = if flags & 0x80 == 0 { KEY } else { INVALIDATABLE_KEY };
        let sges = [Sge {
            addr: IOVA,
            length,
            lkey,
        }];
        let request = SendRequest {
            wr_id: side.next_send,
            op,
            data: Data::Sges(&sges),
            flags: SendFlags::from_bits_truncate(u32::from(flags)),
            destination: match index {
                DATAGRAM => Some(Destination {
                    gid_index: 0,
                    ip: PEER,
                    qpn: Qpn::new(9),
                    qkey: QKEY,
                }),
                INITIATOR => Some(Destination::srq(9)),
                _ => None,
            },
        };
        if self.nic.post_send(self.now, side.qpn, &request).is_ok() {
            side.next_send += 1;
        }
    }

    fn receive(&mut self, qp: u8, length: u16) {
        let index = usize::from(qp) % self.qps.len();
        let side = &mut self.qps[index];
        let sge = Sge {
            addr: IOVA + RANGE as u64 / 2,
            length: u32::from(length) % (RANGE as u32 / 2 + 64),
            lkey: KEY,
        };
        let request = RecvRequest {
            wr_id: side.next_recv,
            sges: &[sge],
        };
        let posted = if index == TARGET {
            self.srq.post(&request).is_ok()
        } else {
            self.nic.post_recv(side.qpn, &request).is_ok()
        };
        if posted {
            side.next_recv += 1;
        }
    }

    fn move_to(&mut self, qp: u8, to: u8) {
        let index = usize::from(qp) % self.qps.len();
        let state = match to % 5 {
            0 => QpState::Error,
            1 => QpState::Sqd,
            4 => return self.revive(index),
            _ => QpState::Rts,
        };
        let set = QpAttributes {
            state: Some(state),
            ..QpAttributes::default()
        };
        let qpn = self.qps[index].qpn;
        // Most moves are not allowed from where the queue pair is; refusing them is fine.
        let _ = self.nic.modify_qp(self.now, qpn, &set);
    }

    /// Takes a queue pair that failed to RTS again; all its requests have ended, so nothing is forgotten.
    fn revive(&mut self, index: usize) {
        let qpn = self.qps[index].qpn;
        if self.nic.qp_state(qpn) != Some(QpState::Error) {
            return;
        }
        let service = SERVICES[index];
        let reset = QpAttributes {
            state: Some(QpState::Reset),
            ..QpAttributes::default()
        };
        let way = bring_up(service, Qpn::new(0x90 + index as u32));
        for set in std::iter::once(reset).chain(way) {
            self.nic
                .modify_qp(self.now, qpn, &set)
                .expect("the way to RTS is open");
        }
        let side = &mut self.qps[index];
        (side.next_psn, side.last_sent) = (Psn::new(START_PSN), Psn::new(START_PSN));
    }

    fn poll(&mut self) {
        let mut buffer = vec![0; MAX_BATCH_LEN];
        let mut count = 0;
        while let Some(batch) = self.nic.poll_transmit(self.now, 4, &mut buffer) {
            count += batch.segments;
            assert!(count < MAX_PACKETS_PER_POLL, "the NIC sends without end");
            for bytes in buffer[..batch.len].chunks(batch.segment_size) {
                self.note_sent(bytes);
            }
        }
        self.nic.publish();
        for side in &mut self.qps {
            side.done_sends = drain(&side.send_cq, side.done_sends);
            side.done_recvs = drain(&side.recv_cq, side.done_recvs);
        }
        while self.nic.poll_event().is_some() {}
        let usage = self.nic.usage();
        assert!(usage.timers <= MAX_TIMERS, "timers pile up: {usage:?}");
        assert!(usage.send_requests <= self.qps.len() * QUEUE_DEPTH as usize);
    }

    /// Remembers the PSN of a request, so that the peer can answer it.
    fn note_sent(&mut self, bytes: &[u8]) {
        let packet = Packet::parse(bytes).expect("the NIC sends well-formed packets");
        let bth = packet.headers.bth;
        assert!(packet.payload.len() <= 4096);
        let from = (bth.dest_qp.value() as usize).checked_sub(0x90);
        if let Some(side) = from.and_then(|index| self.qps.get_mut(index)) {
            if bth.opcode.operation().is_request() {
                side.last_sent = bth.psn;
            }
        }
    }

    /// Every request has ended once, in order, and no forbidden byte has changed.
    fn finish(mut self) {
        self.poll();
        for index in 0..self.qps.len() {
            self.move_to(index as u8, 0);
        }
        self.poll();
        for (index, side) in self.qps.iter().enumerate() {
            assert_eq!(side.done_sends, side.next_send, "a send did not complete");
            // A shared receive queue keeps the receives that no message took.
            let kept = if index == TARGET { self.srq.len() as u64 } else { 0 };
            assert_eq!(
                side.done_recvs + kept,
                side.next_recv,
                "a receive did not complete"
            );
        }
        let usage = self.nic.usage();
        assert_eq!((usage.send_requests, usage.in_flight_bytes), (0, 0), "{usage:?}");
        let memory = self.memory.snapshot();
        let untouched = |bytes: &[u8]| bytes.iter().all(|byte| *byte == UNTOUCHED);
        assert!(untouched(&memory[..MARGIN]) && untouched(&memory[MARGIN + RANGE..]));
        assert!(untouched(&self.read_only.snapshot()));
    }
}

/// How many PSNs a request takes: a READ those of its answers.
fn places(headers: &Headers) -> u32 {
    if headers.bth.opcode.operation() == nonic_wire::Operation::ReadRequest {
        headers.reth.dma_len.div_ceil(MTU as u32).max(1)
    } else {
        1
    }
}

fn fill_headers(headers: &mut Headers, crafted: &Crafted, payload_len: usize, window: u32) {
    let rkey = match crafted.key {
        KeyChoice::Good => KEY,
        KeyChoice::ReadOnly => READ_ONLY_KEY,
        KeyChoice::Invalidatable => INVALIDATABLE_KEY,
        KeyChoice::Window => window,
        KeyChoice::Any(key) => key,
    };
    let dma_len = match crafted.length {
        Length::OfPayload => payload_len as u32,
        Length::Short(length) => u32::from(length) % (RANGE as u32 + 8),
        Length::Any(length) => length,
    };
    let va = IOVA + u64::from(crafted.at) % (RANGE as u64 + 8);
    headers.bth.ack_request = crafted.ack_request;
    headers.bth.solicited = crafted.solicited;
    headers.reth = Reth { va, rkey, dma_len };
    headers.atomic = AtomicEth {
        va,
        rkey,
        swap_add: crafted.value,
        compare: u64::from(crafted.syndrome),
    };
    headers.aeth = Aeth {
        syndrome: Syndrome(crafted.syndrome),
        msn: 0,
    };
    headers.deth = Deth {
        qkey: QKEY,
        src_qp: Qpn::new(3),
    };
    headers.feth = Feth {
        placement: crafted.value as u8 & 0x0f,
        selectivity: crafted.syndrome & 3,
    };
    headers.xrc_srqn = crafted.value as u32 & 0xff_ffff;
    headers.atomic_original = crafted.value;
    headers.immediate = crafted.value as u32;
    headers.invalidate_rkey = rkey;
}

/// RESET to RTS. The peer of queue pair *i* is its number 0x90 + *i*, by which our requests are recognised.
fn bring_up(service: Service, peer: Qpn) -> [QpAttributes; 3] {
    let reliable = matches!(service, Service::Rc | Service::Xrc);
    let connected = service != Service::Ud;
    let state = |state| QpAttributes {
        state: Some(state),
        ..QpAttributes::default()
    };
    let init = QpAttributes {
        pkey_index: Some(0),
        port: Some(1),
        access: connected.then_some(REMOTE),
        qkey: (!connected).then_some(QKEY),
        ..state(QpState::Init)
    };
    let rtr = QpAttributes {
        path: connected.then_some(Path {
            gid_index: 0,
            remote: PEER,
        }),
        path_mtu: connected.then_some(PathMtu::Mtu256),
        dest_qpn: connected.then_some(peer),
        rq_psn: connected.then_some(Psn::new(START_PSN)),
        max_dest_rd_atomic: reliable.then_some(2),
        min_rnr_timer: if reliable { RnrTimer::from_code(1) } else { None },
        ..state(QpState::Rtr)
    };
    let rts = QpAttributes {
        sq_psn: Some(Psn::new(START_PSN)),
        timeout: if reliable {
            AckTimeout::from_exponent(8)
        } else {
            None
        },
        retry_count: reliable.then_some(2),
        rnr_retry: reliable.then_some(7),
        max_rd_atomic: reliable.then_some(2),
        ..state(QpState::Rts)
    };
    [init, rtr, rts]
}

/// Completions must carry consecutive numbers from `expected` on; answers the next one.
fn drain(cq: &CompletionQueue, mut expected: u64) -> u64 {
    let check = |completion: Completion| {
        assert_eq!(completion.wr_id, expected, "out of order: {completion:?}");
        expected += 1;
    };
    cq.poll(usize::MAX, check).expect("the queue is large enough");
    expected
}
