//! A capture of either format is read as it comes, whole or in pieces, and damage ends in an error.

use crate::common::{flow_v4, flow_v6, sample_packet};
use nonic_wire::pcap::{CaptureReader, Direction, PcapError};
use nonic_wire::pcapng::PcapngWriter;
use nonic_wire::{Flow, Opcode};
use proptest::prelude::*;

const START_NS: u64 = 1_700_000_000_123_456_789;

/// A frame as far as the tests look at it.
type Seen = (u64, Option<Direction>, Flow, Vec<u8>);

#[test]
fn what_the_writer_wrote_is_read_with_its_direction() {
    assert_eq!(read(&[&written()]), Ok(expected()));
}

#[test]
fn pieces_of_any_length_are_the_same_capture() {
    let file = written();
    for length in [1, 2, 3, 7, 64, file.len()] {
        let pieces: Vec<&[u8]> = file.chunks(length).collect();
        assert_eq!(read(&pieces), Ok(expected()), "in pieces of {length}");
    }
}

#[test]
fn an_interface_has_its_name() {
    let mut writer = PcapngWriter::named(Vec::new(), "roce_eth0").expect("memory takes everything");
    let flow = flow_v4();
    let packet = sample_packet(Opcode::RC_SEND_ONLY, &flow, 0);
    writer
        .write_packet(START_NS, None, &flow, 0, &packet)
        .expect("it fits");
    let file = writer.into_inner();
    assert!(file.windows(9).any(|bytes| bytes == b"roce_eth0"));
    assert_eq!(read(&[&file]), Ok(vec![(START_NS, None, flow, packet)]));
}

#[test]
fn the_other_byte_order_and_coarser_clocks_are_read() {
    let flow = flow_v4();
    let packet = sample_packet(Opcode::RC_SEND_ONLY, &flow, 0);
    let ip = ip_packet(&flow);
    // Microseconds by default, 2^-10 s if an option says so.
    for (option, ticks, expected_ns) in [(None, 7_u32, 7_000), (Some(0x8a), 1024, 1_000_000_000)] {
        let mut file = Vec::new();
        block(
            &mut file,
            0x0a0d_0d0a,
            &[&words(&[0x1a2b_3c4d, 0x0001_0000, u32::MAX, u32::MAX])],
        );
        let resolution: Vec<u8> =
            option.map_or(Vec::new(), |power| vec![0, 9, 0, 1, power, 0, 0, 0, 0, 0, 0, 0]);
        block(&mut file, 1, &[&words(&[101 << 16, 0]), &resolution]);
        let len = u32::try_from(ip.len()).expect("short");
        block(&mut file, 6, &[&words(&[0, 0, ticks, len, len]), &ip]);
        // A block of an unknown type, and one of an interface that was not described.
        block(&mut file, 0x0bad, &[b"what is this"]);
        block(&mut file, 6, &[&words(&[1, 0, ticks, len, len]), &ip]);
        assert_eq!(
            read(&[&file]),
            Ok(vec![(expected_ns, None, flow, packet.clone())])
        );
    }
}

#[test]
fn cooked_headers_tell_the_direction() {
    let flow = flow_v4();
    let ip = ip_packet(&flow);
    for (kind, direction) in [
        (0, Some(Direction::Inbound)),
        (4, Some(Direction::Outbound)),
        (3, None),
    ] {
        let first = [&[0, kind, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0][..], &ip].concat();
        let second = [
            &[8, 0, 0, 0, 0, 0, 0, 1, 0, 1, kind, 6, 0, 0, 0, 0, 0, 0, 0, 0][..],
            &ip,
        ]
        .concat();
        for (link, frame) in [(113, first), (276, second)] {
            let seen = read(&[&classic(link, &frame)]).expect("a capture");
            assert_eq!(seen.len(), 1);
            assert_eq!((seen[0].1, seen[0].2), (direction, flow));
        }
    }
    let loopback = [&[2, 0, 0, 0][..], &ip].concat();
    assert_eq!(read(&[&classic(0, &loopback)]).expect("a capture").len(), 1);
}

#[test]
fn damage_is_told_from_an_end_that_is_still_to_come() {
    let file = written();
    let mut reader = CaptureReader::new();
    reader.handle(&file[..file.len() - 1]);
    let mut frames = 0;
    while reader.next().expect("no damage").is_some() {
        frames += 1;
    }
    assert_eq!(frames, expected().len() - 1);
    assert!(reader.pending() > 0, "the last block has not ended");

    assert_eq!(read(&[&[0; 24]]), Err(PcapError::NotACapture));
    assert_eq!(read(&[&classic(105, &[])]), Err(PcapError::UnsupportedLink(105)));
    let mut damaged = file;
    damaged[4..8].copy_from_slice(&13_u32.to_le_bytes());
    assert_eq!(read(&[&damaged]), Err(PcapError::DamagedBlock(13)));
}

