//! The yardsticks: what this machine does with nothing of ours in between.
//!
//! Every loop has two processes, both started by [`measure`] from this very program, so that each can be put in a
//! network namespace. One serves: it says in one line how it is found, and then answers until it is killed or left
//! alone for too long. The other measures, and prints one number. A process that waits by polling yields after a while;
//! on a machine with fewer than two free processors the figures say more about its scheduler than about the loop.
//!
//! Read first: [`Loop`] (what there is), then `ring.rs` and `vm.rs`.

mod ring;
mod shared;
mod tcp;
mod udp;
mod udp_duties;
mod vm;
mod wake;

use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::process::Stdio;
use std::time::{Duration, Instant};
use testbed::owned::{OwnedChild, end_with_us};
use testbed::process::Process;
use testbed::run_as::RunAs;

/// Without progress for this long, a packet was lost or the other side has died.
const PATIENCE: Duration = Duration::from_secs(5);
/// Fruitless polls before a side offers its processor to others, and looks at the clock.
const POLLS_PER_YIELD: u32 = 100;
/// Short operations between two looks at the clock, which can take as long as one of them.
const BATCH: u32 = 64;

/// What is measured: the loops whose figure is a time tell microseconds, the others bytes per second.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Loop {
    /// Half a round trip of one packet, both sides polling their sockets.
    UdpLatency,
    /// One direction, as many packets in a system call as the kernel takes.
    UdpBandwidth,
    /// The same with a NIC's duties: packets with header and checksum are copied together, checked, and placed in memory of this size.
    UdpDutiesCopied,
    /// The same, payload is sent from where it is.
    UdpDutiesGathered,
    /// Half a round trip, both sides polling their sockets.
    TcpLatency,
    /// One direction, a system call per message.
    TcpBandwidth,
    /// Half a round trip through a ring in shared memory, copied in and out, both sides polling.
    RingLatency,
    /// The same, each round trip timed on its own: a clock is read each time, so it takes longer, but the slowest are seen.
    RingTail,
    /// One direction through the ring, copied in and out.
    RingBandwidth,
    /// One call of `process_vm_writev`.
    VmWrite,
    /// One call of `process_vm_readv`.
    VmRead,
    /// There and back: the target sleeps in a futex, the requester polls.
    FutexThere,
    /// Half a round trip, both sleep in a futex.
    FutexBoth,
    /// Half a round trip, both sleep in `poll` on an eventfd.
    Eventfd,
}

impl Loop {
    /// The word by which it is told to a process.
    fn word(self) -> String {
        use clap::ValueEnum;
        let value = self.to_possible_value().expect("no loop is hidden");
        value.get_name().to_owned()
    }
}

/// One side of a loop, as a process is told.
#[derive(Clone, Debug, clap::Args)]
pub struct Side {
    #[arg(value_enum)]
    which: Loop,
    /// Bytes of a message.
    #[arg(long)]
    size: usize,
    /// How long to measure.
    #[arg(long)]
    seconds: f64,
    /// Where the server's socket is.
    #[arg(long)]
    bind: Option<Ipv4Addr>,
    /// What the server said; who is given none is the server.
    #[arg(long)]
    server: Option<String>,
}

/// The whole life of one side.
pub fn run(side: &Side) -> Result<()> {
    match &side.server {
        Some(server) => {
            let figure = side.measure(server)?;
            match figure.p99 {
                Some(p99) => println!("{} {p99}", figure.typical),
                None => println!("{}", figure.typical),
            }
            Ok(())
        }
        None => side.serve(),
    }
}

impl Side {
    fn serve(&self) -> Result<()> {
        let address = self.bind.unwrap_or(Ipv4Addr::LOCALHOST);
        match self.which {
            Loop::UdpLatency => udp::serve_echo(address),
            Loop::UdpBandwidth => udp::serve_sink(address),
            Loop::UdpDutiesCopied | Loop::UdpDutiesGathered => udp_duties::serve(address, self.size),
            Loop::TcpLatency => tcp::serve_echo(address, self.size),
            Loop::TcpBandwidth => tcp::serve_sink(address),
            Loop::RingLatency | Loop::RingTail => ring::serve_echo(self.size),
            Loop::RingBandwidth => ring::serve_sink(self.size),
            Loop::VmWrite | Loop::VmRead => vm::serve(self.size),
            Loop::FutexThere | Loop::FutexBoth => wake::serve_futex(),
            Loop::Eventfd => wake::serve_eventfd(),
        }
    }

