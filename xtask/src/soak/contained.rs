//! Containment: a soak runs in a network namespace of its own, with its own idea of which others have names, and with
//! temporary files that no other process sees.
//!
//! The kernel ends all of it with the last process there. So nothing is left behind however a soak ends, by Ctrl-C
//! among others: nothing has to tidy up.

use anyhow::{Context, Result};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Says to the command that it runs so already.
const MARK: &str = "NONIC_TEST_SOAK_CONTAINED";

/// What `ip netns` makes is a mount below `/run/netns`. `/mnt` is there for mounts like ours.
const ENTER: &str = "mkdir -p /run/netns && mount -t tmpfs soak /run/netns && mount -t tmpfs soak /mnt && \
                     ip link set lo up && export TMPDIR=/mnt && exec \"$@\"";

pub(super) fn is_contained() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Becomes this same command there. Comes back only if that fails.
pub(super) fn again() -> Result<()> {
    let own = std::env::current_exe().context("what is this program")?;
    let error = Command::new("unshare")
        .args(["--net", "--mount", "sh", "-c", ENTER, "sh"])
        .arg(own)
        .args(std::env::args_os().skip(1))
        .env(MARK, "1")
        .exec();
    Err(error).context("cannot start unshare")
}
