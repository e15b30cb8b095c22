//! Guests that run Linux's own soft-RDMA driver, on a wire we can see.
//!
//! A guest is QEMU with Debian's stock kernel, under software emulation, up in a few seconds. It sees this machine's
//! files read-only, so every program installed here is there too; a tap device on a bridge joins it to us. The bridge
//! is in a network namespace without a name, which ends with the last process in it: nothing is left over, however
//! we end. It refuses to use KVM (nested virtualisation hangs stock kernels on some hosts) and needs no image.
//!
//! Read first: [`Lab`] (wire and folder), then [`Guest`].

mod console;
mod faults;
mod guest;
mod health;
mod initramfs;
mod kernel;
pub mod siw;

pub use console::Complaint;
pub use faults::fault_commands;
pub use guest::{Guest, Task};
pub use health::Breakdown;

use crate::packages::{install, is_root};
use anyhow::{Context, Result, bail, ensure};
use kernel::Kernel;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Name of a lab's folder, with the process that made it.
const FOLDER: &str = "nonic-lab-";

/// Packets that may wait for a guest: more than any case sends without waiting for an answer.
const QUEUE: u32 = 20_000;

/// Set in the environment of the half that runs in the namespace.
const INSIDE: &str = "NONIC_TEST_LAB_INSIDE";

/// The wire, and a folder that goes with it.
pub struct Lab {
    kernel: Kernel,
    folder: PathBuf,
    mtu: u32,
}

impl Lab {
    /// Our own address on the wire is `10.77.0.254` and `fd77::254`, on the interface `br0`; guest N has `.N` and `::N`.
    pub fn new(mtu: u32) -> Result<Self> {
        ensure!(
            is_inside(),
            "a lab is only built in a network namespace of its own"
        );
        remove_leftovers();
        let folder = std::env::temp_dir().join(format!("{FOLDER}{}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let kernel = Kernel::cached()?.context("the kernel was fetched before, and is gone")?;
        let lab = Self { kernel, folder, mtu };
        // What /sys shows of the network is what it was mounted with.
        call("mount -t sysfs sysfs /sys")?;
        call("ip link set lo up")?;
        call("ip link add br0 type bridge forward_delay 0 mcast_snooping 0 stp_state 0")?;
        call(&format!("ip link set br0 mtu {mtu} addrgenmode none up"))?;
        call("ip addr add 10.77.0.254/24 dev br0")?;
        // Without `nodad` an address is unusable for a second or two.
        call("ip addr add fd77::254/64 dev br0 nodad")?;
        Ok(lab)
    }

    /// Boots guest `number`, and waits until it takes commands.
    pub fn boot(&self, number: u8, memory_mib: u32, processors: u8) -> Result<Guest> {
        call(&format!("ip tuntap add tap{number} mode tap"))?;
        let mtu = self.mtu;
        // A tap drops what its reader has not fetched when the queue is full; an emulated reader is slow.
        call(&format!(
            "ip link set tap{number} master br0 mtu {mtu} txqueuelen {QUEUE} addrgenmode none up"
        ))?;
        let hardware = guest::Hardware {
            number,
            memory_mib,
            processors,
            mtu,
        };
        Guest::boot(&self.kernel, &self.folder.join(number.to_string()), &hardware)
    }

    /// Boots a new guest in the place of one that is of no use any more. What was done in there must be done again.
    pub fn replace(&self, guest: &mut Guest) -> Result<()> {
        let number = guest.number();
        let folder = (2..)
            .map(|boot| self.folder.join(format!("{number}-{boot}")))
            .find(|folder| !folder.exists());
        let folder = folder.context("no name is left for a folder")?;
        guest.replace(&self.kernel, &folder, self.mtu)
    }

    /// Changes the MTU of the wire; the guests must be told too.
    pub fn set_mtu(&mut self, mtu: u32, guests: &[u8]) -> Result<()> {
        for number in guests {
            call(&format!("ip link set tap{number} mtu {mtu}"))?;
        }
        self.mtu = mtu;
        call(&format!("ip link set br0 mtu {mtu}"))
    }

    /// For what does not outlive the lab.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Removes the folders of labs whose process was killed.
fn remove_leftovers() {
    let Ok(entries) = std::fs::read_dir(std::env::temp_dir()) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(process) = name.strip_prefix(FOLDER) else {
            continue;
        };
        if process.parse::<u32>().is_ok() && !Path::new("/proc").join(process).exists() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether this is the half in the namespace.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Fetches what the lab needs, or says what is missing.
pub fn prepare() -> Result<()> {
    ensure!(
        is_root(),
        "the lab makes network namespaces and tap devices, which only root may"
    );
    ensure!(
        Path::new("/dev/net/tun").exists(),
        "there is no /dev/net/tun: guests cannot be connected (is the `tun` module loaded?)"
    );
    ensure!(
        cfg!(target_arch = "x86_64"),
        "the lab knows how to boot x86-64 kernels only"
    );
    install(&[
        ("/usr/bin/qemu-system-x86_64", "qemu-system-x86"),
        ("/bin/busybox", "busybox-static"),
        ("/usr/sbin/tc", "iproute2"),
        ("/usr/bin/unshare", "util-linux"),
        ("/usr/bin/rdma", "iproute2"),
        ("/usr/bin/xz", "xz-utils"),
    ])?;
    if Kernel::cached()?.is_none() {
        Kernel::fetch()?;
    }
    Ok(())
}

/// Starts over in a network namespace of our own; answers only if that fails.
pub fn enter() -> anyhow::Error {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return error.into(),
    };
    let error = Command::new("unshare")
        .args(["--net", "--mount", "--"])
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .exec();
    anyhow::Error::new(error).context("cannot start unshare")
}

/// Runs a command line without quotes in it, and expects success.
fn call(line: &str) -> Result<()> {
    let mut words = line.split_whitespace();
    let program = words.next().context("an empty command line")?;
    let output = Command::new(program)
        .args(words)
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        bail!("{line}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
