//! A shard on a link in memory, told the time by the test: what it sends and when, without a socket.

use super::*;
use crate::link::memory::MemoryLink;
use crate::os::entropy::KernelEntropy;
use crate::testing::{exposed, reliable, steps_to_rts};
use nonic_core::{
    CompletionQueue, Data, HeapRegion, KeyTable, NicConfig, Path, PathMtu, PdId, RemoteAddress, SendFlags,
    SendOp, SendRequest, Sge, Status,
};
use nonic_wire::{Headers, Opcode};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const MEMORY: usize = 1 << 20;
const LIGHT: Effort = Effort::Light { backed: true };
const IPS: [&str; 2] = ["10.0.0.1", "10.0.0.2"];

/// What writes a little to the peer.
pub(crate) type Writer = Box<dyn Fn(&mut Shard, Time)>;

/// A shard with a queue pair, memory and the link it is on.
pub(crate) struct Side {
    pub(crate) shard: Shard,
    link: MemoryLink,
    pd: PdId,
    cq: Arc<CompletionQueue>,
    qpn: Qpn,
    key: u32,
    remote_key: u32,
}

/// A clock that stands still unless it is told not to.
struct Wire {
    now: Time,
    sides: [Side; 2],
}

impl Side {
    fn new(ip: &str) -> Self {
        Self::on(MemoryLink::new(ip.parse().expect("an address")))
    }

    fn on(link: MemoryLink) -> Self {
        Self::of_device(link, 0, common(1))
    }

    /// On a link, as one of the shards of a device.
    fn of_device(link: MemoryLink, index: usize, common: Common) -> Self {
        let keys = Arc::new(KeyTable::new());
        let nic = Nic::new(
            NicConfig::default(),
            Arc::clone(&keys),
            Box::new(KernelEntropy::new()),
        );
        let mut shard = Shard::new(nic, index, common, false);
        shard.attach(Box::new(link.clone()));
        shard.claim_block().expect("nobody else is there");
        let pd = keys.alloc_pd();
        let spec = exposed(pd, Arc::new(HeapRegion::zeroed(MEMORY)), MEMORY);
        let key = shard.nic.register(spec).expect("registered").value();
        let cq = Arc::new(CompletionQueue::new(CqId(1), 64));
        let mut side = Side {
            shard,
            link,
            pd,
            cq,
            qpn: Qpn::new(0),
            key,
            remote_key: 0,
        };
        side.qpn = side.queue_pair();
        side
    }

    fn queue_pair(&mut self) -> Qpn {
        let init = reliable(self.pd, &self.cq);
        self.shard.nic.create_qp(init).expect("a queue pair")
    }

    fn connect(&mut self, qpn: Qpn, remote: IpAddr, peer: Qpn) {
        let path = Path { gid_index: 0, remote };
        for step in steps_to_rts(path, peer, PathMtu::Mtu1024, 14) {
            let changed = self.shard.nic.modify_qp(Time::ZERO, qpn, &step);
            changed.expect("a legal transition");
        }
    }

    fn write(&mut self, now: Time, length: u32) {
        post(
            &mut self.shard,
            now,
            self.qpn,
            length,
            [self.key, self.remote_key],
        );
    }

    /// What writes a little to the peer.
    pub(crate) fn writer(&self) -> Writer {
        let (qpn, keys) = (self.qpn, [self.key, self.remote_key]);
        Box::new(move |shard, now| post(shard, now, qpn, 64, keys))
    }

    pub(crate) fn link(&self) -> MemoryLink {
        self.link.clone()
    }

    fn completed(&self) -> Vec<Status> {
        let mut statuses = Vec::new();
        let taken = self.cq.poll(64, |completion| statuses.push(completion.status));
        taken.expect("no overflow");
        statuses
    }

    /// The opcodes of what it sent, batch by batch; the packets are gone.
    fn sent(&self) -> Vec<Vec<Opcode>> {
        let opcodes = |(transmit, bytes): (nonic_core::Transmit, Vec<u8>)| {
            let packets = bytes.chunks(transmit.segment_size);
            packets
                .map(|packet| Headers::parse(packet).expect("we send packets").0.bth.opcode)
                .collect()
        };
        self.link.take_sent().into_iter().map(opcodes).collect()
    }
}