    fn measure(&self, server: &str) -> Result<Figure> {
        let duration = Duration::try_from_secs_f64(self.seconds).context("the duration is not a time")?;
        let typical = match self.which {
            Loop::RingTail => return ring::tail(server, self.size, duration),
            Loop::UdpLatency => udp::latency(server, self.size, duration),
            Loop::UdpBandwidth => udp::bandwidth(server, duration),
            Loop::UdpDutiesCopied => udp_duties::copied(server, self.size, duration),
            Loop::UdpDutiesGathered => udp_duties::gathered(server, self.size, duration),
            Loop::TcpLatency => tcp::latency(server, self.size, duration),
            Loop::TcpBandwidth => tcp::bandwidth(server, self.size, duration),
            Loop::RingLatency => ring::latency(server, self.size, duration),
            Loop::RingBandwidth => ring::bandwidth(server, self.size, duration),
            Loop::VmWrite => vm::call_time(server, self.size, duration, vm::Direction::Write),
            Loop::VmRead => vm::call_time(server, self.size, duration, vm::Direction::Read),
            Loop::FutexThere => wake::futex_there(server, duration),
            Loop::FutexBoth => wake::futex_both(server, duration),
            Loop::Eventfd => wake::eventfd(server, duration),
        };
        Ok(Figure {
            typical: typical?,
            p99: None,
        })
    }
}

/// What a loop found.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Figure {
    /// In the unit of the loop: microseconds, or bytes per second.
    pub typical: f64,
    /// The slowest in a hundred, from the loops that time each message.
    pub p99: Option<f64>,
}

impl Figure {
    /// As [`run`] prints it.
    fn parse(printed: &str) -> Result<Self> {
        let mut numbers = printed.split_whitespace().map(str::parse::<f64>);
        let typical = numbers.next().context("a bare loop printed nothing")?;
        let typical = typical.with_context(|| format!("a bare loop printed no number: {printed}"))?;
        let p99 = numbers.next().transpose()?;
        Ok(Self { typical, p99 })
    }
}

/// Runs both sides of a loop; its figure.
pub fn measure(
    which: Loop,
    size: usize,
    duration: Duration,
    server: &RunAs<'_>,
    client: &RunAs<'_>,
    address: &str,
) -> Result<Figure> {
    let program = std::env::current_exe().context("this program has no name")?;
    let side = |run_as: &RunAs<'_>| {
        let mut command = run_as.command(&program);
        command.args(["bare-loop", &which.word(), "--size", &size.to_string()]);
        command.args(["--seconds", &duration.as_secs_f64().to_string()]);
        command
    };
    let server = Server::start(side(server).args(["--bind", address]))?;
    let client = Process::start(side(client).args(["--server", &server.line]))?;
    let printed = client
        .finish_within(duration + 3 * PATIENCE)
        .context("a bare loop")?;
    Figure::parse(&printed)
}

/// The serving process, and what it printed first.
struct Server {
    /// Killed with the value.
    _child: OwnedChild,
    line: String,
}

impl Server {
    fn start(command: &mut std::process::Command) -> Result<Self> {
        end_with_us(command);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the other side")?;
        let output = child.stdout.take();
        let mut server = Server {
            _child: child.into(),
            line: String::new(),
        };
        BufReader::new(output.context("the output is piped")?).read_line(&mut server.line)?;
        server.line = server.line.trim().to_owned();
        ensure!(!server.line.is_empty(), "the other side of a bare loop ended");
        Ok(server)
    }
}

/// Polls until something is there, as fast as possible but not for ever.
fn spin<T>(mut poll: impl FnMut() -> Result<Option<T>>) -> Result<T> {
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

/// The typical time of an operation in microseconds: the median of batches, after a tenth of the time to warm up.
fn typical_us(duration: Duration, per_batch: u32, mut operation: impl FnMut() -> Result<()>) -> Result<f64> {
    let warm = Instant::now();
    while warm.elapsed() < duration / 10 {
        operation()?;
    }
    let mut batches = Vec::new();
    let start = Instant::now();
    let mut last = start;
    while last - start < duration {
        for _ in 0..per_batch {
            operation()?;
        }
        let now = Instant::now();
        batches.push((now - last).as_secs_f64() * 1e6 / f64::from(per_batch));
        last = now;
    }
    testbed::stats::median(&batches).context("no time to measure in")
}
