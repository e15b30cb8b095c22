//! The protocol of rsockets against itself: two ends with memory of their own, and nothing between them but what they
//! tell each other.
//!
//! The module is compiled into this test: it has no use for verbs, which no test program is linked with.

#[path = "../src/rsocket/protocol/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the library uses all of it")]
mod protocol;

use protocol::TargetList;
use protocol::datagram::{DatagramSource, Lookup, Purpose};
use protocol::{
    CONTROL_SLOTS, Carrier, Ending, Hello, Iomapping, Message, Segment, Sizes, Stream, TARGETS, Violation,
};
use std::collections::VecDeque;

const SIZES: Sizes = Sizes {
    send_queue: 16,
    receive_queue: 16,
    send_buffer: 8192,
    receive_buffer: 10_000,
};

/// Where an end's ring and list are, as its peer names them.
const RING: u64 = 0x10_0000;
const LIST: u64 = 0x20_0000;

/// One end: a stream, and the memory its owner would have.
struct End {
    stream: Stream,
    send_buffer: Vec<u8>,
    ring: Vec<u8>,
    list: [u8; TARGETS * Segment::LEN],
    /// What it has posted and the peer has not seen.
    on_the_way: VecDeque<Posted>,
    /// What the peer has seen and it does not know.
    uncompleted: usize,
}

struct Posted {
    address: u64,
    bytes: Vec<u8>,
    word: Option<u32>,
}

/// An end's list of targets.
struct List<'a>(&'a mut [u8; TARGETS * Segment::LEN]);

impl List<'_> {
    fn entry(&mut self, index: usize) -> &mut [u8; Segment::LEN] {
        let entry = &mut self.0[index * Segment::LEN..][..Segment::LEN];
        entry.try_into().expect("an entry")
    }
}

impl TargetList for List<'_> {
    fn read(&mut self, index: usize) -> Segment {
        Segment::parse(self.entry(index), cfg!(target_endian = "big"))
    }

    fn clear(&mut self, index: usize) {
        let found = self.read(index);
        assert!(found.length > 0, "the peer may be writing to an empty entry");
        self.entry(index).fill(0);
    }
}

/// A list to which no end writes.
struct Empty;

impl TargetList for Empty {
    fn read(&mut self, _index: usize) -> Segment {
        Segment::default()
    }

    fn clear(&mut self, _index: usize) {
        panic!("the peer may be writing to an empty entry");
    }
}

fn hello(sizes: Sizes) -> Hello {
    Hello {
        big_endian: cfg!(target_endian = "big"),
        credits: sizes.receive_queue,
        iomap_size: 0,
        targets: Segment {
            address: LIST,
            key: 2,
            length: TARGETS as u32,
        },
        buffer: Segment {
            address: RING,
            key: 1,
            length: sizes.receive_buffer / 2,
        },
    }
}

impl End {
    fn new(sizes: Sizes, peer: &Hello) -> Self {
        End::with_carrier(Carrier::Immediate, sizes, peer)
    }

    fn with_carrier(carrier: Carrier, sizes: Sizes, peer: &Hello) -> Self {
        let ring = Segment {
            length: sizes.receive_buffer,
            ..hello(sizes).buffer
        };
        End {
            stream: Stream::new(carrier, sizes, ring, peer),
            send_buffer: vec![0; sizes.send_buffer as usize],
            ring: vec![0; sizes.receive_buffer as usize],
            list: [0; TARGETS * Segment::LEN],
            on_the_way: VecDeque::new(),
            uncompleted: 0,
        }
    }

    fn pair() -> [Self; 2] {
        End::pair_with(Carrier::Immediate)
    }

    fn pair_with(carrier: Carrier) -> [Self; 2] {
        [(); 2].map(|()| End::with_carrier(carrier, SIZES, &hello(SIZES)))
    }

