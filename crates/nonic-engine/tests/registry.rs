//! Processes that share an address: the protocol between them, tried within one process, where claims and
//! seats are just sockets. `registry_processes.rs` repeats the essential parts with processes that die.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};

use nonic_engine::netdev::LocalAddress;
use nonic_engine::registry::{
    Block, BlockClaim, BlockName, Delivery, InboxBuffer, Message, Occupant, Outbox, RetryReason, Seat,
    Standing, occupant, try_hold,
};
use nonic_engine::socket::{Datagrams, RecvBatch, WireSocket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const MILLISECOND: u64 = 1_000_000;
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
    }
}

fn readable(fd: impl AsFd) -> bool {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)).expect("poll works") == 1
}

fn holder_pid_is_ours(standing: Standing) -> bool {
    standing
        == Standing::Waiting {
            holder_pid: Some(std::process::id()),
        }
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
fn a_question_is_answered_across_addresses() {
    let mut asker = BlockClaim::claim(address(2)).expect("a block");
    let mut asked = BlockClaim::claim(address(3)).expect("a block");
    let mut outbox = Outbox::new().expect("an outbox");
    let mut buffer = InboxBuffer::new();
    let question = Message::WhereAreYou {
        reply_to: asker.name(),
        token: 0x0123_4567_89ab_cdef,
    };
    assert_eq!(
        outbox.post(asked.name(), &question).expect("post"),
        Delivery::Sent
    );

    let Some(Message::WhereAreYou { reply_to, token }) = asked.inbox_mut().recv(&mut buffer).expect("recv")
    else {
        panic!("not the question");
    };
    let answer = Message::IAm {
        who: asked.name(),
        udp_port: 50_000,
        token,
    };
    assert_eq!(outbox.post(reply_to, &answer).expect("post"), Delivery::Sent);
    assert_eq!(asker.inbox_mut().recv(&mut buffer).expect("recv"), Some(answer));
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

/// A line to an inbox, opened by somebody who may write anything to it.
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
    assert_eq!(outbox.poll_gone(), None);
    let name = left.name();
    drop(left);
    assert!(readable(&outbox));
    assert_eq!(outbox.poll_gone(), Some(name.into()));
    assert!(!readable(&outbox));
    assert_eq!(outbox.poll_gone(), None);
    drop(right);
    assert!(outbox.poll_gone().is_some());
}

/// A process that others crowd round closes lines. That is not its end.
#[test]
fn a_line_closed_for_want_of_room_is_not_the_end_of_a_process() {
    let mut claim = BlockClaim::claim(address(16)).expect("a block");
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
            assert_eq!(outbox.poll_gone(), None);
        }
    }
    // Those whose line was closed ask a few times whether the process is there, and leave it at that.
    for _ in 0..8 {
        while claim.inbox_mut().recv(&mut buffer).expect("recv").is_some() || readable(claim.inbox()) {}
        for outbox in &mut outboxes {
            assert_eq!(outbox.poll_gone(), None);
        }
    }
    while claim.inbox_mut().recv(&mut buffer).expect("recv").is_some() || readable(claim.inbox()) {}
    assert!(
        outboxes.iter().all(|outbox| !readable(outbox)),
        "they push each other out"
    );
}

#[test]
fn lines_are_bounded_on_both_sides() {
    let mut claim = BlockClaim::claim(address(13)).expect("a block");
    let descriptors = || std::fs::read_dir("/proc/self/fd").expect("procfs").count();
    let before = descriptors();
    let mut buffer = InboxBuffer::new();
    let mut lines = Vec::new();
    for _ in 0..300 {
        let line = vandal(claim.name());
        rustix::net::send(&line, b"hello", rustix::net::SendFlags::empty()).expect("anybody can write");
        while claim.inbox_mut().recv(&mut buffer).expect("recv").is_some() {}
        lines.push(line);
    }
    assert_eq!(buffer.junk(), 300, "everybody was heard");
    // Other tests of this process come and go with a few descriptors of their own.
    assert!(descriptors() - before < 300 + 200, "lines are never closed");

    let mut outbox = Outbox::new().expect("an outbox");
    let claims: Vec<_> = (0..200)
        .map(|_| BlockClaim::claim(address(14)).expect("a block"))
        .collect();
    let before = descriptors();
    for claim in &claims {
        let sent = outbox.post(claim.name(), &Message::Handover(packets(b"packet")));
        assert_eq!(sent.expect("post"), Delivery::Sent);
    }
    assert!(descriptors() - before < 180, "lines are never closed");
}

