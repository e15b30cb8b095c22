//! A link that writes down every packet: `NONIC_PCAP`.
//!
//! [`Pcap`] decorates any link. What is written is what the ICRC was made for: port 4791, whatever port a same-host
//! shortcut used. All links of a device, of whatever shard, write to one file ([`Capture`]), which any analyser reads, and so do the
//! other devices that the process has open with the same file, each as an interface of its own. It is the outermost decorator, so what
//! is received is written as the NIC sees it, faults included.
//!
//! A packet between two ends of one process is written once, when it is sent. Only where faults are injected is it
//! written a second time when it arrives, because what became of it cannot be told otherwise; each entry says which way
//! the packet went.

use super::{Deliver, Link, LinkCounters, Presence, Sources};
use crate::os::descriptors::InternalFd;
use nonic_core::{MAX_BATCH_LEN, Time, Transmit};
use nonic_wire::pcap::Direction;
use nonic_wire::pcapng::PcapngWriter;
use nonic_wire::{Flow, ROCE_PORT};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
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
            self.capture
                .write(Direction::Inbound, &flow, arrived.stride, arrived.bytes);
            deliver(arrived);
        })
    }

    /// A batch that the kernel has no room for comes again; only what has left is written down.
    fn send(&mut self, now: Time, transmit: &Transmit, bytes: &[u8]) -> io::Result<()> {
        let sent = self.inner.send(now, transmit, bytes);
        let comes_again = matches!(&sent, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        if !comes_again {
            self.capture
                .write(Direction::Outbound, &transmit.flow, transmit.segment_size, bytes);
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

/// The files that devices of this process write to.
static OPEN: Mutex<Vec<(PathBuf, Weak<Mutex<State>>)>> = Mutex::new(Vec::new());

/// What a device writes down, in a file that it may share with others.
pub(crate) struct Capture {
    state: Arc<Mutex<State>>,
    /// Which interface of the file it is.
    interface: u32,
    /// Whether packets that were written when they were sent are written again when they arrive.
    writes_own_arrivals: bool,
}

struct State {
    writer: PcapngWriter<BufWriter<CaptureFile>>,
    /// Where packets of the devices that write to it were sent from: an address and port for each link, of which there are few.
    sources: Vec<(IpAddr, u16)>,
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
    /// Begins a file, for a device of this name; or adds the device to the file, if another one of this process writes to it.
    pub(crate) fn create(name: &Path, device: &str, writes_own_arrivals: bool) -> io::Result<Self> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, state)| state.strong_count() > 0);
        let found = open.iter().find(|(path, _)| path == name);
        if let Some(state) = found.and_then(|(_, state)| state.upgrade()) {
            let interface = lock(&state).writer.add_interface(device)?;
            return Ok(Capture {
                state,
                interface,
                writes_own_arrivals,
            });
        }
        let file = CaptureFile(OwnedFd::from(File::create(name)?).into());
        let writer = PcapngWriter::named(BufWriter::with_capacity(MAX_BATCH_LEN, file), device)?;
        let state = Arc::new(Mutex::new(State {
            writer,
            sources: Vec::new(),
        }));
        open.push((name.to_owned(), Arc::downgrade(&state)));
        Ok(Capture {
            state,
            interface: 0,
            writes_own_arrivals,
        })
    }

    /// Writes down a batch. The Identification of one that arrived is not visible to a socket; the index in the batch is
    /// what nonic sends.
    fn write(&self, direction: Direction, flow: &Flow, stride: usize, bytes: &[u8]) {
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let timestamp_ns = now.as_nanos() as u64;
        let mut state = lock(&self.state);
        let source = (flow.src, flow.src_port);
        let is_own = state.sources.contains(&source);
        match direction {
            Direction::Inbound if is_own && !self.writes_own_arrivals => return,
            Direction::Outbound if !is_own => state.sources.push(source),
            _ => {}
        }
        for (index, packet) in bytes.chunks(stride.max(1)).enumerate() {
            // A full disk must not stop the NIC; the file then ends early.
            let _ = state.writer.write_packet_of(
                self.interface,
                timestamp_ns,
                Some(direction),
                flow,
                index as u16,
                packet,
            );
        }
    }

    /// Makes what was captured visible to readers of the file.
    fn flush(&self) {
        let _ = lock(&self.state).writer.flush();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nonic_wire::pcap::CaptureReader;

    fn flow(src_port: u16) -> Flow {
        Flow {
            src: IpAddr::from([127, 0, 0, 1]),
            dst: IpAddr::from([127, 0, 0, 1]),
            src_port,
            dst_port: ROCE_PORT,
        }
    }

    /// The ways that entries went: one packet to ourselves, and one from somebody else at the same address.
    fn ways(writes_own_arrivals: bool) -> Vec<Option<Direction>> {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let capture =
            Capture::create(file.path(), "roce_lo", writes_own_arrivals).expect("it can be written");
        capture.write(Direction::Outbound, &flow(5), 16, &[7; 16]);
        capture.write(Direction::Inbound, &flow(5), 16, &[7; 16]);
        capture.write(Direction::Inbound, &flow(6), 16, &[7; 16]);
        capture.flush();
        ways_in(file.path())
    }

    fn ways_in(file: &Path) -> Vec<Option<Direction>> {
        let bytes = std::fs::read(file).expect("our own file");
        let mut reader = CaptureReader::new();
        reader.handle(&bytes);
        let mut ways = Vec::new();
        while let Some(frame) = reader.next().expect("a capture") {
            ways.push(frame.direction);
        }
        ways
    }

    #[test]
    fn two_devices_write_to_one_file_without_harm() {
        use Direction::{Inbound, Outbound};
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let create = |device| Capture::create(file.path(), device, false).expect("it can be written");
        let first = create("roce_lo");
        first.write(Direction::Outbound, &flow(5), 16, &[7; 16]);
        let second = create("roce_eth0");
        second.write(Direction::Outbound, &flow(6), 16, &[7; 16]);
        // From one to the other: written already.
        first.write(Direction::Inbound, &flow(6), 16, &[7; 16]);
        second.write(Direction::Inbound, &flow(7), 16, &[7; 16]);
        assert_eq!((first.interface, second.interface), (0, 1));
        drop(first);
        second.flush();
        assert_eq!(
            ways_in(file.path()),
            [Some(Outbound), Some(Outbound), Some(Inbound)]
        );
        // Whoever opens a device when all are closed begins anew.
        drop(second);
        let third = create("roce_lo");
        third.flush();
        assert_eq!(ways_in(file.path()), []);
    }

    #[test]
    fn a_packet_to_ourselves_is_written_once_unless_faults_may_change_it() {
        use Direction::{Inbound, Outbound};
        assert_eq!(ways(false), [Some(Outbound), Some(Inbound)]);
        assert_eq!(ways(true), [Some(Outbound), Some(Inbound), Some(Inbound)]);
    }
}
