//! Conversations recorded between two Linux siw hosts, with our queue pair in place of one of them.
//!
//! The captures are in `tests/data/iwarp` at the root of the repository. Our queue pair posts the work that the replaced side's program
//! posted, as far as the stream shows it, and gets what the other side sent. It must say the same: the same messages in the same order
//! of their kind.
//!
//! Where we differ from siw, on purpose:
//!
//! | siw | nonic | why it is allowed |
//! |---|---|---|
//! | cuts segments at multiples of eight bytes | of four | any cut is |
//! | writes keys and addresses of its own in the sink of a READ | numbers that mean nothing | the peer only repeats them |
//! | swaps layer and type of a Terminate, and its flags | as RFC 5040 §4.8 has them | |
//! | says "no buffer" of a SEND that is too long | "too long" | RFC 5041 §8.2 |
//! | ends the connection at once if there is no receive | waits a second | RFC 5041 §7.1 |

#[path = "../../../nonic-wire/tests/iwarp/streams.rs"]
#[allow(unused, reason = "shared with the tests of the wire crate")]
mod streams;

use crate::iwarp::bench::{End, Peer, Setup};
use nonic_core::iwarp::startup::{Startup, StartupConfig, StartupEvent, StartupRequest};
use nonic_core::iwarp::{StreamParams, StreamReading};
use nonic_core::{Access, HeapRegion, KeySpec, QpState, RemoteAddress, SendOp, Status, Time};
use nonic_wire::iwarp::{
    Deframer, Framing, Header, MpaFrame, ParsedMpa, ReadRequest, Segment, SendKind, Tagged, Terminate,
    TerminateCode as Code,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use streams::Connection;

/// A whole message of a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Message {
    Send(Vec<u8>),
    Write(u32, u64, Vec<u8>),
    Read(ReadRequest),
    Response(u32, u64, Vec<u8>),
    Terminate(Code),
}

/// The start-up frame of a stream, and the messages behind it.
struct Recorded {
    frame: Vec<u8>,
    messages: Vec<Message>,
}

fn whole_frame(stream: &[u8]) -> (MpaFrame<'_>, usize) {
    match MpaFrame::parse(stream) {
        Ok(ParsedMpa::Whole { frame, len }) => (frame, len),
        other => panic!("no start-up frame: {other:?}"),
    }
}

fn recorded(stream: &[u8], crc: bool) -> Recorded {
    let (_, len) = whole_frame(stream);
    Recorded {
        frame: stream[..len].to_vec(),
        messages: messages(&stream[len..], crc),
    }
}

fn messages(mut stream: &[u8], crc: bool) -> Vec<Message> {
    let framing = Framing { crc, markers: false };
    let mut deframer = Deframer::new(framing);
    let mut segments = Vec::new();
    while let Some(ulpdu) = deframer.next(&mut stream).expect("recorded frames are right") {
        let segment = Segment::parse(ulpdu).expect("recorded segments are right");
        segments.push((segment.header, segment.payload.to_vec()));
    }
    join(&segments)
}

/// Puts segments together.
fn join(segments: &[(Header, Vec<u8>)]) -> Vec<Message> {
    let mut whole = Vec::new();
    let mut open: Vec<u8> = Vec::new();
    for (header, payload) in segments {
        let before = open.len() as u64;
        open.extend_from_slice(payload);
        if !header.last() {
            continue;
        }
        let bytes = std::mem::take(&mut open);
        whole.push(match header {
            Header::Send { .. } => Message::Send(bytes),
            Header::Write(Tagged { stag, to, .. }) => Message::Write(*stag, to - before, bytes),
            Header::ReadResponse(Tagged { stag, to, .. }) => Message::Response(*stag, to - before, bytes),
            Header::ReadRequest { request, .. } => Message::Read(*request),
            Header::Terminate { .. } => {
                Message::Terminate(Terminate::parse(&bytes, true).expect("it has a code").0.code)
            }
            other => panic!("siw does not send {other:?}"),
        });
    }
    whole
}

fn uses_crc(connection: &Connection) -> bool {
    whole_frame(&connection.from_initiator).0.crc || whole_frame(&connection.from_responder).0.crc
}

