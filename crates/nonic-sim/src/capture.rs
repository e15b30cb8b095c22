//! Captures the fabric's traffic, as a decorator: every packet as it was sent, before any fault.
//!
//! Virtual time zero is the capture's epoch. Wireshark opens the result.

use nonic_netem::Train;
use nonic_wire::pcapng::PcapngWriter;
use nonic_wire::{Flow, ROCE_PORT};
use std::io::{self, Write};

/// Writes what is transmitted to a pcapng stream.
pub struct Capture {
    writer: PcapngWriter<Box<dyn Write + Send>>,
    failure: Option<io::Error>,
}

impl Capture {
    /// A capture that goes to `out`.
    pub fn new(out: Box<dyn Write + Send>) -> io::Result<Self> {
        Ok(Capture {
            writer: PcapngWriter::new(out)?,
            failure: None,
        })
    }

    /// Notes a train. A failing writer does not stop the simulation; [`Capture::finish`] reports it.
    pub(crate) fn note(&mut self, now_ns: u64, train: &Train) {
        let flow = Flow {
            src: train.src.ip(),
            dst: train.dst,
            src_port: train.src.port(),
            dst_port: ROCE_PORT,
        };
        for (index, packet) in train.packets().enumerate() {
            let id = train.first_id.wrapping_add(index as u16);
            if let Err(error) = self.writer.write_packet(now_ns, None, &flow, id, packet) {
                self.failure.get_or_insert(error);
            }
        }
    }

    /// Flushes, and reports the first error there was.
    pub fn finish(mut self) -> io::Result<()> {
        self.failure.map_or(Ok(()), Err)?;
        self.writer.flush()
    }
}
