//! The capture reader finds datagrams in every dialect of the format it promises, and nothing else.

use crate::common::{flow_v4, flow_v6, sample_packet};
use nonic_wire::pcap::{Fragmentation, Frame, PcapError, Reader};
use nonic_wire::pcapng::PcapngWriter;
use nonic_wire::{Flow, Opcode, Verdict, icrc};

const IDENTIFICATION: u16 = 0x4711;
const ETHERNET: u32 = 1;
const RAW_IP: u32 = 101;

#[test]
fn both_byte_orders_and_both_resolutions_are_read() {
    for (magic, expected_ns) in [(0xa1b2_c3d4u32, 7_000_009_000), (0xa1b2_3c4d, 7_000_000_009)] {
        for big_endian in [false, true] {
            let file = capture(magic, big_endian, RAW_IP, &[&ip_packet(&flow_v4())]);
            let frames = frames(&file);
            assert_eq!(frames.len(), 1);
            assert_eq!(frames[0].timestamp_ns, expected_ns);
            assert_eq!(frames[0].original_len as usize, frames[0].bytes.len());
            assert!(frames[0].datagram().is_some());
        }
    }
}

#[test]
fn what_the_writer_made_up_the_reader_takes_apart() {
    for flow in [flow_v4(), flow_v6()] {
        let file = raw_capture(&[&ip_packet(&flow)]);
        let datagram = frames(&file)[0].datagram().expect("a datagram");
        assert_eq!(datagram.flow, flow);
        assert_eq!(datagram.payload, packet(&flow));
        let expected = Fragmentation {
            identification: IDENTIFICATION,
            dont_fragment: true,
        };
        assert_eq!(datagram.fragmentation, flow.src.is_ipv4().then_some(expected));
        assert_eq!(
            icrc::verify(&datagram.flow, IDENTIFICATION, false, datagram.payload),
            Verdict::Verified
        );
        let (covered, icrc) = datagram.payload.split_last_chunk().expect("it ends in an ICRC");
        assert_eq!(icrc::compute_behind(datagram.headers, covered), Some(*icrc));
    }
}

#[test]
fn ethernet_padding_and_vlan_tags_are_left_out() {
    for (flow, kind) in [(flow_v4(), [0x08, 0x00]), (flow_v6(), [0x86, 0xdd])] {
        let tags: [&[u8]; 3] = [&[], &[0x81, 0x00, 0, 5], &[0x88, 0xa8, 0, 6, 0x81, 0x00, 0, 5]];
        for tag in tags {
            let frame = [&[0xee; 12], tag, &kind, &ip_packet(&flow), &[0; 9]].concat();
            let file = capture(0xa1b2_c3d4, false, ETHERNET, &[&frame]);
            let datagram = frames(&file)[0].datagram().expect("a datagram");
            assert_eq!((datagram.flow, datagram.payload), (flow, &packet(&flow)[..]));
        }
    }
}

#[test]
fn frames_without_a_whole_datagram_are_passed_over() {
    let whole = ip_packet(&flow_v4());
    let changed = |at: usize, value: u8| {
        let mut bytes = whole.clone();
        bytes[at] = value;
        bytes
    };
    let more_fragments = changed(6, 0x20);
    let later_fragment = changed(7, 1);
    let tcp = changed(9, 6);
    let short_header = changed(0, 0x44);
    let udp_too_long = changed(25, 0xff);
    let udp_too_short = changed(25, 7);
    let version_5 = changed(0, 0x55);
    let all = [
        &more_fragments,
        &later_fragment,
        &tcp,
        &short_header,
        &udp_too_long,
        &udp_too_short,
        &version_5,
    ];
    for (index, bytes) in all.into_iter().enumerate() {
        assert!(
            frames(&raw_capture(&[bytes]))[0].datagram().is_none(),
            "change {index}"
        );
    }
    for len in 0..whole.len() {
        assert!(
            frames(&raw_capture(&[&whole[..len]]))[0].datagram().is_none(),
            "cut to {len}"
        );
    }
}

#[test]
fn a_damaged_file_ends_in_one_error() {
    assert_eq!(Reader::new(&[]).unwrap_err(), PcapError::Truncated);
    assert_eq!(Reader::new(&[0; 24]).unwrap_err(), PcapError::NotPcap);
    let wifi = capture(0xa1b2_c3d4, false, 105, &[]);
    assert_eq!(Reader::new(&wifi).unwrap_err(), PcapError::UnsupportedLink(105));

    let bytes = ip_packet(&flow_v4());
    let file = raw_capture(&[&bytes, &bytes]);
    let mut reader = Reader::new(&file[..file.len() - 1]).unwrap();
    assert!(reader.next().expect("the first frame").is_ok());
    assert_eq!(
        reader.next().expect("the second frame").unwrap_err(),
        PcapError::Truncated
    );
    assert!(reader.next().is_none());
}

#[test]
fn the_writer_refuses_what_no_datagram_can_hold() {
    for (flow, limit) in [(flow_v4(), 65_507), (flow_v6(), 65_527)] {
        let mut writer = PcapngWriter::new(Vec::new()).unwrap();
        writer.write_packet(0, None, &flow, 0, &vec![0; limit]).unwrap();
        let error = writer
            .write_packet(0, None, &flow, 0, &vec![0; limit + 1])
            .unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    }
}

fn packet(flow: &Flow) -> Vec<u8> {
    sample_packet(Opcode::RC_SEND_ONLY, flow, IDENTIFICATION)
}

/// The packet with IP and UDP headers, as the pcapng writer makes them up.
fn ip_packet(flow: &Flow) -> Vec<u8> {
    let mut writer = PcapngWriter::new(Vec::new()).unwrap();
    writer
        .write_packet(0, None, flow, IDENTIFICATION, &packet(flow))
        .unwrap();
    let file = writer.into_inner();
    let block_len = |at: usize| u32::from_le_bytes(*file[at + 4..].first_chunk().unwrap()) as usize;
    let interface_at = block_len(0);
    let packet_at = interface_at + block_len(interface_at);
    assert_eq!(
        packet_at + block_len(packet_at),
        file.len(),
        "block lengths lead to the end"
    );
    let captured_len = u32::from_le_bytes(*file[packet_at + 20..].first_chunk().unwrap()) as usize;
    file[packet_at + 28..][..captured_len].to_vec()
}

fn raw_capture(frames: &[&[u8]]) -> Vec<u8> {
    capture(0xa1b2_c3d4, false, RAW_IP, frames)
}

/// A capture file in which every frame is stamped 7 seconds and 9 fractions.
fn capture(magic: u32, big_endian: bool, link: u32, frames: &[&[u8]]) -> Vec<u8> {
    let word = |value: u32| {
        if big_endian {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        }
    };
    let mut file: Vec<u8> = [magic, 0x0004_0002, 0, 0, 0x4_0000, link]
        .into_iter()
        .flat_map(word)
        .collect();
    for frame in frames {
        let len = frame.len() as u32;
        file.extend([7, 9, len, len].into_iter().flat_map(word));
        file.extend_from_slice(frame);
    }
    file
}

fn frames(file: &[u8]) -> Vec<Frame<'_>> {
    Reader::new(file)
        .expect("a capture")
        .map(|frame| frame.expect("a whole frame"))
        .collect()
}