/// Start-up in place of the responder. What it sends must be what was recorded.
fn respond(connection: &Connection) -> Option<StreamParams> {
    let (request, request_len) = whole_frame(&connection.from_initiator);
    let (reply, reply_len) = whole_frame(&connection.from_responder);
    let config = StartupConfig {
        crc: reply.crc && !request.crc,
        ..StartupConfig::default()
    };
    let mut startup = Startup::listen(Time::ZERO, &config);
    startup.handle_bytes(&connection.from_initiator[..request_len]);
    assert!(matches!(
        startup.poll_event(),
        Some(StartupEvent::ConnectRequest { .. })
    ));
    let params = if reply.rejected {
        startup.reject(reply.private_data).expect("there is a request");
        None
    } else {
        let enhanced = reply.enhanced();
        let answer = StartupRequest {
            ird: enhanced.map_or(1, |enhanced| enhanced.ird),
            ord: enhanced.map_or(1, |enhanced| enhanced.ord),
            private_data: reply.private_data,
        };
        Some(startup.accept(&answer).expect("there is a request"))
    };
    let mut out = Vec::new();
    startup.poll_transmit(&mut out);
    assert_eq!(out, connection.from_responder[..reply_len], "{}", connection.name);
    params
}

/// Start-up in place of the initiator.
fn initiate(connection: &Connection) -> Option<StreamParams> {
    let (request, request_len) = whole_frame(&connection.from_initiator);
    let (_, reply_len) = whole_frame(&connection.from_responder);
    let enhanced = request.enhanced();
    let config = StartupConfig {
        crc: request.crc,
        enhanced: enhanced.is_some(),
        peer_to_peer: enhanced.is_some_and(|enhanced| enhanced.peer_to_peer.is_some()),
        ..StartupConfig::default()
    };
    let asked = StartupRequest {
        ird: enhanced.map_or(1, |enhanced| enhanced.ird),
        ord: enhanced.map_or(1, |enhanced| enhanced.ord),
        private_data: request.private_data,
    };
    let mut startup = Startup::connect(Time::ZERO, &config, &asked).expect("it was recorded");
    let mut out = Vec::new();
    startup.poll_transmit(&mut out);
    assert_eq!(
        out,
        connection.from_initiator[..request_len],
        "{}",
        connection.name
    );
    startup.handle_bytes(&connection.from_responder[..reply_len]);
    match startup.poll_event() {
        Some(StartupEvent::Accepted { params, .. }) => Some(params),
        Some(StartupEvent::Rejected { private_data }) => {
            assert_eq!(
                private_data,
                whole_frame(&connection.from_responder).0.private_data
            );
            None
        }
        other => panic!("{}: {other:?}", connection.name),
    }
}

/// Memory by key, and where it begins.
type Regions = BTreeMap<u32, (u64, Arc<HeapRegion>)>;

/// Registers what the other side's stream writes to and reads from.
fn register_targets(end: &mut End, theirs: &[Message]) -> Regions {
    let mut ranges: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    let mut cover = |stag: u32, to: u64, length: u64| {
        let range = ranges.entry(stag).or_insert((to, to + length));
        *range = (range.0.min(to), range.1.max(to + length));
    };
    for message in theirs {
        match message {
            Message::Write(stag, to, bytes) => cover(*stag, *to, bytes.len() as u64),
            Message::Read(request) => cover(request.source_stag, request.source_to, u64::from(request.size)),
            _ => {}
        }
    }
    let mut regions = BTreeMap::new();
    for (stag, (from, to)) in &ranges {
        let region = Arc::new(HeapRegion::zeroed((to - from) as usize));
        regions.insert(*stag, (*from, region.clone()));
        let spec = KeySpec {
            pd: end.pd,
            region,
            offset: 0,
            length: to - from,
            iova: *from,
            access: Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ,
            bound_qp: None,
            invalidatable: false,
        };
        let registered = end.nic.keys().register_as(*stag, spec);
        registered.expect("it is possible").expect("the key is free");
    }
    regions
}

/// Our queue pair in place of one side.
struct Player<'a> {
    end: End,
    peer: Peer,
    work: std::vec::IntoIter<&'a Message>,
    /// Requests of the program.
    posted: usize,
    /// Where the bytes of the next one are.
    place: usize,
    said: Vec<(Header, Vec<u8>)>,
    /// The sinks of READs, in order.
    sinks: Vec<(u32, u64)>,
}

