//! Messages beside raw verbs, between two processes, in one run and taking turns.
//!
//! `cargo run --release -p nonic-message --example message_bench [PEER] [ROUNDS] [PART]` measures, or a part of it
//! - `latency`: half a round trip of 64 bytes, by messages and by SENDs;
//! - `bandwidth`: that of 1 MiB messages beside WRITEs;
//! - `cutoffs`: round trips with the measured cut-off beside those with fixed ones;
//! - `cache`: what the registration cache saves, with buffers of its own and with fresh memory;
//! - `sizes`: half a round trip of every size beside SENDs and TCP.
//!
//! The peer is a device, `roce_lo` by default, on which another process is started; or the address at which
//! `message_bench serve ADDRESS:PORT` runs, perhaps on another host.
//!
//! A ratio is that of two figures of one round; what is printed is the median of the rounds.

mod peer;
mod raw;
mod tcp;

use nonic::Device;
use nonic_message::{Channel, Node, Options};
use raw::Raw;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Something that is measured, in so many rounds.
type Part = fn(&mut Bench, usize) -> Outcome<()>;
type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const SMALL: usize = 64;
const LARGE: usize = 1 << 20;
const PINGS: usize = 2000;
const TRANSFERS: usize = 300;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let peer = arguments.first().map_or("roce_lo", String::as_str);
    if peer == "serve" {
        let address = arguments.get(1).ok_or("serve where? ADDRESS:PORT")?;
        let device = arguments.get(2).map(String::as_str);
        return peer::serve(address.parse()?, device);
    }
    let rounds = arguments.get(1).map_or(Ok(7), |rounds| rounds.parse())?;
    let mut bench = Bench::start(peer)?;
    let parts: [(&str, Part); 5] = [
        ("latency", Bench::latency),
        ("bandwidth", Bench::bandwidth),
        ("cutoffs", Bench::cutoffs),
        ("cache", Bench::cache),
        ("sizes", Bench::sizes),
    ];
    for (name, part) in parts {
        if arguments.get(2).is_none_or(|asked| asked == name) {
            part(&mut bench, rounds)?;
        }
    }
    bench.control.close().wait()?;
    Ok(())
}

/// The other process, and a channel to tell it what to do.
struct Bench {
    device: Device,
    node: Node,
    control: Channel,
    messages: SocketAddr,
    verbs: SocketAddr,
    tcp: SocketAddr,
    _child: Option<Killed>,
}

/// A process that ends with us.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the peer on a device of this host; where it listens.
fn start_peer(device: &str) -> Outcome<(Killed, SocketAddr)> {
    let child = Command::new(std::env::current_exe()?)
        .args(["serve", "127.0.0.1:0", device])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut child = Killed(child);
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    Ok((child, line.trim().parse()?))
}

impl Bench {
    fn start(peer: &str) -> Outcome<Self> {
        let (device, messages, child) = match peer.parse::<SocketAddr>() {
            Ok(address) => (Device::toward(address.ip())?, address, None),
            Err(_) => {
                let (child, address) = start_peer(peer)?;
                (Device::open(peer)?, address, Some(child))
            }
        };
        let node = Node::new(&device, Options::default());
        let mut control = Node::new(&device, fixed(4096)).connect(messages).wait()?;
        control.send(b"where").wait()?;
        let where_else = control.recv().wait()?.ok_or("the peer left")?;
        let (verbs, tcp) = std::str::from_utf8(&where_else)?
            .split_once(' ')
            .ok_or("no addresses")?;
        let (verbs, tcp) = (verbs.parse()?, tcp.parse()?);
        println!(
            "{}, {} processors",
            device.netdev().device_name(),
            std::thread::available_parallelism()?
        );
        Ok(Bench {
            device,
            node,
            control,
            messages,
            verbs,
            tcp,
            _child: child,
        })
    }

    fn tell(&mut self, command: &str) -> Outcome<()> {
        self.control.send(command).wait()?;
        Ok(())
    }

    /// A channel of its own, which the peer serves from now on.
    fn channel(&mut self, node: &Node) -> Outcome<Channel> {
        self.tell("channel")?;
        let mut channel = node.connect(self.messages).wait()?;
        channel.send(b"ready").wait()?;
        channel.recv().wait()?.ok_or("the peer left")?;
        Ok(channel)
    }