    /// Sends what it may of `bytes`; tells how much.
    fn send(&mut self, bytes: &[u8]) -> usize {
        let mut sent = 0;
        while let Some(write) = self.stream.send((bytes.len() - sent) as u32) {
            let mut taken = Vec::new();
            for piece in write.from {
                let (at, length) = (piece.offset as usize, piece.length as usize);
                self.send_buffer[at..at + length].copy_from_slice(&bytes[sent..sent + length]);
                taken.extend_from_slice(&self.send_buffer[at..at + length]);
                sent += length;
            }
            assert_eq!(write.to.key, 1);
            self.on_the_way.push_back(Posted {
                address: write.to.address,
                bytes: taken,
                word: write.message.map(Message::encode),
            });
        }
        sent
    }

    /// Posts what is due besides data.
    fn speak(&mut self) {
        while let Some(control) = self.stream.next_control() {
            let (address, bytes) = match control.record {
                Some((segment, address)) => (address, segment.emit(cfg!(target_endian = "big")).to_vec()),
                None => (0, Vec::new()),
            };
            self.on_the_way.push_back(Posted {
                address,
                bytes,
                word: Some(control.message.encode()),
            });
        }
    }

    /// The peer's oldest write arrives.
    fn hear(&mut self, peer: &mut End) -> bool {
        let Some(posted) = peer.on_the_way.pop_front() else {
            return false;
        };
        peer.uncompleted += 1;
        let place = |base: u64| (posted.address - base) as usize;
        if posted.address >= LIST {
            let at = place(LIST);
            self.list[at..at + posted.bytes.len()].copy_from_slice(&posted.bytes);
        } else if posted.address >= RING {
            let at = place(RING);
            self.ring[at..at + posted.bytes.len()].copy_from_slice(&posted.bytes);
        }
        if let Some(word) = posted.word {
            self.stream
                .handle_message(word, &mut List(&mut self.list))
                .expect("it keeps to the rules");
        }
        true
    }

    fn complete(&mut self) {
        if self.uncompleted > 0 {
            self.uncompleted -= 1;
            self.stream.handle_sent(true);
        }
    }

    fn read(&mut self, length: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in self.stream.peek(length) {
            bytes.extend_from_slice(&self.ring[piece.offset as usize..][..piece.length as usize]);
        }
        self.stream.read(bytes.len() as u32);
        bytes
    }
}

/// Lets everything on the way arrive, and all that follows from it.
fn settle(ends: &mut [End; 2]) {
    loop {
        let [a, b] = ends;
        a.speak();
        b.speak();
        let moved = a.hear(b) | b.hear(a);
        while a.uncompleted > 0 {
            a.complete();
        }
        while b.uncompleted > 0 {
            b.complete();
        }
        if !moved {
            return;
        }
    }
}

/// Numbers that look random and are the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

#[test]
fn the_greeting_is_as_rdma_core_writes_it() {
    let greeting = Hello {
        big_endian: false,
        credits: 384,
        iomap_size: 300,
        targets: Segment {
            address: 0x1122_3344_5566_7788,
            key: 0xaabb_ccdd,
            length: 2,
        },
        buffer: Segment {
            address: 0x99,
            key: 7,
            length: 65536,
        },
    };
    let expected = [
        1, 2, 0x01, 0x80, 0, 0, 0, 0x81, // version, flags, credits, reserved, size of the mapping list
        0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0xaa, 0xbb, 0xcc, 0xdd, 0, 0, 0, 2, // targets
        0, 0, 0, 0, 0, 0, 0, 0x99, 0, 0, 0, 7, 0, 1, 0, 0, // first buffer
    ];
    assert_eq!(greeting.emit(), expected);
    let heard = Hello::parse(&expected).expect("a greeting");
    // Sizes above 128 are told in units of 256.
    assert_eq!(
        heard,
        Hello {
            iomap_size: 256,
            ..greeting
        }
    );
    assert_eq!(heard.iomap_entry(2), 0x1122_3344_5566_7788 + 32 + 48);
}

