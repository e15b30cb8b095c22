//! Captures become ladders: which end sent what to which, what was repeated, refused, lost, and what is not drawn.

use nonic_ladder::{Arrival, CaptureDrawer, EventKind, Ladder, Tone};
use nonic_wire::pcap::{Direction, PcapError};
use nonic_wire::pcapng::PcapngWriter;
use nonic_wire::{Aeth, Bth, Flow, Headers, NakCode, Opcode, Packet, Psn, Qpn, ROCE_PORT, Syndrome};
use std::path::PathBuf;

const LEFT: &str = "10.0.0.1";
const RIGHT: &str = "10.0.0.2";

/// A capture in the making, one microsecond per packet.
struct Capture {
    writer: PcapngWriter<Vec<u8>>,
    now_ns: u64,
}

impl Capture {
    fn new() -> Self {
        Capture {
            writer: PcapngWriter::new(Vec::new()).expect("memory takes everything"),
            now_ns: 5_000_000_000,
        }
    }

    fn packet(
        &mut self,
        direction: Option<Direction>,
        (src, port, dst): (&str, u16, &str),
        opcode: Opcode,
        qp: u32,
        psn: u32,
        syndrome: Syndrome,
    ) {
        let flow = Flow {
            src: src.parse().expect("an address"),
            dst: dst.parse().expect("an address"),
            src_port: port,
            dst_port: ROCE_PORT,
        };
        let mut headers = Headers::new(Bth::new(opcode, Qpn::new(qp), Psn::new(psn)));
        headers.aeth = Aeth { syndrome, msn: 1 };
        let payload: &[u8] = if opcode == Opcode::RC_SEND_ONLY {
            &[7; 64]
        } else {
            &[]
        };
        let mut bytes = Vec::new();
        // Not a true one, but one that differs where packets do.
        let icrc = (psn ^ qp << 8).to_le_bytes();
        Packet {
            headers,
            payload,
            icrc,
        }
        .emit_into(&mut bytes);
        self.now_ns += 1_000;
        self.writer
            .write_packet(self.now_ns, direction, &flow, 0, &bytes)
            .expect("it fits");
    }

    fn send(&mut self, way: (&str, u16, &str), qp: u32, psn: u32) {
        self.packet(None, way, Opcode::RC_SEND_ONLY, qp, psn, Syndrome::ack());
    }

    fn answer(&mut self, way: (&str, u16, &str), qp: u32, psn: u32, syndrome: Syndrome) {
        self.packet(None, way, Opcode::RC_ACKNOWLEDGE, qp, psn, syndrome);
    }

    fn ladder(self) -> Ladder {
        let mut drawer = CaptureDrawer::new();
        drawer.handle(&self.writer.into_inner()).expect("a capture");
        drawer.finish()
    }
}

fn story(ladder: &Ladder) -> Vec<(usize, Option<usize>, String)> {
    let tell = |event: &nonic_ladder::Event| {
        let mark = event
            .mark
            .as_ref()
            .map_or(String::new(), |mark| format!(": {mark}"));
        (event.end, event.peer(), format!("{}{mark}", event.text))
    };
    ladder.events.iter().map(tell).collect()
}

#[test]
fn two_addresses_are_two_ends_and_repetitions_gaps_and_refusals_are_marked() {
    let (there, back) = ((LEFT, 50_000, RIGHT), (RIGHT, 51_000, LEFT));
    let mut capture = Capture::new();
    capture.send(there, 0x22, 100);
    capture.answer(back, 0x11, 100, Syndrome::ack());
    capture.send(there, 0x22, 103);
    capture.answer(back, 0x11, 101, Syndrome::nak(NakCode::PsnSequenceError));
    capture.send(there, 0x22, 101);
    capture.send(there, 0x22, 103);
    let ladder = capture.ladder();
    assert_eq!(ladder.ends, [LEFT, RIGHT]);
    let (left, right) = (0, 1);
    let expected = [
        (left, right, "SEND PSN 0x000064 64 B"),
        (right, left, "ACK PSN 0x000064"),
        (left, right, "SEND PSN 0x000067 64 B: 2 before are missing"),
        (right, left, "NAK (sequence error) PSN 0x000065"),
        (left, right, "SEND PSN 0x000065 64 B: late"),
        (left, right, "SEND PSN 0x000067 64 B: again"),
    ];
    assert_eq!(
        story(&ladder),
        expected.map(|(from, to, text)| (from, Some(to), text.to_owned()))
    );
    let tones: Vec<Tone> = ladder.events.iter().map(|event| event.tone).collect();
    use Tone::{Answer, Request, Trouble};
    assert_eq!(tones, [Request, Answer, Trouble, Trouble, Trouble, Trouble]);
    // The answer told which queue pair the requests come from.
    assert!(ladder.events[..2].iter().all(|event| {
        event
            .qp
            .zip(event.peer_qp)
            .is_some_and(|(own, peer)| own + peer == 0x33)
    }));
    assert_eq!(ladder.notes, [""; 0]);
}

