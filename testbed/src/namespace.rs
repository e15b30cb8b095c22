//! Hosts: network namespaces, and the virtual cable between two of them.
//!
//! They are gone when their value is, however the test or chore ends. Only root can make them ([`unavailable`]); nothing here does
//! without.

use crate::command::output;
use crate::owned::OwnedChild;
use crate::packages::{has_program, is_root};
use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The MTU of a cable on which RDMA's largest packets fit.
const JUMBO_MTU: u32 = 9000;

/// Why there can be no namespaces, if so.
pub fn unavailable() -> Option<String> {
    if !is_root() {
        return Some("network namespaces need root".to_owned());
    }
    if !has_program("ip", "-V") {
        return Some("iproute2 (`ip`) is not installed".to_owned());
    }
    None
}

/// A network namespace with its loopback switched on.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    machine: Option<Machine>,
}

impl Namespace {
    /// A new one, which has its loopback alone.
    pub fn new() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("nonic-{}-{count}", std::process::id());
        ip(&["netns", "add", &name])?;
        let namespace = Self { name, machine: None };
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Gives it its own processes, shared memory and host name, too. Programs that find out by those that both sides are on
    /// one machine would not use the network otherwise.
    pub fn become_machine(&mut self) -> Result<()> {
        self.machine = Some(Machine::start(&self.name)?);
        Ok(())
    }

    /// The file by which it is entered.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/run/netns/{}", self.name))
    }

    /// Before a command: runs it in the namespace.
    ///
    /// Not `ip netns exec`: it gives a process its own mounts, and the kernel takes its time to free those of one that was killed
    /// (hundreds of milliseconds on a busy machine) before it closes its sockets.
    pub fn enter(&self) -> Vec<String> {
        let mut words = vec!["nsenter".to_owned()];
        match &self.machine {
            Some(machine) => words.extend(machine.flags()),
            None => words.push(format!("--net=/run/netns/{}", self.name)),
        }
        words
    }

    /// A command of these words, in the namespace and as our user.
    pub fn command(&self, words: impl IntoIterator<Item: AsRef<OsStr>>) -> Command {
        let enter = self.enter();
        let mut command = Command::new(&enter[0]);
        command.args(&enter[1..]).args(words);
        command
    }

    /// Runs `ip` within it; what that prints.
    pub fn ip(&self, arguments: &[&str]) -> Result<String> {
        let mut all = vec!["-n", self.name.as_str()];
        all.extend(arguments);
        ip(&all)
    }

    /// Sets a number below `/proc/sys` within it.
    pub fn write_sysctl(&self, name: &str, value: &str) -> Result<()> {
        let script = format!("echo {value} > /proc/sys/{name}");
        output(&mut self.command(["sh", "-c", &script])).map(drop)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Its interfaces go with it. An error here must not hide the one that ended the test.
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

/// A process that keeps namespaces of every kind for as long as the value lives: with the first process of a machine the kernel ends
/// all others.
#[derive(Debug)]
struct Machine {
    unshare: OwnedChild,
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
            unshare: unshare.into(),
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
            ensure!(self.unshare.runs(), "a machine's first process ended");
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

/// Two namespaces joined by a pair of virtual Ethernet interfaces, both called `veth`. The left one has `10.77.0.1`, `fd77::1` and
/// `fe80::1`, the right one the same with 2.
#[derive(Debug)]
pub struct VethPair {
    /// The first host.
    pub left: Namespace,
    /// The second host.
    pub right: Namespace,
}

impl VethPair {
    /// With addresses of both protocols, and room for RDMA's largest packets.
    pub fn new() -> Result<Self> {
        Self::with_mtu(JUMBO_MTU)
    }

    /// With addresses of both protocols.
    pub fn with_mtu(mtu: u32) -> Result<Self> {
        let veth_pair = Self::with_ipv6(mtu)?;
        for (end, host) in veth_pair.ends() {
            end.ip(&["addr", "add", &format!("10.77.0.{host}/24"), "dev", "veth"])?;
        }
        Ok(veth_pair)
    }

    /// Without addresses of IPv4, for programs that would rather use those.
    pub fn ipv6_only() -> Result<Self> {
        Self::with_ipv6(JUMBO_MTU)
    }

    fn with_ipv6(mtu: u32) -> Result<Self> {
        let veth_pair = Self {
            left: Namespace::new()?,
            right: Namespace::new()?,
        };
        let (left, right) = (&veth_pair.left.name, &veth_pair.right.name);
        let mut arguments = vec!["link", "add", "veth", "netns", left, "type", "veth"];
        arguments.extend(["peer", "name", "veth", "netns", right]);
        ip(&arguments)?;
        let mtu = mtu.to_string();
        for (end, host) in veth_pair.ends() {
            end.ip(&["link", "set", "veth", "mtu", &mtu, "addrgenmode", "none", "up"])?;
            // Without `nodad` an address is unusable for a second or two.
            end.ip(&["addr", "add", &format!("fd77::{host}/64"), "dev", "veth", "nodad"])?;
            end.ip(&["addr", "add", &format!("fe80::{host}/64"), "dev", "veth", "nodad"])?;
        }
        Ok(veth_pair)
    }

    /// Each end, with the last part of its addresses.
    fn ends(&self) -> [(&Namespace, &str); 2] {
        [(&self.left, "1"), (&self.right, "2")]
    }
}

fn ip(arguments: &[&str]) -> Result<String> {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .context("cannot start ip")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {}: {complaint}", arguments.join(" "));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_as::RunAs;

    #[test]
    fn a_machine_has_processes_and_a_name_of_its_own() {
        if let Some(reason) = unavailable() {
            println!("skipped: {reason}");
            return;
        }
        let mut host = Namespace::new().expect("root can make a namespace");
        host.become_machine().expect("root can make a machine");
        let ask = |words: &[&str]| output(&mut host.command(words)).expect("it runs there");
        assert_eq!(ask(&["hostname"]).trim(), host.name);
        assert_eq!(ask(&["cat", "/proc/1/comm"]).trim(), "sleep");
        let nobody = RunAs {
            namespace: Some(&host),
            as_nobody: true,
            ..RunAs::default()
        };
        let user = output(nobody.command("id".as_ref()).arg("-u"));
        assert_eq!(user.expect("it runs there").trim(), "65534");
    }

    #[test]
    fn a_cable_has_the_addresses_that_were_asked_for() {
        if let Some(reason) = unavailable() {
            println!("skipped: {reason}");
            return;
        }
        let addresses = |pair: &VethPair| {
            let told = pair.right.ip(&["-br", "addr", "show", "veth"]);
            told.expect("our own namespace")
        };
        let both = addresses(&VethPair::with_mtu(1500).expect("root can join namespaces"));
        assert!(
            both.contains("10.77.0.2/24") && both.contains("fd77::2/64"),
            "{both}"
        );
        let ipv6 = addresses(&VethPair::ipv6_only().expect("root can join namespaces"));
        assert!(!ipv6.contains("10.77") && ipv6.contains("fe80::2/64"), "{ipv6}");
    }
}