#[test]
fn a_greeting_that_leaves_nothing_to_work_with_is_refused() {
    let good = hello(SIZES).emit();
    assert!(Hello::parse(&good).is_some());
    assert!(Hello::parse(&good[..39]).is_none(), "cut short");
    for (at, value, why) in [(0, 2, "version"), (3, 0, "credits"), (23, 1, "targets")] {
        let mut bad = good;
        bad[at] = value;
        assert!(Hello::parse(&bad).is_none(), "{why}");
    }
}

#[test]
fn words_are_as_rdma_core_writes_them() {
    for (message, word) in [
        (Message::Data(65536), 0x0001_0000),
        (Message::Credits(0x1234), 0x8000_1234),
        (Message::Iomap(3), 0xc000_0003),
        (Message::Disconnect, 0xe000_0000),
        (Message::Keepalive, 0xe000_0001),
        (Message::Shutdown, 0xe000_0002),
    ] {
        assert_eq!(message.encode(), word);
        assert_eq!(Message::decode(word), Some(message));
    }
    // rdma-core's sum of sequence number and queue is not cut before it is sent.
    assert_eq!(Message::decode(0x8001_0005), Some(Message::Credits(5)));
    assert_eq!(Message::decode(0x4000_0001), None);
}

#[test]
fn records_are_in_the_byte_order_of_their_reader() {
    let mapping = Iomapping {
        offset: 1,
        buffer: Segment {
            address: 2,
            key: 3,
            length: 4,
        },
    };
    let little = mapping.emit(false);
    assert_eq!((little[0], little[8], little[16], little[20]), (1, 2, 3, 4));
    let big = mapping.emit(true);
    assert_eq!((big[7], big[15], big[19], big[23]), (1, 2, 3, 4));
    assert_eq!(Iomapping::parse(&little, false), mapping);
    assert_eq!(Iomapping::parse(&big, true), mapping);
}

#[test]
fn datagram_headers_are_as_rdma_core_writes_them() {
    let lookup = Lookup {
        purpose: Purpose::Control,
        qpn: 0x12_3456,
        address: [10, 0, 0, 1].into(),
    };
    let expected = [
        0x55, 0x55, 0x55, 0x55, 4, 7, 16, 0, 0, 0x12, 0x34, 0x56, 10, 0, 0, 1,
    ];
    assert_eq!(lookup.emit(), expected);
    assert_eq!(Lookup::parse(&expected), Some((lookup, 16)));
    assert_eq!(Lookup::parse(&expected[..15]), None, "cut short");
    let six = Lookup {
        address: std::net::Ipv6Addr::LOCALHOST.into(),
        purpose: Purpose::Data,
        ..lookup
    };
    assert_eq!(Lookup::parse(&six.emit()), Some((six, 28)));

    let sender = DatagramSource(([10, 0, 0, 1], 0x1234).into());
    let expected = [4, 8, 0x12, 0x34, 10, 0, 0, 1];
    assert_eq!(sender.emit(), expected);
    assert_eq!(DatagramSource::parse(&expected), Some((sender, 8)));
    assert_eq!(
        DatagramSource::parse(&[4, 9, 0, 0, 1, 2, 3, 4]),
        None,
        "a length that does not fit"
    );
    let six = DatagramSource((std::net::Ipv6Addr::LOCALHOST, 80).into());
    assert_eq!(DatagramSource::parse(&six.emit()), Some((six, 24)));
}

#[test]
fn the_second_half_is_announced_at_once() {
    let mut ends = End::pair();
    let control = ends[0].stream.next_control().expect("something to say");
    assert_eq!(control.message, Message::Credits(SIZES.receive_queue));
    let half = SIZES.receive_buffer / 2;
    let expected = Segment {
        address: RING + u64::from(half),
        key: 1,
        length: half,
    };
    // The first entry of the list is the one in the greeting.
    assert_eq!(control.record, Some((expected, LIST + Segment::LEN as u64)));
    assert_eq!(ends[0].stream.next_control(), None);
}

