//! Our NIC as the client: the same work must lead to the same packets.

use super::capture::*;
use super::host::Host;
use super::{IMMEDIATE_SIZES, SIZES, immediate, payload};
use nonic_core::{QpState, RemoteAddress, SendFlags, SendOp, Status};
use nonic_wire::Packet;
use std::collections::VecDeque;

/// One posted request: what, from or to which offset of the client's memory, how many bytes, how.
struct Step {
    op: SendOp,
    offset: usize,
    length: u32,
    flags: SendFlags,
    /// The payload's number; `None` leaves memory as it is (READs and atomics fill it).
    payload: Option<u32>,
}

impl Step {
    fn new(op: SendOp, length: u32, number: u32) -> Step {
        Step {
            op,
            offset: 0,
            length,
            flags: SendFlags::SIGNALED,
            payload: Some(number),
        }
    }

    fn fetch(op: SendOp, offset: usize, length: u32) -> Step {
        Step {
            op,
            offset,
            length,
            flags: SendFlags::SIGNALED,
            payload: None,
        }
    }
}

/// Groups of steps, each posted at once when the group before it is complete.
type Script = VecDeque<Vec<Step>>;

/// Plays the client against the recorded server; returns the statuses of all requests.
fn replay(cast: &Cast, mut script: Script) -> (Host, Vec<Status>) {
    let mut host = Host::client(cast);
    let packets = cast.packets();
    let start_ns = packets[0].at_ns;
    let origin = host.now;
    let mut ours: VecDeque<Vec<u8>> = VecDeque::new();
    let mut statuses = Vec::new();
    let mut previous: Option<Vec<u8>> = None;
    for recorded in &packets {
        let elapsed = std::time::Duration::from_nanos(recorded.at_ns - start_ns);
        host.now = origin + elapsed;
        host.nic.handle_timeout(host.now);
        if !recorded.is_clients() {
            host.feed(recorded);
            ours.extend(host.transmit());
            statuses.extend(host.completions().iter().map(|completion| completion.status));
            continue;
        }
        ours.extend(host.transmit());
        if ours.is_empty() {
            // The packet is either the start of the next request or a repetition rxe need not have sent.
            if previous
                .as_deref()
                .is_some_and(|sent| same_request(sent, &recorded.bytes))
            {
                continue;
            }
            for step in script.pop_front().unwrap_or_default() {
                if let Some(number) = step.payload {
                    host.fill(step.offset, &payload(number, step.length));
                }
                host.send(step.op, step.offset, step.length, step.flags);
            }
            ours.extend(host.transmit());
        }
        let sent = ours.pop_front().unwrap_or_else(|| {
            panic!("{}: rxe sent {:?}, we nothing", cast.name, recorded.packet());
        });
        assert_same_request(cast, &sent, &recorded.bytes);
        previous = Some(sent);
    }
    assert!(
        ours.is_empty() && script.is_empty(),
        "{}: more than rxe",
        cast.name
    );
    statuses.extend(host.completions().iter().map(|completion| completion.status));
    (host, statuses)
}

/// Headers and payload, without the wish for an acknowledgement, selective or not, the migration bit and the ICRC.
fn essence(bytes: &[u8]) -> Packet<'_> {
    let mut packet = Packet::parse(bytes).expect("a packet");
    packet.headers.bth.ack_request = false;
    packet.headers.bth.resv7 &= !nonic_wire::Bth::SELECTIVE;
    packet.headers.bth.migrated = false;
    packet.icrc = [0; 4];
    packet
}

fn same_request(ours: &[u8], theirs: &[u8]) -> bool {
    essence(ours) == essence(theirs)
}

fn assert_same_request(cast: &Cast, ours: &[u8], theirs: &[u8]) {
    assert_eq!(essence(ours), essence(theirs), "{}", cast.name);
    let asks = |bytes| Packet::parse(bytes).expect("a packet").headers.bth.ack_request;
    assert!(
        asks(ours) || !asks(theirs),
        "{}: rxe asks where we do not",
        cast.name
    );
}

