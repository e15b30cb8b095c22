use super::*;
use nonic_netem::Prng;

/// A frame as the kernel gives it: ECT(0), a partial checksum, payload that counts up.
fn frame(protocol: u8, payload: usize, step: usize) -> Vec<u8> {
    let header = if protocol == TCP { 32 } else { 8 };
    let mut bytes = vec![0; VIRTIO + 20 + header];
    bytes[0] = NEEDS_CHECKSUM;
    if payload > step {
        bytes[1] = if protocol == TCP {
            GSO_TCP4 | GSO_ECN
        } else {
            GSO_UDP
        };
        bytes[4..6].copy_from_slice(&(step as u16).to_ne_bytes());
    }
    bytes[6..8].copy_from_slice(&20_u16.to_ne_bytes());
    let offset: u16 = if protocol == TCP { 16 } else { 6 };
    bytes[8..10].copy_from_slice(&offset.to_ne_bytes());
    let ip = &mut bytes[VIRTIO..];
    ip[0] = 0x45;
    ip[1] = 2;
    ip[2..4].copy_from_slice(&((20 + header + payload) as u16).to_be_bytes());
    ip[4..6].copy_from_slice(&100_u16.to_be_bytes());
    ip[9] = protocol;
    ip[12..20].copy_from_slice(&[10, 78, 0, 1, 10, 78, 1, 1]);
    let sum = !fold(sum_of(&ip[..20]));
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    if protocol == TCP {
        ip[20 + 4..20 + 8].copy_from_slice(&u32::MAX.to_be_bytes());
        ip[20 + 12] = 8 << 4;
        ip[20 + 13] = CWR | FIN_AND_PSH | 0x10;
    } else {
        ip[24..26].copy_from_slice(&((8 + payload) as u16).to_be_bytes());
    }
    let length = header + payload;
    let pseudo = fold(sum_of(&ip[12..20]) + u64::from(protocol) + length as u64);
    let field = 20 + usize::from(offset);
    ip[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
    bytes.extend((0..payload).map(|at| (at % 251) as u8));
    bytes
}

fn written(bytes: &[u8], packets: Range<usize>, marked: bool) -> Vec<u8> {
    let part = Frame::parse(bytes)
        .expect("it is a frame")
        .part(bytes, packets, marked);
    [part.headers(), &bytes[part.payload.clone()]].concat()
}

/// Whether a packet is what a receiver accepts, once the checksum that was left to others is done.
fn is_valid(bytes: &[u8]) -> bool {
    let ip = &bytes[VIRTIO..];
    let whole = usize::from(u16::from_be_bytes([ip[2], ip[3]])) == ip.len();
    let length = (ip.len() - 20) as u64;
    let mut transport = ip[20..].to_vec();
    let pseudo = sum_of(&ip[12..20]) + u64::from(ip[9]) + length;
    if bytes[0] & NEEDS_CHECKSUM != 0 {
        let field = usize::from(u16::from_ne_bytes([bytes[8], bytes[9]]));
        let left = u16::from_be_bytes([transport[field], transport[field + 1]]);
        if left != fold(pseudo) {
            return false;
        }
        let sum = !fold(sum_of(&transport));
        transport[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    }
    let sums = [fold(sum_of(&ip[..20])), fold(pseudo + sum_of(&transport))];
    whole && sums == [0xffff; 2]
}

#[test]
fn a_frame_knows_its_packets() {
    let found = Frame::parse(&frame(TCP, 3_000, 1448)).expect("it is a frame");
    assert_eq!(found.packets(), 3);
    assert_eq!([0, 1, 2].map(|index| found.length(index)), [1500, 1500, 52 + 104]);
    assert!(found.can_be_marked);
    assert_eq!(found.destination, Ipv4Addr::new(10, 78, 1, 1));
    let found = Frame::parse(&frame(UDP, 1_000, 1_400)).expect("it is a frame");
    assert_eq!((found.packets(), found.length(0)), (1, 1_028));
}

#[test]
fn the_whole_is_given_on_as_it_came() {
    for bytes in [
        frame(TCP, 3_000, 1448),
        frame(UDP, 5_000, 1082),
        frame(UDP, 10, 1_400),
    ] {
        let all = Frame::parse(&bytes).expect("it is a frame").packets();
        assert_eq!(written(&bytes, 0..all, false), bytes);
    }
}

#[test]
fn parts_are_valid_and_together_are_the_whole() {
    for protocol in [TCP, UDP] {
        let bytes = frame(protocol, 10_000, 1448);
        let found = Frame::parse(&bytes).expect("it is a frame");
        let mut payload = Vec::new();
        for packets in [0..1, 1..4, 4..5, 5..7] {
            let part = written(&bytes, packets.clone(), false);
            assert!(is_valid(&part), "{protocol} {packets:?}");
            let parsed = Frame::parse(&part).expect("it is a frame");
            assert_eq!(parsed.packets(), packets.len());
            payload.extend_from_slice(&part[VIRTIO + found.headers..]);
            let ip = &part[VIRTIO..];
            assert_eq!(u16::from_be_bytes([ip[4], ip[5]]), 100 + packets.start as u16);
            if protocol == TCP {
                let sequence = u32::from_be_bytes(ip[24..28].try_into().expect("four bytes"));
                assert_eq!(sequence, u32::MAX.wrapping_add(packets.start as u32 * 1448));
                assert_eq!(ip[33] & FIN_AND_PSH != 0, packets.end == 7, "at the end alone");
                assert_eq!(ip[33] & CWR != 0, packets.start == 0, "at the beginning alone");
            }
        }
        assert_eq!(payload, bytes[VIRTIO + found.headers..]);
    }
}

#[test]
fn a_mark_is_congestion_experienced_and_nothing_else() {
    let bytes = frame(UDP, 5_000, 1082);
    let marked = written(&bytes, 1..2, true);
    assert!(is_valid(&marked));
    assert_eq!(marked[VIRTIO + 1], 3);
    let mut plain = written(&bytes, 1..2, false);
    plain[VIRTIO + 1] = 3;
    plain[VIRTIO + 10..VIRTIO + 12].copy_from_slice(&marked[VIRTIO + 10..VIRTIO + 12]);
    assert_eq!(plain, marked);
}

#[test]
fn a_wrong_bit_shows_in_the_checksum() {
    let mut prng = Prng::new(1);
    let mut damaged = Vec::new();
    for protocol in [TCP, UDP] {
        let bytes = frame(protocol, 5_000, 1448);
        let found = Frame::parse(&bytes).expect("it is a frame");
        for _ in 0..500 {
            let index = (prng.next_u64() % 4) as usize;
            found.corrupt(&bytes, index, false, prng.next_u64(), &mut damaged);
            assert!(!is_valid(&damaged));
            assert_eq!(damaged[..VIRTIO], [0; VIRTIO], "it is looked at");
        }
    }
}

#[test]
fn whatever_comes_nothing_panics() {
    let mut prng = Prng::new(1);
    let mut into = Vec::new();
    for turn in 0..20_000 {
        let mut bytes = frame(if turn % 2 == 0 { TCP } else { UDP }, 2_000, 700);
        for _ in 0..prng.next_u64() % 8 {
            let at = (prng.next_u64() % 60) as usize;
            bytes[at] = prng.next_u64() as u8;
        }
        bytes.truncate((prng.next_u64() % 2_100) as usize);
        if let Some(found) = Frame::parse(&bytes) {
            let all = found.packets();
            found.part(&bytes, 0..all, true);
            found.part(&bytes, all - 1..all, false);
            found.corrupt(&bytes, 0, false, prng.next_u64(), &mut into);
        }
    }
}

#[test]
fn a_roce_packet_is_found_behind_its_headers_whether_it_is_alone_or_not() {
    for payload in [100, 250] {
        let mut bytes = frame(UDP, payload, 100);
        let found = Frame::parse(&bytes).expect("it is a frame");
        assert!(found.roce(&bytes, 0).is_empty(), "another port");
        bytes[VIRTIO + 22..VIRTIO + 24].copy_from_slice(&ROCE_PORT);
        let all: Vec<u8> = (0..found.packets())
            .flat_map(|index| found.roce(&bytes, index).to_vec())
            .collect();
        assert_eq!(all, bytes[VIRTIO + 28..]);
        assert_eq!(found.roce(&bytes, 0).len(), 100);
    }
    let bytes = frame(TCP, 100, 100);
    assert!(Frame::parse(&bytes).is_some_and(|found| found.roce(&bytes, 0).is_empty()));
}