#[test]
fn a_sender_stops_where_its_room_ends() {
    let [mut a, _] = End::pair();
    let half = SIZES.receive_buffer as usize / 2;
    // There is one target, until the peer tells of another.
    assert_eq!(a.send(&vec![7; 2 * half]), half);
    assert!(!a.stream.can_send());
    let first = a.on_the_way.pop_front().expect("a write");
    assert_eq!(first.word, Some(Message::Data(half as u32).encode()));
}

#[test]
fn a_sender_stops_where_its_credits_end() {
    let peer = Hello {
        credits: 3,
        ..hello(SIZES)
    };
    let mut end = End::new(SIZES, &peer);
    for _ in 0..3 {
        assert_eq!(end.send(b"x"), 1);
    }
    assert_eq!(end.send(b"x"), 0);
    end.stream
        .handle_message(Message::Credits(4).encode(), &mut Empty)
        .expect("credits");
    assert_eq!(end.send(b"x"), 1);
    assert_eq!(end.send(b"x"), 0);
}

/// The next target may be on its way into the list already, and half of it there.
#[test]
fn a_word_is_about_one_entry() {
    struct Once(Vec<usize>);
    impl TargetList for Once {
        fn read(&mut self, index: usize) -> Segment {
            self.0.push(index);
            Segment {
                address: RING,
                key: 1,
                length: 100,
            }
        }
        fn clear(&mut self, index: usize) {
            assert_eq!(self.0, [index]);
        }
    }
    let [mut a, _] = End::pair();
    let half = SIZES.receive_buffer as usize / 2;
    assert_eq!(a.send(&vec![7; half]), half);
    let mut list = Once(Vec::new());
    let word = Message::Credits(SIZES.receive_queue).encode();
    a.stream.handle_message(word, &mut list).expect("a target");
    assert_eq!(list.0, [1]);
}

#[test]
fn data_leaves_work_requests_for_control() {
    let peer = Hello {
        credits: 1000,
        ..hello(SIZES)
    };
    let mut end = End::new(SIZES, &peer);
    let mut sent = 0;
    while end.send(b"x") == 1 {
        sent += 1;
    }
    assert_eq!(sent, SIZES.send_queue - CONTROL_SLOTS);
    assert!(end.stream.next_control().is_some());
}

#[test]
fn writing_more_than_was_granted_ends_the_connection() {
    let [mut a, _] = End::pair();
    let half = SIZES.receive_buffer / 2;
    let result = a
        .stream
        .handle_message(Message::Data(half + 1).encode(), &mut Empty);
    assert_eq!(result, Err(Violation::Space));
    assert!(a.stream.is_broken() && !a.stream.is_connected());
    assert_eq!(a.stream.unread(), 0);
}

#[test]
fn more_messages_than_credits_end_the_connection() {
    let [mut a, _] = End::pair();
    let mut say = |length: u32| {
        a.stream
            .handle_message(Message::Data(length).encode(), &mut Empty)
    };
    for _ in 0..SIZES.receive_queue {
        assert_eq!(say(1), Ok(Message::Data(1)));
    }
    assert_eq!(say(1), Err(Violation::Credits));
}

#[test]
fn a_word_without_meaning_ends_the_connection() {
    let [mut a, _] = End::pair();
    let result = a.stream.handle_message(0x4000_0001, &mut Empty);
    assert_eq!(result, Err(Violation::Meaning));
    assert!(a.stream.is_broken());
}

#[test]
fn an_empty_message_is_no_end() {
    let mut ends = End::pair();
    settle(&mut ends);
    let [a, _] = &mut ends;
    a.stream
        .handle_message(Message::Data(0).encode(), &mut Empty)
        .expect("nothing, politely");
    assert!(a.stream.is_readable());
    assert_eq!(a.stream.unread(), 0);
}

