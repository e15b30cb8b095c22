//! Processes that share an address: the protocol between them, tried within one process, where claims and
//! ports are just sockets. `registry_processes.rs` repeats the essential parts with processes that die.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};

use nonic_engine::host::{
    Block, BlockClaim, BlockName, Delivery, Heard, InboxBuffer, InboxName, Message, Outbox, Port, PortOwner,
    PortState, RetryReason, port_owner,
};
use nonic_engine::netdev::LocalAddress;
use nonic_engine::socket::{Datagrams, RecvBatch, WireSocket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const SECOND: u64 = 1_000_000_000;

/// Every test has an address of its own, so that they can run side by side: all of 127/8 is local.
fn address(last: u8) -> LocalAddress {
    LocalAddress::from(IpAddr::from([127, 71, 10, last]))
}

fn packets(bytes: &[u8]) -> Datagrams<'_> {
    Datagrams {
        src: SocketAddr::from(([192, 0, 2, 1], 49152)),
        dst_ip: IpAddr::from([127, 0, 0, 1]),
        ecn: 2,
        stride: 4112,
        bytes,
        sealed: true,
    }
}

fn readable(fd: impl AsFd) -> bool {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)).expect("poll works") == 1
}

#[test]
fn a_handover_brings_packets_and_where_they_came_from() {
    let mut claim = BlockClaim::claim(address(1)).expect("a block");
    let mut outbox = Outbox::new().expect("an outbox");
    let bytes: Vec<u8> = (0..65_507_u32).map(|index| index as u8).collect();
    let message = Message::Handover(packets(&bytes));
    assert_eq!(outbox.post(claim.name(), &message).expect("post"), Delivery::Sent);

    let mut buffer = InboxBuffer::new();
    assert!(readable(claim.inbox()));
    assert_eq!(claim.inbox_mut().recv(&mut buffer).expect("recv"), Some(message));
    assert_eq!(claim.inbox_mut().recv(&mut buffer).expect("recv"), None);
    assert!(!readable(claim.inbox()));
    assert_eq!(buffer.junk(), 0);
}

#[test]
fn a_question_is_answered_to_who_asked_it() {
    let mut asked = BlockClaim::claim(address(3)).expect("a block");
    let mut outboxes = [0; 2].map(|_| Outbox::new().expect("an outbox"));
    let mut buffer = InboxBuffer::new();
    for (udp_port, outbox) in (50_000..).zip(&mut outboxes) {
        let sent = outbox.post(asked.name(), &Message::WhereAreYou).expect("post");
        assert_eq!(sent, Delivery::Sent);
        let question = asked.inbox_mut().recv(&mut buffer).expect("recv");
        assert_eq!(question, Some(Message::WhereAreYou));
        asked.inbox().reply(&Message::IAm { udp_port });
    }
    for (udp_port, outbox) in (50_000..).zip(&mut outboxes) {
        assert!(readable(&*outbox));
        let who = asked.name().into();
        assert_eq!(outbox.poll(), Some(Heard::IAm { who, udp_port }));
        assert_eq!(outbox.poll(), None);
    }
}

/// Owns a name and may answer anything.
fn impostor(name: BlockName) -> OwnedFd {
    let impostor = rustix::net::socket_with(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        rustix::net::SocketFlags::empty(),
        None,
    )
    .expect("a socket");
    let unix = rustix::net::SocketAddrUnix::new_abstract_name(name.to_string().as_bytes()).expect("a name");
    rustix::net::bind(&impostor, &unix).expect("the name is free");
    rustix::net::listen(&impostor, 4).expect("it listens");
    impostor
}