/// What the shards of a device share.
fn common(shards: usize) -> Common {
    let map = Arc::new(ShardMap::new(shards));
    Common {
        connections: Arc::new(ConnectionManager::new(Arc::clone(&map))),
        map,
        listeners: Arc::default(),
        events: Arc::new(Channel::new().expect("a descriptor")),
        failed: Arc::default(),
    }
}

/// Posts a WRITE.
fn post(shard: &mut Shard, now: Time, qpn: Qpn, length: u32, [lkey, rkey]: [u32; 2]) {
    let sges = [Sge {
        addr: 0,
        length,
        lkey,
    }];
    let request = SendRequest {
        wr_id: 1,
        op: SendOp::Write(RemoteAddress { va: 0, rkey }),
        data: Data::Sges(&sges),
        flags: SendFlags::SIGNALED,
        destination: None,
    };
    shard.nic.post_send(now, qpn, &request).expect("posted");
    let _settled = shard.posted(|| now, qpn, u64::from(length), false);
}

impl Wire {
    /// Two sides whose queue pairs are connected.
    fn new() -> Self {
        let [mut left, mut right] = IPS.map(Side::new);
        let [left_ip, right_ip] = IPS.map(|ip| ip.parse().expect("an address"));
        // Each writes to the other's memory with the other's key.
        (left.remote_key, right.remote_key) = (right.key, left.key);
        left.connect(left.qpn, right_ip, right.qpn);
        right.connect(right.qpn, left_ip, left.qpn);
        Wire {
            now: Time::from_ns(1_000_000),
            sides: [left, right],
        }
    }

    /// Carries everything that `from` has sent to the other side's link.
    fn carry(&self, from: usize) -> usize {
        let sent = self.sides[from].link.take_sent();
        for (transmit, bytes) in &sent {
            let src = SocketAddr::new(transmit.flow.src, transmit.flow.src_port);
            let to = &self.sides[1 - from].link;
            to.arrive_from(src, transmit.segment_size, bytes);
        }
        sent.len()
    }

    /// The program of one side polls.
    fn poll(&mut self, side: usize) {
        self.sides[side].shard.drive(self.now, LIGHT);
    }
}

/// Like [`Side::new`], for tests of what is around a shard.
pub(crate) fn lone_writer() -> Side {
    let mut side = Side::new(IPS[0]);
    side.connect(side.qpn, IPS[1].parse().expect("an address"), Qpn::new(0x777));
    side
}

#[test]
fn an_acknowledgement_rides_with_the_answer() {
    let mut wire = Wire::new();
    let now = wire.now;
    wire.sides[0].write(now, 64);
    wire.carry(0);
    wire.poll(1);
    assert_eq!(
        wire.sides[1].sent(),
        Vec::<Vec<Opcode>>::new(),
        "the program may answer"
    );
    wire.sides[1].write(now, 64);
    let answered = wire.sides[1].sent();
    assert_eq!(
        answered,
        [[Opcode::RC_RDMA_WRITE_ONLY, Opcode::RC_ACKNOWLEDGE]],
        "in one batch"
    );
}

#[test]
fn an_acknowledgement_waits_for_no_second_call() {
    let mut wire = Wire::new();
    wire.sides[0].write(wire.now, 64);
    wire.carry(0);
    wire.poll(1);
    wire.poll(1);
    assert_eq!(wire.sides[1].sent(), [[Opcode::RC_ACKNOWLEDGE]]);
}

/// The completion of its own request is in one queue, what it received is in another: it takes both before it answers.
#[test]
fn an_acknowledgement_rides_with_the_answer_of_a_program_with_two_completion_queues() {
    let mut wire = Wire::new();
    let now = wire.now;
    wire.sides[0].write(now, 64);
    wire.carry(0);
    wire.poll(1);
    wire.sides[1].shard.found(|| now);
    assert_eq!(wire.sides[1].sent(), Vec::<Vec<Opcode>>::new());
    wire.sides[1].write(now, 64);
    let answered = wire.sides[1].sent();
    assert_eq!(answered, [[Opcode::RC_RDMA_WRITE_ONLY, Opcode::RC_ACKNOWLEDGE]]);
}