#[test]
fn ending_one_direction_leaves_the_other() {
    let mut ends = End::pair();
    settle(&mut ends);
    ends[0].send(b"last words");
    ends[0].stream.shut_down(Ending::Writing);
    settle(&mut ends);
    let [a, b] = &mut ends;
    assert!(!b.stream.is_readable() && b.stream.is_writable() && b.stream.is_connected());
    assert_eq!(b.read(100), b"last words");
    assert_eq!(b.send(b"answer"), 6);
    assert_eq!(a.send(b"more"), 0);
    settle(&mut ends);
    assert_eq!(ends[0].read(100), b"answer");
    // The second direction ends it.
    ends[1].stream.shut_down(Ending::Writing);
    settle(&mut ends);
    assert!(
        ends.iter()
            .all(|end| !end.stream.is_connected() && !end.stream.is_broken())
    );
}

#[test]
fn what_was_sent_before_the_end_can_be_read_after_it() {
    let mut ends = End::pair();
    settle(&mut ends);
    ends[0].send(b"all of it");
    ends[0].stream.shut_down(Ending::Both);
    assert!(!ends[0].stream.is_idle());
    settle(&mut ends);
    assert!(ends[0].stream.is_idle());
    assert!(!ends[1].stream.is_connected());
    assert_eq!(ends[1].read(100), b"all of it");
}

#[test]
fn a_failed_write_breaks_the_stream() {
    let [mut a, _] = End::pair();
    a.send(b"lost");
    a.stream.handle_sent(false);
    assert!(a.stream.is_broken() && !a.stream.is_writable() && !a.stream.is_readable());
    assert!(a.stream.next_control().is_none(), "there is nobody to talk to");
}

#[test]
fn sequence_numbers_wrap() {
    let mut ends = End::pair();
    settle(&mut ends);
    for round in 0..70_000_u32 {
        let byte = [round as u8];
        assert_eq!(ends[0].send(&byte), 1, "round {round}");
        settle(&mut ends);
        assert_eq!(ends[1].read(1), byte);
        settle(&mut ends);
    }
}

/// Both ends talk as chance has it; each hears what the other said.
fn talk(carrier: Carrier, seed: u64) {
    const BYTES: usize = 200_000;
    let mut numbers = Numbers(seed);
    let mut ends = End::pair_with(carrier);
    let said: [Vec<u8>; 2] = [(); 2].map(|()| (0..BYTES).map(|_| numbers.below(256) as u8).collect());
    let mut sent = [0; 2];
    let mut heard: [Vec<u8>; 2] = [Vec::new(), Vec::new()];
    let mut idle = 0;
    while heard.iter().any(|heard| heard.len() < BYTES) {
        let who = numbers.below(2) as usize;
        let [a, b] = &mut ends;
        let (me, peer) = if who == 0 { (a, b) } else { (b, a) };
        let before = (sent[who], heard[who].len());
        match numbers.below(5) {
            0 => {
                let end = (sent[who] + numbers.below(9000) as usize).min(BYTES);
                sent[who] += me.send(&said[who][sent[who]..end]);
            }
            1 => heard[who].extend(me.read(numbers.below(6000) as u32)),
            2 => me.speak(),
            3 => drop(me.hear(peer)),
            _ => me.complete(),
        }
        idle = if before == (sent[who], heard[who].len()) {
            idle + 1
        } else {
            0
        };
        assert!(idle < 10_000, "seed {seed}: nobody moves any more");
    }
    assert_eq!(heard[1], said[0], "seed {seed}");
    assert_eq!(heard[0], said[1], "seed {seed}");
}

#[test]
fn streams_arrive_whole_and_in_order() {
    for seed in 1..=100 {
        talk(Carrier::Immediate, seed);
        talk(Carrier::Send, seed);
    }
}

#[test]
fn a_word_in_a_send_is_in_the_byte_order_of_its_reader() {
    let message = Message::Credits(0x1234);
    assert_eq!(message.emit(false), [0x34, 0x12, 0x00, 0x80]);
    assert_eq!(message.emit(true), [0x80, 0x00, 0x12, 0x34]);
}

