//! A forger of packets: the addresses and the queue pair number are right, the bytes are invented, the sequence number
//! is a guess. It must have no effect.
//!
//! A guess may be right, on a network as here. The NIC under test must not fail for that, so guesses that come close
//! are left out: the core's tests of `forgery` count how few do harm.

use nonic_core::Psn;
use nonic_netem::{Prng, Train};
use nonic_wire::{Flow, NakCode, Operation, Packet, ROCE_PORT, Service, Syndrome, icrc};

/// No guess is closer than this: what any connection may have under way, and more.
const CLOSE: u64 = 1 << 17;

/// A forger on a fabric.
#[derive(Debug)]
pub(crate) struct Forger {
    prng: Prng,
}

impl Forger {
    pub(crate) fn new(seed: u64) -> Self {
        Forger {
            prng: Prng::new(seed),
        }
    }

    /// What it sends behind one in four trains of a reliable connection: one packet.
    pub(crate) fn follow(&mut self, train: &Train) -> Option<Vec<u8>> {
        if !self.prng.percent(25) {
            return None;
        }
        let packet = Packet::parse(train.packets().next()?).ok()?;
        let mut headers = packet.headers;
        if !matches!(headers.bth.opcode.service(), Service::Rc | Service::Xrc) {
            return None;
        }
        let away = self.prng.range(CLOSE, (1 << 24) - CLOSE) as u32;
        headers.bth.psn = Psn::new(headers.bth.psn.value().wrapping_add(away) & 0xff_ffff);
        if headers.bth.opcode.operation() == Operation::Acknowledge && self.prng.percent(50) {
            headers.aeth.syndrome = Syndrome::nak(NakCode::RemoteAccessError);
        }
        let payload: Vec<u8> = packet.payload.iter().map(|byte| !byte).collect();
        let mut bytes = Vec::new();
        let forged = Packet {
            headers,
            payload: &payload,
            icrc: [0; 4],
        };
        forged.emit_into(&mut bytes);
        let flow = Flow {
            src: train.src.ip(),
            dst: train.dst,
            src_port: train.src.port(),
            dst_port: ROCE_PORT,
        };
        icrc::seal(&flow, 0, &mut bytes);
        Some(bytes)
    }
}
