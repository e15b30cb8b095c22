//! Steering: which process's socket at port 4791 the kernel gives a packet to.
//!
//! The sockets of one user at the port are numbered by the kernel, and a classic BPF program that any of them may
//! attach chooses a number for each packet. Ours reads the destination queue pair number: its block names the process
//! ([`Member`]). A message of the connection manager goes to the process that has the block in the identifier of its
//! receiver, a request to connect to the process that listens on its service. So the packets of one process do not pass
//! through another, which may be busy, stopped or about to end.
//!
//! Nothing depends on it for correctness: a packet that the program knows nothing of, or whose number is out of date,
//! goes to one of the sockets all the same, and the process there hands it over.
//!
//! The kernel does not tell a process the number of its socket, and gives the last socket the number of one that was
//! closed. So a survey finds out the numbers: see [`survey`](super::survey). For that, the program sends a datagram that
//! begins with [`SURVEY_OPCODE`] to the number that is written in it.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use super::Block;
use crate::socket::WireSocket;

/// The first byte of the datagrams of a survey: an opcode that no RoCE packet has (the last of those that the
/// specification leaves to manufacturers).
pub(crate) const SURVEY_OPCODE: u8 = 0xff;

/// The most comparisons in a program. The kernel takes more, and a packet passes half of them on average. A process that is
/// left out has its packets handed over.
const MAX_COMPARISONS: usize = 512;

/// The most processes that share packets for no process in particular.
const MAX_BY_LOT: usize = 64;

/// One process at the port.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Member {
    /// Its number among the sockets at the port.
    pub(crate) index: u32,
    /// Its blocks of queue pair numbers.
    pub(crate) blocks: Vec<Block>,
    /// The services it listens on, by the lower half of their identifiers: for an IP address the upper half is always the
    /// same, and a process that gets a request for another service in error hands it over.
    pub(crate) services: Vec<u32>,
}

/// Makes the kernel steer by these members. Without any, it still serves surveys, and spreads everything else by sender.
pub(crate) fn attach(port: &WireSocket, members: &[Member]) -> io::Result<()> {
    let program = program(members);
    let described = libc::sock_fprog {
        len: program.len() as libc::c_ushort,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the descriptor is open for the length of the borrow; pointer and length describe `described`, and its
    // pointer and length describe `program`. The kernel only reads both, during the call.
    let outcome = unsafe {
        libc::setsockopt(
            port.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const described).cast(),
            size_of_val(&described) as libc::socklen_t,
        )
    };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Where things are, from the first byte behind the UDP header.
mod offset {
    /// The number that a survey's datagram asks for.
    pub(super) const SURVEY_INDEX: u32 = 4;
    /// The word of the base transport header whose lower 24 bits are the destination queue pair number.
    pub(super) const QPN: u32 = 4;
    /// A management datagram begins behind the base (12) and datagram (8) headers; its attribute is at 16.
    pub(super) const ATTRIBUTE: u32 = 20 + 16;
    /// The connection manager's message begins at 24 of the management datagram. The identifier that the receiver
    /// chose is its second word, except in a request.
    pub(super) const RECEIVER_ID: u32 = 20 + 24 + 4;
    /// The lower half of the service that a request is for.
    pub(super) const SERVICE_LOW: u32 = 20 + 24 + 8 + 4;
}

/// The attribute of a request to connect.
const REQ: u32 = 0x10;
/// The attributes of messages with the receiver's identifier: from MRA to DREP.
const FIRST_WITH_RECEIVER: u32 = 0x11;
const LAST_WITH_RECEIVER: u32 = 0x16;

/// No socket has this number; the kernel then chooses by sender, so that packets of one sender stay in order.
const BY_SENDER: u32 = u32::MAX;

/// The instructions. A load beyond the end of a datagram ends the program with number 0.
fn program(members: &[Member]) -> Vec<libc::sock_filter> {
    let mut room = MAX_COMPARISONS;
    let services = comparisons(&mut room, members, |member| member.services.clone());
    let numbers = |member: &Member| member.blocks.iter().map(|block| block.number().into()).collect();
    let blocks = comparisons(&mut room, members, numbers);
    let anyone = anyone(members);
    let management = [
        load(libc::BPF_H, offset::ATTRIBUTE),
        unless(libc::BPF_JEQ, REQ, 2),
        load(libc::BPF_W, offset::SERVICE_LOW),
        // To the services, past the rest and the choice by lot.
        skip(5 + anyone.len()),
        unless(libc::BPF_JGE, FIRST_WITH_RECEIVER, 4),
        when(libc::BPF_JGT, LAST_WITH_RECEIVER, 3),
        load(libc::BPF_W, offset::RECEIVER_ID),
        shift_right(20),
        // To the blocks, past their shift.
        skip(anyone.len() + services.len() + anyone.len() + 1),
    ];
    let mut program = vec![
        load(libc::BPF_B, 0),
        unless(libc::BPF_JEQ, SURVEY_OPCODE.into(), 2),
        load(libc::BPF_W, offset::SURVEY_INDEX),
        instruction(libc::BPF_RET | libc::BPF_A, 0),
        load(libc::BPF_W, offset::QPN),
        instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0x00ff_ffff),
        when(libc::BPF_JEQ, 1, 1),
        skip(management.len() + anyone.len() + services.len() + anyone.len()),
    ];
    program.extend(management);
    program.extend(&anyone);
    program.extend(services);
    program.extend(&anyone);
    program.push(shift_right(12));
    program.extend(blocks);
    program.push(choose(BY_SENDER));
    program
}