#[test]
fn two_processes_at_one_address_are_told_apart_by_what_they_answer() {
    let (here, there) = (
        ("127.0.0.1", 40_001, "127.0.0.1"),
        ("127.0.0.1", 40_002, "127.0.0.1"),
    );
    let third = ("127.0.0.1", 40_003, "127.0.0.1");
    let mut capture = Capture::new();
    capture.send(here, 0x22, 5);
    capture.send(third, 0x22, 900);
    capture.answer(there, 0x11, 5, Syndrome::ack());
    capture.answer(there, 0x33, 900, Syndrome::ack());
    let ladder = capture.ladder();
    let ends: Vec<&str> = ladder.ends.iter().map(String::as_str).collect();
    assert_eq!(
        ends,
        [
            "127.0.0.1 port 40001",
            "127.0.0.1 port 40002",
            "127.0.0.1 port 40003"
        ]
    );
    let ways: Vec<(usize, Option<usize>)> = ladder
        .events
        .iter()
        .map(|event| (event.end, event.peer()))
        .collect();
    assert_eq!(ways, [(0, Some(1)), (2, Some(1)), (1, Some(0)), (1, Some(2))]);
}

#[test]
fn what_a_process_sent_to_itself_and_did_not_receive_was_lost() {
    let way = ("127.0.0.1", 40_001, "127.0.0.1");
    let mut capture = Capture::new();
    let mut note = |direction, psn| {
        capture.packet(
            Some(direction),
            way,
            Opcode::RC_SEND_ONLY,
            0x22,
            psn,
            Syndrome::ack(),
        )
    };
    note(Direction::Outbound, 1);
    note(Direction::Outbound, 2);
    note(Direction::Inbound, 1);
    note(Direction::Outbound, 2);
    note(Direction::Inbound, 2);
    let ladder = capture.ladder();
    let arrivals: Vec<Arrival> = ladder
        .events
        .iter()
        .map(|event| match event.kind {
            EventKind::Packet { arrival, .. } => arrival,
            EventKind::Local => panic!("captures hold packets"),
        })
        .collect();
    // Of two equal packets the first is taken for the one that arrived: the capture cannot tell.
    assert_eq!(
        arrivals,
        [
            Arrival::At(5_000_003_000),
            Arrival::At(5_000_005_000),
            Arrival::Never
        ]
    );
    assert_eq!(ladder.events[2].mark.as_deref(), Some("again, lost"));
}

#[test]
fn a_capture_that_still_grows_is_drawn_as_far_as_it_goes() {
    let (there, back) = ((LEFT, 50_000, RIGHT), (RIGHT, 51_000, LEFT));
    let mut capture = Capture::new();
    for psn in 0..20 {
        capture.send(there, 0x22, psn);
        capture.answer(back, 0x11, psn, Syndrome::ack());
    }
    let file = capture.writer.into_inner();
    let mut drawer = CaptureDrawer::new();
    let mut shown = 0;
    for piece in file.chunks(33) {
        drawer.handle(piece).expect("a capture");
        let ladder = drawer.so_far();
        assert!(ladder.events.len() >= shown);
        shown = ladder.events.len();
    }
    assert_eq!(shown, 40);
}

#[test]
fn what_is_no_capture_is_refused_and_what_is_not_drawn_is_counted() {
    let mut drawer = CaptureDrawer::new();
    assert_eq!(
        drawer.handle(b"#!/bin/sh, and a lot more of it"),
        Err(PcapError::NotACapture)
    );
    let mut capture = Capture::new();
    capture.send((LEFT, 1, RIGHT), 2, 3);
    let mut file = capture.writer.into_inner();
    file.pop();
    let mut drawer = CaptureDrawer::new();
    drawer.handle(&file).expect("a capture");
    let ladder = drawer.finish();
    assert!(
        ladder.events.is_empty() && ladder.notes[0].contains("cut"),
        "{:?}",
        ladder.notes
    );
}

/// Captures of the kernel's drivers, which the documentation refers to.
fn kernel_capture(name: &str) -> Ladder {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/captures")
        .join(name);
    let file = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut drawer = CaptureDrawer::new();
    drawer.handle(&file).expect("a capture");
    drawer.finish()
}

#[test]
fn a_capture_of_rxe_shows_the_repetition_it_is_known_for() {
    let ladder = kernel_capture("rxe_rc_early_timer.pcap");
    assert_eq!(ladder.ends.len(), 2, "{:?}", ladder.ends);
    let again = ladder
        .events
        .iter()
        .filter(|event| event.mark.as_deref() == Some("again"));
    assert!(again.count() >= 1, "{:?}", story(&ladder));
}

#[test]
fn a_capture_of_siw_shows_iwarp_messages_on_tcp() {
    let ladder = kernel_capture("siw_missed_ready.pcap");
    let texts: Vec<&str> = ladder.events.iter().map(|event| event.text.as_str()).collect();
    assert_eq!(texts[..2], ["TCP SYN", "TCP SYN"], "{texts:?}");
    for wanted in ["MPA Request", "MPA Reply", "SEND MSN 1"] {
        assert!(
            texts.iter().any(|text| text.starts_with(wanted)),
            "{wanted} in {texts:?}"
        );
    }
}
