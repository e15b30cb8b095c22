//! A packet on its way between two nodes.

use nonic_core::Psn;
use nonic_wire::{Flow, Headers, Opcode, Packet, Syndrome, icrc};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wire {
    pub flow: Flow,
    /// The IPv4 Identification the kernel would give it.
    pub identification: u16,
    pub bytes: Vec<u8>,
}

impl Wire {
    /// A packet written by hand, sealed for Identification 0.
    pub fn build(flow: Flow, headers: Headers, payload: &[u8]) -> Wire {
        let mut bytes = Vec::new();
        let icrc = [0; 4];
        Packet {
            headers,
            payload,
            icrc,
        }
        .emit_into(&mut bytes);
        let mut wire = Wire {
            flow,
            identification: 0,
            bytes,
        };
        wire.seal();
        wire
    }

    /// Recomputes the ICRC.
    pub fn seal(&mut self) {
        icrc::seal(&self.flow, self.identification, &mut self.bytes);
    }

    pub fn packet(&self) -> Packet<'_> {
        Packet::parse(&self.bytes).expect("nodes send nothing but packets")
    }

    pub fn headers(&self) -> Headers {
        self.packet().headers
    }

    pub fn payload(&self) -> &[u8] {
        self.packet().payload
    }

    pub fn opcode(&self) -> Opcode {
        self.headers().bth.opcode
    }

    pub fn psn(&self) -> Psn {
        self.headers().bth.psn
    }

    pub fn syndrome(&self) -> Syndrome {
        self.headers().aeth.syndrome
    }

    pub fn asks_for_ack(&self) -> bool {
        self.headers().bth.ack_request
    }

    /// Changes a header field and seals the packet again.
    pub fn alter(&mut self, change: impl FnOnce(&mut Headers)) {
        let payload = self.payload().to_vec();
        let mut headers = self.headers();
        change(&mut headers);
        let identification = self.identification;
        *self = Wire::build(self.flow, headers, &payload);
        self.identification = identification;
        self.seal();
    }
}
