//! The yardstick: bare UDP loops between two processes on loopback, with nothing of ours in between.
//!
//! Bandwidth goes through `quinn-udp` as in the engine. Latency uses the plainest system calls there are,
//! because for one small packet `quinn-udp` itself costs a tenth, and a yardstick must not be bent in our
//! favour. The other side is this program again, started as a child and
//! killed when the measurement ends. Both sides spin; on a machine with fewer free cores than that, they
//! yield, and the figures say more about the scheduler than about sockets.
//!
//! Read first: [`bandwidth`], [`latency`].

use std::fmt;
use std::io::{self, BufRead, BufReader, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};

/// One packet of the bandwidth loop: 4096 bytes of payload, a BTH and an ICRC.
const SEGMENT_BYTES: usize = 4112;
/// As many of them as one send can carry.
const BATCH_BYTES: usize = 15 * SEGMENT_BYTES;
/// One packet of the latency loop.
const PING_BYTES: usize = 64;
/// Round trips before the clock starts.
const WARM_UP: usize = 2_000;
/// What is asked for as socket buffers.
const BUFFER_BYTES: usize = 4 << 20;
/// Without progress for this long, a packet was lost or the other side has died.
const PATIENCE: Duration = Duration::from_secs(5);
/// Fruitless polls before a side offers its core to others, and looks at the clock.
const POLLS_PER_YIELD: u32 = 100;

/// One direction, batches of segments, one byte back for each: bytes per second.
pub(crate) fn bandwidth(seconds: f64, window: usize) -> anyhow::Result<f64> {
    ensure!(window > 0, "a window of zero batches moves nothing");
    let peer = Peer::start(Role::Sink)?;
    let socket = BatchSocket::bind()?;
    let contents = vec![0x5a; BATCH_BYTES];
    let mut buffer = vec![0; 1 << 16];
    let duration = Duration::try_from_secs_f64(seconds).context("the duration is not a time")?;
    let start = Instant::now();
    let (mut sent, mut acknowledged) = (0_usize, 0_usize);
    loop {
        let sending = start.elapsed() < duration;
        if !sending && acknowledged == sent {
            break;
        }
        if sending && sent - acknowledged < window {
            match socket.send(peer.address, &contents, Some(SEGMENT_BYTES)) {
                Ok(()) => sent += 1,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).context("sending a batch"),
            }
        }
        // One byte is one acknowledgement, however many arrive together.
        acknowledged += if !sending || sent - acknowledged == window {
            spin(|| socket.recv(&mut buffer))?.len
        } else {
            socket.recv(&mut buffer)?.map_or(0, |meta| meta.len)
        };
        ensure!(acknowledged <= sent, "more acknowledgements than batches");
    }
    Ok((acknowledged * BATCH_BYTES) as f64 / start.elapsed().as_secs_f64())
}

/// Ping-pong of small packets, both sides spinning: half of the round trip.
pub(crate) fn latency(iterations: usize) -> anyhow::Result<Latency> {
    ensure!(iterations > 0, "no round trips, no latency");
    let peer = Peer::start(Role::Echo)?;
    let socket = plain_socket()?;
    let mut buffer = [0; 2 * PING_BYTES];
    let mut half_trips_ns = Vec::with_capacity(iterations);
    for round in 0..WARM_UP + iterations {
        let start = Instant::now();
        socket
            .send_to(&[0x5a; PING_BYTES], peer.address)
            .context("sending a ping")?;
        let (length, _) = spin(|| unless_empty(socket.recv_from(&mut buffer)))?;
        ensure!(length == PING_BYTES, "a pong of {length} bytes");
        if round >= WARM_UP {
            half_trips_ns.push(start.elapsed().as_nanos() as f64 / 2.0);
        }
    }
    Ok(Latency::of(half_trips_ns))
}

/// Half round trips in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Latency {
    /// Half of the trips were faster.
    pub(crate) median_us: f64,
    /// Ninety-nine in a hundred were faster.
    pub(crate) p99_us: f64,
    /// The average, in which every interruption counts.
    pub(crate) mean_us: f64,
}

impl Latency {
    /// Summarises samples; there must be at least one.
    pub(crate) fn of(mut half_trips_ns: Vec<f64>) -> Self {
        half_trips_ns.sort_by(f64::total_cmp);
        let count = half_trips_ns.len();
        Latency {
            median_us: half_trips_ns[count / 2] / 1e3,
            p99_us: half_trips_ns[count * 99 / 100] / 1e3,
            mean_us: half_trips_ns.iter().sum::<f64>() / count as f64 / 1e3,
        }
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Latency {
            median_us,
            p99_us,
            mean_us,
        } = self;
        write!(
            formatter,
            "{median_us:.2} µs median, {p99_us:.2} µs p99, {mean_us:.2} µs mean"
        )
    }
}