    fn raw(&mut self) -> Outcome<Raw> {
        self.tell("raw")?;
        let mut raw = Raw::connect(&self.device, self.verbs)?;
        let slots = self.control.recv().wait()?.ok_or("the peer left")?;
        raw.know(std::str::from_utf8(&slots)?)?;
        Ok(raw)
    }

    fn latency(&mut self, rounds: usize) -> Outcome<()> {
        let mut raw = self.raw()?;
        let node = self.node.clone();
        let mut channel = self.channel(&node)?;
        println!("cut-off: {}", channel.cutoff());
        let (mut verbs, mut messages, mut ratios) = (vec![], vec![], vec![]);
        for round in 0..=rounds {
            self.tell(&format!("raw-echo {PINGS} {SMALL}"))?;
            let by_verbs = raw.ping(PINGS, SMALL)?;
            self.tell(&format!("echo {PINGS}"))?;
            let by_messages = ping(&mut channel, PINGS, SMALL)?;
            // The first round is for warming up.
            if round > 0 {
                verbs.push(micros(by_verbs) / 2.0);
                messages.push(micros(by_messages) / 2.0);
                ratios.push(micros(by_messages) / micros(by_verbs));
            }
        }
        let (verbs, messages, ratio) = (median(&mut verbs), median(&mut messages), median(&mut ratios));
        println!(
            "64 B, half a round trip: SEND {verbs:.2} µs, message {messages:.2} µs: {ratio:.2} × (≤ 1.5)"
        );
        Ok(())
    }

    fn bandwidth(&mut self, rounds: usize) -> Outcome<()> {
        let mut raw = self.raw()?;
        let node = self.node.clone();
        let mut channel = self.channel(&node)?;
        let (mut verbs, mut messages, mut ratios) = (vec![], vec![], vec![]);
        for round in 0..=rounds {
            let by_verbs = raw.write(TRANSFERS)?;
            self.tell(&format!("sink {TRANSFERS}"))?;
            let start = Instant::now();
            for _ in 0..TRANSFERS {
                let buffer = channel.buffer(LARGE)?;
                channel.send(buffer).wait()?;
            }
            channel.recv().wait()?.ok_or("the peer left")?;
            let by_messages = start.elapsed() / TRANSFERS as u32;
            if round > 0 {
                verbs.push(LARGE as f64 / 1e3 / micros(by_verbs));
                messages.push(LARGE as f64 / 1e3 / micros(by_messages));
                ratios.push(micros(by_verbs) / micros(by_messages));
            }
        }
        let (verbs, messages, ratio) = (median(&mut verbs), median(&mut messages), median(&mut ratios));
        println!("1 MiB: WRITE {verbs:.2} GB/s, messages {messages:.2} GB/s: {ratio:.2} × (≥ 0.9)");
        Ok(())
    }

    /// Messages of all lengths around the cut-off, with each cut-off in turn.
    fn cutoffs(&mut self, rounds: usize) -> Outcome<()> {
        let lengths: Vec<usize> = (0..9).map(|power| 256 << power).collect();
        let candidates = [0, 512, 1024, 2048, 4096, 8192, 16_368];
        let node = self.node.clone();
        self.tell("forget")?;
        let measured = self.channel(&node)?;
        let shown = measured.cutoff();
        let mut channels = vec![(shown.bytes, measured)];
        for cutoff in candidates {
            let node = Node::new(&self.device, fixed(cutoff));
            let channel = self.channel(&node)?;
            channels.push((cutoff, channel));
        }
        let mut times = vec![vec![]; channels.len()];
        for round in 0..=rounds {
            for (index, (_, channel)) in channels.iter_mut().enumerate() {
                let count = 50;
                self.tell(&format!("ack {index} {}", count * lengths.len()))?;
                let mut sum = 0.0;
                for length in &lengths {
                    let time = typical(count, || {
                        let buffer = channel.buffer(*length)?;
                        channel.send(buffer).wait()?;
                        channel.recv().wait()?.ok_or("the peer left")?;
                        Ok(())
                    })?;
                    sum += micros(time);
                }
                if round > 0 {
                    times[index].push(sum / lengths.len() as f64);
                }
            }
        }
        let times: Vec<f64> = times.iter_mut().map(|times| median(times)).collect();
        for ((cutoff, _), time) in channels.iter().zip(&times).skip(1) {
            println!("  cut-off {cutoff:>6}: {time:.2} µs a message of 256 B to 64 KiB");
        }
        let best = times[1..].iter().copied().fold(f64::INFINITY, f64::min);
        println!(
            "cut-off {shown}: {:.2} µs, {:.2} × the best fixed one (≤ 1.2)",
            times[0],
            times[0] / best
        );
        Ok(())
    }

