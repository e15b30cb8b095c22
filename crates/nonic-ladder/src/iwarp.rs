//! iWARP's messages on the TCP connections of a capture.
//!
//! A connection is followed from its SYN on: the bytes of each direction are put in order, the two frames that open it
//! (MPA) tell how the rest is framed, and every frame behind them (FPDU) is an event. A connection that begins otherwise, or
//! whose beginning was not captured, is not iWARP's as far as can be told, and its segments are only counted. Bytes
//! that the capture lacks end the story of a connection.

use crate::control::ControlConnections;
use crate::model::Tone;
use nonic_wire::iwarp::{Deframer, FrameKind, Framing, Header, MpaFrame, ParsedMpa, Segment, Terminate};
use nonic_wire::pcap::TcpSegment;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

/// Segments that are kept until those before them have come.
const MAX_HELD: usize = 256;
/// Connections that are followed at a time.
const MAX_CONNECTIONS: usize = 1 << 14;

/// Something on a connection.
#[derive(Clone, Debug)]
pub(crate) struct TcpEvent {
    pub(crate) at_ns: u64,
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    pub(crate) tone: Tone,
    pub(crate) text: String,
    /// Whether the connection is a control connection.
    pub(crate) control: bool,
}

/// All connections of a capture.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    connections: HashMap<(SocketAddr, SocketAddr), Connection>,
    not_drawn: usize,
}

#[derive(Debug, Default)]
struct Connection {
    stage: Stage,
    /// Whether the request that opened it says that it is a control connection.
    control: bool,
    /// By whether the sender has the greater address.
    halves: [Half; 2],
    /// Events that are reported once it is certain that this is iWARP.
    withheld: Vec<TcpEvent>,
    segments: usize,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
enum Stage {
    #[default]
    Unknown,
    Iwarp,
    /// Not iWARP, or bytes are missing.
    Ignored,
}

/// One direction of a connection.
#[derive(Debug, Default)]
struct Half {
    /// The sequence number of the next byte.
    next: Option<u32>,
    held: BTreeMap<u32, Vec<u8>>,
    /// Bytes that are not framed yet.
    startup: Vec<u8>,
    opening: Option<Opening>,
    deframer: Option<Deframer>,
}

/// What the frame that opens a direction asks for.
#[derive(Copy, Clone, Debug)]
struct Opening {
    markers: bool,
    crc: bool,
}

impl Streams {
    /// Takes the next segment.
    pub(crate) fn handle(
        &mut self,
        at_ns: u64,
        segment: &TcpSegment<'_>,
        control: &ControlConnections,
        mut tell: impl FnMut(TcpEvent),
    ) {
        let is_greater = segment.src > segment.dst;
        let key = match is_greater {
            true => (segment.dst, segment.src),
            false => (segment.src, segment.dst),
        };
        let half = usize::from(is_greater);
        let begun = self
            .connections
            .get(&key)
            .and_then(|connection| connection.halves[half].next);
        if segment.syn && begun.is_some_and(|next| next != segment.sequence.wrapping_add(1)) {
            // Another connection has the same ports.
            self.forget(&key);
        }
        if !self.connections.contains_key(&key) && self.connections.len() >= MAX_CONNECTIONS {
            self.not_drawn += 1;
            return;
        }
        let connection = self.connections.entry(key).or_default();
        connection.handle(at_ns, segment, half, control, &mut tell);
    }

    /// Segments of what is not iWARP, as far as can be told.
    pub(crate) fn segments_not_drawn(&self) -> usize {
        let unknown = self
            .connections
            .values()
            .filter(|connection| connection.stage != Stage::Iwarp);
        self.not_drawn + unknown.map(|connection| connection.segments).sum::<usize>()
    }

