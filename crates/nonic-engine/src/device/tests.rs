//! What a device does for a program that does not call it. Whatever was changed in a
//! [`Turn`](crate::driver::turn::Turn) is sent, and the background thread knows of its timers, when the turn ends.

mod faults;

use super::{Device, HOME, exit};
use crate::config::Config;
use crate::memory::Pages;
use crate::notify::Notify;
use crate::socket::ROCE_PORT;
use crate::testing::{exposed, reliable, steps_to_rts};
use nonic_core::{
    Arm, Completion, CompletionQueue, CqId, Data, Path, PathMtu, PdId, Psn, QpAttributes, QpState, Qpn,
    RemoteAddress, SendFlags, SendOp, SendRequest, Sge, Status,
};
use nonic_wire::{Bth, Headers, Opcode, Packet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// About a millisecond, and so long that it does not count.
const SHORT: u8 = 8;
const LONG: u8 = 24;
const MEMORY: usize = 1 << 20;
/// A queue pair number that means nothing to us.
const STRANGER: Qpn = Qpn::new(0x777);

/// A program with a device, memory and a completion queue.
struct Program {
    device: Device,
    pd: PdId,
    cq: Arc<CompletionQueue>,
    told: mpsc::Receiver<CqId>,
    key: u32,
}

struct Told(Mutex<mpsc::Sender<CqId>>);

impl Notify for Told {
    fn notify(&self, cq: CqId) {
        // A test that failed does not listen.
        let _ = self.0.lock().expect("nobody panics with it").send(cq);
    }
}

impl Program {
    fn new() -> Self {
        Self::with(&Config::default())
    }

    fn with(config: &Config) -> Self {
        let device = Device::open_with("roce_lo", config).expect("loopback is there");
        let pd = device.alloc_pd();
        let (tell, told) = mpsc::channel();
        let cq = device.create_cq(64, Some(Arc::new(Told(Mutex::new(tell)))));
        let spec = exposed(pd, Arc::new(Pages::new(MEMORY).expect("memory")), MEMORY);
        let key = device.register(spec).expect("registered").value();
        Program {
            device,
            pd,
            cq,
            told,
            key,
        }
    }

    fn queue_pair(&self) -> Qpn {
        let init = reliable(self.pd, &self.cq);
        self.device.create_qp(init).expect("a queue pair")
    }

    /// Takes a queue pair from RESET to RTS.
    fn connect(&self, qpn: Qpn, path: Path, peer: Qpn, timeout_exponent: u8) {
        for step in steps_to_rts(path, peer, PathMtu::Mtu4096, timeout_exponent) {
            let changed = self.device.modify_qp(qpn, &step);
            changed.expect("a legal transition");
        }
    }

    /// Two queue pairs in RTS that talk to each other.
    fn pair(&self, timeout_exponent: u8) -> (Qpn, Qpn) {
        let (from, to) = (self.queue_pair(), self.queue_pair());
        let remote = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let path = Path {
            gid_index: self.gid_index(remote),
            remote,
        };
        self.connect(from, path, to, timeout_exponent);
        self.connect(to, path, from, timeout_exponent);
        (from, to)
    }

    /// A queue pair in RTS whose peer never answers.
    fn connected_to(&self, silence: &Silence, peer: Qpn, timeout_exponent: u8) -> Qpn {
        let qpn = self.queue_pair();
        let path = Path {
            gid_index: self.gid_index(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            remote: silence.ip,
        };
        self.connect(qpn, path, peer, timeout_exponent);
        qpn
    }

    /// The same, in the shard of another queue pair: a window is a shard's.
    fn connected_beside(&self, first: Qpn, silence: &Silence, peer: Qpn, timeout_exponent: u8) -> Qpn {
        let shard_of = |qpn| self.device.inner.common.map.shard_of(qpn);
        loop {
            let qpn = self.connected_to(silence, peer, timeout_exponent);
            if shard_of(qpn) == shard_of(first) {
                return qpn;
            }
        }
    }

    fn gid_index(&self, ip: IpAddr) -> u8 {
        let index = self.device.gids().iter().position(|gid| gid.address.ip == ip);
        index.expect("loopback has it") as u8
    }

    fn go_to(&self, qpn: Qpn, state: QpState) {
        let set = QpAttributes {
            state: Some(state),
            ..QpAttributes::default()
        };
        self.device.modify_qp(qpn, &set).expect("a legal transition");
    }

    fn write(&self, qpn: Qpn, length: u32) {
        let sge = Sge {
            addr: 0,
            length,
            lkey: self.key,
        };
        let sges = [sge];
        let request = SendRequest {
            wr_id: 1,
            op: SendOp::Write(RemoteAddress {
                va: 0,
                rkey: self.key,
            }),
            data: Data::Sges(&sges),
            flags: SendFlags::SIGNALED,
            destination: None,
        };
        self.device.post_send(qpn, &request).expect("posted");
    }

    /// Waits until the background thread sleeps with nothing to wake it but us or a packet.
    fn wait_until_asleep(&self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.device.inner.drivers[HOME].sleeps_without_timer() {
            assert!(Instant::now() < deadline, "it never sleeps");
            std::thread::yield_now();
        }
    }

    /// Sleeps until there is a completion, without a call of the device. Asked before: [`CompletionQueue::arm`].
    fn sleep(&self) -> Completion {
        self.told.recv_timeout(PATIENCE).expect("a completion in time");
        let mut found = None;
        self.cq
            .poll(1, |completion| found = Some(completion))
            .expect("no overflow");
        found.expect("we were told of it")
    }

    /// Polls until there is a completion.
    fn wait(&self) -> Completion {
        let deadline = Instant::now() + PATIENCE;
        let mut found = None;
        while found.is_none() {
            assert!(Instant::now() < deadline, "no completion in time");
            self.device
                .poll(&self.cq, 1, |completion| found = Some(completion))
                .expect("no overflow");
        }
        found.expect("just found")
    }
}

/// An address of this host with a socket at the RoCE port that never answers: no answer comes back, and no error that would
/// wake the background thread either.
struct Silence {
    ip: IpAddr,
    socket: UdpSocket,
}

impl Silence {
    fn new() -> Self {
        static COUNT: AtomicU8 = AtomicU8::new(64);
        let [.., high, low] = std::process::id().to_be_bytes();
        let ip = Ipv4Addr::new(127, COUNT.fetch_add(1, Ordering::Relaxed), high, low).into();
        let socket = UdpSocket::bind((ip, ROCE_PORT)).expect("nobody else uses this address");
        socket.set_nonblocking(true).expect("it is a socket");
        Silence { ip, socket }
    }

    /// The queue pairs that the packets were for that have come.
    fn heard(&self) -> Vec<Qpn> {
        let mut packet = [0; 5000];
        std::iter::from_fn(|| {
            let length = self.socket.recv(&mut packet).ok()?;
            let packet = Packet::parse(&packet[..length]).expect("we send packets");
            Some(packet.headers.bth.dest_qp)
        })
        .collect()
    }
}

#[test]
fn a_request_sent_by_a_change_of_state_is_repeated_though_nobody_calls() {
    let (program, silence) = (Program::new(), Silence::new());
    let qpn = program.connected_to(&silence, STRANGER, SHORT);
    program.go_to(qpn, QpState::Sqd);
    program.write(qpn, 64);
    assert_eq!(silence.heard(), [], "a send queue that is drained sends nothing");
    program.cq.arm(Arm::Next);
    program.wait_until_asleep();
    program.go_to(qpn, QpState::Rts);
    assert_eq!(program.sleep().status, Status::RetryExceeded);
    assert_eq!(silence.heard(), [STRANGER; 3], "once, and two repetitions");
}

/// The window would be given back by itself once the queue pair that has it counts as stalled, after a few milliseconds. So
/// the test shows that the others need not wait for that.
#[test]
fn destroying_a_queue_pair_lets_those_go_that_waited_for_its_window() {
    const OTHERS: [Qpn; 2] = [Qpn::new(0x778), Qpn::new(0x779)];
    /// If the machine keeps us from going on for so long that the window is given back, there is nothing to see.
    const TRIES: usize = 100;
    for _ in 0..TRIES {
        let (program, silence) = (Program::new(), Silence::new());
        let first = program.connected_to(&silence, STRANGER, LONG);
        let others = OTHERS.map(|peer| program.connected_beside(first, &silence, peer, LONG));
        // More than any window holds.
        program.write(first, MEMORY as u32);
        assert!(silence.heard().contains(&STRANGER));
        for qpn in others {
            program.write(qpn, 64);
        }
        if silence.heard().iter().any(|qpn| OTHERS.contains(qpn)) {
            continue;
        }
        assert!(program.device.destroy_qp(first));
        assert_eq!(silence.heard(), OTHERS);
        return;
    }
    panic!("the window was never full for long enough to see anything");
}

/// Two queue pairs of one shard talk through a lane that leads from it to itself. Neither the background thread nor a poll
/// is needed.
#[test]
fn what_a_shard_sends_itself_is_done_when_the_post_returns() {
    let program = Program::with(&Config {
        direct: false,
        shards: 1,
        ..Config::default()
    });
    let (from, _) = program.pair(LONG);
    for _ in 0..100 {
        program.write(from, 64);
        let mut status = None;
        program
            .cq
            .poll(1, |completion| status = Some(completion.status))
            .expect("no overflow");
        assert_eq!(status, Some(Status::Success), "nobody has driven since");
    }
    // More than fits into a turn: the background thread goes on with it, though the program makes no call.
    program.cq.arm(Arm::Next);
    program.write(from, MEMORY as u32);
    assert_eq!(program.sleep().status, Status::Success);
}

#[test]
fn an_address_that_takes_no_batches_does_not_slow_down_the_others() {
    const LENGTH: u32 = 16 * 4096;
    let program = Program::with(&Config {
        lanes: false,
        ..Config::default()
    });
    let [v4, v6] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    let [to_v4, to_v6] = [v4, v6].map(|remote| {
        let (from, to) = (program.queue_pair(), program.queue_pair());
        let path = Path {
            gid_index: program.gid_index(remote),
            remote,
        };
        program.connect(from, path, to, LONG);
        program.connect(to, path, from, LONG);
        from
    });
    // Not the first address: that one used to be asked for all.
    let limited = usize::from(program.gid_index(v6));
    assert_ne!(limited, 0);
    let turn = program.device.inner.home();
    let forbidden = turn
        .presences()
        .nth(limited)
        .map(|presence| presence.forbid_batches());
    forbidden
        .expect("it is there")
        .expect("the kernel knows the option");
    drop(turn);
    // What the kernel refused is lost; the gap shows when the rest arrives, and everything goes one by one.
    program.write(to_v6, LENGTH);
    assert_eq!(program.wait().status, Status::Success);
    let (_, after_first) = program.device.counters();
    assert_eq!(after_first.send_errors, 1, "the first batch, and no other");
    let sent = |qpn| {
        let (before, sends_before) = program.device.counters();
        program.write(qpn, LENGTH);
        assert_eq!(program.wait().status, Status::Success);
        let (after, sends_after) = program.device.counters();
        (
            after.tx_packets - before.tx_packets,
            sends_after.sends - sends_before.sends,
        )
    };
    let (packets, sends) = sent(to_v6);
    assert_eq!(packets, sends, "every packet alone");
    let (packets, sends) = sent(to_v4);
    assert!(
        packets >= 16 && sends < packets,
        "{packets} packets in {sends} sends"
    );
    let (_, at_last) = program.device.counters();
    assert_eq!(at_last.send_errors, 1);
}

/// Gives this thread, and the threads it will spawn, a network without other processes. The processes of other tests share
/// the port of the host's addresses, and one that is killed takes the packets with it that the kernel gave it.
fn be_alone() {
    // SAFETY: a system call that changes nothing but the calling thread.
    let unshared = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    assert_eq!(unshared, 0, "{}: run as root", std::io::Error::last_os_error());
    let up = std::process::Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status();
    assert!(up.expect("iproute2 is there").success());
}

/// A process that ends has its sockets for some milliseconds after it last looked at them.
#[test]
fn what_comes_to_the_port_of_one_that_leaves_goes_to_those_who_stay() {
    const PACKETS: u64 = 64;
    be_alone();
    let (leaving, staying) = (Program::new(), Program::new());
    // It takes nothing before it is connected; that it is asked can be seen.
    let mut headers = Headers::new(Bth::new(Opcode::RC_SEND_ONLY, staying.queue_pair(), Psn::new(0)));
    headers.bth.ack_request = true;
    let mut packet = Vec::new();
    Packet {
        headers,
        payload: &[],
        icrc: [0; 4],
    }
    .emit_into(&mut packet);

    let inner = &leaving.device.inner;
    exit::take_leave(
        &inner.common.connections,
        &inner.drivers,
        Instant::now() + PATIENCE,
    );
    for _ in 0..PACKETS {
        // The kernel chooses a socket by the sender.
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a port");
        sender
            .send_to(&packet, ("127.0.0.1", ROCE_PORT))
            .expect("somebody has the port");
    }
    let deadline = Instant::now() + PATIENCE;
    while staying.device.counters().0.rx_unclaimed < PACKETS {
        assert!(Instant::now() < deadline, "{:?}", staying.device.counters());
        std::thread::yield_now();
    }
}