/// A process that ends may not have read what it asked for; what it handed over before must not be lost.
#[test]
fn what_a_sender_wrote_is_read_though_it_left_without_reading_its_answer() {
    let mut claim = BlockClaim::claim(address(18)).expect("a block");
    let mut outbox = Outbox::new().expect("an outbox");
    let mut buffer = InboxBuffer::new();
    let handover = Message::Handover(packets(b"packet"));
    assert_eq!(
        outbox.post(claim.name(), &Message::WhereAreYou).expect("post"),
        Delivery::Sent
    );
    let question = claim.inbox_mut().recv(&mut buffer).expect("recv");
    assert_eq!(question, Some(Message::WhereAreYou));
    claim.inbox().reply(&Message::IAm { udp_port: 50_000 });
    for _ in 0..3 {
        assert_eq!(
            outbox.post(claim.name(), &handover).expect("post"),
            Delivery::Sent
        );
    }
    drop(outbox);
    for _ in 0..3 {
        assert_eq!(claim.inbox_mut().recv(&mut buffer).expect("recv"), Some(handover));
    }
    assert_eq!(claim.inbox_mut().recv(&mut buffer).expect("recv"), None);
    assert!(!readable(claim.inbox()), "the line is closed");
}

/// A process that was asked where it listens can say that and nothing else.
#[test]
fn an_answer_that_is_none_ends_the_line() {
    let name = BlockName {
        address: address(2),
        block: Block::FIRST,
    };
    let impostor = impostor(name);
    let mut outbox = Outbox::new().expect("an outbox");
    for nonsense in [&b"hello"[..], &[5, 1], &[0; 100]] {
        assert_eq!(
            outbox.post(name, &Message::WhereAreYou).expect("post"),
            Delivery::Sent
        );
        let line = rustix::net::accept(&impostor).expect("the question's line");
        rustix::net::send(&line, nonsense, rustix::net::SendFlags::empty()).expect("sent");
        assert_eq!(outbox.poll(), None);
        assert!(!readable(&outbox), "it would keep us awake");
        let gone = rustix::net::send(&line, b"more", rustix::net::SendFlags::NOSIGNAL);
        assert!(gone.is_err(), "the line is closed");
    }
}

/// Every answer wakes us, so a process that goes on answering would keep us awake.
#[test]
fn more_answers_than_questions_end_the_line() {
    let name = BlockName {
        address: address(18),
        block: Block::FIRST,
    };
    let impostor = impostor(name);
    let mut outbox = Outbox::new().expect("an outbox");
    for _ in 0..2 {
        let sent = outbox.post(name, &Message::WhereAreYou).expect("post");
        assert_eq!(sent, Delivery::Sent);
    }
    let line = rustix::net::accept(&impostor).expect("the line of both questions");
    let i_am = [5, 3, 0xc3, 0x50];
    let says = || rustix::net::send(&line, &i_am, rustix::net::SendFlags::NOSIGNAL);
    assert!((0..3).all(|_| says().is_ok()), "the line is open");
    let (who, udp_port) = (name.into(), 50_000);
    for _ in 0..2 {
        assert_eq!(outbox.poll(), Some(Heard::IAm { who, udp_port }));
    }
    assert_eq!(outbox.poll(), None);
    assert!(!readable(&outbox), "it would keep us awake");
    assert!(says().is_err(), "the line is closed");
}

#[test]
fn a_full_inbox_drops_and_counts() {
    let mut claim = BlockClaim::claim(address(4)).expect("a block");
    let mut outbox = Outbox::new().expect("an outbox");
    let mut sent = 0;
    while outbox
        .post(claim.name(), &Message::Handover(packets(b"packet")))
        .expect("post")
        == Delivery::Sent
    {
        sent += 1;
        assert!(sent < 100_000, "the inbox never fills");
    }
    assert_eq!(outbox.dropped(), 1);
    let mut buffer = InboxBuffer::new();
    for _ in 0..sent {
        assert!(claim.inbox_mut().recv(&mut buffer).expect("recv").is_some());
    }
    assert_eq!(claim.inbox_mut().recv(&mut buffer).expect("recv"), None);
}

#[test]
fn nobody_is_at_home_in_an_unclaimed_block() {
    let mut outbox = Outbox::new().expect("an outbox");
    let claim = BlockClaim::claim(address(5)).expect("a block");
    let name = claim.name();
    drop(claim);
    let delivery = outbox
        .post(name, &Message::Handover(packets(b"packet")))
        .expect("post");
    assert_eq!(delivery, Delivery::Gone);
    assert_eq!(outbox.dropped(), 0);
}

