//! Each package in an empty Debian 12, used there without privileges and without a Rust toolchain.
//!
//! The root folder is made once (`mmdebstrap`), with the programs to try downloaded but not installed, and copied for
//! each package. From then on nothing is downloaded, and time is counted: from an empty system to a program that ran.

use super::{Made, VERSION, output, succeed};
use crate::debian;
use crate::dist::workspace;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// What is tried, and what a wheel is installed with.
const TOOLS: &str = "ibverbs-utils perftest";
const MPI: &str = "openmpi-bin python3-mpi4py";
const PYTHON: &str = "python3-venv";

/// Longer than this is reported: a new user waits.
const PATIENCE: Duration = Duration::from_secs(60);

/// One way to have nonic.
struct Way {
    name: &'static str,
    /// What it needs of Debian.
    packages: &'static str,
    /// Run as root in the root folder.
    install: String,
    /// The command, from then on.
    nonic: String,
}

/// Checks all, or ends with the first that does not work.
pub(super) fn run(folder: &Path, made: &Made) -> Result<()> {
    ensure!(
        output(Command::new("id").arg("-u"))?.trim() == "0",
        "the check needs root, for chroot"
    );
    let started = Instant::now();
    let base = base(&folder.join("check"))?;
    println!("empty Debian 12 and downloads: {:.0?}", started.elapsed());
    let wheel = made.wheel.file_name().context("it has a name")?.to_string_lossy();
    let ways = [
        Way {
            name: "deb",
            packages: "",
            install: format!("dpkg -i /packages/nonic_{VERSION}_amd64.deb"),
            nonic: "nonic".to_owned(),
        },
        Way {
            name: "tarball",
            packages: "",
            install: format!("tar -xzf /packages/nonic-{VERSION}-x86_64-linux.tar.gz -C /opt"),
            nonic: format!("/opt/nonic-{VERSION}-x86_64-linux/bin/nonic"),
        },
        Way {
            name: "wheel",
            packages: PYTHON,
            install: format!(
                "python3 -m venv /opt/venv && /opt/venv/bin/pip install --quiet --no-index /packages/{wheel}"
            ),
            nonic: "/opt/venv/bin/nonic".to_owned(),
        },
    ];
    for way in &ways {
        try_with(&base, made, way, TOOLS, "ib_write_bw", |root| {
            // Every user may run it, no matter which one installed it, and it must say of itself that it works.
            root.run("nobody", &format!("{} doctor", way.nonic))?;
            root.run(
                "nobody",
                &format!("{} run -- ibv_devinfo | grep -q roce_lo", way.nonic),
            )?;
            if way.name == "wheel" {
                root.run(
                    "nobody",
                    "/opt/venv/bin/python -m nonic run -- ibv_devices | grep roce_lo",
                )?;
            }
            root.run(
                "nobody",
                &format!("sh /check/perftest.sh {} ib_write_bw", way.nonic),
            )
        })?;
    }
    let [deb, ..] = &ways;
    try_with(&base, made, deb, MPI, "MPI ping-pong", mpi)?;
    println!("package: {} ways to install, all work", ways.len());
    Ok(())
}

/// Two ranks as they come, which on one host talk through shared memory, as with hardware; and two that must use RDMA.
fn mpi(root: &Root) -> Result<String> {
    let as_it_comes = root.run(
        "nobody",
        "timeout 60 nonic run -- mpirun -n 2 python3 /check/pingpong.py",
    )?;
    // UCX looks for devices in /sys and /dev, and finds ours only where the library is installed that shows them.
    if !root.folder.join("usr/lib/nonic/libnonic_files.so").exists() {
        return Ok(format!(
            "{as_it_comes}through shared memory: UCX does not find our devices yet"
        ));
    }
    let over_nonic = root.run(
        "nobody",
        "NONIC_COUNTERS=/tmp/counters timeout 60 nonic run -- \
         mpirun --mca pml ucx -x UCX_TLS=rc,self -n 2 python3 /check/pingpong.py",
    )?;
    let packets = root.run(
        "nobody",
        "awk '$1 == \"tx_packets\" { sum += $2 } END { print sum + 0 }' /tmp/counters",
    )?;
    // MPI has other transports, and uses them without a word.
    ensure!(
        packets.trim() != "0",
        "the ranks did not talk over nonic: {over_nonic}"
    );
    Ok(format!(
        "{as_it_comes}{over_nonic}over nonic: {} packets",
        packets.trim()
    ))
}

/// Installs in a fresh copy, tries, and says how long it took.
fn try_with(
    base: &Path,
    made: &Made,
    way: &Way,
    programs: &str,
    what: &str,
    try_out: impl FnOnce(&Root) -> Result<String>,
) -> Result<()> {
    let root = Root::copy(base, made)?;
    let started = Instant::now();
    let packages = format!("{} {programs}", way.packages);
    root.run(
        "root",
        &format!("apt-get install -y -qq --no-install-recommends --no-download {packages}"),
    )
    .with_context(|| format!("{}: no {programs}", way.name))?;
    let tools = started.elapsed();
    root.run("root", &way.install)
        .with_context(|| format!("{} does not install", way.name))?;
    let installed = started.elapsed();
    let answer = try_out(&root).with_context(|| format!("{what} does not work with the {}", way.name))?;
    let all = started.elapsed();
    let late = if all > PATIENCE {
        " (more than a minute)"
    } else {
        ""
    };
    println!(
        "{:<8} empty system to {what}: {:.1} s{late} ({programs} {:.1} s, nonic {:.1} s, use {:.1} s)",
        way.name,
        all.as_secs_f64(),
        tools.as_secs_f64(),
        (installed - tools).as_secs_f64(),
        (all - installed).as_secs_f64(),
    );
    for line in answer.lines() {
        println!("         {line}");
    }
    Ok(())
}

/// A copy of the base, gone when its value is.
struct Root {
    folder: PathBuf,
}

impl Root {
    fn copy(base: &Path, made: &Made) -> Result<Self> {
        let root = Self {
            folder: base.with_file_name("root"),
        };
        let _ = fs::remove_dir_all(&root.folder);
        succeed(
            Command::new("cp")
                .args(["--archive", "--reflink=auto"])
                .args([base, &root.folder]),
        )?;
        let packages = root.folder.join("packages");
        fs::create_dir_all(&packages)?;
        for file in made.all() {
            fs::copy(file, packages.join(file.file_name().context("it has a name")?))?;
        }
        succeed(
            Command::new("cp")
                .arg("--recursive")
                .arg(workspace().join("packaging/check"))
                .arg(root.folder.join("check")),
        )?;
        Ok(root)
    }

    /// Runs a line of shell in it, for at most two minutes.
    fn run(&self, user: &str, line: &str) -> Result<String> {
        output(
            Command::new("timeout")
                .args(["--kill-after=5", "120", "sh"])
                .arg(workspace().join("packaging/check/enter.sh"))
                .arg(&self.folder)
                .args([user, "sh", "-euc", line]),
        )
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        // An error here must not hide the one that ended the chore; the next copy removes it too.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The empty system, with archives of what will be installed.
fn base(folder: &Path) -> Result<PathBuf> {
    let base = folder.join("debian-12");
    let download = format!(
        "--customize-hook=APT_CONFIG=$MMDEBSTRAP_APT_CONFIG apt-get install -y -qq --no-install-recommends \
         --download-only {TOOLS} {MPI} {PYTHON}"
    );
    let arguments = ["--variant=minbase", "--skip=cleanup/apt", &download];
    debian::root(&base, "bookworm", &arguments)?;
    Ok(base)
}
