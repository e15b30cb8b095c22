//! Bare UDP sockets.
//!
//! Bandwidth goes through `quinn-udp` as in the engine. Latency uses the plainest system calls there are, because for one
//! small packet `quinn-udp` itself costs a tenth, and a yardstick must not be bent in our favour.

use super::{spin, typical_us};
use anyhow::{Context, Result, ensure};
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// One packet of the bandwidth loop: 4096 bytes of payload, a BTH and an ICRC.
pub(super) const SEGMENT_BYTES: usize = 4112;
/// As many of them as one send can carry.
pub(super) const SEGMENTS: usize = 15;
const BATCH_BYTES: usize = SEGMENTS * SEGMENT_BYTES;
/// Batches under way at once.
const WINDOW: usize = 4;
/// What is asked for as socket buffers.
const BUFFER_BYTES: usize = 4 << 20;

/// One direction, batches of segments, one byte back for each: bytes per second.
pub(super) fn bandwidth(server: &str, duration: Duration) -> Result<f64> {
    let server: SocketAddr = server.parse().context("not an address")?;
    let socket = BatchSocket::bind(Ipv4Addr::UNSPECIFIED)?;
    let contents = vec![0x5a; BATCH_BYTES];
    let batches = socket.stream(duration, || socket.send(server, &contents, Some(SEGMENT_BYTES)))?;
    Ok(batches * BATCH_BYTES as f64)
}

/// Ping-pong, both sides polling: half of the round trip.
pub(super) fn latency(server: &str, size: usize, duration: Duration) -> Result<f64> {
    let server: SocketAddr = server.parse().context("not an address")?;
    let socket = plain_socket(Ipv4Addr::UNSPECIFIED)?;
    let (ping, mut buffer) = (vec![0x5a; size], vec![0; size + 1]);
    let round_trip = typical_us(duration, 1, || {
        socket.send_to(&ping, server).context("sending a ping")?;
        let (length, _) = spin(|| unless_empty(socket.recv_from(&mut buffer)))?;
        ensure!(length == size, "a pong of {length} bytes");
        Ok(())
    })?;
    Ok(round_trip / 2.0)
}

/// Swallows batches and answers each with one byte.
pub(super) fn serve_sink(address: Ipv4Addr) -> Result<()> {
    serve_batches(address, |_, _| Ok(()))
}

/// Does something with all packets of so many bytes each that come, and answers each batch with one byte.
pub(super) fn serve_batches(
    address: Ipv4Addr,
    mut take: impl FnMut(&[u8], usize) -> Result<()>,
) -> Result<()> {
    let socket = BatchSocket::bind(address)?;
    println!("{}", socket.socket.local_addr()?);
    let mut buffer = vec![0; 1 << 16];
    let mut unanswered_bytes = 0;
    loop {
        let meta = spin(|| socket.recv(&mut buffer))?;
        take(&buffer[..meta.len], meta.stride)?;
        // Counted by bytes, since nothing promises that a batch arrives in one piece.
        unanswered_bytes += meta.len;
        while unanswered_bytes >= BATCH_BYTES {
            unanswered_bytes -= BATCH_BYTES;
            socket.send(meta.addr, &[1], None).context("acknowledging")?;
        }
    }
}

/// Sends every packet back.
pub(super) fn serve_echo(address: Ipv4Addr) -> Result<()> {
    let socket = plain_socket(address)?;
    println!("{}", socket.local_addr()?);
    let mut buffer = vec![0; 1 << 16];
    loop {
        let (length, from) = spin(|| unless_empty(socket.recv_from(&mut buffer)))?;
        socket
            .send_to(&buffer[..length], from)
            .context("answering a ping")?;
    }
}

/// A socket that sends and receives batches.
pub(super) struct BatchSocket {
    pub(super) socket: UdpSocket,
    state: UdpSocketState,
}

impl BatchSocket {
    pub(super) fn bind(address: Ipv4Addr) -> Result<Self> {
        let socket = plain_socket(address)?;
        let state = UdpSocketState::new((&socket).into())?;
        state.set_recv_buffer_size((&socket).into(), BUFFER_BYTES)?;
        state.set_send_buffer_size((&socket).into(), BUFFER_BYTES)?;
        ensure!(
            state.max_gso_segments() > 1,
            "this kernel cannot send batches (UDP GSO)"
        );
        Ok(BatchSocket { socket, state })
    }

    /// Sends batches, as many under way as the window has room for: how many a second were answered.
    pub(super) fn stream(
        &self,
        duration: Duration,
        mut send_batch: impl FnMut() -> io::Result<()>,
    ) -> Result<f64> {
        let mut buffer = vec![0; 1 << 16];
        let start = Instant::now();
        let (mut sent, mut acknowledged) = (0_usize, 0_usize);
        loop {
            let sending = start.elapsed() < duration;
            if !sending && acknowledged == sent {
                return Ok(acknowledged as f64 / start.elapsed().as_secs_f64());
            }
            if sending && sent - acknowledged < WINDOW {
                match send_batch() {
                    Ok(()) => sent += 1,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error).context("sending a batch"),
                }
            }
            // One byte is one acknowledgement, however many arrive together.
            acknowledged += if !sending || sent - acknowledged == WINDOW {
                spin(|| self.recv(&mut buffer))?.len
            } else {
                self.recv(&mut buffer)?.map_or(0, |meta| meta.len)
            };
            ensure!(acknowledged <= sent, "more acknowledgements than batches");
        }
    }

    pub(super) fn send(
        &self,
        destination: SocketAddr,
        contents: &[u8],
        segment_size: Option<usize>,
    ) -> io::Result<()> {
        let transmit = Transmit {
            destination,
            ecn: None,
            contents,
            segment_size,
            src_ip: None,
        };
        self.state.try_send((&self.socket).into(), &transmit)
    }

    fn recv(&self, buffer: &mut [u8]) -> Result<Option<RecvMeta>> {
        let mut meta = [RecvMeta::default()];
        let received = self
            .state
            .recv((&self.socket).into(), &mut [IoSliceMut::new(buffer)], &mut meta);
        Ok(unless_empty(received)?.map(|_| meta[0]))
    }
}

fn plain_socket(address: Ipv4Addr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((address, 0))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn unless_empty<T>(received: io::Result<T>) -> Result<Option<T>> {
    match received {
        Ok(received) => Ok(Some(received)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error).context("receiving"),
    }
}
