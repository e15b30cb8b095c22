//! Describes a RoCEv2 packet in words.

use crate::model::Tone;
use nonic_wire::cm::{CmMad, Message};
use nonic_wire::{AethKind, NakCode, Operation, Packet, Qpn, SelectiveAck, Service, rnr_delay_ns};

/// What a packet is, in words, and what it tells about queue pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The words: operation, sequence number, length.
    pub text: String,
    /// How it is to be shown.
    pub tone: Tone,
    /// The queue pair that it is for; none if it is for the connection manager.
    pub peer_qp: Option<u32>,
    /// The queue pair that it is from, if it says so.
    pub qp: Option<u32>,
}

/// Puts a packet into words.
#[must_use]
pub fn describe(packet: &Packet<'_>) -> Description {
    let headers = &packet.headers;
    let bth = &headers.bth;
    let (service, operation) = (bth.opcode.service(), bth.opcode.operation());
    if bth.dest_qp == Qpn::GSI {
        return describe_management(packet);
    }
    let mut text = match service {
        Service::Rc | Service::Cnp => String::new(),
        Service::Uc => "UC ".to_owned(),
        Service::Ud => "UD ".to_owned(),
        Service::Xrc => "XRC ".to_owned(),
    };
    let (name, tone) = name(packet);
    text += &name;
    text += &format!(" PSN {:#08x}", bth.psn.value());
    match operation {
        Operation::ReadRequest | Operation::Flush => text += &format!(" {} B", headers.reth.dma_len),
        _ if operation.carries_payload() => text += &format!(" {} B", packet.payload.len()),
        _ => {}
    }
    if operation.has_immediate() {
        text += &format!(" imm {:#x}", headers.immediate);
    }
    Description {
        text,
        tone,
        peer_qp: Some(bth.dest_qp.value()),
        qp: (service == Service::Ud).then_some(headers.deth.src_qp.value()),
    }
}

fn name(packet: &Packet<'_>) -> (String, Tone) {
    use Operation::*;
    let operation = packet.headers.bth.opcode.operation();
    let plain = match operation {
        SendFirst => "SEND first",
        SendMiddle => "SEND middle",
        SendLast | SendLastWithImmediate => "SEND last",
        SendOnly | SendOnlyWithImmediate => "SEND",
        SendLastWithInvalidate => "SEND last, invalidate",
        SendOnlyWithInvalidate => "SEND, invalidate",
        WriteFirst => "WRITE first",
        WriteMiddle => "WRITE middle",
        WriteLast | WriteLastWithImmediate => "WRITE last",
        WriteOnly | WriteOnlyWithImmediate => "WRITE",
        ReadRequest => "READ request",
        CompareSwap => "COMPARE & SWAP",
        FetchAdd => "FETCH & ADD",
        Flush => "FLUSH",
        AtomicWrite => "ATOMIC WRITE",
        Cnp => return ("CNP (congestion)".to_owned(), Tone::Trouble),
        ReadResponseFirst | ReadResponseMiddle | ReadResponseLast | ReadResponseOnly | Acknowledge
        | AtomicAcknowledge => return answer(packet),
    };
    (plain.to_owned(), Tone::Request)
}

fn answer(packet: &Packet<'_>) -> (String, Tone) {
    use Operation::{
        AtomicAcknowledge, ReadResponseFirst, ReadResponseLast, ReadResponseMiddle, ReadResponseOnly,
    };
    let plain = match packet.headers.bth.opcode.operation() {
        ReadResponseFirst => "READ response first",
        // The only answer without an acknowledge header.
        ReadResponseMiddle => return ("READ response middle".to_owned(), Tone::Answer),
        ReadResponseLast => "READ response last",
        ReadResponseOnly => "READ response",
        AtomicAcknowledge => "ATOMIC response",
        _ => "ACK",
    };
    match packet.headers.aeth.syndrome.kind() {
        AethKind::Ack { .. } => match SelectiveAck::of(packet) {
            Some(selective) => {
                let held: u32 = selective.ranges().map(|range| range.packets).sum();
                (format!("ACK, {held} more held,"), Tone::Answer)
            }
            None => (plain.to_owned(), Tone::Answer),
        },
        AethKind::RnrNak { timer } => {
            let wait_us = rnr_delay_ns(timer) as f64 / 1e3;
            (format!("RNR NAK (wait {wait_us:.0} µs)"), Tone::Trouble)
        }
        AethKind::Nak(code) => (format!("NAK ({})", reason(code)), Tone::Trouble),
        AethKind::Reserved => (format!("{plain} (reserved syndrome)"), Tone::Trouble),
    }
}

