//! GID indexes, as `ibv_devinfo` prints them.

use crate::dist::Dist;
use anyhow::{Context, Result};
use testbed::lab::Guest;
use testbed::process::last_lines;

/// GID indexes of both devices, by IP version.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Gids {
    pub(super) ours: [u32; 2],
    pub(super) theirs: [u32; 2],
}

impl Gids {
    /// Asks both devices at which index their addresses are.
    pub(super) fn find(dist: &Dist, guest: &mut Guest) -> Result<Self> {
        let ours = std::process::Command::new(dist.nonic())
            .args(["run", "--", "ibv_devinfo", "-v", "-d", "roce_br0"])
            .output()
            .context("cannot start nonic")?;
        let ours = String::from_utf8_lossy(&ours.stdout).into_owned();
        let theirs = guest.run("ibv_devinfo -v -d rxe0")?;
        Ok(Gids {
            ours: [
                gid_index(&ours, "::ffff:10.77.0.254")?,
                gid_index(&ours, "fd77::254")?,
            ],
            theirs: [
                gid_index(&theirs, "::ffff:10.77.0.1")?,
                gid_index(&theirs, "fd77::1")?,
            ],
        })
    }
}

/// From a line like `GID[  1]:  ::ffff:10.77.0.1, RoCE v2`.
pub(super) fn gid_index(text: &str, gid: &str) -> Result<u32> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("GID[")?.split_once("]:"))
        .find(|(_, rest)| rest.trim().split(',').next() == Some(gid))
        .and_then(|(index, _)| index.trim().parse().ok())
        .with_context(|| format!("no GID {gid} in: {}", last_lines(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gids_are_found_in_what_ibv_devinfo_prints() {
        let text = "\t\t\tGID[  0]:\t\tfe80::1, RoCE v2\n\t\t\tGID[  1]:\t\t::ffff:10.77.0.1, RoCE v2\n";
        assert_eq!(gid_index(text, "::ffff:10.77.0.1").ok(), Some(1));
        assert!(gid_index(text, "fe80::2").is_err());
    }
}