#[test]
fn one_seat_holds_and_the_others_wait_their_turn() {
    let mut seats: Vec<Seat> = (0..4).map(|_| Seat::take(address(20), 0)).collect();
    for _ in 0..3 {
        assert_eq!(seats[0].standing(), Standing::Holder);
        assert_eq!(
            seats[0].socket().expect("the port").local_addr(),
            address(20).with_port(4791)
        );
        for seat in &mut seats[1..] {
            assert!(holder_pid_is_ours(seat.standing()), "{:?}", seat.standing());
            assert!(seat.socket().is_none());
            assert_eq!(seat.next_deadline_ns(), None);
            assert!(!readable(seat.fd().expect("a connection to wait on")));
            assert!(!seat.poll(SECOND), "nothing happened");
        }
        seats.remove(0);
        for seat in &mut seats {
            assert!(
                readable(seat.fd().expect("the connection")),
                "the holder's end is seen"
            );
            assert!(seat.poll(SECOND));
        }
    }
}

#[test]
fn the_holder_lets_waiters_in_and_goes_back_to_sleep() {
    let mut holder = Seat::take(address(21), 0);
    let _waiters: Vec<Seat> = (0..100).map(|_| Seat::take(address(21), 0)).collect();
    assert!(readable(holder.fd().expect("a door")));
    for _ in 0..2 {
        assert!(!holder.poll(0), "nothing to register anew");
    }
    assert!(!readable(holder.fd().expect("a door")), "everybody is in");
    assert_eq!(holder.next_deadline_ns(), None);
}

#[test]
fn waiters_that_were_never_let_in_still_see_the_end() {
    let holder = Seat::take(address(22), 0);
    let mut waiter = Seat::take(address(22), 0);
    drop(holder);
    assert!(waiter.poll(0));
    assert_eq!(waiter.standing(), Standing::Holder);
}

#[test]
fn waiters_that_leave_do_not_pile_up() {
    let open_descriptors = || {
        std::fs::read_dir("/proc/self/fd")
            .expect("/proc is mounted")
            .count()
    };
    let mut holder = Seat::take(address(23), 0);
    let before = open_descriptors();
    for _ in 0..500 {
        drop(Seat::take(address(23), 0));
        holder.poll(0);
    }
    // Other tests may share the process, so this allows for a few descriptors of theirs.
    assert!(open_descriptors() < before + 200);
    assert_eq!(holder.standing(), Standing::Holder);
}

/// The winner of the race has the port and has not opened its door yet.
#[test]
fn a_closed_door_is_tried_again_soon() {
    let winner = try_hold(address(24)).expect("bind").expect("the port is free");
    let mut seat = Seat::take(address(24), SECOND);
    assert_eq!(
        seat.standing(),
        Standing::Retry {
            reason: RetryReason::Settling
        }
    );
    assert_eq!(seat.next_deadline_ns(), Some(SECOND + MILLISECOND));
    assert!(seat.fd().is_none());
    assert!(!seat.poll(SECOND), "not due yet");
    drop(winner);
    assert!(seat.poll(SECOND + MILLISECOND));
    assert_eq!(seat.standing(), Standing::Holder);
}

#[test]
fn a_port_that_stays_taken_is_foreign_and_tried_slowly() {
    let foreign = WireSocket::bind(address(25).with_port(4791)).expect("the port is free");
    let mut now_ns = 0;
    let mut seat = Seat::take(address(25), now_ns);
    let mut attempts = 0;
    while seat.standing()
        != (Standing::Retry {
            reason: RetryReason::Foreign,
        })
    {
        now_ns = seat.next_deadline_ns().expect("a retry has a deadline");
        assert!(seat.poll(now_ns));
        attempts += 1;
        assert!(attempts < 20, "never called foreign");
    }
    assert!(
        (100 * MILLISECOND..500 * MILLISECOND).contains(&now_ns),
        "{now_ns}"
    );
    for _ in 0..3 {
        assert_eq!(seat.next_deadline_ns(), Some(now_ns + SECOND));
        now_ns += SECOND;
        assert!(seat.poll(now_ns));
        assert_eq!(
            seat.standing(),
            Standing::Retry {
                reason: RetryReason::Foreign
            }
        );
    }
    drop(foreign);
    assert!(seat.poll(now_ns + SECOND));
    assert_eq!(seat.standing(), Standing::Holder);
}

#[test]
fn an_address_that_is_not_ours_is_unavailable() {
    let elsewhere = LocalAddress::from(IpAddr::from([203, 0, 113, 1]));
    let seat = Seat::take(elsewhere, 0);
    let reason = RetryReason::Unavailable(std::io::ErrorKind::AddrNotAvailable);
    assert_eq!(seat.standing(), Standing::Retry { reason });
    assert_eq!(seat.next_deadline_ns(), Some(SECOND));
}