    /// Long messages there and back, with and without the cache, in its buffers and in fresh memory.
    fn cache(&mut self, rounds: usize) -> Outcome<()> {
        let mut without = Options::default();
        without.cached_bytes = 0;
        without.cutoff = Some(4096);
        let nodes = [
            Node::new(&self.device, fixed(4096)),
            Node::new(&self.device, without),
        ];
        let mut channels = Vec::new();
        self.tell("forget")?;
        for node in &nodes {
            channels.push(self.channel(node)?);
        }
        let count = 100;
        let mut times = [[vec![], vec![]], [vec![], vec![]]];
        for round in 0..=rounds {
            for (index, channel) in channels.iter_mut().enumerate() {
                for fresh in [false, true] {
                    self.tell(&format!("ack {index} {count}"))?;
                    let start = Instant::now();
                    for _ in 0..count {
                        match fresh {
                            true => channel.send(vec![1; LARGE]).wait()?,
                            false => {
                                let buffer = channel.buffer(LARGE)?;
                                channel.send(buffer).wait()?;
                            }
                        }
                        channel.recv().wait()?.ok_or("the peer left")?;
                    }
                    if round > 0 {
                        times[index][usize::from(fresh)].push(micros(start.elapsed()) / f64::from(count));
                    }
                }
            }
        }
        for (index, name) in ["with the cache", "without"].into_iter().enumerate() {
            let [reused, fresh] = &mut times[index];
            println!(
                "1 MiB {name}: {:.0} µs in a buffer of the channel, {:.0} µs in fresh memory; hit ratio {:.2}",
                median(reused),
                median(fresh),
                nodes[index].cache_statistics().hit_ratio()
            );
        }
        Ok(())
    }
}

impl Bench {
    /// Half a round trip of every size, by TCP, by SENDs and by messages.
    fn sizes(&mut self, rounds: usize) -> Outcome<()> {
        let mut raw = self.raw()?;
        let node = self.node.clone();
        let mut channel = self.channel(&node)?;
        self.tell("tcp")?;
        let mut tcp = tcp::connect(self.tcp)?;
        println!("| bytes | TCP µs | SEND µs | message µs |\n|---|---|---|---|");
        for size in (6..=20).step_by(2).map(|power| 1 << power) {
            let count = if size > 1 << 16 { 100 } else { 500 };
            let mut times = [vec![], vec![], vec![]];
            for round in 0..=rounds {
                self.tell(&format!("tcp-echo {count} {size}"))?;
                let by_tcp = tcp::ping(&mut tcp, count, size)?;
                self.tell(&format!("raw-echo {count} {size}"))?;
                let by_verbs = raw.ping(count, size)?;
                self.tell(&format!("echo {count}"))?;
                let by_messages = ping(&mut channel, count, size)?;
                if round > 0 {
                    for (times, time) in times.iter_mut().zip([by_tcp, by_verbs, by_messages]) {
                        times.push(micros(time) / 2.0);
                    }
                }
            }
            let [tcp, verbs, messages] = times.map(|mut times| median(&mut times));
            println!("| {size} | {tcp:.2} | {verbs:.2} | {messages:.2} |");
        }
        Ok(())
    }
}

fn fixed(cutoff: u64) -> Options {
    let mut options = Options::default();
    options.cutoff = Some(cutoff);
    options
}

/// How long a round trip takes.
fn ping(channel: &mut Channel, count: usize, length: usize) -> Outcome<Duration> {
    let bytes = vec![1; length];
    typical(count, || {
        channel.send(&bytes).wait()?;
        channel.recv().wait()?.ok_or("the peer left")?;
        Ok(())
    })
}

/// The median of so many times: those in which the machine did something else do not count.
fn typical(count: usize, mut step: impl FnMut() -> Outcome<()>) -> Outcome<Duration> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        step()?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    Ok(times[count / 2])
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