fn reason(code: NakCode) -> String {
    match code {
        NakCode::PsnSequenceError => "sequence error".to_owned(),
        NakCode::InvalidRequest => "invalid request".to_owned(),
        NakCode::RemoteAccessError => "access error".to_owned(),
        NakCode::RemoteOperationalError => "operational error".to_owned(),
        NakCode::InvalidRdRequest => "invalid RD request".to_owned(),
        NakCode::Other(code) => format!("code {code}"),
    }
}

fn describe_management(packet: &Packet<'_>) -> Description {
    let mut tone = Tone::Request;
    let mut qp = None;
    let text = match CmMad::parse(packet.payload).map(|mad| mad.message) {
        Ok(Message::Req(req)) => {
            qp = Some(req.local_qpn.value());
            "CM REQ (connect)".to_owned()
        }
        Ok(Message::Rep(rep)) => {
            qp = Some(rep.local_qpn.value());
            tone = Tone::Answer;
            "CM REP (accept)".to_owned()
        }
        Ok(Message::Rtu(_)) => "CM RTU (ready to use)".to_owned(),
        Ok(Message::Mra(_)) => "CM MRA (wait)".to_owned(),
        Ok(Message::Rej(rej)) => {
            tone = Tone::Trouble;
            format!("CM REJ ({})", rej.reason)
        }
        Ok(Message::Dreq(_)) => "CM DREQ (disconnect)".to_owned(),
        Ok(Message::Drep(_)) => {
            tone = Tone::Answer;
            "CM DREP (disconnected)".to_owned()
        }
        Ok(Message::SidrReq(_)) => "CM SIDR REQ (who serves?)".to_owned(),
        Ok(Message::SidrRep(_)) => {
            tone = Tone::Answer;
            "CM SIDR REP".to_owned()
        }
        Ok(Message::Lap(_)) => "CM LAP".to_owned(),
        Ok(Message::Apr(_)) => "CM APR".to_owned(),
        Err(_) => format!("management datagram of {} B", packet.payload.len()),
    };
    Description {
        text,
        tone,
        peer_qp: None,
        qp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nonic_wire::{Aeth, Bth, Headers, Opcode, Psn, Syndrome};

    fn text(
        service: Service,
        operation: Operation,
        change: impl Fn(&mut Headers),
        payload: &[u8],
    ) -> (String, Tone) {
        let opcode = Opcode::new(service, operation).expect("the service has it");
        let mut headers = Headers::new(Bth::new(opcode, Qpn::new(0x12), Psn::new(0xabc)));
        change(&mut headers);
        let icrc = [0; 4];
        let description = describe(&Packet {
            headers,
            payload,
            icrc,
        });
        (description.text, description.tone)
    }

    #[test]
    fn requests_have_their_operation_sequence_number_and_length() {
        let immediate = |headers: &mut Headers| headers.immediate = 7;
        let said = text(Service::Uc, Operation::SendOnlyWithImmediate, immediate, &[0; 64]);
        assert_eq!(
            said,
            ("UC SEND PSN 0x000abc 64 B imm 0x7".to_owned(), Tone::Request)
        );
        let length = |headers: &mut Headers| headers.reth.dma_len = 4096;
        let said = text(Service::Rc, Operation::ReadRequest, length, &[]);
        assert_eq!(
            said,
            ("READ request PSN 0x000abc 4096 B".to_owned(), Tone::Request)
        );
    }

    #[test]
    fn refusals_say_why() {
        let with = |syndrome| move |headers: &mut Headers| headers.aeth = Aeth { syndrome, msn: 1 };
        let said = |syndrome| text(Service::Rc, Operation::Acknowledge, with(syndrome), &[]);
        assert_eq!(
            said(Syndrome::ack()),
            ("ACK PSN 0x000abc".to_owned(), Tone::Answer)
        );
        let refused = said(Syndrome::nak(NakCode::RemoteAccessError));
        assert_eq!(
            refused,
            ("NAK (access error) PSN 0x000abc".to_owned(), Tone::Trouble)
        );
        let not_ready = said(Syndrome::rnr(12));
        assert_eq!(
            not_ready,
            ("RNR NAK (wait 640 µs) PSN 0x000abc".to_owned(), Tone::Trouble)
        );
    }
}