#[test]
fn a_name_taken_by_something_else_is_gone_too() {
    let name = BlockName {
        address: address(6),
        block: Block::FIRST,
    };
    let unix = UnixAddr::from_abstract_name(name.to_string()).expect("a name");
    let _stream = UnixListener::bind_addr(&unix).expect("the name is free");
    let mut outbox = Outbox::new().expect("an outbox");
    let delivery = outbox
        .post(name, &Message::Handover(packets(b"packet")))
        .expect("post");
    assert_eq!(delivery, Delivery::Gone);
}

/// A line to an inbox, opened by a process that may write anything to it.
fn vandal(name: impl std::fmt::Display) -> OwnedFd {
    let flags = rustix::net::SocketFlags::empty();
    let family = rustix::net::AddressFamily::UNIX;
    let line =
        rustix::net::socket_with(family, rustix::net::SocketType::SEQPACKET, flags, None).expect("a socket");
    let name = rustix::net::SocketAddrUnix::new_abstract_name(name.to_string().as_bytes()).expect("a name");
    rustix::net::connect(&line, &name).expect("anybody can write");
    line
}

#[test]
fn junk_in_an_inbox_is_skipped() {
    let mut claim = BlockClaim::claim(address(7)).expect("a block");
    let vandal = vandal(claim.name());
    let flags = rustix::net::SendFlags::empty();
    for junk in [
        &b"\x01"[..],
        b"hello",
        b"\x02\x01",
        b"\x01\x09",
        &[1; 70_000],
        b"",
    ] {
        rustix::net::send(&vandal, junk, flags).expect("anybody can write");
    }
    let mut outbox = Outbox::new().expect("an outbox");
    let message = Message::Handover(packets(b"packet"));
    assert_eq!(outbox.post(claim.name(), &message).expect("post"), Delivery::Sent);
    let mut buffer = InboxBuffer::new();
    assert_eq!(claim.inbox_mut().recv(&mut buffer).expect("recv"), Some(message));
    assert_eq!(buffer.junk(), 5);
    // The empty message ended the vandal's line.
    assert!(rustix::net::send(&vandal, b"hello", rustix::net::SendFlags::NOSIGNAL).is_err());
}

/// Connections are made by the hundred, and the messages that make them come at once.
#[test]
fn a_burst_of_small_messages_fits() {
    let mut claim = BlockClaim::claim(address(8)).expect("a block");
    let mut outbox = Outbox::new().expect("an outbox");
    let bytes = [7; 280];
    for index in 0..150 {
        let delivery = outbox.post(claim.name(), &Message::Handover(packets(&bytes)));
        assert_eq!(delivery.expect("post"), Delivery::Sent, "message {index}");
    }
    let mut buffer = InboxBuffer::new();
    for _ in 0..150 {
        assert!(claim.inbox_mut().recv(&mut buffer).expect("recv").is_some());
    }
    assert!(!readable(claim.inbox()));
}

#[test]
fn one_who_does_not_read_is_in_nobodys_way() {
    let idle = BlockClaim::claim(address(9)).expect("a block");
    let mut busy = BlockClaim::claim(address(9)).expect("a block");
    let mut outbox = Outbox::new().expect("an outbox");
    let message = Message::Handover(packets(b"packet"));
    while outbox.post(idle.name(), &message).expect("post") == Delivery::Sent {}
    let mut buffer = InboxBuffer::new();
    for _ in 0..100 {
        assert_eq!(outbox.post(busy.name(), &message).expect("post"), Delivery::Sent);
        assert_eq!(busy.inbox_mut().recv(&mut buffer).expect("recv"), Some(message));
    }
}

#[test]
fn a_flood_from_one_sender_does_not_silence_another() {
    let mut claim = BlockClaim::claim(address(11)).expect("a block");
    let (mut flood, mut other) = (
        Outbox::new().expect("an outbox"),
        Outbox::new().expect("an outbox"),
    );
    let noise = Message::Handover(packets(b"noise"));
    while flood.post(claim.name(), &noise).expect("post") == Delivery::Sent {}
    let word = Message::Handover(packets(b"word"));
    assert_eq!(other.post(claim.name(), &word).expect("post"), Delivery::Sent);
    let mut buffer = InboxBuffer::new();
    let before = (0..100).take_while(|_| {
        let _ = flood.post(claim.name(), &noise).expect("post");
        claim.inbox_mut().recv(&mut buffer).expect("recv") != Some(word)
    });
    assert!(before.count() < 100, "the other was never heard");
}