/// What the child process does.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Role {
    /// Swallow batches and answer each with one byte.
    Sink,
    /// Send every packet back.
    Echo,
}

/// The child's whole life: say the port, then serve until killed, or until left alone for too long.
pub(crate) fn serve(role: Role) -> anyhow::Result<()> {
    match role {
        Role::Sink => serve_sink(),
        Role::Echo => serve_echo(),
    }
}

fn serve_sink() -> anyhow::Result<()> {
    let socket = BatchSocket::bind()?;
    println!("{}", socket.socket.local_addr()?.port());
    let mut buffer = vec![0; 1 << 16];
    let mut unanswered_bytes = 0;
    loop {
        let meta = spin(|| socket.recv(&mut buffer))?;
        // Counted by bytes, since nothing promises that a batch arrives in one piece.
        unanswered_bytes += meta.len;
        while unanswered_bytes >= BATCH_BYTES {
            unanswered_bytes -= BATCH_BYTES;
            socket.send(meta.addr, &[1], None).context("acknowledging")?;
        }
    }
}

fn serve_echo() -> anyhow::Result<()> {
    let socket = plain_socket()?;
    println!("{}", socket.local_addr()?.port());
    let mut buffer = [0; 2 * PING_BYTES];
    loop {
        let (length, from) = spin(|| unless_empty(socket.recv_from(&mut buffer)))?;
        socket
            .send_to(&buffer[..length], from)
            .context("answering a ping")?;
    }
}

/// The other process, killed when dropped.
struct Peer {
    child: Child,
    address: SocketAddr,
}

impl Peer {
    fn start(role: Role) -> anyhow::Result<Self> {
        let word = match role {
            Role::Sink => "sink",
            Role::Echo => "echo",
        };
        let mut child = Command::new(std::env::current_exe()?)
            .args(["bare-peer", word])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the other side")?;
        let output = child.stdout.take().context("the output is piped")?;
        let mut peer = Peer {
            child,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        };
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        peer.address.set_port(
            line.trim()
                .parse()
                .context("the other side did not say its port")?,
        );
        Ok(peer)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A socket that sends and receives batches.
struct BatchSocket {
    socket: UdpSocket,
    state: UdpSocketState,
}

impl BatchSocket {
    fn bind() -> anyhow::Result<Self> {
        let socket = plain_socket()?;
        let state = UdpSocketState::new((&socket).into())?;
        state.set_recv_buffer_size((&socket).into(), BUFFER_BYTES)?;
        state.set_send_buffer_size((&socket).into(), BUFFER_BYTES)?;
        ensure!(
            state.max_gso_segments() > 1,
            "this kernel cannot send batches (UDP GSO)"
        );
        Ok(BatchSocket { socket, state })
    }

    fn send(&self, destination: SocketAddr, contents: &[u8], segment_size: Option<usize>) -> io::Result<()> {
        let transmit = Transmit {
            destination,
            ecn: None,
            contents,
            segment_size,
            src_ip: None,
        };
        self.state.try_send((&self.socket).into(), &transmit)
    }

    fn recv(&self, buffer: &mut [u8]) -> anyhow::Result<Option<RecvMeta>> {
        let mut meta = [RecvMeta::default()];
        let received = self
            .state
            .recv((&self.socket).into(), &mut [IoSliceMut::new(buffer)], &mut meta);
        Ok(unless_empty(received)?.map(|_| meta[0]))
    }
}

fn plain_socket() -> anyhow::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn unless_empty<T>(received: io::Result<T>) -> anyhow::Result<Option<T>> {
    match received {
        Ok(received) => Ok(Some(received)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error).context("receiving"),
    }
}

/// Polls until something is there, as fast as possible but not for ever.
fn spin<T>(mut poll: impl FnMut() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
    let mut give_up = None;
    loop {
        for _ in 0..POLLS_PER_YIELD {
            if let Some(ready) = poll()? {
                return Ok(ready);
            }
            std::hint::spin_loop();
        }
        std::thread::yield_now();
        let now = Instant::now();
        if now > *give_up.get_or_insert(now + PATIENCE) {
            bail!("nothing arrived for {PATIENCE:?}: a packet was lost, or the other side has died");
        }
    }
}