impl Player<'_> {
    /// Says what can be said: what the other side says may wait for it.
    fn speak(&mut self) {
        loop {
            let room = self.end.nic.send_room(self.end.qpn) > Some(0);
            if let Some(message) = room.then(|| self.work.next()).flatten() {
                self.post(message);
                continue;
            }
            let bytes = self.end.transmit();
            if bytes.is_empty() {
                return;
            }
            for (header, payload) in self.peer.read(&bytes) {
                if let Header::ReadRequest { request, .. } = header {
                    self.sinks.push((request.sink_stag, request.sink_to));
                }
                self.said.push((header, payload));
            }
        }
    }

    /// Posts what was recorded, if it was a request of the program.
    fn post(&mut self, message: &Message) {
        let (op, bytes) = match message {
            Message::Send(bytes) => (SendOp::Send, &bytes[..]),
            // The ready message comes by itself.
            Message::Write(_, _, bytes) if bytes.is_empty() => return,
            Message::Write(stag, to, bytes) => {
                let remote = RemoteAddress { va: *to, rkey: *stag };
                (SendOp::Write(remote), &bytes[..])
            }
            Message::Read(request) => {
                let remote = RemoteAddress {
                    va: request.source_to,
                    rkey: request.source_stag,
                };
                self.end
                    .send(self.posted as u64, SendOp::Read(remote), 100_000, request.size);
                self.posted += 1;
                return;
            }
            Message::Response(..) | Message::Terminate(_) => return,
        };
        self.end.fill(self.place, bytes);
        self.end
            .send(self.posted as u64, op, self.place, bytes.len() as u32);
        self.place += bytes.len();
        self.posted += 1;
    }
}

/// The other side, which says what was recorded.
struct Other<'a> {
    peer: Peer,
    /// What our side's program asked for when it was recorded.
    asked: std::vec::IntoIter<ReadRequest>,
    /// What our side answered then.
    found: std::vec::IntoIter<&'a [u8]>,
    sends: u32,
    reads: u32,
    answered: usize,
}

impl<'a> Other<'a> {
    fn new(setup: &Setup, ours: &'a [Message]) -> Self {
        let asked = ours.iter().filter_map(|message| match message {
            Message::Read(request) => Some(*request),
            _ => None,
        });
        let found = ours.iter().filter_map(|message| match message {
            Message::Response(_, _, bytes) => Some(&bytes[..]),
            _ => None,
        });
        Other {
            peer: Peer::new(setup),
            asked: asked.collect::<Vec<_>>().into_iter(),
            found: found.collect::<Vec<_>>().into_iter(),
            sends: 0,
            reads: 0,
            answered: 0,
        }
    }

    /// A message of its, with the sinks that our side chose this time.
    fn say(&mut self, message: &Message, sinks: &[(u32, u64)], regions: &Regions) -> Vec<u8> {
        match message {
            Message::Send(bytes) => {
                self.sends += 1;
                let header = Header::Send {
                    kind: SendKind::default(),
                    msn: self.sends,
                    mo: 0,
                    last: true,
                };
                self.peer.frame(header, bytes)
            }
            Message::Write(stag, to, bytes) => self.peer.frame(Header::Write(tagged(*stag, *to)), bytes),
            Message::Read(request) => {
                self.reads += 1;
                let (msn, request) = (self.reads, *request);
                // What was read is what is there.
                let bytes = self.found.next().expect("it was answered");
                let (from, region) = &regions[&request.source_stag];
                let start = (request.source_to - from) as usize;
                region.with(|memory| memory[start..start + bytes.len()].copy_from_slice(bytes));
                self.peer.frame(Header::ReadRequest { msn, request }, &[])
            }
            Message::Response(_, to, bytes) => {
                let request = self.asked.next().expect("it was asked for");
                let (stag, own) = sinks[self.answered];
                self.answered += 1;
                let offset = to.wrapping_sub(request.sink_to);
                let header = Header::ReadResponse(tagged(stag, own + offset));
                self.peer.frame(header, bytes)
            }
            Message::Terminate(code) => panic!("it does not end well: {code}"),
        }
    }
}