#[test]
fn a_name_that_passed_to_another_is_reached_again() {
    let mut outbox = Outbox::new().expect("an outbox");
    let message = Message::Handover(packets(b"packet"));
    let mut buffer = InboxBuffer::new();
    for _ in 0..3 {
        let mut claim = BlockClaim::claim_block(address(12), Block::FIRST).expect("free");
        assert_eq!(outbox.post(claim.name(), &message).expect("post"), Delivery::Sent);
        assert_eq!(claim.inbox_mut().recv(&mut buffer).expect("recv"), Some(message));
    }
}

#[test]
fn one_learns_of_the_end_of_those_one_has_written_to() {
    let mut outbox = Outbox::new().expect("an outbox");
    let (left, right) = (
        BlockClaim::claim(address(15)).expect("a block"),
        BlockClaim::claim(address(15)).expect("a block"),
    );
    for claim in [&left, &right] {
        let sent = outbox.post(claim.name(), &Message::Handover(packets(b"packet")));
        assert_eq!(sent.expect("post"), Delivery::Sent);
    }
    assert!(!readable(&outbox));
    assert_eq!(outbox.poll(), None);
    let name = left.name();
    drop(left);
    assert!(readable(&outbox));
    assert_eq!(outbox.poll(), Some(Heard::Gone(name.into())));
    assert!(!readable(&outbox));
    assert_eq!(outbox.poll(), None);
    drop(right);
    assert!(outbox.poll().is_some());
}

/// As many as there are processes, below the usual limit of descriptors.
#[test]
fn the_end_of_two_hundred_processes_is_noticed() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let usual = rustix::process::Rlimit {
        current: Some(1024),
        ..limit
    };
    // nextest runs each test in a process of its own.
    rustix::process::setrlimit(rustix::process::Resource::Nofile, usual).expect("it may be lowered");
    let mut outbox = Outbox::new().expect("an outbox");
    let claims: Vec<_> = (0..200)
        .map(|_| BlockClaim::claim(address(19)).expect("a block"))
        .collect();
    for claim in &claims {
        let sent = outbox.post(claim.name(), &Message::WhereAreYou).expect("post");
        assert_eq!(sent, Delivery::Sent);
    }
    assert_eq!(outbox.poll(), None);
    let mut names: HashSet<InboxName> = claims.iter().map(|claim| claim.name().into()).collect();
    drop(claims);
    while let Some(heard) = outbox.poll() {
        let Heard::Gone(name) = heard else {
            panic!("{heard:?} from the dead");
        };
        assert!(names.remove(&name), "{name} has ended twice");
    }
    assert_eq!(names.len(), 0, "their end went unnoticed");
}

/// A name that passed to another process unnoticed: the process that had it is gone.
#[test]
fn the_end_of_a_process_is_noticed_though_another_took_its_name() {
    let name = BlockName {
        address: address(16),
        block: Block::FIRST,
    };
    let mut outbox = Outbox::new().expect("an outbox");
    let mut child = std::process::Command::new("python3")
        .args(["-c", OWNER, &name.to_string()])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("python3 is installed");
    let mut said = [0; 3];
    std::io::Read::read_exact(child.stdout.as_mut().expect("piped"), &mut said).expect("it says so");
    assert_eq!(
        outbox.post(name, &Message::WhereAreYou).expect("post"),
        Delivery::Sent
    );
    child.kill().expect("it lives");
    child.wait().expect("it ends");
    let _heir = BlockClaim::claim_block(address(16), Block::FIRST).expect("the name is free again");
    assert_eq!(outbox.poll(), Some(Heard::Gone(name.into())));
    assert_eq!(outbox.poll(), None);
}

/// Owns the name that it is given until it is killed.
const OWNER: &str = r"
import socket, sys, time
inbox = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
inbox.bind('\0' + sys.argv[1])
inbox.listen()
print('yes', flush=True)
time.sleep(60)
";