    fn forget(&mut self, key: &(SocketAddr, SocketAddr)) {
        if let Some(connection) = self.connections.remove(key) {
            if connection.stage != Stage::Iwarp {
                self.not_drawn += connection.segments;
            }
        }
    }
}

impl Connection {
    fn handle(
        &mut self,
        at_ns: u64,
        segment: &TcpSegment<'_>,
        half: usize,
        control: &ControlConnections,
        tell: &mut dyn FnMut(TcpEvent),
    ) {
        self.segments += 1;
        if self.stage == Stage::Ignored {
            return;
        }
        let event = |tone: Tone, text: String| TcpEvent {
            at_ns,
            src: segment.src,
            dst: segment.dst,
            tone,
            text,
            control: false,
        };
        if segment.syn {
            self.halves[half].next = Some(segment.sequence.wrapping_add(1));
            self.say(event(Tone::Request, "TCP SYN".to_owned()), tell);
        }
        if !segment.payload.is_empty() {
            for (tone, text) in self.take(segment, half, control) {
                self.say(event(tone, text), tell);
            }
        }
        if segment.rst {
            self.say(event(Tone::Trouble, "TCP RST".to_owned()), tell);
        } else if segment.fin {
            self.say(event(Tone::Answer, "TCP FIN".to_owned()), tell);
        }
    }

    fn say(&mut self, event: TcpEvent, tell: &mut dyn FnMut(TcpEvent)) {
        match self.stage {
            Stage::Unknown => self.withheld.push(event),
            Stage::Iwarp => {
                let control = self.control;
                let told = self.withheld.drain(..).chain([event]);
                told.for_each(|event| tell(TcpEvent { control, ..event }));
            }
            Stage::Ignored => self.withheld.clear(),
        }
    }

    /// Puts the bytes of a segment in order and reads what they make up.
    fn take(
        &mut self,
        segment: &TcpSegment<'_>,
        half: usize,
        control: &ControlConnections,
    ) -> Vec<(Tone, String)> {
        let mut said = Vec::new();
        let Some(next) = self.halves[half].next else {
            self.stage = Stage::Ignored;
            return said;
        };
        let ahead = segment.sequence.wrapping_sub(next) as i32;
        if ahead > 0 {
            let held = &mut self.halves[half].held;
            held.insert(segment.sequence, segment.payload.to_vec());
            said.push((
                Tone::Trouble,
                format!("TCP segment, {ahead} B before it are missing"),
            ));
            if held.len() > MAX_HELD {
                said.push((
                    Tone::Trouble,
                    "the capture lacks bytes: not drawn further".to_owned(),
                ));
                self.end();
            }
            return said;
        }
        let known = ahead.unsigned_abs() as usize;
        if known >= segment.payload.len() {
            said.push((
                Tone::Trouble,
                format!("TCP segment of {} B: again", segment.payload.len()),
            ));
            return said;
        }
        self.feed(half, &segment.payload[known..], control, &mut said);
        while let Some((at, bytes)) = self.halves[half].held.pop_first() {
            let next = self.halves[half].next.unwrap_or(at);
            let ahead = at.wrapping_sub(next) as i32;
            if ahead > 0 {
                self.halves[half].held.insert(at, bytes);
                break;
            }
            let known = ahead.unsigned_abs() as usize;
            self.feed(half, bytes.get(known..).unwrap_or_default(), control, &mut said);
        }
        said
    }

    fn end(&mut self) {
        // What was told stays told; nothing more is.
        for half in &mut self.halves {
            half.held.clear();
            half.startup = Vec::new();
            half.deframer = None;
        }
        if self.stage == Stage::Unknown {
            self.stage = Stage::Ignored;
        }
    }

    /// The next bytes of a direction, in order.
    fn feed(
        &mut self,
        half: usize,
        bytes: &[u8],
        control: &ControlConnections,
        said: &mut Vec<(Tone, String)>,
    ) {
        let this = &mut self.halves[half];
        this.next = this.next.map(|next| next.wrapping_add(bytes.len() as u32));
        if this.deframer.is_none() {
            this.startup.extend_from_slice(bytes);
            self.open(half, control, said);
            return;
        }
        self.deframe(half, bytes, said);
    }

