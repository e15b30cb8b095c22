//! A command that a page leaves in the background, which the next one needs.
//!
//! A reader takes a second to type the next line, and a machine does not: it waits until the server has opened its device. Between that
//! and listening, clients of the connection manager are patient by themselves.

use crate::dist::Dist;
use anyhow::{Context, Result, bail};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a program may take to open a device, on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Waits until a process of this session has a device open.
pub(super) fn wait_until_open(session: i32, dist: &Dist) -> Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        let asked = Command::new(dist.nonic()).args(["ps", "--json"]).output();
        let answer = asked.context("cannot start nonic")?.stdout;
        if processes(&answer)?
            .into_iter()
            .any(|pid| session_of(pid) == session)
        {
            return Ok(());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    bail!("what was left in the background has opened no device after {PATIENCE:?}")
}

/// The processes that `nonic ps --json` names.
fn processes(answer: &[u8]) -> Result<Vec<i32>> {
    let answer: serde_json::Value = serde_json::from_slice(answer).context("`nonic ps --json` is no JSON")?;
    let devices = answer["devices"].as_array().map_or(&[][..], Vec::as_slice);
    let numbers = devices.iter().filter_map(|device| device["pid"].as_i64());
    Ok(numbers.filter_map(|pid| i32::try_from(pid).ok()).collect())
}

fn session_of(pid: i32) -> i32 {
    // SAFETY: no memory is involved. If the process is gone the answer is -1, which is no session.
    unsafe { libc::getsid(pid) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_found_by_their_devices() {
        let answer = br#"{"devices":[{"pid":17,"device":"roce_lo"},{"device":"roce_eth0"}],"other_users":0,"silent":[]}"#;
        assert_eq!(processes(answer).unwrap(), [17]);
        assert!(processes(br#"{"devices":[]}"#).unwrap().is_empty());
        assert!(processes(b"nonic: no").is_err());
    }
}
