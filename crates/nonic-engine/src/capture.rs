//! The capture file of `NONIC_PCAP`, which any analyser reads.
//!
//! All links of a device, of whatever shard, and all its connections write to one file ([`Capture`]). So do the other
//! devices that the process has open with the same file, each as an interface of its own.
//!
//! A packet between two ends of one process is written once, when it is sent. Only where faults are injected is it
//! written a second time when it arrives, because what became of it cannot be told otherwise; each entry says which way
//! the packet went.

use crate::log::{self, Severity};
use crate::os::descriptors::InternalFd;
use nonic_core::MAX_BATCH_LEN;
use nonic_wire::Flow;
use nonic_wire::pcap::{Direction, TcpSegment};
use nonic_wire::pcapng::PcapngWriter;
use rustix::fs::FlockOperation;
use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::SystemTime;

/// The files that devices of this process write to.
static OPEN: Mutex<Vec<(PathBuf, Weak<Mutex<State>>)>> = Mutex::new(Vec::new());

/// A device's capture, in a file that it may share with others.
pub(crate) struct Capture {
    state: Arc<Mutex<State>>,
    /// Which interface of the file it is.
    interface: u32,
    /// Whether packets that were written when they were sent are written again when they arrive.
    writes_own_arrivals: bool,
}

struct State {
    writer: PcapngWriter<BufWriter<CaptureFile>>,
    /// Where the devices that write to it send from: links by UDP, connections by TCP.
    sources: HashSet<(Protocol, IpAddr, u16)>,
}

#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
enum Protocol {
    Udp,
    Tcp,
}

/// The file. Once the program has closed it, nothing is written: its number may be a file of the program's.
struct CaptureFile(InternalFd);

impl Write for CaptureFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.is_lost() {
            return Err(rustix::io::Errno::BADF.into());
        }
        let written = rustix::io::write(&self.0, bytes).map_err(io::Error::from);
        written.inspect_err(|error| {
            if error.kind() != io::ErrorKind::Interrupted {
                let what = format!("the capture of NONIC_PCAP ends early: {error}");
                log::tell_always(Severity::Warning, &what);
            }
        })
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
        let file = CaptureFile(OwnedFd::from(create_alone(name)?).into());
        let writer = PcapngWriter::named(BufWriter::with_capacity(MAX_BATCH_LEN, file), device)?;
        let state = Arc::new(Mutex::new(State {
            writer,
            sources: HashSet::new(),
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
    pub(crate) fn write(&self, direction: Direction, flow: &Flow, stride: usize, bytes: &[u8]) {
        let timestamp_ns = nanoseconds();
        let mut state = lock(&self.state);
        let source = (Protocol::Udp, flow.src, flow.src_port);
        let is_own = state.sources.contains(&source);
        match direction {
            Direction::Inbound if is_own && !self.writes_own_arrivals => return,
            Direction::Outbound if !is_own => _ = state.sources.insert(source),
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

    /// Writes a segment of a connection, whether or not its other end is in this process.
    pub(crate) fn write_segment(&self, direction: Direction, segment: &TcpSegment<'_>) {
        let timestamp_ns = nanoseconds();
        let mut state = lock(&self.state);
        let _ = state
            .writer
            .write_segment_of(self.interface, timestamp_ns, direction, segment);
    }

    /// A connection of ours sends from this address and port.
    pub(crate) fn sends_from(&self, source: SocketAddr) {
        let source = (Protocol::Tcp, source.ip(), source.port());
        lock(&self.state).sources.insert(source);
    }

    /// Whether a connection that writes to the same file sends from there: then what comes from there is written already.
    pub(crate) fn is_written_by(&self, source: SocketAddr) -> bool {
        let source = (Protocol::Tcp, source.ip(), source.port());
        lock(&self.state).sources.contains(&source)
    }

    /// Makes what was captured visible to readers of the file.
    pub(crate) fn flush(&self) {
        let _ = lock(&self.state).writer.flush();
    }
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Capture({})", self.interface)
    }
}

/// Begins a file that no other process writes to: two would make nonsense of it.
fn create_alone(name: &Path) -> io::Result<File> {
    let file = File::options()
        .write(true)
        .create(true)
        // It has what the programs send; its owner decides which users may read that.
        .mode(0o600)
        .truncate(false)
        .open(name)?;
    // Some file systems have no locks.
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
        == Err(rustix::io::Errno::WOULDBLOCK)
    {
        let busy =
            "another process writes to it; put %p into the name, which becomes the number of each process";
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, busy));
    }
    // A pipe, or a terminal, has no length.
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

fn nanoseconds() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default().as_nanos() as u64
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nonic_wire::ROCE_PORT;
    use nonic_wire::pcap::CaptureReader;

    fn flow(src_port: u16) -> Flow {
        Flow {
            src: IpAddr::from([127, 0, 0, 1]),
            dst: IpAddr::from([127, 0, 0, 1]),
            src_port,
            dst_port: ROCE_PORT,
        }
    }

    /// The ways that entries went: one packet to ourselves, and one from another sender at the same address.
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
        // A device that is opened when all are closed begins the file anew.
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

    #[test]
    fn only_its_owner_reads_a_new_file() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("new.pcapng");
        let capture = Capture::create(&path, "roce_lo", false).expect("it can be written");
        assert_eq!(path.metadata().expect("it is there").mode() & 0o777, 0o600);
        drop(capture);
    }

    /// As another process would: it knows nothing of the files that this one has open.
    #[test]
    fn a_file_that_somebody_else_writes_is_refused_and_left_alone() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let capture = Capture::create(file.path(), "roce_lo", false).expect("it can be written");
        capture.write(Direction::Outbound, &flow(5), 16, &[7; 16]);
        capture.flush();
        let refused = create_alone(file.path()).expect_err("it is written to");
        assert!(refused.to_string().contains("%p"), "{refused}");
        assert_eq!(ways_in(file.path()), [Some(Direction::Outbound)]);
        drop(capture);
        create_alone(file.path()).expect("nobody writes to it");
        assert_eq!(std::fs::read(file.path()).expect("our own file"), b"");
    }
}
