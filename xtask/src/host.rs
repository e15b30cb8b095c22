//! Where a program under test runs: in which network namespace, and as which user.
//!
//! Namespaces are gone when their value is, however the chore ends. They need root; without it everything runs in our
//! namespace and as our user.

use crate::confined::Confinement;
pub(crate) use crate::packages::{install, is_root};
use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A network namespace with its loopback switched on.
#[derive(Debug)]
pub(crate) struct Namespace {
    name: String,
    machine: Option<Machine>,
}

impl Namespace {
    pub(crate) fn new() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("nonic-x{}-{count}", std::process::id());
        ip(&["netns", "add", &name])?;
        let namespace = Self { name, machine: None };
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Gives it its own processes, shared memory and host name, too. Programs that find out by those that both sides are on
    /// one machine would not use the network otherwise.
    pub(crate) fn become_machine(&mut self) -> Result<()> {
        self.machine = Some(Machine::start(&self.name)?);
        Ok(())
    }

    /// The file by which it is entered.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/run/netns/{}", self.name))
    }

    /// How `nsenter` is told of it.
    fn flags(&self) -> Vec<String> {
        match &self.machine {
            Some(machine) => machine.flags(),
            None => vec![format!("--net=/run/netns/{}", self.name)],
        }
    }

    /// Runs `ip` within it.
    pub(crate) fn ip(&self, arguments: &[&str]) -> Result<()> {
        let mut all = vec!["-n", self.name.as_str()];
        all.extend(arguments);
        ip(&all)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Its interfaces go with it. An error here must not hide the one that ended the chore.
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

/// A process that keeps namespaces of every kind for as long as the value lives.
#[derive(Debug)]
struct Machine {
    unshare: Child,
    /// The first process of the machine, which the others are entered by.
    first: String,
}

impl Machine {
    fn start(network: &str) -> Result<Self> {
        // What is mounted here stays here. Its own `/dev/shm`, since names in there are the same on both machines.
        let script =
            format!("hostname {network}; mount -t tmpfs tmpfs /dev/shm -o mode=1777; exec sleep infinity");
        // It ends with us, even if we are killed, and holds no pipe open by which another process reads our output.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "nsenter"]);
        command.arg(format!("--net=/run/netns/{network}"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.args(["unshare", "--ipc", "--uts", "--pid", "--mount", "--mount-proc"]);
        command.args(["--fork", "--kill-child", "sh", "-c", &script]);
        let unshare = command
            .spawn()
            .context("cannot start a machine's first process")?;
        let mut machine = Self {
            first: String::new(),
            unshare,
        };
        machine.first = machine.wait_until_ready()?;
        Ok(machine)
    }

    /// Its first process, once it has become `sleep`: all is done by then.
    fn wait_until_ready(&mut self) -> Result<String> {
        let parent = self.unshare.id();
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            let path = format!("/proc/{parent}/task/{parent}/children");
            let child = std::fs::read_to_string(path)
                .unwrap_or_default()
                .trim()
                .to_owned();
            let name = std::fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
            if name.trim() == "sleep" {
                return Ok(child);
            }
            let ended = self.unshare.try_wait()?;
            ensure!(ended.is_none(), "a machine's first process ended");
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("a machine's first process is never ready");
    }

    fn flags(&self) -> Vec<String> {
        let mut flags = vec![format!("--target={}", self.first)];
        flags.extend(["--net", "--ipc", "--uts", "--pid", "--mount"].map(str::to_owned));
        flags
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // With the first process of a machine the kernel ends all others.
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
    }
}

/// Two namespaces joined by a pair of virtual Ethernet interfaces, both called `veth`.
#[derive(Debug)]
pub(crate) struct VethPair {
    pub(crate) left: Namespace,
    pub(crate) right: Namespace,
}

impl VethPair {
    pub(crate) fn new() -> Result<Self> {
        let veth_pair = Self::ipv6_only()?;
        for (end, host) in [(&veth_pair.left, "1"), (&veth_pair.right, "2")] {
            end.ip(&["addr", "add", &format!("10.77.0.{host}/24"), "dev", "veth"])?;
        }
        Ok(veth_pair)
    }

    /// Without addresses of IPv4, for programs that would rather use those.
    pub(crate) fn ipv6_only() -> Result<Self> {
        let veth_pair = Self {
            left: Namespace::new()?,
            right: Namespace::new()?,
        };
        let (left, right) = (&veth_pair.left, &veth_pair.right);
        let mut arguments = vec!["link", "add", "veth", "netns", &left.name, "type", "veth"];
        arguments.extend(["peer", "name", "veth", "netns", &right.name]);
        ip(&arguments)?;
        for (end, host) in [(left, "1"), (right, "2")] {
            end.ip(&["link", "set", "veth", "mtu", "9000", "addrgenmode", "none", "up"])?;
            // Without `nodad` an address is unusable for a second or two.
            end.ip(&["addr", "add", &format!("fd77::{host}/64"), "dev", "veth", "nodad"])?;
            end.ip(&["addr", "add", &format!("fe80::{host}/64"), "dev", "veth", "nodad"])?;
        }
        Ok(veth_pair)
    }
}

/// In which namespace, as which user, and with which variables more.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct RunAs<'a> {
    pub(crate) namespace: Option<&'a Namespace>,
    pub(crate) as_nobody: bool,
    /// As a container's defaults leave it.
    pub(crate) confinement: Option<&'a Confinement>,
    pub(crate) environment: &'a [(&'static str, String)],
}

impl RunAs<'_> {
    /// A command that runs `program` here.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut words: Vec<&std::ffi::OsStr> = Vec::new();
        // Not `ip netns exec`: it gives a process its own mounts, and the kernel takes its time to free those of one
        // that was killed before it closes its sockets.
        let enter = self.namespace.map(Namespace::flags);
        if let Some(flags) = &enter {
            words.push("nsenter".as_ref());
            words.extend(flags.iter().map(std::ffi::OsStr::new));
        }
        let confine = self.confinement.map(Confinement::words).unwrap_or_default();
        words.extend(confine.iter().map(OsString::as_os_str));
        if self.as_nobody {
            let become_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
            words.extend(become_nobody.map(std::ffi::OsStr::new));
        }
        words.push(program.as_os_str());
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// A number of the system that is raised for a while, where we may; put back at the end.
#[derive(Debug)]
pub(crate) struct Sysctl {
    path: &'static str,
    before: Option<String>,
}

impl Sysctl {
    pub(crate) fn at_least(path: &'static str, wanted: u64) -> Self {
        let found = std::fs::read_to_string(path).unwrap_or_default();
        let enough = found.trim().parse().is_ok_and(|number: u64| number >= wanted);
        let raised = !enough && std::fs::write(path, wanted.to_string()).is_ok();
        let before = raised.then_some(found);
        Self { path, before }
    }
}

impl Drop for Sysctl {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = std::fs::write(self.path, before);
        }
    }
}

/// A path for temporary files that no other process has, and no other thread of this one.
pub(crate) fn unique_path(name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("nonic-{name}-{}-{count}", std::process::id()))
}

/// Runs a command that must succeed, for what it prints.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let found = command
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    ensure!(
        found.status.success(),
        "{command:?} failed ({}):\n{}{}",
        found.status,
        String::from_utf8_lossy(&found.stdout),
        String::from_utf8_lossy(&found.stderr)
    );
    Ok(String::from_utf8_lossy(&found.stdout).into_owned())
}

fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .context("cannot start ip")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {}: {complaint}", arguments.join(" "));
    Ok(())
}
