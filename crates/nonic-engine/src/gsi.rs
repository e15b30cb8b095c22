//! QP 1, the general services interface: management datagrams as packets.

use nonic_core::Transmit;
use nonic_core::cm::Route;
use nonic_wire::mad::{GSI_QKEY, MAD_LEN};
use nonic_wire::{Bth, Deth, Flow, Headers, ICRC_LEN, Opcode, Packet, Psn, Qpn, ROCE_PORT, Verdict, icrc};

/// The queue pair that management datagrams go to.
pub(crate) const GSI: Qpn = Qpn::new(1);

/// A shard's QP 1.
#[derive(Debug)]
pub(crate) struct Gsi {
    next_psn: Psn,
}

impl Gsi {
    pub(crate) fn new() -> Self {
        Gsi {
            next_psn: Psn::new(0),
        }
    }

    /// The message in a packet for QP 1, if it is one. `index` is its place in the batch it came with.
    pub(crate) fn receive<'a>(flow: &Flow, index: usize, bytes: &'a [u8]) -> Option<(Route, &'a [u8])> {
        let packet = Packet::parse(bytes).ok()?;
        let headers = &packet.headers;
        let is_management = headers.bth.opcode == Opcode::UD_SEND_ONLY
            && headers.deth.qkey == GSI_QKEY
            && headers.bth.is_default_partition()
            && packet.payload.len() == MAD_LEN;
        // Peers send any Identification, and a message is worth little until its identifiers fit.
        let intact = icrc::verify(flow, index as u16, true, bytes) != Verdict::Bad;
        let route = Route {
            local: flow.dst,
            remote: flow.src,
        };
        (intact && is_management).then_some((route, packet.payload))
    }

    /// Writes a message to `out`.
    pub(crate) fn transmit(
        &mut self,
        route: Route,
        src_port: u16,
        mad: &[u8; MAD_LEN],
        dest_qpn: Qpn,
        out: &mut [u8],
    ) -> Transmit {
        let flow = Flow {
            src: route.local,
            dst: route.remote,
            src_port,
            dst_port: ROCE_PORT,
        };
        let mut headers = Headers::new(Bth::new(Opcode::UD_SEND_ONLY, GSI, self.next_psn));
        headers.deth = Deth {
            qkey: GSI_QKEY,
            src_qp: GSI,
        };
        self.next_psn = self.next_psn.next();
        let start = headers.emit(out);
        let len = start + MAD_LEN + ICRC_LEN;
        out[start..start + MAD_LEN].copy_from_slice(mad);
        icrc::seal(&flow, 0, &mut out[..len]);
        Transmit {
            flow,
            dest_qpn,
            len,
            segment_size: len,
            segments: 1,
        }
    }
}

/// Whether a packet is for QP 1.
pub(crate) fn is_for(packet: &[u8]) -> bool {
    packet.get(5..8) == Some(&[0, 0, 1])
}