/// Plays one side of a conversation that ends well.
fn play(connection: &Connection, params: &StreamParams, ours: &Recorded, theirs: &Recorded) {
    let name = &connection.name;
    let setup = Setup {
        crc: params.crc,
        memory: 1 << 20,
        ..Setup::default()
    };
    let mut end = End::new(1, &setup);
    end.attach(params);
    end.told();
    let regions = register_targets(&mut end, &theirs.messages);
    for id in 0..64 {
        end.recv(id, 0, 100_000);
    }
    let mut player = Player {
        end,
        peer: Peer::new(&setup),
        work: ours.messages.iter().collect::<Vec<_>>().into_iter(),
        posted: 0,
        place: 200_000,
        said: Vec::new(),
        sinks: Vec::new(),
    };
    let mut other = Other::new(&setup, &ours.messages);
    player.speak();
    for message in &theirs.messages {
        let frame = other.say(message, &player.sinks, &regions);
        assert_eq!(player.end.receive(&frame), StreamReading::Ready, "{name}");
        player.speak();
    }
    assert_eq!(player.end.state(), QpState::Rts, "{name}");
    check_requests(&mut player, name, &ours.messages);
    check_receptions(&mut player.end, name, &theirs.messages, &regions);
}

/// All were completed, and what was said of each kind is what was recorded.
fn check_requests(player: &mut Player<'_>, name: &str, ours: &[Message]) {
    let done = player.end.completed();
    assert_eq!(done.len(), player.posted, "{name}");
    assert!(
        done.iter().all(|(_, status)| *status == Status::Success),
        "{name}"
    );
    let said = join(&player.said);
    for kind in 0..4 {
        let of_kind = |messages: &[Message]| -> Vec<Message> {
            let of_kind = messages.iter().filter(|message| kind_of(message) == kind);
            of_kind.map(without_sink).collect()
        };
        assert!(of_kind(&said) == of_kind(ours), "{name}: kind {kind}");
    }
}

fn check_receptions(end: &mut End, name: &str, theirs: &[Message], regions: &Regions) {
    let lengths: Vec<u32> = end.receptions().iter().map(|done| done.byte_len).collect();
    let sent: Vec<u32> = theirs
        .iter()
        .filter_map(|message| match message {
            Message::Send(bytes) => Some(bytes.len() as u32),
            _ => None,
        })
        .collect();
    assert_eq!(lengths, sent, "{name}");
    let last = theirs.iter().rev().find_map(|message| match message {
        Message::Write(stag, _, bytes) if !bytes.is_empty() => Some((stag, bytes)),
        _ => None,
    });
    if let Some((stag, bytes)) = last {
        let memory = regions[stag].1.snapshot();
        let found = memory.windows(bytes.len()).any(|window| window == bytes);
        assert!(found, "{name}: what was written last is there");
    }
}

fn tagged(stag: u32, to: u64) -> Tagged {
    Tagged { last: true, stag, to }
}

fn kind_of(message: &Message) -> u8 {
    match message {
        Message::Send(_) => 0,
        Message::Write(..) => 1,
        Message::Read(_) => 2,
        Message::Response(..) => 3,
        Message::Terminate(_) => 4,
    }
}

/// Sinks are this side's to choose, and no receiver looks at the STag of a ready message.
fn without_sink(message: &Message) -> Message {
    match message {
        Message::Read(request) => Message::Read(ReadRequest {
            sink_stag: 0,
            sink_to: 0,
            ..*request
        }),
        other => other.clone(),
    }
}

fn ends_well(connection: &Connection) -> bool {
    let crc = uses_crc(connection);
    let (_, request) = whole_frame(&connection.from_initiator);
    let (frame, reply) = whole_frame(&connection.from_responder);
    !frame.rejected
        && [
            (&connection.from_initiator, request),
            (&connection.from_responder, reply),
        ]
        .into_iter()
        .flat_map(|(stream, len)| messages(&stream[len..], crc))
        .all(|message| !matches!(message, Message::Terminate(_)))
}

#[test]
fn our_start_up_frames_are_those_that_siw_sent() {
    let mut seen = 0;
    for connection in streams::all() {
        // Our Request offers both kinds of ready message, as siw's does if it offers any.
        initiate(&connection);
        respond(&connection);
        seen += 1;
    }
    assert!(seen >= 17, "{seen} connections");
}

#[test]
fn in_place_of_either_siw_we_say_the_same() {
    let mut played = 0;
    for connection in streams::all() {
        if !ends_well(&connection) {
            continue;
        }
        let crc = uses_crc(&connection);
        let initiator = recorded(&connection.from_initiator, crc);
        let responder = recorded(&connection.from_responder, crc);
        let params = initiate(&connection).expect("it was accepted");
        play(&connection, &params, &initiator, &responder);
        let params = respond(&connection).expect("it was accepted");
        play(&connection, &params, &responder, &initiator);
        played += 2;
    }
    assert!(played >= 20, "{played} conversations");
}

