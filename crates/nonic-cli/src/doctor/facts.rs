//! Facts about the machine and this process, from the kernel's files and by trying.
//!
//! Nothing here is fatal but the list of interfaces: a file that is not there is a fact too.

use crate::run::libraries_of;
use anyhow::{Context, Result};
use nonic::{Device, NetDevice, PortOwner};
use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Everything that is judged.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) devices: Vec<DeviceFacts>,
    pub(super) uid: u32,
    /// Where our libraries are, if they are installed with this command.
    pub(super) libraries: Option<PathBuf>,
    /// What the libraries say of their version.
    pub(super) libraries_version: Option<String>,
    /// The system's libibverbs: the file behind its name.
    pub(super) system_library: Option<PathBuf>,
    /// The kernel's own RDMA devices.
    pub(super) kernel_devices: Vec<String>,
    /// Whether there is a `/dev/infiniband`.
    pub(super) device_files: bool,
    /// Processes that run on a libibverbs of nonic's other than ours, and on which.
    pub(super) other_copies: Vec<LoadedLibrary>,
    pub(super) receive_buffer_bytes: Option<u64>,
    pub(super) send_buffer_bytes: Option<u64>,
    /// How many packets the kernel cuts from one batch and joins to one: one means that it does not.
    pub(super) batches: Option<(usize, usize)>,
    /// Soft limits; `None` within is no limit.
    pub(super) open_files: Option<Option<u64>>,
    pub(super) locked_memory_bytes: Option<Option<u64>>,
    /// Yama's `ptrace_scope`; `None` without Yama.
    pub(super) ptrace_scope: Option<u32>,
    /// Whether a process may make a user namespace; `None` if it could not be tried.
    pub(super) user_namespaces: Option<bool>,
    /// The mode in `/proc/self/status`: 0 is none, 2 a filter.
    pub(super) seccomp: Option<u32>,
    /// `NONIC_*` variables that are set.
    pub(super) settings: Vec<(String, String)>,
}

/// A process, and the libibverbs of nonic's that it has mapped.
#[derive(Debug)]
pub(super) struct LoadedLibrary {
    pub(super) process: u32,
    pub(super) file: String,
    /// What is said beside the library; nothing of one that was replaced.
    pub(super) version: Option<String>,
}

/// One device.
#[derive(Debug)]
pub(super) struct DeviceFacts {
    pub(super) name: String,
    pub(super) up: bool,
    pub(super) loopback: bool,
    pub(super) mtu: u32,
    pub(super) path_mtu: u16,
    /// Its addresses, and the owner of UDP port 4791 at each, or why that cannot be told.
    pub(super) addresses: Vec<(String, Result<PortOwner, String>)>,
}

impl Facts {
    pub(super) fn collect() -> Result<Self> {
        let devices = Device::list().context("cannot ask the kernel for its network interfaces")?;
        let status = read("/proc/self/status").unwrap_or_default();
        let limits = read("/proc/self/limits").unwrap_or_default();
        let command = std::env::current_exe().ok();
        let libraries = command.as_deref().and_then(libraries_of);
        Ok(Self {
            devices: devices.iter().map(device).collect(),
            uid: status_number(&status, "Uid:").unwrap_or_default(),
            libraries_version: libraries.as_deref().and_then(version_in),
            other_copies: other_copies(libraries.as_deref()),
            libraries,
            system_library: SYSTEM
                .iter()
                .find_map(|folder| Path::new(folder).join(LIBRARY).canonicalize().ok()),
            kernel_devices: names_in("/sys/class/infiniband"),
            device_files: Path::new("/dev/infiniband").exists(),
            receive_buffer_bytes: number("/proc/sys/net/core/rmem_max"),
            send_buffer_bytes: number("/proc/sys/net/core/wmem_max"),
            batches: batches(),
            open_files: soft_limit(&limits, "Max open files"),
            locked_memory_bytes: soft_limit(&limits, "Max locked memory"),
            ptrace_scope: number("/proc/sys/kernel/yama/ptrace_scope")
                .and_then(|scope| scope.try_into().ok()),
            user_namespaces: user_namespaces(),
            seccomp: status_number(&status, "Seccomp:"),
            settings: settings(),
        })
    }
}

