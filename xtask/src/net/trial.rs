//! `net run`: two sides of a faulty wire to try programs on, changed while they run by `net set`.

use super::network::{Host, Network, Plan};
use super::wire::{Counters, Side};
use anyhow::{Context, Result, ensure};
use nonic_netem::{LINK_PARTS, LinkSettings};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use testbed::packages::is_root;
use testbed::process::Process;

/// The socket by which a wire is changed.
const CONTROL: &str = "NET_CONTROL";

/// A link, as options: both directions have what is said, but for what is said of one.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct LinkOptions {
    #[arg(
        long,
        value_name = "SETTINGS",
        default_value = "",
        help = "Settings of both directions, such as delay=5ms,loss=1%,rate=1gbit",
        long_help = LINK_PARTS
    )]
    link: String,
    /// Other settings from left to right, such as loss=5%,in-order
    #[arg(long, value_name = "SETTINGS", default_value = "")]
    there: String,
    /// Other settings from right to left
    #[arg(long, value_name = "SETTINGS", default_value = "")]
    back: String,
}

impl LinkOptions {
    /// From left to right, and from right to left.
    fn settings(&self) -> Result<[LinkSettings; 2]> {
        let mut both = LinkSettings::default();
        both.change(&self.link).context("--link")?;
        let mut settings = [both.clone(), both];
        settings[0].change(&self.there).context("--there")?;
        settings[1].change(&self.back).context("--back")?;
        Ok(settings)
    }
}

/// What to run where.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    link: LinkOptions,
    /// Hosts on the left: 10.78.0.1 and so on
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=250))]
    left: u8,
    /// Hosts on the right: 10.78.1.1 and so on
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=250))]
    right: u8,
    /// The largest packet
    #[arg(long, default_value_t = 1500)]
    mtu: u32,
    /// The same seed has the same faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The kernel cuts what it sends: slower, and packets come one by one
    #[arg(long)]
    no_offload: bool,
    /// A shell command that runs on the first host on the right until the other has ended
    #[arg(long, value_name = "COMMAND")]
    server: Option<String>,
    /// What runs on the first host on the left (default: a shell)
    #[arg(trailing_var_arg = true)]
    command: Vec<String>,
}

/// How to change it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SetOptions {
    #[arg(help = "Such as loss=5%,delay=1ms", long_help = LINK_PARTS)]
    settings: String,
    /// From left to right only
    #[arg(long, conflicts_with = "back")]
    there: bool,
    /// From right to left only
    #[arg(long)]
    back: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(is_root(), "only root can make network namespaces");
    let settings = options.link.settings()?;
    let network = Network::new(&Plan {
        left: options.left,
        right: options.right,
        mtu: options.mtu,
        settings: settings.clone(),
        seed: options.seed,
        offload: !options.no_offload,
    })?;
    let network = Arc::new(network);
    let control = Control::start(network.clone(), settings)?;
    let environment = environment(&network, &control.path);
    let server = match &options.server {
        Some(line) => {
            let mut command = network.right[0].run_as(&environment).command(Path::new("sh"));
            let server = Process::start(command.args(["-c", line]))?;
            wait_for_socket(&network.right[0], &server)?;
            Some(server)
        }
        None => None,
    };
    let shell = std::env::var("SHELL").unwrap_or_else(|_| "sh".to_owned());
    let command = match options.command.as_slice() {
        [] => vec![shell],
        words => words.to_vec(),
    };
    let mut child = network.left[0]
        .run_as(&environment)
        .command(Path::new(&command[0]));
    let status = child.args(&command[1..]).status().context("cannot start it")?;
    if let Some(server) = server {
        eprintln!("the server said: {}", server.stop());
    }
    for (name, counters) in ["there", "back"].iter().zip(network.wire.counters()) {
        eprintln!("{name}: {}", describe(&counters));
    }
    ensure!(status.success(), "{} ended with {status}", command[0]);
    Ok(())
}

