//! Messages of the connection manager: what Linux sent is understood completely, and any bytes are survived.

use crate::common::Capture;
use nonic_wire::cm::*;
use nonic_wire::mad::{GSI_QKEY, MAD_LEN, MadHeader};
use nonic_wire::{Opcode, Packet, Psn, Qpn};
use proptest::array;
use proptest::prelude::*;
use std::net::IpAddr;

/// Management datagrams in all captures, by attribute: REQ, MRA, REJ, REP, RTU, DREQ, DREP, SIDR_REQ, SIDR_REP.
/// A test that looks at nothing would pass, so they are counted.
const MESSAGES: [usize; 9] = [8, 0, 1, 7, 7, 7, 7, 1, 1];

#[test]
fn every_captured_message_is_emitted_byte_for_byte_as_it_was_parsed() {
    let mut seen = [0; 9];
    for capture in Capture::all() {
        for (index, datagram) in capture.datagrams().enumerate() {
            let packet = Packet::parse(datagram.payload).unwrap();
            if packet.headers.bth.dest_qp != Qpn::GSI {
                continue;
            }
            assert_eq!(packet.headers.bth.opcode, Opcode::UD_SEND_ONLY);
            assert_eq!(packet.headers.deth.qkey, GSI_QKEY);
            assert_eq!(packet.headers.deth.src_qp, Qpn::GSI);
            let mad = CmMad::parse(packet.payload)
                .unwrap_or_else(|error| panic!("{} packet {index}: {error}", capture.name));
            assert_eq!(mad.emit(), packet.payload, "{} packet {index}", capture.name);
            seen[usize::from(mad.message.attribute_id() - 0x10)] += 1;
        }
    }
    assert_eq!(seen, MESSAGES);
}

#[test]
fn a_captured_request_says_what_its_program_was_told() {
    let capture = named("rxe_cm_rping");
    let datagram = capture.datagrams().next().unwrap();
    let packet = Packet::parse(datagram.payload).unwrap();
    let mad = CmMad::parse(packet.payload).unwrap();
    let Message::Req(req) = mad.message else {
        panic!("not a request: {mad:?}");
    };
    assert_eq!(mad.transaction_id, 0x2_eba5_53c2);
    assert_eq!(req.local_comm_id, 0xc253_a5eb);
    assert_eq!(req.service_id.port(), Some((PortSpace::Tcp, 0x1c06)));
    assert_eq!(req.service_id, ServiceId::from_port(PortSpace::Tcp, 0x1c06));
    assert_eq!(req.local_ca_guid, 0x5054_00ff_fe77_0002);
    assert_eq!(
        (req.local_qpn, req.starting_psn),
        (Qpn::new(0x25), Psn::new(0xa0_da1a))
    );
    assert_eq!((req.responder_resources, req.initiator_depth), (1, 1));
    assert_eq!(
        (
            req.remote_cm_response_timeout,
            req.local_cm_response_timeout,
            req.max_cm_retries
        ),
        (20, 20, 15)
    );
    assert_eq!((req.transport, req.extended_transport, req.srq), (0, 0, false));
    assert_eq!((req.path_mtu, req.retry_count, req.rnr_retry_count), (3, 7, 7));
    assert_eq!(
        (req.pkey, req.primary.local_lid, req.primary.remote_lid),
        (0xffff, 0xffff, 0xffff)
    );
    assert_eq!(ip_of_gid(req.primary.local_gid), datagram.flow.src);
    assert_eq!(ip_of_gid(req.primary.remote_gid), datagram.flow.dst);
    assert_eq!((req.primary.hop_limit, req.primary.local_ack_timeout), (64, 19));
    assert_eq!(req.alternate, ReqPath::default());
    let header = IpHeader::parse(&req.private_data.0).unwrap();
    assert_eq!(header.source_port, 0x8dea);
    assert_eq!(
        (header.source, header.destination),
        (datagram.flow.src, datagram.flow.dst)
    );
}

#[test]
fn the_ip_header_of_every_captured_request_comes_back() {
    let mut headers = 0;
    for capture in Capture::all() {
        for datagram in capture.datagrams() {
            let packet = Packet::parse(datagram.payload).unwrap();
            let private_data = match CmMad::parse(packet.payload).map(|mad| mad.message) {
                Ok(Message::Req(req)) => req.private_data.0.to_vec(),
                Ok(Message::SidrReq(req)) => req.private_data.0.to_vec(),
                _ => continue,
            };
            let header = IpHeader::parse(&private_data).unwrap();
            assert_eq!(header.emit(), private_data[..IpHeader::LEN], "{}", capture.name);
            assert_eq!(
                (header.source, header.destination),
                (datagram.flow.src, datagram.flow.dst)
            );
            headers += 1;
        }
    }
    assert_eq!(headers, 9);
}

