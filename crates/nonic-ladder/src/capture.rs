//! Draws a ladder of a capture: bytes of the file in, events out.
//!
//! [`CaptureDrawer`] may be asked once, at the end, or again and again while the capture grows. At the end it knows
//! more about which end has which queue pair, since later packets tell. It knows packets only: what programs posted and
//! which completions they got is not in a capture.
//!
//! A process that talks to itself and injects faults captures both what it sent and what it received. The two become
//! one arrow, and a packet that was sent and never received was lost.

use crate::control::ControlConnections;
use crate::ends::{End, Ends};
use crate::iwarp::{Streams, TcpEvent};
use crate::model::{Arrival, Event, EventKind, Ladder, Tone};
use crate::packet::{Description, describe};
use crate::sequence::{Sequences, Verdict};
use nonic_wire::pcap::{CaptureReader, Direction, Frame, PcapError};
use nonic_wire::{Flow, Headers, ICRC_LEN, Packet, ROCE_PORT};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

/// More packets than anyone reads; further ones are only counted.
const MAX_PACKETS: usize = 1 << 20;

/// Makes a ladder of a capture.
#[derive(Debug, Default)]
pub struct CaptureDrawer {
    reader: CaptureReader,
    ends: Ends,
    streams: Streams,
    control: ControlConnections,
    /// What was read and is not yet in the ladder.
    pending: VecDeque<Pending>,
    ladder: Ladder,
    numbers: HashMap<End, usize>,
    sequences: Sequences<(End, u32)>,
    under_way: UnderWay,
    packets: usize,
    /// Datagrams to RoCE's port that are no packets, and frames that are not drawn.
    malformed: usize,
    others: usize,
}

#[derive(Debug)]
enum Pending {
    Packet(Box<Seen>),
    Tcp(TcpEvent),
}

/// A RoCEv2 packet as it was captured.
#[derive(Debug)]
struct Seen {
    at_ns: u64,
    direction: Option<Direction>,
    flow: Flow,
    headers: Headers,
    icrc: [u8; ICRC_LEN],
    description: Description,
    /// Whether it is of a control connection.
    control: bool,
}

/// Packets that the capturing process sent to itself and has not received yet, with the index of their event.
#[derive(Debug, Default)]
struct UnderWay {
    sent: HashMap<(Flow, u32, [u8; ICRC_LEN]), VecDeque<usize>>,
    /// Whether receptions are in the capture too.
    receptions_are_seen: bool,
}

impl CaptureDrawer {
    /// Of a capture of which nothing has come yet.
    #[must_use]
    pub fn new() -> Self {
        let mut drawer = CaptureDrawer::default();
        drawer.ladder.wire_numbers = true;
        drawer
    }

    /// Tells connections apart whose private data holds these bytes: over those, two processes only agree on what to do, and
    /// [`Event::control`] says so.
    #[must_use]
    pub fn with_control_greeting(mut self, greeting: &'static [u8]) -> Self {
        self.control = ControlConnections::with(greeting);
        self
    }

    /// Takes the next bytes of the file.
    ///
    /// # Errors
    /// It is not a capture, or damaged; what came before is kept.
    pub fn handle(&mut self, bytes: &[u8]) -> Result<(), PcapError> {
        self.reader.handle(bytes);
        loop {
            let Some(frame) = self.reader.next()? else {
                return Ok(());
            };
            if self.packets >= MAX_PACKETS {
                self.packets += 1;
                continue;
            }
            match read(&frame) {
                Read::Packet(mut seen, payload) => {
                    self.packets += 1;
                    let packet = Packet {
                        headers: seen.headers,
                        payload,
                        icrc: seen.icrc,
                    };
                    self.ends.learn(&seen.flow, seen.direction, &packet);
                    seen.control = self.control.learn(&seen.flow, &packet);
                    self.pending.push_back(Pending::Packet(seen));
                }
                Read::Tcp => {
                    if let Some(segment) = frame.tcp_segment() {
                        self.packets += 1;
                        let (out, control) = (&mut self.pending, &self.control);
                        self.streams
                            .handle(frame.timestamp_ns, &segment, control, |event| {
                                out.push_back(Pending::Tcp(event))
                            });
                    }
                }
                Read::Malformed => self.malformed += 1,
                Read::Other => self.others += 1,
            }
        }
    }

    /// The ladder so far. Events are added at its end; ends too.
    pub fn so_far(&mut self) -> &Ladder {
        while let Some(pending) = self.pending.pop_front() {
            match pending {
                Pending::Packet(seen) => self.add_packet(&seen),
                Pending::Tcp(event) => self.add_tcp(event),
            }
        }
        &self.ladder
    }