/// Lines are descriptors, and those belong to the program.
#[test]
fn lines_are_bounded_on_both_sides() {
    const LIMIT: u64 = 1024;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let lower = rustix::process::Rlimit {
        current: Some(LIMIT),
        ..limit
    };
    // nextest runs each test in a process of its own.
    rustix::process::setrlimit(rustix::process::Resource::Nofile, lower).expect("it may be lowered");
    let mut claim = BlockClaim::claim(address(13)).expect("a block");
    let descriptors = || std::fs::read_dir("/proc/self/fd").expect("procfs").count();
    let before = descriptors();
    let mut buffer = InboxBuffer::new();
    let mut lines = Vec::new();
    for _ in 0..400 {
        let line = vandal(claim.name());
        rustix::net::send(&line, b"hello", rustix::net::SendFlags::empty()).expect("anybody can write");
        while claim.inbox_mut().recv(&mut buffer).expect("recv").is_some() {}
        lines.push(line);
    }
    assert_eq!(buffer.junk(), 400, "everybody was heard");
    let kept = descriptors() - before - lines.len();
    assert!(
        (200..=LIMIT as usize / 4).contains(&kept),
        "{kept} lines were kept"
    );
    drop(lines);
    while claim.inbox_mut().recv(&mut buffer).expect("recv").is_some() || readable(claim.inbox()) {}

    let mut outbox = Outbox::new().expect("an outbox");
    let claims: Vec<_> = (0..100)
        .map(|_| BlockClaim::claim(address(14)).expect("a block"))
        .collect();
    let others: Vec<_> = (0..LIMIT as usize / 4 - 50)
        .map(|_| vandal(claim.name()))
        .collect();
    while claim.inbox_mut().recv(&mut buffer).expect("recv").is_some() || readable(claim.inbox()) {}
    let before = descriptors();
    for claim in &claims {
        let sent = outbox.post(claim.name(), &Message::Handover(packets(b"packet")));
        assert_eq!(sent.expect("post"), Delivery::Sent);
    }
    let kept = descriptors() - before;
    assert!(
        (40..=60).contains(&kept),
        "{kept} lines are kept when others have the rest"
    );
    drop(others);
}

/// A process that has no room for a line closes it. That is not its end.
#[test]
fn a_line_closed_for_want_of_room_is_not_the_end_of_a_process() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let lower = rustix::process::Rlimit {
        current: Some(600),
        ..limit
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, lower).expect("it may be lowered");
    let mut claim = BlockClaim::claim(address(17)).expect("a block");
    let mut buffer = InboxBuffer::new();
    let message = Message::Handover(packets(b"packet"));
    let mut outboxes: Vec<_> = (0..140).map(|_| Outbox::new().expect("an outbox")).collect();
    for _ in 0..3 {
        for outbox in &mut outboxes {
            assert_eq!(outbox.post(claim.name(), &message).expect("post"), Delivery::Sent);
            assert_eq!(claim.inbox_mut().recv(&mut buffer).expect("recv"), Some(message));
        }
        assert_eq!(claim.inbox_mut().recv(&mut buffer).expect("recv"), None);
        for outbox in &mut outboxes {
            assert_eq!(outbox.poll(), None);
        }
    }
    // Those whose line was closed ask a few times whether the process is there, and leave it at that.
    for _ in 0..8 {
        while claim.inbox_mut().recv(&mut buffer).expect("recv").is_some() || readable(claim.inbox()) {}
        for outbox in &mut outboxes {
            assert_eq!(outbox.poll(), None);
        }
    }
    while claim.inbox_mut().recv(&mut buffer).expect("recv").is_some() || readable(claim.inbox()) {}
    assert!(
        outboxes.iter().all(|outbox| !readable(outbox)),
        "they push each other out"
    );
}

#[test]
fn every_process_of_a_user_has_a_socket_at_the_port() {
    let ports: Vec<Port> = (0..4).map(|_| Port::join(address(20), 0)).collect();
    for port in &ports {
        assert_eq!(port.port_state(), PortState::Joined);
        assert_eq!(
            port.socket().expect("joined").local_addr(),
            address(20).with_port(4791)
        );
        assert_eq!(port.next_deadline_ns(), None);
    }
}