/// Until a server has a socket: a new host has none. One that has none after a while may need none.
fn wait_for_socket(host: &Host, server: &Process) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(5);
    while Instant::now() < deadline && server.runs() {
        let mut command = host.run_as(&[]).command(Path::new("cat"));
        let tables = command
            .args(["/proc/net/tcp", "/proc/net/udp", "/proc/net/tcp6"])
            .output()?;
        let lines = String::from_utf8_lossy(&tables.stdout).lines().count();
        // Each table has a head.
        if lines > 3 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// What programs are told: addresses, and how to be on another host.
fn environment(network: &Network, control: &Path) -> Vec<(&'static str, String)> {
    let enter = |host: &Host| format!("nsenter --net={}", host.namespace.path().display());
    vec![
        (CONTROL, control.display().to_string()),
        ("NET_LEFT", network.left[0].address.to_string()),
        ("NET_RIGHT", network.right[0].address.to_string()),
        ("NET_ON_LEFT", enter(&network.left[0])),
        ("NET_ON_RIGHT", enter(&network.right[0])),
    ]
}

/// What happened, in one line.
pub(super) fn describe(counters: &Counters) -> String {
    let Counters { link, unwritten } = counters;
    let faults = &link.faults;
    let mut text = format!("{} packets, {} bytes", link.packets, link.bytes);
    let named = [
        (faults.lost, "lost"),
        (link.overflowed, "dropped as the queue was full"),
        (link.dropped_early, "dropped by RED"),
        (link.marked, "marked"),
        (faults.duplicated, "twice"),
        (faults.corrupted, "damaged"),
        (faults.reordered, "reordered"),
        (*unwritten, "not taken by a host"),
    ];
    for (count, name) in named.iter().filter(|(count, _)| *count > 0) {
        text.push_str(&format!(", {count} {name}"));
    }
    if link.longest_queue > 0 {
        let (mean, longest) = (link.mean_queue(), link.longest_queue);
        text.push_str(&format!(", queue {mean:.0} bytes in the mean, {longest} at most"));
    }
    text
}

/// A socket on which lines of settings arrive; gone when the value is.
struct Control {
    path: PathBuf,
}

impl Control {
    fn start(network: Arc<Network>, settings: [LinkSettings; 2]) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("nonic-net-{}", std::process::id()));
        let listener =
            UnixListener::bind(&path).with_context(|| format!("cannot make {}", path.display()))?;
        // The thread ends with the process; until then it waits for clients.
        let settings = Mutex::new(settings);
        let network = Arc::downgrade(&network);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Some(network) = network.upgrade() else { return };
                let answer = match obey(&stream, &network, &settings) {
                    Ok(()) => "done\n".to_owned(),
                    Err(error) => format!("{error:#}\n"),
                };
                let _ = (&stream).write_all(answer.as_bytes());
            }
        });
        Ok(Self { path })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Reads a line (`there`, `back` or `both`, then settings) and does it.
fn obey(stream: &UnixStream, network: &Network, settings: &Mutex<[LinkSettings; 2]>) -> Result<()> {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let (which, text) = line.trim().split_once(' ').context("which, and what?")?;
    let mut settings = settings.lock().expect("nobody panics with it");
    let mut changed = settings.clone();
    for (side, name) in [(Side::Left, "there"), (Side::Right, "back")] {
        if which == name || which == "both" {
            changed[side as usize].change(text)?;
            network.wire.change(side, changed[side as usize].clone());
        }
    }
    *settings = changed;
    Ok(())
}

pub(crate) fn set(options: &SetOptions) -> Result<()> {
    let path = std::env::var(CONTROL).context("this is no shell of `cargo xtask net run`")?;
    let mut stream = UnixStream::connect(&path).with_context(|| format!("there is no wire at {path}"))?;
    let which = match (options.there, options.back) {
        (true, _) => "there",
        (_, true) => "back",
        _ => "both",
    };
    writeln!(stream, "{which} {}", options.settings)?;
    let mut answer = String::new();
    BufReader::new(&stream).read_line(&mut answer)?;
    ensure!(answer.trim() == "done", "{}", answer.trim());
    Ok(())
}
