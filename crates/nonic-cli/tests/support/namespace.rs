//! Network namespaces that are gone when the test is, however it ends.

use super::{has_program, is_root};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A network namespace with its loopback switched on.
#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) name: String,
}

impl Namespace {
    /// Why there can be none, if so.
    pub(crate) fn unavailable() -> Option<String> {
        if !is_root() {
            return Some("network namespaces need root".to_owned());
        }
        if !has_program("ip", "-V") {
            return Some("iproute2 (`ip`) is not installed".to_owned());
        }
        None
    }

    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("nonic-{}-{count}", std::process::id());
        ip(&["netns", "add", &name]);
        let namespace = Namespace { name };
        namespace.ip(&["link", "set", "lo", "up"]);
        namespace
    }

    /// Runs `ip` within it.
    pub(crate) fn ip(&self, arguments: &[&str]) {
        let mut all = vec!["-n", self.name.as_str()];
        all.extend(arguments);
        ip(&all);
    }

    /// Sets a number below `/proc/sys` within it.
    pub(crate) fn write_sysctl(&self, name: &str, value: &str) {
        let script = format!("echo {value} > /proc/sys/{name}");
        ip(&["netns", "exec", &self.name, "sh", "-c", &script]);
    }

    /// What `ip` says within it.
    pub(crate) fn ask_ip(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("ip");
        let output = command.args(["-n", self.name.as_str()]).args(arguments).output();
        String::from_utf8(output.expect("ip runs").stdout).expect("ip prints text")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Its interfaces go with it. An error here must not hide the one that ended the test.
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

/// Two namespaces joined by a pair of virtual Ethernet interfaces, both called `veth`.
#[derive(Debug)]
pub(crate) struct Cable {
    pub(crate) left: Namespace,
    pub(crate) right: Namespace,
}

impl Cable {
    pub(crate) fn new(mtu: u32) -> Self {
        let cable = Cable {
            left: Namespace::new(),
            right: Namespace::new(),
        };
        let (left, right) = (&cable.left, &cable.right);
        ip(&[
            "link",
            "add",
            "veth",
            "netns",
            &left.name,
            "type",
            "veth",
            "peer",
            "name",
            "veth",
            "netns",
            &right.name,
        ]);
        for (end, host) in [(left, "1"), (right, "2")] {
            end.ip(&[
                "link",
                "set",
                "veth",
                "mtu",
                &mtu.to_string(),
                "addrgenmode",
                "none",
                "up",
            ]);
            end.ip(&["addr", "add", &format!("10.77.0.{host}/24"), "dev", "veth"]);
            // Without `nodad` an address is unusable for a second or two.
            end.ip(&["addr", "add", &format!("fd77::{host}/64"), "dev", "veth", "nodad"]);
            end.ip(&["addr", "add", &format!("fe80::{host}/64"), "dev", "veth", "nodad"]);
        }
        cable
    }
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().expect("ip runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {}: {complaint}", arguments.join(" "));
}
