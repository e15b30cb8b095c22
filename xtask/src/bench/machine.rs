//! The machine that figures came from, and the versions of what was measured there.

use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// What the report says of it.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    processor: String,
    processors: usize,
    memory_gib: f64,
    kernel: String,
    /// Processes that wanted to run before we began, over the last minute.
    load: f64,
    /// Which processes may read and write another's memory.
    tracing: String,
    user: &'static str,
    nonic: String,
    /// The others' packages with their versions.
    rivals: Vec<String>,
}

/// Above this, others have used the machine too.
const QUIET_LOAD: f64 = 0.5;

impl Machine {
    /// This one, now, with the nonic of this folder, as made by `dist`.
    pub(crate) fn with_dist(root: &Path, commit: Option<String>) -> Self {
        let version = std::fs::read_to_string(root.join("lib/version")).unwrap_or_default();
        Self::here(&version, commit)
    }

    /// This one, now, with this version of nonic.
    pub(crate) fn here(version: &str, commit: Option<String>) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| -> Option<String> {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let cpuinfo = read("/proc/cpuinfo");
        let memory = field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
        let memory_kib: f64 = memory.trim_end_matches(" kB").parse().unwrap_or(0.0);
        let tracing = match read("/proc/sys/kernel/yama/ptrace_scope").trim() {
            "" => "no Yama: processes of one user may access each other's memory".to_owned(),
            scope => format!("Yama's ptrace_scope is {scope}"),
        };
        let commit = commit.map_or(String::new(), |commit| format!(", commit {commit}"));
        Self {
            processor: field(&cpuinfo, "model name").unwrap_or_else(|| "unknown".to_owned()),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: memory_kib / f64::from(1 << 20),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|word| word.parse().ok())
                .unwrap_or(0.0),
            tracing,
            user: if testbed::packages::is_root() {
                "root"
            } else {
                "an ordinary user"
            },
            nonic: format!("nonic {}{commit}", version.trim()),
            rivals: ["perftest", "ucx-utils", "libfabric-bin"]
                .into_iter()
                .map(|package| format!("{package} {}", version_of(package)))
                .collect(),
        }
    }

    /// A list for people.
    pub(crate) fn markdown(&self) -> String {
        let quiet = match self.load <= QUIET_LOAD {
            true => "",
            false => ": others used the machine too, so figures are worth little and ratios not much more",
        };
        format!(
            "- {} processors: {}; {:.1} GiB of memory\n\
             - Linux {}; {}\n\
             - load average before the run {:.2}{quiet}\n\
             - {}, run as {}, beside Debian's {}\n",
            self.processors,
            self.processor,
            self.memory_gib,
            self.kernel,
            self.tracing,
            self.load,
            self.nonic,
            self.user,
            self.rivals.join(", ")
        )
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "processor": self.processor,
            "processors": self.processors,
            "kernel": self.kernel,
            "load": self.load,
            "tracing": self.tracing,
            "user": self.user,
            "nonic": self.nonic,
            "rivals": self.rivals,
        })
    }
}

fn version_of(package: &str) -> String {
    let asked = Command::new("dpkg-query")
        .args(["--show", "--showformat=${Version}", package])
        .output();
    let version = asked.map_or(String::new(), |output| {
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    });
    if version.is_empty() {
        "(not installed)".to_owned()
    } else {
        version
    }
}