    /// The ladder of the whole capture, in the order of time, with notes on what is not in it.
    #[must_use]
    pub fn finish(mut self) -> Ladder {
        self.so_far();
        if self.under_way.receptions_are_seen {
            for index in self.under_way.sent.values().flatten() {
                mark_lost(&mut self.ladder.events[*index]);
            }
        }
        let notes = self.notes();
        let mut ladder = self.ladder;
        ladder.notes = notes;
        ladder.sort();
        ladder
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut note = |count: usize, one: &str, many: &str| match count {
            0 => {}
            1 => notes.push(format!("1 {one}")),
            _ => notes.push(format!("{count} {many}")),
        };
        note(
            self.packets.saturating_sub(MAX_PACKETS),
            "further packet was not looked at.",
            "further packets were not looked at.",
        );
        note(
            self.malformed,
            "datagram for RoCE's port is no RoCEv2 packet and is not drawn.",
            "datagrams for RoCE's port are no RoCEv2 packets and are not drawn.",
        );
        note(
            self.streams.segments_not_drawn(),
            "TCP segment is of no iWARP connection, or of one whose beginning was not captured, and is not drawn.",
            "TCP segments are of no iWARP connection, or of one whose beginning was not captured, and are not drawn.",
        );
        note(
            self.others,
            "frame is neither UDP to RoCE's port nor TCP and is not drawn.",
            "frames are neither UDP to RoCE's port nor TCP and are not drawn.",
        );
        if self.reader.pending() > 0 {
            notes.push("The capture ends inside a packet: it was cut, or is still being written.".to_owned());
        }
        notes
    }

    fn add_packet(&mut self, seen: &Seen) {
        let dest_qp = seen.headers.bth.dest_qp.value();
        let key = (seen.flow, dest_qp, seen.icrc);
        let is_own = self.ends.is_own_traffic(&seen.flow);
        if is_own && seen.direction == Some(Direction::Inbound) {
            self.under_way.receptions_are_seen = true;
            let sent = self.under_way.sent.get_mut(&key).and_then(VecDeque::pop_front);
            if let Some(index) = sent {
                if let EventKind::Packet { arrival, .. } = &mut self.ladder.events[index].kind {
                    *arrival = Arrival::At(seen.at_ns);
                }
                return;
            }
        }
        let (sender, receiver) = (
            self.ends.sender(&seen.flow),
            self.ends.receiver(&seen.flow, seen.direction, dest_qp),
        );
        let description = &seen.description;
        let verdict = self.sequences.note((receiver, dest_qp), &seen.headers);
        let (mark, tone) = match verdict {
            Verdict::Next => (None, description.tone),
            Verdict::Gap(1) => (Some("the one before is missing".to_owned()), Tone::Trouble),
            Verdict::Gap(count) => (Some(format!("{count} before are missing")), Tone::Trouble),
            Verdict::Late => (Some("late".to_owned()), Tone::Trouble),
            Verdict::Again => (Some("again".to_owned()), Tone::Trouble),
        };
        let paired = description
            .peer_qp
            .and_then(|number| self.ends.sending_queue_pair(&seen.flow, number));
        // In this order: the end that sends first is drawn first.
        let (from, to) = (self.number(sender), self.number(receiver));
        let event = Event {
            kind: EventKind::Packet {
                to,
                arrival: Arrival::Unknown,
            },
            tone,
            mark,
            control: seen.control,
            peer_qp: description.peer_qp.or_else(|| {
                // A request to connect knows its peer's queue pair no more than we do, until the answer comes.
                let own = description.qp?;
                self.ends.peer_of(seen.flow.src, own)
            }),
            ..Event::local(
                seen.at_ns,
                from,
                description.qp.or(paired),
                description.text.clone(),
            )
        };
        if is_own && seen.direction == Some(Direction::Outbound) {
            let index = self.ladder.events.len();
            self.under_way.sent.entry(key).or_default().push_back(index);
        }
        self.ladder.events.push(event);
    }

    fn add_tcp(&mut self, event: TcpEvent) {
        let end = |address: SocketAddr| match event.src.ip() == event.dst.ip() {
            true => End::Socket(address.ip(), address.port()),
            false => End::Address(address.ip()),
        };
        let (from, to) = (self.number(end(event.src)), self.number(end(event.dst)));
        self.ladder.events.push(Event {
            kind: EventKind::Packet {
                to,
                arrival: Arrival::Unknown,
            },
            tone: event.tone,
            control: event.control,
            ..Event::local(event.at_ns, from, None, event.text)
        });
    }

    /// The number of an end, which gets the next one when it is first seen.
    fn number(&mut self, end: End) -> usize {
        if let Some(number) = self.numbers.get(&end) {
            return *number;
        }
        let number = self.ladder.ends.len();
        self.numbers.insert(end, number);
        self.ladder.ends.push(self.ends.name(end));
        number
    }
}

fn mark_lost(event: &mut Event) {
    if let EventKind::Packet { arrival, .. } = &mut event.kind {
        *arrival = Arrival::Never;
    }
    event.tone = Tone::Trouble;
    event.mark = Some(match event.mark.take() {
        Some(mark) => format!("{mark}, lost"),
        None => "lost".to_owned(),
    });
}

enum Read<'a> {
    Packet(Box<Seen>, &'a [u8]),
    Tcp,
    Malformed,
    Other,
}

fn read<'a>(frame: &Frame<'a>) -> Read<'a> {
    let Some(datagram) = frame.datagram() else {
        return match frame.tcp_segment() {
            Some(_) => Read::Tcp,
            None => Read::Other,
        };
    };
    if datagram.flow.dst_port != ROCE_PORT {
        return Read::Other;
    }
    let Ok(packet) = Packet::parse(datagram.payload) else {
        return Read::Malformed;
    };
    let seen = Seen {
        at_ns: frame.timestamp_ns,
        direction: frame.direction,
        flow: datagram.flow,
        headers: packet.headers,
        icrc: packet.icrc,
        description: describe(&packet),
        control: false,
    };
    Read::Packet(Box::new(seen), packet.payload)
}