#[test]
fn what_is_sent_to_the_port_always_has_a_reader() {
    let mut ports: Vec<Port> = (0..4).map(|_| Port::join(address(21), 0)).collect();
    let sender = WireSocket::bind(address(22).with_port(0)).expect("a free port");
    let mut batch = RecvBatch::new(1);
    while !ports.is_empty() {
        sender
            .send(address(21).with_port(4791), b"packet", None)
            .expect("loopback takes it");
        let mut reads = |port: &&Port| {
            port.socket()
                .is_some_and(|socket| socket.recv(&mut batch).is_ok())
        };
        assert!(
            ports.iter().any(|port| reads(&port)),
            "with {} processes",
            ports.len()
        );
        let datagrams = batch.iter().next().expect("one entry");
        assert_eq!(
            (datagrams.src, datagrams.dst_ip),
            (sender.local_addr(), address(21).ip)
        );
        ports.remove(0);
    }
}

#[test]
fn a_port_that_somebody_else_has_is_tried_slowly_and_when_it_may_be_free() {
    let other = WireSocket::bind(address(25).with_port(4791)).expect("the port is free");
    let mut port = Port::join(address(25), 0);
    let taken = PortState::Retry {
        reason: RetryReason::Taken,
    };
    for round in 0..3 {
        assert_eq!(port.port_state(), taken);
        assert_eq!(port.next_deadline_ns(), Some((round + 1) * SECOND));
        assert!(!port.poll((round + 1) * SECOND - 1), "not due yet");
        assert!(!port.poll((round + 1) * SECOND));
    }
    drop(other);
    assert!(port.try_again(3 * SECOND + 1));
    assert_eq!(port.port_state(), PortState::Joined);
    assert!(!port.try_again(3 * SECOND + 2), "it has the port");
}

/// A process that ends closes the line that tells of it before its socket at the port, or after.
#[test]
fn a_port_whose_reader_is_about_to_go_is_tried_again_soon() {
    let going = WireSocket::bind(address(26).with_port(4791)).expect("the port is free");
    let mut port = Port::join(address(26), 0);
    assert!(!port.try_again(100), "not gone yet");
    let mut now_ns = 100;
    let mut waited_ns = Vec::new();
    for _ in 0..12 {
        let at_ns = port.next_deadline_ns().expect("another attempt");
        waited_ns.push(at_ns - now_ns);
        now_ns = at_ns;
        assert!(!port.poll(now_ns));
    }
    assert!(waited_ns[0] <= SECOND / 1000, "{waited_ns:?}");
    let doubles = |pair: &[u64]| pair[1] == (2 * pair[0]).min(SECOND);
    assert!(waited_ns.windows(2).all(doubles), "{waited_ns:?}");
    assert_eq!(
        waited_ns.last(),
        Some(&SECOND),
        "it stays, and is not insisted on"
    );
    drop(going);
    assert!(port.poll(now_ns + SECOND));
}

#[test]
fn an_address_that_is_not_ours_is_unavailable() {
    let elsewhere = LocalAddress::from(IpAddr::from([203, 0, 113, 1]));
    let port = Port::join(elsewhere, 0);
    let reason = RetryReason::Unavailable(std::io::ErrorKind::AddrNotAvailable);
    assert_eq!(port.port_state(), PortState::Retry { reason });
    assert_eq!(port.next_deadline_ns(), Some(SECOND));
}

#[test]
fn one_can_look_who_has_the_port_without_taking_it() {
    assert_eq!(
        port_owner(address(29)).expect("it can be bound"),
        PortOwner::Nobody
    );
    let _port = Port::join(address(29), 0);
    let uid = rustix::process::geteuid().as_raw();
    assert_eq!(
        port_owner(address(29)).expect("it is seen"),
        PortOwner::User { uid }
    );
}

#[test]
fn ipv6_addresses_have_ports_and_blocks_too() {
    let local = LocalAddress::from(IpAddr::from(std::net::Ipv6Addr::LOCALHOST));
    let claim = BlockClaim::claim(local).expect("a block");
    assert_eq!(
        claim.name().to_string(),
        format!("nonic/3/::1/block/{:03x}", claim.block().number())
    );
    assert_eq!(Port::join(local, 0).port_state(), PortState::Joined);
}