fn sends() -> Script {
    let mut script = Script::new();
    for (number, length) in (1..).zip(SIZES) {
        script.push_back(vec![Step::new(SendOp::Send, length, number)]);
    }
    for (number, length) in (13..).zip(IMMEDIATE_SIZES) {
        let op = SendOp::SendWithImmediate(immediate(0xdead_be00 + length % 256));
        script.push_back(vec![Step::new(op, length, number)]);
    }
    let mut last = Step::new(SendOp::Send, 16, 17);
    last.flags |= SendFlags::SOLICITED;
    script.push_back(vec![last]);
    script
}

fn writes(cast: &Cast) -> Script {
    let remote = target(cast);
    let mut script = Script::new();
    for (number, length) in (1..).zip(SIZES) {
        script.push_back(vec![Step::new(SendOp::Write(remote), length, number)]);
    }
    for (number, length) in (13..).zip(IMMEDIATE_SIZES) {
        let op = SendOp::WriteWithImmediate(remote, immediate(0xcafe_0000 + length));
        script.push_back(vec![Step::new(op, length, number)]);
    }
    script
}

/// Where the recorded WRITEs and READs went.
fn target(cast: &Cast) -> RemoteAddress {
    RemoteAddress {
        va: cast.server_addr + 4096,
        rkey: cast.server_rkey,
    }
}

#[track_caller]
fn assert_all_succeeded(statuses: &[Status], count: usize) {
    assert_eq!(statuses, vec![Status::Success; count]);
}

#[test]
fn sends_of_all_sizes() {
    for cast in [RC_SEND, RC_SRQ, RC_PSNWRAP, RC_MTU256, RC_MTU4096, UC_SEND] {
        let (_, statuses) = replay(&cast, sends());
        assert_all_succeeded(&statuses, 17);
    }
}

#[test]
fn writes_of_all_sizes() {
    for cast in [RC_WRITE, UC_WRITE] {
        let (_, statuses) = replay(&cast, writes(&cast));
        assert_all_succeeded(&statuses, 16);
    }
}

#[test]
fn reads_of_all_sizes_and_three_at_once() {
    let remote = target(&RC_READ);
    let mut script = Script::new();
    for length in SIZES.into_iter().chain([65_536]) {
        script.push_back(vec![Step::fetch(SendOp::Read(remote), 0, length)]);
    }
    let at_once = (0..3).map(|i| {
        let remote = RemoteAddress {
            va: RC_READ.server_addr + 100 * i,
            ..remote
        };
        Step::fetch(SendOp::Read(remote), 4096 * i as usize, 2000)
    });
    script.push_back(at_once.collect());
    let (host, statuses) = replay(&RC_READ, script);
    assert_all_succeeded(&statuses, 16);
    // The server's memory held the payload of step 3.
    let theirs = payload(3, 65_536);
    for i in 0..3 {
        assert!(host.bytes(4096 * i, 2000) == theirs[100 * i..100 * i + 2000]);
    }
    assert!(host.bytes(12_288, 49_152) == theirs[4096 + 12_288..4096 + 12_288 + 49_152]);
}

#[test]
fn atomics() {
    let remote = RemoteAddress {
        va: RC_ATOMIC.server_addr + 8,
        rkey: RC_ATOMIC.server_rkey,
    };
    let swap = |compare, swap| SendOp::CompareSwap {
        remote,
        compare,
        swap,
    };
    let script = [
        (SendOp::FetchAdd { remote, add: 1 }, 0),
        (swap(0x1122_3344_5566_7789, 0xa5a5_a5a5_a5a5_a5a5), 8),
        (swap(1, 2), 16),
    ];
    let script = script.map(|(op, offset)| vec![Step::fetch(op, offset, 8)]);
    let (host, statuses) = replay(&RC_ATOMIC, script.into());
    assert_all_succeeded(&statuses, 3);
    let fetched = [0, 8, 16].map(|at| {
        let bytes = host.bytes(at, 8).try_into().expect("eight bytes");
        u64::from_ne_bytes(bytes)
    });
    assert_eq!(
        fetched,
        [
            0x1122_3344_5566_7788,
            0x1122_3344_5566_7789,
            0xa5a5_a5a5_a5a5_a5a5
        ]
    );
}

