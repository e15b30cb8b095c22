//! `nonic nvme-target`: a file or memory as a disk for NVMe over Fabrics hosts, until it is interrupted.

use crate::listeners::Listeners;
use crate::local_gid::{DeviceChoice, OpenDevices};
use crate::output;
use crate::units::Size;
use anyhow::{Context, Result, anyhow, ensure};
use nonic_nvme::wire::{ControllerKind, Nqn};
use nonic_nvme::{Event, FileDisk, PORT, Storage, Target, TargetConfig};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Serve a disk to NVMe over Fabrics hosts (`nvme connect -t rdma`)
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    disk: Disk,
    /// With --file: make the file if it is not there, and make it so long if it is shorter
    #[arg(long, value_name = "SIZE", requires = "file")]
    size: Option<Size>,
    /// The subsystem's name [default: made of the file's]
    #[arg(long, value_name = "NQN", value_parser = nqn)]
    nqn: Option<Nqn>,
    /// Bytes of a block
    #[arg(long, value_name = "512|4096", default_value_t = 512, value_parser = block)]
    block: u32,
    /// Listen at this address (default: all of this host's, port 4420; port 0 is any free one)
    #[arg(long, value_name = "IP[:PORT]", value_parser = bind_address)]
    bind: Option<SocketAddr>,
    #[command(flatten)]
    choice: DeviceChoice,
}

/// What the disk is.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Disk {
    /// A file or a block device
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// Memory, empty at first and gone at the end
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
}

impl Arguments {
    fn open_disk(&self) -> Result<FileDisk> {
        match (&self.disk.file, self.disk.memory) {
            (Some(path), _) => {
                let size = self.size.map(|size| size.0);
                let opened = FileDisk::open(path, size);
                let advice = match &opened {
                    Err(error) if error.kind() == ErrorKind::NotFound => "; --size makes it",
                    _ => "",
                };
                opened.with_context(|| format!("cannot open {}{advice}", path.display()))
            }
            (None, Some(size)) => FileDisk::in_memory(size.0).context("cannot have so much memory"),
            (None, None) => Err(anyhow!("--file or --memory says what the disk is")),
        }
    }

    fn name(&self) -> Result<Nqn> {
        let of_disk = self.disk.file.as_deref().map_or("memory".to_owned(), name_of);
        let name = self.nqn.clone();
        name.or_else(|| Nqn::new(&format!("nqn.2026-11.org.nonic-rdma:{of_disk}")))
            .context("the file's name is too long for a subsystem's; choose one with --nqn")
    }
}

pub(crate) fn main(arguments: &Arguments, json: bool) -> Result<()> {
    // A write beyond the limit for files (`ulimit -f`) is the host's to hear of, as one that the disk has no room for.
    signal_hook::flag::register(SIGXFSZ, Arc::default()).context("cannot wait for signals")?;
    let disk = arguments.open_disk()?;
    let (name, size) = (arguments.name()?, Size(disk.len()));
    ensure!(
        disk.len() >= u64::from(arguments.block),
        "the disk has no block: --size makes a file longer"
    );
    let config = TargetConfig {
        block_shift: arguments.block.trailing_zeros() as u8,
        ..TargetConfig::new(name.clone())
    };
    let target = Target::new(config, Arc::new(disk), move |event| report(&event, json))?;
    let listeners = Listeners::open(arguments.bind, PORT, &arguments.choice, &OpenDevices::default())?;
    // Before the command says that it serves: a reader of that line may end it at once.
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot wait for signals")?;
    announce(&name, size, arguments.block, &listeners, json)?;
    std::thread::scope(|threads| {
        for (_, listener) in listeners.all() {
            threads.spawn(|| target.serve(listener));
        }
        signals.forever().next();
        target.stop();
    });
    farewell(&target, json)
}

fn announce(name: &Nqn, size: Size, block: u32, listeners: &Listeners, json: bool) -> Result<()> {
    let addresses = addresses(listeners);
    if json {
        return output::json(&json!({
            "event": "serving", "nqn": name.as_str(), "bytes": size.0, "block": block, "addresses": addresses,
        }));
    }
    output::line(format_args!("{name}: {size} in blocks of {block} bytes"))?;
    for address in addresses {
        let (ip, port) = (address.ip(), address.port());
        output::line(format_args!("nvme connect -t rdma -a {ip} -s {port} -n {name}"))?;
    }
    Ok(())
}