#[test]
fn a_captured_refusal_names_its_reason() {
    let capture = named("rxe_cm_reject_nolistener");
    let datagram = capture.datagrams().nth(1).unwrap();
    let packet = Packet::parse(datagram.payload).unwrap();
    let Ok(Message::Rej(rej)) = CmMad::parse(packet.payload).map(|mad| mad.message) else {
        panic!("not a refusal");
    };
    assert_eq!(rej.reason, RejectReason::INVALID_SERVICE_ID);
    assert_eq!(
        (rej.subject, rej.info(), rej.local_comm_id),
        (Subject::Req, &[] as &[u8], 0)
    );
    assert_eq!(rej.remote_comm_id, 0xc153_a5eb);
}

#[test]
fn private_data_is_filled_up_and_never_cut() {
    assert_eq!(PrivateData::<4>::new(b"ab").unwrap().0, *b"ab\0\0");
    assert!(PrivateData::<4>::new(b"abcd").is_some());
    assert_eq!(PrivateData::<4>::new(b"abcde"), None);
}

#[test]
fn other_lengths_classes_methods_and_attributes_are_refused() {
    let good = CmMad {
        transaction_id: 1,
        message: Message::Rtu(Rtu::default()),
    }
    .emit();
    assert!(CmMad::parse(&good).is_ok());
    let with = |at: usize, value: u8| {
        let mut bytes = good;
        bytes[at] = value;
        CmMad::parse(&bytes).unwrap_err()
    };
    let class = |base, class, version| CmParseError::Class { base, class, version };
    assert_eq!(with(0, 2), class(2, 7, 2));
    assert_eq!(with(1, 3), class(1, 3, 2));
    assert_eq!(with(2, 1), class(1, 7, 1));
    assert_eq!(with(3, 0x83), CmParseError::Method(0x83));
    assert_eq!(with(17, 0x1b), CmParseError::Attribute(0x1b));
    assert_eq!(CmMad::parse(&good[1..]), Err(CmParseError::Length(255)));
}

#[test]
fn who_a_message_is_for_can_be_told_without_knowing_the_connection() {
    let id = |message: Message| (message.receiver_id(), message.service_id());
    let rep = Rep {
        remote_comm_id: 7,
        ..Rep::default()
    };
    assert_eq!(id(Message::Rep(rep)), (Some(7), None));
    let lost = Rej::new(3, 0, Subject::Req, RejectReason::TIMEOUT);
    assert_eq!(id(Message::Rej(lost)), (None, None));
    let ask = SidrReq {
        service_id: ServiceId::from_port(PortSpace::Udp, 9),
        ..SidrReq::default()
    };
    assert_eq!(id(Message::SidrReq(ask)), (None, Some(ServiceId(0x0111_0009))));
}

proptest! {
    /// Whatever the fields, a message that was read is written so that it reads the same.
    #[test]
    fn every_message_comes_back(
        attribute in 0x10u16..0x1b,
        transaction_id: u64,
        data in prop::collection::vec(any::<u8>(), MAD_LEN - MadHeader::LEN),
    ) {
        let mut bytes = [0; MAD_LEN];
        let header = MadHeader {
            base_version: 1,
            class: CM_CLASS,
            class_version: CM_CLASS_VERSION,
            method: 3,
            status: 0,
            class_specific: 0,
            transaction_id,
            attribute_id: attribute,
            attribute_modifier: 0,
        };
        header.emit(&mut bytes);
        bytes[MadHeader::LEN..].copy_from_slice(&data);
        let mad = CmMad::parse(&bytes).unwrap();
        prop_assert_eq!(mad.transaction_id, transaction_id);
        prop_assert_eq!(mad.message.attribute_id(), attribute);
        let emitted = mad.emit();
        prop_assert_eq!(CmMad::parse(&emitted).unwrap(), mad);
        // Nothing but reserved bits may differ, and those are cleared.
        for (index, (was, is)) in bytes.iter().zip(&emitted).enumerate() {
            prop_assert_eq!(was & is, *is, "byte {} gained bits", index);
        }
        // Private data is most of most messages and must be there whole.
        prop_assert_eq!(&emitted[MAD_LEN - 92..], &bytes[MAD_LEN - 92..]);
    }

    #[test]
    fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = CmMad::parse(&bytes);
        let _ = IpHeader::parse(&bytes);
    }

    #[test]
    fn mad_header(bytes in array::uniform24(any::<u8>())) {
        let mut bytes = bytes;
        bytes[18..20].fill(0);
        let mut emitted = [0xff; MadHeader::LEN];
        MadHeader::parse(&bytes).emit(&mut emitted);
        prop_assert_eq!(emitted, bytes);
    }

    #[test]
    fn ip_headers_come_back(source_port: u16, source: IpAddr, last: u8) {
        let destination = match source {
            IpAddr::V4(ip) => IpAddr::from([ip.octets()[0], 1, 2, last]),
            IpAddr::V6(ip) => IpAddr::from((ip.to_bits() ^ u128::from(last)).to_be_bytes()),
        };
        let header = IpHeader { source_port, source, destination };
        prop_assert_eq!(IpHeader::parse(&header.emit()), Ok(header));
    }
}

fn named(name: &str) -> Capture {
    Capture::all()
        .into_iter()
        .find(|capture| capture.name == name)
        .expect("part of the repository")
}