#[test]
fn a_window_is_used_invalidated_and_gone() {
    let remote = RemoteAddress {
        va: 0x1878_c000,
        rkey: 0x0800_0238,
    };
    let steps = [
        SendOp::Write(remote),
        SendOp::SendWithInvalidate(remote.rkey),
        SendOp::Write(remote),
    ];
    let script = steps.map(|op| vec![Step::new(op, 100, 0)]);
    let (host, statuses) = replay(&RC_INV, script.into());
    assert_eq!(statuses, [Status::Success, Status::Success, Status::RemoteAccess]);
    assert_eq!(host.nic.qp_state(host.qpn), Some(QpState::Error));
}

#[test]
fn receiver_not_ready_six_times() {
    let script = [vec![Step::new(SendOp::Send, 64, 1)]];
    let (host, statuses) = replay(&RC_RNR, script.into());
    assert_all_succeeded(&statuses, 1);
    assert_eq!(host.nic.counters().rnr_naks_received, 6);
}

#[test]
fn no_answer_at_all() {
    let script = [vec![Step::new(SendOp::Write(target(&RC_TIMEOUT)), 64, 1)]];
    let (mut host, statuses) = replay(&RC_TIMEOUT, script.into());
    assert_eq!(statuses, []);
    // We wait longer each time than the peer of the capture does.
    let mut done = Vec::new();
    while done.is_empty() {
        host.now = host.now + nonic_core::AckTimeout::LONGEST_STRETCHED;
        host.nic.handle_timeout(host.now);
        host.transmit();
        done = host.completions();
    }
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].status, Status::RetryExceeded);
}

#[test]
fn refusals() {
    let write = |cast: &Cast, va, rkey| (*cast, SendOp::Write(RemoteAddress { va, rkey }));
    let bad_key = 0x00de_ad00;
    let read_target = target(&NAK_READBADRKEY);
    for ((cast, op), status) in [
        (
            write(&NAK_BADRKEY, target(&NAK_BADRKEY).va, bad_key),
            Status::RemoteAccess,
        ),
        (
            (
                NAK_READBADRKEY,
                SendOp::Read(RemoteAddress {
                    rkey: bad_key,
                    ..read_target
                }),
            ),
            Status::RemoteAccess,
        ),
        (write(&NAK_NOACCESS, 0x03ed_f000, 0), Status::RemoteAccess),
        (
            write(
                &NAK_OOB,
                NAK_OOB.server_addr + MEMORY as u64 - 8,
                NAK_OOB.server_rkey,
            ),
            Status::RemoteAccess,
        ),
        ((NAK_TOOLONG, SendOp::Send), Status::RemoteOperation),
    ] {
        let script = [vec![Step::new(op, 64, 1)]];
        let (host, statuses) = replay(&cast, script.into());
        assert_eq!(statuses, [status], "{}", cast.name);
        assert_eq!(host.nic.qp_state(host.qpn), Some(QpState::Error));
    }
}

#[test]
fn datagrams() {
    let mut script = Script::new();
    for (number, length) in (1..).zip([0, 1, 2, 3, 4, 64, 1024]) {
        script.push_back(vec![Step::new(SendOp::Send, length, number)]);
    }
    let last = SendOp::SendWithImmediate(immediate(0x1234_5678));
    script.push_back(vec![Step::new(last, 64, 8)]);
    let (_, statuses) = replay(&UD_ALL, script);
    assert_all_succeeded(&statuses, 8);
}