/// Compares what is loaded with every value of every member, as long as there is room.
fn comparisons(
    room: &mut usize,
    members: &[Member],
    values: impl Fn(&Member) -> Vec<u32>,
) -> Vec<libc::sock_filter> {
    let all = members.iter().flat_map(|member| {
        let choices = values(member).into_iter().map(|value| (value, member.index));
        choices.collect::<Vec<(u32, u32)>>()
    });
    let fitting: Vec<(u32, u32)> = all.take(*room).collect();
    *room -= fitting.len();
    let pairs = fitting.into_iter();
    pairs
        .flat_map(|(value, index)| [unless(libc::BPF_JEQ, value, 1), choose(index)])
        .collect()
}

/// Chooses one of the members by lot: a message that is retransmitted, because the process it went to did not answer, goes
/// to another.
fn anyone(members: &[Member]) -> Vec<libc::sock_filter> {
    let count = members.len().min(MAX_BY_LOT);
    if count == 0 {
        return vec![choose(BY_SENDER)];
    }
    let mut program = vec![
        load(libc::BPF_W, (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM) as u32),
        instruction(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, count as u32),
    ];
    for (lot, member) in members.iter().take(count).enumerate() {
        program.extend([unless(libc::BPF_JEQ, lot as u32, 1), choose(member.index)]);
    }
    program.push(choose(BY_SENDER));
    program
}

fn load(size: u32, offset: u32) -> libc::sock_filter {
    instruction(libc::BPF_LD | size | libc::BPF_ABS, offset)
}

fn shift_right(bits: u32) -> libc::sock_filter {
    instruction(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, bits)
}

fn choose(index: u32) -> libc::sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, index)
}

/// Passes over so many instructions.
fn skip(count: usize) -> libc::sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JA, count as u32)
}

/// Passes over so many instructions if the comparison holds.
fn when(comparison: u32, value: u32, count: u8) -> libc::sock_filter {
    libc::sock_filter {
        jt: count,
        ..instruction(libc::BPF_JMP | comparison | libc::BPF_K, value)
    }
}

/// Passes over so many instructions if the comparison does not hold.
fn unless(comparison: u32, value: u32, count: u8) -> libc::sock_filter {
    libc::sock_filter {
        jf: count,
        ..instruction(libc::BPF_JMP | comparison | libc::BPF_K, value)
    }
}