const LIBRARY: &str = "libibverbs.so.1";

/// Where systems have their libraries.
const SYSTEM: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
];

fn device(device: &NetDevice) -> DeviceFacts {
    let addresses = device.gids.iter().map(|entry| {
        let owner = nonic::port_owner(entry.address).map_err(|error| error.to_string());
        (entry.address.to_string(), owner)
    });
    DeviceFacts {
        name: device.device_name(),
        up: device.up && device.link == nonic::LinkState::Up,
        loopback: device.loopback,
        mtu: device.mtu,
        path_mtu: device.path_mtu(),
        addresses: addresses.collect(),
    }
}

/// Processes that we may look at and that have mapped a libibverbs out of a folder of nonic's which is not this one.
fn other_copies(ours: Option<&Path>) -> Vec<LoadedLibrary> {
    let ours = ours.and_then(|folder| folder.join(LIBRARY).canonicalize().ok());
    let processes = names_in("/proc")
        .into_iter()
        .filter_map(|name| name.parse::<u32>().ok());
    processes
        .filter_map(|process| {
            let maps = fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
            let copy = mapped_copy(&maps)?;
            let file = Path::new(&copy);
            let version = file.parent().filter(|_| file.exists()).and_then(version_in);
            (Some(file) != ours.as_deref()).then_some(LoadedLibrary {
                process,
                version,
                file: copy.clone(),
            })
        })
        .collect()
}

/// The version of the libraries in a folder.
fn version_in(folder: &Path) -> Option<String> {
    let text = fs::read_to_string(folder.join("version")).ok()?;
    Some(text.trim().to_owned())
}

/// The libibverbs of nonic's in a table of mappings. A file that was replaced has ` (deleted)` after its name.
pub(super) fn mapped_copy(maps: &str) -> Option<String> {
    let mut files = maps
        .lines()
        .filter_map(|line| line.find('/').map(|start| &line[start..]));
    files
        .find(|file| {
            let file = file.trim_end_matches(" (deleted)");
            file.ends_with("/libibverbs.so.1") && file.contains("nonic")
        })
        .map(str::to_owned)
}

/// Asks the kernel on a socket of its own.
fn batches() -> Option<(usize, usize)> {
    let socket = UdpSocket::bind("127.0.0.1:0")
        .or_else(|_| UdpSocket::bind("[::1]:0"))
        .ok()?;
    let state = quinn_udp::UdpSocketState::new((&socket).into()).ok()?;
    Some((state.max_gso_segments(), state.gro_segments()))
}

/// Tries, since what stands in /proc/sys is only half of it: seccomp and AppArmor have a say.
fn user_namespaces() -> Option<bool> {
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "true"]);
    let status = unshare
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .ok()?;
    Some(status.success())
}

fn settings() -> Vec<(String, String)> {
    let variables = std::env::vars_os().map(|(name, value)| {
        (
            name.to_string_lossy().into_owned(),
            value.to_string_lossy().into_owned(),
        )
    });
    let mut ours: Vec<_> = variables
        .filter(|(name, value)| name.starts_with("NONIC_") && !value.is_empty())
        .collect();
    ours.sort();
    ours
}

fn read(file: &str) -> Option<String> {
    fs::read_to_string(file).ok()
}

fn number(file: &str) -> Option<u64> {
    read(file)?.trim().parse().ok()
}

fn names_in(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The first number of a line of `/proc/self/status`.
pub(super) fn status_number(status: &str, name: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The soft limit of a line of `/proc/self/limits`.
pub(super) fn soft_limit(limits: &str, name: &str) -> Option<Option<u64>> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(None),
        limit => limit.parse().ok().map(Some),
    }
}