/// Where hosts find it: loopback only if there is nothing else.
fn addresses(listeners: &Listeners) -> Vec<SocketAddr> {
    let mut found: Vec<SocketAddr> = Vec::new();
    for (device, listener) in listeners.all() {
        let local = listener.local_addr();
        let gids = device.gids().iter().map(|gid| gid.address.ip);
        let ips: Vec<IpAddr> = match local.ip().is_unspecified() {
            true => gids.filter(|ip| ip.is_ipv4() == local.is_ipv4()).collect(),
            false => vec![local.ip()],
        };
        found.extend(ips.into_iter().map(|ip| SocketAddr::new(ip, local.port())));
    }
    found.retain(|address| !matches!(address.ip(), IpAddr::V6(ip) if ip.is_unicast_link_local()));
    if found.iter().any(|address| !address.ip().is_loopback()) {
        found.retain(|address| !address.ip().is_loopback());
    }
    found.dedup();
    found
}

/// Prints an event. A reader that is gone changes nothing.
fn report(event: &Event, json: bool) {
    let (what, text) = match event {
        Event::HostConnected {
            host_nqn,
            peer,
            cntlid,
            kind,
        } => {
            let does = match kind {
                ControllerKind::Io => "has connected",
                ControllerKind::Discovery => "asks what there is",
            };
            (
                json!({ "event": "connected", "host": host_nqn, "peer": peer.ip(), "controller": cntlid }),
                format!("{}: {host_nqn} {does} (controller {cntlid})", peer.ip()),
            )
        }
        Event::HostLeft { cntlid, reason } => (
            json!({ "event": "left", "controller": cntlid, "reason": reason }),
            format!("controller {cntlid} has ended: {reason}"),
        ),
        Event::Refused { peer, reason } => (
            json!({ "event": "refused", "peer": peer.ip(), "reason": reason }),
            format!("{}: refused: {reason}", peer.ip()),
        ),
        // What later versions tell is for later versions of this.
        _ => return,
    };
    let _ = if json {
        output::json(&what)
    } else {
        output::line(text)
    };
}

fn farewell(target: &Target, json: bool) -> Result<()> {
    let (read, written) = target.traffic();
    if json {
        return output::json(&json!({ "event": "ended", "read_bytes": read, "written_bytes": written }));
    }
    output::line(format_args!(
        "ended: {} MiB were read and {} MiB written",
        read >> 20,
        written >> 20
    ))
}

/// The part of a subsystem's name that is the file's.
fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let allowed = |c: char| {
        if c.is_ascii_alphanumeric() || "._-".contains(c) {
            c
        } else {
            '-'
        }
    };
    name.chars().map(allowed).collect()
}

fn nqn(text: &str) -> Result<Nqn, String> {
    Nqn::new(text).ok_or_else(|| format!("`{text}` is no name; write it like nqn.2026-11.org.example:disk"))
}

fn block(text: &str) -> Result<u32, String> {
    match text {
        "512" => Ok(512),
        "4096" | "4K" | "4k" => Ok(4096),
        _ => Err(format!("`{text}` is neither 512 nor 4096")),
    }
}

/// Reads `IP` or `IP:PORT`.
fn bind_address(text: &str) -> Result<SocketAddr, String> {
    let ip = text.parse().map(|ip: IpAddr| SocketAddr::new(ip, PORT));
    ip.or_else(|_| text.parse())
        .map_err(|_| format!("`{text}` is no IP or IP:PORT"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subsystem_is_named_after_its_file() {
        assert_eq!(name_of(Path::new("/srv/my disk.img")), "my-disk.img");
        assert_eq!(
            bind_address("10.0.0.1"),
            Ok(SocketAddr::from(([10, 0, 0, 1], PORT)))
        );
        assert_eq!(bind_address("[::1]:7").map(|address| address.port()), Ok(7));
        assert!(bind_address("here").is_err());
    }
}