/// A predecessor's door can outlive its port for a moment while the kernel tears it down.
#[test]
fn a_holder_whose_door_is_blocked_serves_and_opens_it_later() {
    let unix = UnixAddr::from_abstract_name(format!("nonic/2/{}/holder", address(26))).expect("a name");
    let old_door = UnixListener::bind_addr(&unix).expect("the name is free");
    let mut holder = Seat::take(address(26), 0);
    assert_eq!(holder.standing(), Standing::Holder);
    assert!(holder.fd().is_none());
    let mut waiter = Seat::take(address(26), 0);
    assert!(
        holder_pid_is_ours(waiter.standing()),
        "the old door still takes connections"
    );

    drop(old_door);
    assert!(waiter.poll(0), "the old door closed");
    assert_eq!(
        waiter.standing(),
        Standing::Retry {
            reason: RetryReason::Settling
        }
    );
    let deadline_ns = holder.next_deadline_ns().expect("it tries again");
    assert!(holder.poll(deadline_ns));
    assert!(holder.fd().is_some());
    assert!(waiter.poll(waiter.next_deadline_ns().expect("it tries again")));
    assert!(holder_pid_is_ours(waiter.standing()));
}

#[test]
fn one_can_look_who_has_the_port_without_taking_it() {
    assert_eq!(occupant(address(29)).expect("it can be bound"), Occupant::Nobody);
    let seat = Seat::take(address(29), 0);
    assert_eq!(seat.standing(), Standing::Holder);
    let us = Occupant::Holder {
        pid: Some(std::process::id()),
    };
    assert_eq!(occupant(address(29)).expect("the door answers"), us);

    let foreign = try_hold(address(30)).expect("it can be bound");
    assert!(foreign.is_some());
    assert_eq!(occupant(address(30)).expect("it is taken"), Occupant::Foreign);
}

#[test]
fn the_port_receives_what_others_send_to_it() {
    let seat = Seat::take(address(27), 0);
    let sender = WireSocket::bind(address(28).with_port(0)).expect("a free port");
    sender
        .send(address(27).with_port(4791), b"packet", None)
        .expect("loopback takes it");
    let mut batch = RecvBatch::new(1);
    assert_eq!(
        seat.socket()
            .expect("the port")
            .recv(&mut batch)
            .expect("a datagram"),
        1
    );
    let datagrams = batch.iter().next().expect("one entry");
    assert_eq!(
        (datagrams.src, datagrams.dst_ip),
        (sender.local_addr(), address(27).ip)
    );
}

#[test]
fn ipv6_addresses_have_seats_and_blocks_too() {
    let local = LocalAddress::from(IpAddr::from(std::net::Ipv6Addr::LOCALHOST));
    let claim = BlockClaim::claim(local).expect("a block");
    assert_eq!(
        claim.name().to_string(),
        format!("nonic/2/::1/block/{:03x}", claim.block().number())
    );
    // Whether the port is free depends on who else runs here; being neither holder nor waiter would mean a
    // foreign program, which a test machine does not have.
    let seat = Seat::take(local, 0);
    let second = Seat::take(local, 0);
    assert!(
        matches!(second.standing(), Standing::Waiting { .. }),
        "{:?} {:?}",
        seat.standing(),
        second.standing()
    );
}

#[test]
fn what_a_leaving_holder_had_not_read_is_read_by_its_heir() {
    let holder = Seat::take(address(30), 0);
    let mut heir = Seat::take(address(30), 0);
    assert_eq!(holder.standing(), Standing::Holder);
    let sender = WireSocket::bind(address(30).with_port(0)).expect("a socket");
    let port = address(30).with_port(4791);
    sender.send(port, b"under way", None).expect("sent");
    drop(holder);
    // There was no moment at which the port was free.
    sender.send(port, b"meanwhile", None).expect("sent");
    assert!(heir.poll(1));
    assert_eq!(heir.standing(), Standing::Holder);
    let socket = heir.socket().expect("the port");
    let mut batch = RecvBatch::new(1);
    for expected in [b"under way", b"meanwhile"] {
        socket.recv(&mut batch).expect("a packet waits");
        let found = batch.iter().next().map(|datagrams| datagrams.bytes.to_vec());
        assert_eq!(found.as_deref(), Some(&expected[..]));
    }
}

#[test]
fn a_socket_that_is_not_the_port_is_not_inherited() {
    use std::os::linux::net::SocketAddrExt;
    let door = UnixAddr::from_abstract_name(format!("nonic/2/{}/holder", address(31))).expect("a name");
    let impostor = UnixListener::bind_addr(&door).expect("the name is free");
    let port = WireSocket::bind(address(31).with_port(4791)).expect("the port is free");
    let mut seat = Seat::take(address(31), 0);
    assert!(matches!(seat.standing(), Standing::Waiting { .. }));
    let (line, _) = impostor.accept().expect("the seat knocked");
    let other = WireSocket::bind(address(31).with_port(0)).expect("another port");
    let sockets = [other.as_fd()];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut notes = rustix::net::SendAncillaryBuffer::new(&mut space);
    notes.push(rustix::net::SendAncillaryMessage::ScmRights(&sockets));
    let flags = rustix::net::SendFlags::empty();
    rustix::net::sendmsg(&line, &[std::io::IoSlice::new(b"!")], &mut notes, flags).expect("sent");
    assert!(!seat.poll(1));
    assert!(matches!(seat.standing(), Standing::Waiting { .. }));
    drop(port);
}