    /// Reads the frame that opens a direction; once both have come, what follows them.
    fn open(&mut self, half: usize, control: &ControlConnections, said: &mut Vec<(Tone, String)>) {
        let this = &mut self.halves[half];
        if this.opening.is_none() {
            let (frame, len) = match MpaFrame::parse(&this.startup) {
                Ok(ParsedMpa::Whole { frame, len }) => (frame, len),
                Ok(ParsedMpa::Incomplete { .. }) => return,
                Err(_) => {
                    self.end();
                    return;
                }
            };
            said.push(describe_opening(&frame));
            self.control |= frame.kind == FrameKind::Request && control.is_announced(frame.private_data);
            this.opening = Some(Opening {
                markers: frame.markers,
                crc: frame.crc,
            });
            this.startup.drain(..len);
            self.stage = Stage::Iwarp;
        }
        let [Some(first), Some(second)] = self.halves.each_ref().map(|half| half.opening) else {
            return;
        };
        let crc = first.crc || second.crc;
        // Markers are in a direction if its receiver asked for them.
        for (number, receiver) in [(0, second), (1, first)] {
            let this = &mut self.halves[number];
            if this.deframer.is_none() {
                this.deframer = Some(Deframer::new(Framing {
                    crc,
                    markers: receiver.markers,
                }));
                let waiting = std::mem::take(&mut this.startup);
                self.deframe(number, &waiting, said);
            }
        }
    }

    fn deframe(&mut self, half: usize, mut bytes: &[u8], said: &mut Vec<(Tone, String)>) {
        let Some(deframer) = &mut self.halves[half].deframer else {
            return;
        };
        loop {
            match deframer.next(&mut bytes) {
                Ok(Some(ulpdu)) => said.push(describe_message(ulpdu)),
                Ok(None) => return,
                Err(error) => {
                    said.push((Tone::Trouble, format!("no further frames: {error}")));
                    self.end();
                    return;
                }
            }
        }
    }
}

fn describe_opening(frame: &MpaFrame<'_>) -> (Tone, String) {
    let (name, tone) = match (frame.kind, frame.rejected) {
        (FrameKind::Request, _) => ("MPA Request", Tone::Request),
        (FrameKind::Reply, false) => ("MPA Reply", Tone::Answer),
        (FrameKind::Reply, true) => ("MPA Reply (rejected)", Tone::Trouble),
    };
    let length = frame.private_data.len();
    (
        tone,
        format!(
            "{name}, revision {}, {length} B private data",
            frame.revision.number()
        ),
    )
}

fn describe_message(ulpdu: &[u8]) -> (Tone, String) {
    let segment = match Segment::parse(ulpdu) {
        Ok(segment) => segment,
        Err(error) => return (Tone::Trouble, format!("not a message: {error}")),
    };
    let more = if segment.header.last() {
        ""
    } else {
        ", more to come"
    };
    let length = segment.payload.len();
    match segment.header {
        Header::Write(tagged) => (
            Tone::Request,
            format!("WRITE {length} B STag {:#x}{more}", tagged.stag),
        ),
        Header::ReadRequest { msn, request } => (
            Tone::Request,
            format!("READ request MSN {msn} {} B", request.size),
        ),
        Header::ReadResponse(_) => (Tone::Answer, format!("READ response {length} B{more}")),
        Header::Send { msn, kind, .. } => {
            let invalidates = if kind.invalidate_stag.is_some() {
                ", invalidate"
            } else {
                ""
            };
            (
                Tone::Request,
                format!("SEND MSN {msn} {length} B{invalidates}{more}"),
            )
        }
        Header::Terminate { .. } => {
            let reason = Terminate::parse(segment.payload, true).map(|(terminate, _)| terminate.code);
            let text = reason
                .and_then(|code| code.text())
                .unwrap_or("no reason that has a name");
            (Tone::Trouble, format!("TERMINATE ({text})"))
        }
        Header::Immediate { msn, data, .. } => (Tone::Request, format!("IMMEDIATE MSN {msn} {data:#x}")),
        Header::AtomicRequest { msn, .. } => (Tone::Request, format!("ATOMIC request MSN {msn}")),
        Header::AtomicResponse { .. } => (Tone::Answer, "ATOMIC response".to_owned()),
    }
}