/// What the server of a recorded mistake had registered.
struct Mistake {
    name: &'static str,
    rkey: u32,
    addr: u64,
    access: Access,
    receive: Option<u32>,
    ours: Code,
    siws: Code,
}

impl Mistake {
    fn new(name: &'static str, rkey: u32, addr: u64, code: Code) -> Self {
        Mistake {
            name,
            rkey,
            addr,
            access: Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ,
            receive: None,
            ours: code,
            siws: code,
        }
    }

    /// Our queue pair in place of the server, as the client's mistake finds it.
    fn server(&self, setup: &Setup, params: &StreamParams) -> End {
        let mut end = End::new(1, setup);
        end.attach(params);
        let spec = KeySpec {
            pd: end.pd,
            region: end.memory.clone(),
            offset: 0,
            length: 1 << 17,
            iova: self.addr,
            access: self.access,
            bound_qp: None,
            invalidatable: false,
        };
        end.nic
            .keys()
            .register_as(self.rkey, spec)
            .expect("it is possible")
            .expect("the key is free");
        if let Some(length) = self.receive {
            end.recv(1, 0, length);
        }
        end
    }

    fn check(&self) {
        let connection = recorded_as(self.name);
        let (_, reply) = whole_frame(&connection.from_responder);
        let siws = messages(&connection.from_responder[reply..], true);
        assert_eq!(siws, [Message::Terminate(self.siws)], "{}", self.name);

        let setup = Setup::default();
        let params = respond(&connection).expect("it was accepted");
        let mut end = self.server(&setup, &params);
        let (_, request) = whole_frame(&connection.from_initiator);
        end.receive(&connection.from_initiator[request..]);
        end.advance(setup.iwarp.receive_grace + Duration::from_millis(1));
        let out = end.transmit();
        let terminate = Peer::new(&setup).read_terminate(&out);
        assert_eq!(terminate.code, self.ours, "{}", self.name);
        assert!(end.finished, "{}", self.name);
    }
}

fn recorded_as(name: &str) -> Connection {
    streams::all()
        .into_iter()
        .find(|connection| connection.name.starts_with(name))
        .expect("it was recorded")
}

#[test]
fn recorded_mistakes_are_called_what_siw_calls_them_or_better() {
    let new = Mistake::new;
    new(
        "siw_crc_badrkey",
        4_168_891_136,
        208_244_736,
        Code::DDP_TAGGED_INVALID_STAG,
    )
    .check();
    new("siw_crc_oob", 3_674_724_608, 609_087_488, Code::DDP_TAGGED_BOUNDS).check();
    new(
        "siw_crc_readbadrkey",
        4_106_732_800,
        36_487_168,
        Code::RDMAP_INVALID_STAG,
    )
    .check();
    new(
        "siw_crc_norecv",
        3_341_188_864,
        982_786_048,
        Code::DDP_UNTAGGED_NO_BUFFER,
    )
    .check();
    let no_access = new(
        "siw_crc_noaccess",
        3_683_044_096,
        212_946_944,
        Code::DDP_TAGGED_INVALID_STAG,
    );
    Mistake {
        access: Access::LOCAL_WRITE,
        ..no_access
    }
    .check();
    let too_long = new(
        "siw_crc_toolong",
        1_838_258_688,
        480_968_704,
        Code::DDP_UNTAGGED_NO_BUFFER,
    );
    Mistake {
        receive: Some(32),
        ours: Code::DDP_UNTAGGED_TOO_LONG,
        ..too_long
    }
    .check();
}

#[test]
fn siws_recorded_terminate_ends_the_stream() {
    let connection = recorded_as("siw_crc_readbadrkey");
    let params = initiate(&connection).expect("it was accepted");
    let mut end = End::new(1, &Setup::default());
    end.attach(&params);
    let remote = RemoteAddress {
        va: 0x022c_d000,
        rkey: 0x00de_ad00,
    };
    end.send(1, SendOp::Read(remote), 0, 64);
    end.transmit();
    let (_, reply) = whole_frame(&connection.from_responder);
    end.receive(&connection.from_responder[reply..]);
    // siw copied its own peer's sink, which is not ours: this READ is flushed with the rest.
    assert_eq!(end.completed(), [(1, Status::Flushed)]);
    assert!(end.closed);
}
