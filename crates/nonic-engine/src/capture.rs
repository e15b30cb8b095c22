//! Captures: every packet this process sends and receives, as a pcapng file any analyser reads.
//!
//! Switched on by `NONIC_PCAP=FILE` (`%p` in the name becomes the process id, so that several processes do
//! not overwrite each other). What is written is what the ICRC was made for: port 4791, whatever port a
//! same-host shortcut used.

use crate::os::descriptors::InternalFd;
use nonic_core::{MAX_BATCH_LEN, Transmit};
use nonic_wire::Flow;
use nonic_wire::pcapng::PcapngWriter;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::SystemTime;

/// A capture file being written.
pub(crate) struct Capture {
    writer: PcapngWriter<BufWriter<CaptureFile>>,
}

/// The file. Once the program has closed it, nothing is written: its number may be a file of the program's.
struct CaptureFile(InternalFd);

impl Write for CaptureFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.is_lost() {
            return Err(rustix::io::Errno::BADF.into());
        }
        Ok(rustix::io::write(&self.0, bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Capture {
    /// The capture the environment asks for, if it does.
    pub(crate) fn from_environment() -> io::Result<Option<Self>> {
        let Some(name) = std::env::var_os("NONIC_PCAP") else {
            return Ok(None);
        };
        let name = name
            .to_string_lossy()
            .replace("%p", &std::process::id().to_string());
        let file = File::create(PathBuf::from(&name))
            .map_err(|error| io::Error::new(error.kind(), format!("NONIC_PCAP={name}: {error}")))?;
        let file = CaptureFile(OwnedFd::from(file).into());
        let writer = PcapngWriter::new(BufWriter::with_capacity(MAX_BATCH_LEN, file))?;
        Ok(Some(Capture { writer }))
    }

    /// Writes down a batch that is about to leave.
    pub(crate) fn sent(&mut self, transmit: &Transmit, bytes: &[u8]) {
        self.packets(&transmit.flow, transmit.segment_size, bytes);
    }

    /// Writes down a batch that arrived. The Identification is not visible to a socket; the index in the
    /// batch is what our own kind sends.
    pub(crate) fn received(&mut self, flow: &Flow, stride: usize, bytes: &[u8]) {
        self.packets(flow, stride, bytes);
    }

    fn packets(&mut self, flow: &Flow, stride: usize, bytes: &[u8]) {
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let timestamp_ns = now.as_nanos() as u64;
        for (index, packet) in bytes.chunks(stride.max(1)).enumerate() {
            // A full disk must not stop the NIC; the file then ends early.
            let _ = self.writer.write_packet(timestamp_ns, flow, index as u16, packet);
        }
    }

    /// Makes what was captured visible to readers of the file.
    pub(crate) fn flush(&mut self) {
        let _ = self.writer.flush();
    }
}