fn instruction(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::netdev::LocalAddress;
    use crate::socket::{ROCE_PORT, RecvBatch};

    /// Sockets at the port, and a sender.
    struct Bench {
        port: std::net::SocketAddr,
        sockets: Vec<WireSocket>,
        sender: WireSocket,
    }

    impl Bench {
        fn new(last: u8, count: usize) -> Self {
            let address = LocalAddress::from(IpAddr::from([127, 71, 3, last]));
            let port = address.with_port(ROCE_PORT);
            let socket = |_| WireSocket::bind_shared(port).expect("the port is this user's");
            Bench {
                port,
                sockets: (0..count).map(socket).collect(),
                sender: WireSocket::bind(address.with_port(0)).expect("a free port"),
            }
        }

        /// Which socket a datagram arrives at.
        fn where_goes(&self, datagram: &[u8]) -> usize {
            self.sender
                .send(self.port, datagram, None)
                .expect("loopback takes it");
            let mut batch = RecvBatch::new(1);
            let arrived = |socket: &WireSocket| socket.recv(&mut batch).is_ok();
            self.sockets.iter().position(arrived).expect("somewhere")
        }
    }

    fn to_qpn(qpn: u32) -> Vec<u8> {
        let mut packet = vec![0; 32];
        packet[4..8].copy_from_slice(&qpn.to_be_bytes());
        packet
    }

    /// A management datagram with an attribute, and a word at an offset of the connection manager's message.
    fn message(attribute: u16, offset: usize, word: u32) -> Vec<u8> {
        let mut packet = to_qpn(1);
        packet.resize(20 + 256 + 4, 0);
        packet[36..38].copy_from_slice(&attribute.to_be_bytes());
        packet[44 + offset..48 + offset].copy_from_slice(&word.to_be_bytes());
        packet
    }

    fn member(index: u32, blocks: &[u16], services: &[u32]) -> Member {
        Member {
            index,
            blocks: blocks.iter().filter_map(|number| Block::new(*number)).collect(),
            services: services.to_vec(),
        }
    }

    #[test]
    fn packets_go_to_the_process_that_owns_their_queue_pair() {
        let bench = Bench::new(1, 3);
        let members = [
            member(2, &[0x123, 0x7ff], &[]),
            member(0, &[0xffe], &[]),
            member(1, &[1], &[]),
        ];
        attach(&bench.sockets[0], &members).expect("no privilege is needed");
        for (qpn, socket) in [
            (0x12_3000, 2),
            (0x12_3fff, 2),
            (0x7f_f001, 2),
            (0xff_e000, 0),
            (0x00_1abc, 1),
        ] {
            // The byte above the number is not part of it.
            for above in [0, 0xaa00_0000] {
                assert_eq!(bench.where_goes(&to_qpn(qpn | above)), socket, "{qpn:#x}");
            }
        }
    }

    #[test]
    fn messages_go_to_the_process_that_gave_their_identifier() {
        let bench = Bench::new(2, 3);
        let members = [member(1, &[0x456], &[0x1234_5678]), member(2, &[0x9], &[7])];
        attach(&bench.sockets[2], &members).expect("any of them may");
        for attribute in 0x11..=0x16 {
            assert_eq!(
                bench.where_goes(&message(attribute, 4, 0x4567_89ab)),
                1,
                "{attribute:#x}"
            );
            assert_eq!(
                bench.where_goes(&message(attribute, 4, 0x0091_2345)),
                2,
                "{attribute:#x}"
            );
        }
        for _ in 0..20 {
            assert_eq!(bench.where_goes(&message(0x10, 12, 0x1234_5678)), 1);
            assert_eq!(bench.where_goes(&message(0x10, 12, 7)), 2);
        }
    }

    #[test]
    fn a_request_for_nobody_known_is_drawn_among_those_who_answered() {
        let bench = Bench::new(3, 3);
        attach(&bench.sockets[0], &[member(0, &[], &[]), member(2, &[], &[])]).expect("attached");
        for packet in [message(0x10, 12, 99), message(0x17, 0, 1)] {
            let mut seen = [0; 3];
            (0..100).for_each(|_| seen[bench.where_goes(&packet)] += 1);
            assert!(seen[0] > 10 && seen[1] == 0 && seen[2] > 10, "{seen:?}");
        }
    }

    #[test]
    fn packets_for_nobody_known_stay_with_one_socket() {
        let bench = Bench::new(4, 3);
        attach(&bench.sockets[0], &[member(0, &[5], &[])]).expect("attached");
        let first = bench.where_goes(&to_qpn(0x77_7000));
        assert!((0..20).all(|_| bench.where_goes(&to_qpn(0x88_8000)) == first));
    }

    #[test]
    fn a_survey_reaches_the_number_it_names() {
        let bench = Bench::new(5, 4);
        attach(&bench.sockets[3], &[]).expect("attached");
        for index in 0..4 {
            let question = crate::host::survey::Question { index, token: 1 };
            assert_eq!(bench.where_goes(&question.encode()), index as usize);
        }
    }

    #[test]
    fn a_crowd_has_a_program_too_and_datagrams_of_any_length_pass_it() {
        let bench = Bench::new(6, 2);
        let numbers: Vec<u16> = (1..400).collect();
        let services: Vec<u32> = (0..400).collect();
        attach(
            &bench.sockets[0],
            &[member(1, &numbers, &services), member(0, &[0x400], &[])],
        )
        .expect("it fits");
        assert_eq!(bench.where_goes(&message(0x10, 12, 399)), 1);
        assert_eq!(bench.where_goes(&to_qpn(0x70_000)), 1);
        for length in 1..64 {
            bench.where_goes(&vec![1; length]);
            bench.where_goes(&vec![SURVEY_OPCODE; length]);
        }
    }
}
