//! A link that writes down every packet: `NONIC_PCAP`.
//!
//! [`Pcap`] decorates any link. What is written is what the ICRC was made for: port 4791, whatever port a same-host
//! shortcut used. All links of a device, of whatever shard, write to one file ([`Capture`]), which any analyser reads. It is
//! the outermost decorator, so what is received is written as the NIC sees it, faults included.

use super::{Deliver, Link, LinkCounters, Presence, Sources};
use crate::os::descriptors::InternalFd;
use nonic_core::{MAX_BATCH_LEN, Time, Transmit};
use nonic_wire::pcapng::PcapngWriter;
use nonic_wire::{Flow, ROCE_PORT};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// The decorator.
pub(crate) struct Pcap {
    inner: Box<dyn Link>,
    capture: Arc<Capture>,
}

impl Pcap {
    pub(crate) fn new(inner: Box<dyn Link>, capture: Arc<Capture>) -> Self {
        Pcap { inner, capture }
    }
}

impl Link for Pcap {
    fn receive(&mut self, now: Time, source: usize, deliver: &mut Deliver<'_>) -> io::Result<usize> {
        self.inner.receive(now, source, &mut |arrived| {
            let flow = Flow {
                src: arrived.src.ip(),
                dst: arrived.dst_ip,
                src_port: arrived.src.port(),
                dst_port: ROCE_PORT,
            };
            self.capture.write(&flow, arrived.stride, arrived.bytes);
            deliver(arrived);
        })
    }

    /// A batch that the kernel has no room for comes again; only what has left is written down.
    fn send(&mut self, now: Time, transmit: &Transmit, bytes: &[u8]) -> io::Result<()> {
        let sent = self.inner.send(now, transmit, bytes);
        let comes_again = matches!(&sent, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        if !comes_again {
            self.capture.write(&transmit.flow, transmit.segment_size, bytes);
        }
        sent
    }

    fn sync(&mut self) {
        self.capture.flush();
        self.inner.sync();
    }

    fn max_segments(&self) -> usize {
        self.inner.max_segments()
    }

    fn sources(&self) -> Sources {
        self.inner.sources()
    }

    fn next_timeout(&self) -> Option<Time> {
        self.inner.next_timeout()
    }

    fn counters(&self) -> LinkCounters {
        self.inner.counters()
    }

    fn presence(&self) -> &dyn Presence {
        self.inner.presence()
    }

    fn presence_mut(&mut self) -> &mut dyn Presence {
        self.inner.presence_mut()
    }
}

/// A capture file being written.
pub(crate) struct Capture {
    writer: Mutex<PcapngWriter<BufWriter<CaptureFile>>>,
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
    /// Begins a file.
    pub(crate) fn create(name: &Path) -> io::Result<Self> {
        let file = CaptureFile(OwnedFd::from(File::create(name)?).into());
        let writer = PcapngWriter::new(BufWriter::with_capacity(MAX_BATCH_LEN, file))?;
        Ok(Capture {
            writer: Mutex::new(writer),
        })
    }

    /// Writes down a batch. The Identification of one that arrived is not visible to a socket; the index in the batch is
    /// what nonic sends.
    fn write(&self, flow: &Flow, stride: usize, bytes: &[u8]) {
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let timestamp_ns = now.as_nanos() as u64;
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        for (index, packet) in bytes.chunks(stride.max(1)).enumerate() {
            // A full disk must not stop the NIC; the file then ends early.
            let _ = writer.write_packet(timestamp_ns, flow, index as u16, packet);
        }
    }

    /// Makes what was captured visible to readers of the file.
    fn flush(&self) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = writer.flush();
    }
}