#[test]
fn a_tcp_segment_is_found_behind_its_options() {
    let mut ip = vec![
        0x45, 0, 0, 48, 0, 0, 0x40, 0, 64, 6, 0, 0, 127, 0, 0, 1, 127, 0, 0, 2,
    ];
    ip.extend([
        0x12, 0x34, 0x56, 0x78, 0, 0, 1, 2, 0, 0, 0, 0, 0x60, 0x11, 0, 0, 0, 0, 0, 0,
    ]);
    ip.extend([1, 1, 1, 1]);
    ip.extend(b"four");
    let file = classic(101, &ip);
    let mut reader = CaptureReader::new();
    reader.handle(&file);
    let frame = reader.next().expect("a capture").expect("a frame");
    assert!(frame.datagram().is_none());
    let segment = frame.tcp_segment().expect("a segment");
    assert_eq!(
        (segment.src.port(), segment.dst.port(), segment.sequence),
        (0x1234, 0x5678, 0x102)
    );
    assert_eq!((segment.syn, segment.fin, segment.rst), (false, true, false));
    assert_eq!(segment.payload, b"four");
}

proptest! {
    /// Whatever the bytes are, reading ends.
    #[test]
    fn any_bytes_are_survived(noise in proptest::collection::vec(any::<u8>(), 0..200), at in 0_usize..400, cut in 1_usize..100) {
        let mut file = written();
        let at = at.min(file.len());
        file.splice(at..at, noise.iter().copied());
        for bytes in [&noise, &file] {
            let pieces: Vec<&[u8]> = bytes.chunks(cut).collect();
            let _ = read(&pieces);
        }
    }
}

fn flows() -> [(Flow, Option<Direction>); 3] {
    [
        (flow_v4(), Some(Direction::Outbound)),
        (flow_v6(), Some(Direction::Inbound)),
        (flow_v4(), None),
    ]
}

fn expected() -> Vec<Seen> {
    let frame = |(index, (flow, direction)): (usize, (Flow, _))| {
        let packet = sample_packet(Opcode::RC_SEND_ONLY, &flow, 0);
        (START_NS + index as u64, direction, flow, packet)
    };
    flows().into_iter().enumerate().map(frame).collect()
}

fn written() -> Vec<u8> {
    let mut writer = PcapngWriter::new(Vec::new()).expect("memory takes everything");
    for (at_ns, direction, flow, packet) in expected() {
        writer
            .write_packet(at_ns, direction, &flow, 0, &packet)
            .expect("it fits");
    }
    writer.into_inner()
}

fn read(pieces: &[&[u8]]) -> Result<Vec<Seen>, PcapError> {
    let mut reader = CaptureReader::new();
    let mut seen = Vec::new();
    for piece in pieces {
        reader.handle(piece);
        while let Some(frame) = reader.next()? {
            if let Some(datagram) = frame.datagram() {
                seen.push((
                    frame.timestamp_ns,
                    frame.direction,
                    datagram.flow,
                    datagram.payload.to_vec(),
                ));
            }
        }
    }
    Ok(seen)
}

/// The packet with IP and UDP headers.
fn ip_packet(flow: &Flow) -> Vec<u8> {
    let mut writer = PcapngWriter::new(Vec::new()).expect("memory takes everything");
    let packet = sample_packet(Opcode::RC_SEND_ONLY, flow, 0);
    writer.write_packet(0, None, flow, 0, &packet).expect("it fits");
    let mut reader = CaptureReader::new();
    reader.handle(&writer.into_inner());
    reader.next().expect("a capture").expect("a frame").bytes.to_vec()
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_be_bytes()).collect()
}

/// Appends a block in the big-endian order.
fn block(file: &mut Vec<u8>, kind: u32, parts: &[&[u8]]) {
    let mut body = parts.concat();
    body.resize(body.len().next_multiple_of(4), 0);
    let len = u32::try_from(body.len() + 12).expect("short");
    file.extend(words(&[kind, len]));
    file.extend(body);
    file.extend(words(&[len]));
}

/// A classic capture of one frame.
fn classic(link: u32, frame: &[u8]) -> Vec<u8> {
    let len = u32::try_from(frame.len()).expect("short");
    let header = [0xa1b2_c3d4, 0x0002_0004, 0, 0, 0x4_0000, link, 0, 0, len, len];
    [&words(&header), frame].concat()
}