#[test]
fn an_acknowledgement_does_not_wait_while_a_program_takes_many_completions() {
    let mut wire = Wire::new();
    wire.sides[0].write(wire.now, 64);
    wire.carry(0);
    wire.poll(1);
    let polls = (1..).find(|_| {
        wire.sides[1].shard.found(|| wire.now);
        !wire.sides[1].sent().is_empty()
    });
    assert_eq!(polls, Some(3));
}

#[test]
fn an_acknowledgement_does_not_wait_for_a_program_nobody_backs() {
    for effort in [Effort::Full, Effort::Light { backed: false }] {
        let mut wire = Wire::new();
        wire.sides[0].write(wire.now, 64);
        wire.carry(0);
        wire.sides[1].shard.drive(wire.now, effort);
        assert_eq!(wire.sides[1].sent(), [[Opcode::RC_ACKNOWLEDGE]], "{effort:?}");
    }
}

#[test]
fn short_requests_wait_for_an_answer_that_is_owed_and_travel_together() {
    let mut wire = Wire::new();
    let now = wire.now;
    for _ in 0..4 {
        wire.sides[0].write(now, 64);
    }
    assert_eq!(wire.carry(0), 1, "a lone request never waits, the others do");
    wire.sides[1].shard.drive(now, Effort::Full);
    wire.carry(1);
    wire.poll(0);
    assert_eq!(wire.sides[0].sent(), [[Opcode::RC_RDMA_WRITE_ONLY; 3]]);
    assert_eq!(wire.sides[0].completed(), [Status::Success]);
}

#[test]
fn what_there_is_no_room_for_is_sent_later_and_shown_after_it() {
    let mut wire = Wire::new();
    let now = wire.now;
    wire.sides[1].link.set_room(0);
    // The left side's write makes the right side owe an acknowledgement, and a request of its own stalls.
    wire.sides[0].write(now, 64);
    wire.carry(0);
    wire.sides[1].shard.drive(now, Effort::Full);
    assert!(wire.sides[1].shard.is_behind());
    assert_eq!(wire.sides[1].sent().len(), 0);
    // Nothing is lost by trying in vain, and nothing overtakes.
    wire.sides[1].write(now, 3000);
    wire.sides[1].shard.drive(now, Effort::Full);
    assert!(wire.sides[1].shard.is_behind());
    wire.sides[1].link.set_room(usize::MAX);
    wire.sides[1].shard.drive(now, Effort::Full);
    assert!(!wire.sides[1].shard.is_behind());
    let sent: Vec<Opcode> = wire.sides[1].sent().concat();
    assert_eq!(sent.first(), Some(&Opcode::RC_ACKNOWLEDGE));
    let writes = [
        Opcode::RC_RDMA_WRITE_FIRST,
        Opcode::RC_RDMA_WRITE_MIDDLE,
        Opcode::RC_RDMA_WRITE_LAST,
    ];
    assert_eq!(sent[1..], writes);
}

#[test]
fn a_completion_is_shown_only_when_what_belongs_to_it_has_left() {
    let mut wire = Wire::new();
    let now = wire.now;
    // The answer to the first request is here, and the second cannot leave.
    wire.sides[0].write(now, 64);
    wire.carry(0);
    wire.sides[1].shard.drive(now, Effort::Full);
    wire.carry(1);
    wire.sides[0].write(now, 64);
    wire.sides[0].link.set_room(0);
    wire.sides[0].shard.drive(now, Effort::Full);
    assert!(wire.sides[0].shard.is_behind());
    assert_eq!(wire.sides[0].completed(), []);
    wire.sides[0].link.set_room(1);
    wire.sides[0].shard.drive(now, Effort::Full);
    assert_eq!(wire.sides[0].completed(), [Status::Success]);
}

