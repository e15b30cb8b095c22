//! UDP sockets, with the duties of a NIC: what a software RNIC can reach at best.
//!
//! Both sides do with each packet what every RNIC must do, and what the plain loop (`udp.rs`) leaves out. The sender puts a header before
//! the payload and a checksum behind it; the receiver compares the checksum and places the payload in memory. There is no transport beyond
//! that: no keys, no timers, nothing is sent twice, and one byte comes back for each batch.

use super::udp::{BatchSocket, SEGMENT_BYTES, SEGMENTS, serve_batches};
use anyhow::{Context, Result, ensure};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg_addr};
use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// As long as a BTH. It says where in memory the payload belongs.
const HEADER_BYTES: usize = 12;
const PAYLOAD_BYTES: usize = 4096;
const CHECKSUM_BYTES: usize = 4;
const _: () = assert!(HEADER_BYTES + PAYLOAD_BYTES + CHECKSUM_BYTES == SEGMENT_BYTES);

/// One direction, payload that is copied between headers and checksums: bytes of it per second.
pub(super) fn copied(server: &str, memory: usize, duration: Duration) -> Result<f64> {
    let server: SocketAddr = server.parse().context("not an address")?;
    let socket = BatchSocket::bind(Ipv4Addr::UNSPECIFIED)?;
    let mut source = Source::new(memory)?;
    let mut batch = vec![0; SEGMENTS * SEGMENT_BYTES];
    // A batch for which there was no room is sent later as it is.
    let mut is_written = false;
    let batches = socket.stream(duration, || {
        if !is_written {
            batch
                .chunks_exact_mut(SEGMENT_BYTES)
                .for_each(|packet| source.write(packet));
        }
        is_written = true;
        socket.send(server, &batch, Some(SEGMENT_BYTES))?;
        is_written = false;
        Ok(())
    })?;
    Ok(batches * (SEGMENTS * PAYLOAD_BYTES) as f64)
}

/// The same, payload that the kernel gathers from where it is.
pub(super) fn gathered(server: &str, memory: usize, duration: Duration) -> Result<f64> {
    let server: SocketAddr = server.parse().context("not an address")?;
    let socket = BatchSocket::bind(Ipv4Addr::UNSPECIFIED)?;
    send_in_segments(&socket)?;
    let mut source = Source::new(memory)?;
    let mut ends = [([0; HEADER_BYTES], 0, [0; CHECKSUM_BYTES]); SEGMENTS];
    let mut is_written = false;
    let batches = socket.stream(duration, || {
        if !is_written {
            ends.fill_with(|| source.next());
        }
        is_written = true;
        let mut parts = [IoSlice::new(&[]); 3 * SEGMENTS];
        for (parts, (header, at, checksum)) in parts.chunks_exact_mut(3).zip(&ends) {
            parts.copy_from_slice(&[
                IoSlice::new(header),
                IoSlice::new(&source.memory[*at..*at + PAYLOAD_BYTES]),
                IoSlice::new(checksum),
            ]);
        }
        let mut nothing_else = SendAncillaryBuffer::default();
        sendmsg_addr(
            &socket.socket,
            &server,
            &parts,
            &mut nothing_else,
            SendFlags::empty(),
        )?;
        is_written = false;
        Ok(())
    })?;
    Ok(batches * (SEGMENTS * PAYLOAD_BYTES) as f64)
}

/// Has the kernel cut everything that is sent into packets of equal length.
fn send_in_segments(socket: &BatchSocket) -> Result<()> {
    let length = SEGMENT_BYTES as libc::c_int;
    // SAFETY: the kernel reads one `c_int`, which lives until the call returns.
    let set = unsafe {
        libc::setsockopt(
            socket.socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const length).cast(),
            size_of_val(&length) as libc::socklen_t,
        )
    };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()).context("asking for segments"),
    }
}

/// Compares the checksum of every packet and places its payload in memory; answers each batch with one byte.
pub(super) fn serve(address: Ipv4Addr, memory: usize) -> Result<()> {
    let mut target = vec![0; memory];
    serve_batches(address, |packets, length| {
        packets
            .chunks(length)
            .try_for_each(|packet| place(packet, &mut target))
    })
}

fn place(packet: &[u8], target: &mut [u8]) -> Result<()> {
    let (contents, checksum) = packet.split_last_chunk().context("too short")?;
    ensure!(
        crc32fast::hash(contents) == u32::from_le_bytes(*checksum),
        "a wrong checksum"
    );
    let (header, payload) = contents
        .split_first_chunk::<HEADER_BYTES>()
        .context("too short")?;
    let at = usize::try_from(u64::from_le_bytes(*header.first_chunk().expect("twelve bytes")))?;
    let place = target
        .get_mut(at..)
        .and_then(|rest| rest.get_mut(..payload.len()));
    place
        .context("a place that is not there")?
        .copy_from_slice(payload);
    Ok(())
}

/// Memory that is sent from its beginning to its end, again and again.
struct Source {
    memory: Vec<u8>,
    at: usize,
}

impl Source {
    fn new(memory: usize) -> Result<Self> {
        ensure!(
            memory > 0 && memory % PAYLOAD_BYTES == 0,
            "not a multiple of {PAYLOAD_BYTES} bytes"
        );
        Ok(Source {
            memory: (0..memory).map(|at| at as u8).collect(),
            at: 0,
        })
    }

    /// The next packet, copied together.
    fn write(&mut self, packet: &mut [u8]) {
        let (contents, checksum) = packet.split_at_mut(SEGMENT_BYTES - CHECKSUM_BYTES);
        let at = self.advance();
        contents[..HEADER_BYTES].copy_from_slice(&header(at));
        contents[HEADER_BYTES..].copy_from_slice(&self.memory[at..at + PAYLOAD_BYTES]);
        checksum.copy_from_slice(&crc32fast::hash(contents).to_le_bytes());
    }

    /// Header, place and checksum of the next packet.
    fn next(&mut self) -> ([u8; HEADER_BYTES], usize, [u8; CHECKSUM_BYTES]) {
        let at = self.advance();
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&header(at));
        hasher.update(&self.memory[at..at + PAYLOAD_BYTES]);
        (header(at), at, hasher.finalize().to_le_bytes())
    }

    fn advance(&mut self) -> usize {
        let at = self.at;
        self.at = (at + PAYLOAD_BYTES) % self.memory.len();
        at
    }
}

fn header(at: usize) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&(at as u64).to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_placed_where_they_say_unless_they_were_changed() {
        let mut source = Source::new(3 * PAYLOAD_BYTES).expect("a multiple");
        let mut target = vec![0; source.memory.len()];
        let mut packet = vec![0; SEGMENT_BYTES];
        for _ in 0..3 {
            source.write(&mut packet);
            place(&packet, &mut target).expect("as it was sent");
        }
        assert_eq!(target, source.memory);
        packet[100] ^= 1;
        assert!(place(&packet, &mut target).is_err());
    }

    #[test]
    fn gathered_packets_are_those_that_are_copied() {
        let [mut copied, mut gathered] =
            [(); 2].map(|()| Source::new(2 * PAYLOAD_BYTES).expect("a multiple"));
        let mut packet = vec![0; SEGMENT_BYTES];
        for _ in 0..4 {
            copied.write(&mut packet);
            let (header, at, checksum) = gathered.next();
            let payload = &gathered.memory[at..at + PAYLOAD_BYTES];
            assert_eq!(packet, [&header[..], payload, &checksum].concat());
        }
    }
}