#[test]
fn a_word_in_a_send_is_a_work_request_of_its_own() {
    let peer = Hello {
        credits: 1000,
        ..hello(SIZES)
    };
    let mut end = End::with_carrier(Carrier::Send, SIZES, &peer);
    let slots = SIZES.send_queue - CONTROL_SLOTS;
    for _ in 0..slots / 2 {
        assert_eq!(end.send(b"x"), 1);
    }
    assert_eq!(end.send(b"x"), 0, "the send queue is as long as that");
    // Both are done with the second, which is the one that is reported.
    end.stream.handle_sent(true);
    assert_eq!(end.send(b"x"), 1);
    assert_eq!(end.send(b"x"), 0);
}

#[test]
fn a_mapped_buffer_takes_one_work_request_since_nobody_is_told() {
    let mut end = End::with_carrier(Carrier::Send, SIZES, &hello(SIZES));
    let to = Segment {
        address: 1,
        key: 9,
        length: 1,
    };
    let slots = SIZES.send_queue - CONTROL_SLOTS;
    for _ in 0..slots {
        let write = end.stream.send_directly(to).expect("room");
        assert_eq!(write.message, None);
    }
    assert_eq!(end.stream.send_directly(to), None);
    // One is not enough for data and its word.
    end.stream.handle_sent(true);
    assert!(end.stream.can_send_directly() && !end.stream.can_send());
}

#[test]
fn a_target_and_its_word_take_two_of_the_work_requests_for_control() {
    let mut end = End::with_carrier(Carrier::Send, SIZES, &hello(SIZES));
    let half = SIZES.receive_buffer / 2;
    for _ in 0..CONTROL_SLOTS / 2 {
        let control = end.stream.next_control().expect("a target");
        assert!(control.record.is_some());
        let word = Message::Data(half).encode();
        end.stream.handle_message(word, &mut Empty).expect("data");
        end.stream.read(half);
    }
    assert_eq!(end.stream.next_control(), None, "all are in use");
    // The last word waits as well, and comes first.
    end.stream.shut_down(Ending::Both);
    assert_eq!(end.stream.next_control(), None);
    end.stream.handle_sent(true);
    let control = end.stream.next_control().expect("the last word");
    assert_eq!((control.message, control.record), (Message::Disconnect, None));
    assert_eq!(
        end.stream.next_control(),
        None,
        "one is left, which is not enough"
    );
    end.stream.handle_sent(true);
    assert!(end.stream.next_control().is_some());
}

/// Words that are not data need no credits. A peer that is slow to look has receives for them all the same.
#[test]
fn sends_leave_receives_for_words_that_need_no_credit() {
    let mut end = End::with_carrier(Carrier::Send, SIZES, &hello(SIZES));
    let mut sent = 0;
    while end.send(b"x") == 1 {
        end.stream.handle_sent(true);
        sent += 1;
    }
    assert_eq!(sent, SIZES.receive_queue - CONTROL_SLOTS);
    // Half of them are read: the peer says so, and as many may be sent.
    let half = SIZES.receive_queue / 2;
    let renewed = Message::Credits(SIZES.receive_queue + half).encode();
    end.stream.handle_message(renewed, &mut Empty).expect("credits");
    while end.send(b"x") == 1 {
        end.stream.handle_sent(true);
        sent += 1;
    }
    assert_eq!(sent, SIZES.receive_queue + half - CONTROL_SLOTS);
}

#[test]
fn few_credits_are_enough_for_sends() {
    for credits in 2..16 {
        let sizes = Sizes {
            receive_queue: credits,
            ..SIZES
        };
        let mut ends = [(); 2].map(|()| End::with_carrier(Carrier::Send, sizes, &hello(sizes)));
        for byte in 0..100 {
            settle(&mut ends);
            assert_eq!(ends[0].send(&[byte]), 1, "{credits} credits");
            settle(&mut ends);
            assert_eq!(ends[1].read(1), [byte]);
        }
    }
}