#[test]
fn a_lost_request_is_repeated_when_its_time_has_come_and_not_before() {
    let mut wire = Wire::new();
    wire.sides[0].write(wire.now, 64);
    assert_eq!(wire.sides[0].sent().len(), 1, "and lost");
    let due = wire.sides[0].shard.next_timeout().expect("a timer runs");
    let early = Time::from_ns(due.as_ns() - 1);
    wire.sides[0].shard.drive(early, Effort::Full);
    assert_eq!(wire.sides[0].sent().len(), 0);
    // The wheel may wake us a little early and say another time.
    wire.now = due;
    while wire.sides[0].link.take_sent().is_empty() {
        wire.sides[0].shard.drive(wire.now, Effort::Full);
        wire.now = wire
            .now
            .max(wire.sides[0].shard.next_timeout().expect("a timer runs"));
    }
    assert!(wire.now.since(due) < Duration::from_secs(1));
}

#[test]
fn packets_for_another_process_at_the_port_are_handed_over() {
    let ip: IpAddr = IPS[0].parse().expect("an address");
    let (first, second) = (MemoryLink::new(ip), MemoryLink::new(ip));
    second.share_port_with(&first);
    let (mut wrong, right) = (Side::on(first.clone()), Side::on(second.clone()));
    first.share_port_with(&second);
    let mut wire = Wire {
        now: Time::from_ns(1),
        sides: [Side::new(IPS[1]), right],
    };
    let qpns = [wire.sides[0].qpn, wire.sides[1].qpn];
    wire.sides[0].remote_key = wire.sides[1].key;
    wire.sides[0].connect(qpns[0], ip, qpns[1]);
    wire.sides[1].connect(qpns[1], IPS[1].parse().expect("an address"), qpns[0]);
    wire.sides[0].write(wire.now, 3000);
    for (transmit, bytes) in wire.sides[0].link.take_sent() {
        let src = SocketAddr::new(transmit.flow.src, transmit.flow.src_port);
        first.arrive_from(src, transmit.segment_size, &bytes);
    }
    while wrong.shard.drive(wire.now, Effort::Full) {}
    assert_eq!(
        wrong.shard.nic.counters().rx_packets,
        0,
        "its NIC does not see them"
    );
    assert_eq!(wrong.shard.link_counters().handed_over, 2, "batches");
    while wire.sides[1].shard.drive(wire.now, Effort::Full) {}
    wire.carry(1);
    wire.poll(0);
    assert_eq!(wire.sides[0].completed(), [Status::Success]);
}

#[test]
fn a_lost_descriptor_fails_everything_once() {
    let mut wire = Wire::new();
    let now = wire.now;
    wire.sides[0].write(now, 64);
    wire.sides[0].link.lose_descriptor();
    wire.sides[0].shard.check_descriptors(now);
    assert!(wire.sides[0].shard.needs_flush(), "the program is to be told");
    wire.sides[0].shard.flush(now);
    assert_eq!(wire.sides[0].completed(), [Status::Flushed]);
    assert!(!wire.sides[0].shard.needs_flush());
    assert_eq!(
        wire.sides[0].shard.link_counters().sends,
        1,
        "what was counted stays"
    );
}

#[test]
fn a_shard_that_fails_takes_its_device_with_it_and_the_program_is_told_once() {
    let common = common(2);
    let now = Time::from_ns(1);
    let mut shards = [0, 1].map(|index| {
        let link = MemoryLink::new(IPS[0].parse().expect("an address"));
        let mut side = Side::of_device(link, index, common.clone());
        side.connect(side.qpn, IPS[1].parse().expect("an address"), Qpn::new(0x777));
        side.write(now, 64);
        side
    });
    let [first, second] = &mut shards;
    second.link.lose_descriptor();
    second.shard.check_descriptors(now);
    second.shard.flush(now);
    assert!(first.shard.needs_flush(), "it has failed too");
    first.shard.flush(now);
    assert!(!first.shard.needs_flush());
    for side in [first, second] {
        assert_eq!(side.completed(), [Status::Flushed]);
    }
    let events: Vec<Event> = std::iter::from_fn(|| common.events.pop()).collect();
    assert_eq!(events, [Event::DeviceFatal]);
}
