//! A process of ours on the wire: it does not outlive its value, nor us.

use anyhow::{Context, Result};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How often something is polled that does not announce itself.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A running process; what it prints goes to a file.
pub(crate) struct Process {
    child: Child,
    output: PathBuf,
}

/// What a command printed, and its exit status.
#[derive(Clone, Debug)]
pub(crate) struct Finished {
    pub(crate) output: String,
    pub(crate) status: i32,
}

impl Process {
    /// Starts `words`; what it prints goes to the file `output`.
    pub(crate) fn start(words: &[&str], environment: &[(&str, &str)], output: PathBuf) -> Result<Self> {
        let file = File::create(&output).with_context(|| format!("cannot write {}", output.display()))?;
        // Whatever happens to us, it ends too.
        let child = Command::new("setpriv")
            .args(["--pdeathsig=KILL", "--"])
            .args(words)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .context("cannot start setpriv")?;
        Ok(Self { child, output })
    }

    /// Whether it still runs.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// What it has printed so far.
    pub(crate) fn output(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.output).unwrap_or_default()).into_owned()
    }

    /// What it printed and its exit status (128 and more: a signal), if it has ended.
    pub(crate) fn finished(&mut self) -> Result<Option<Finished>> {
        use std::os::unix::process::ExitStatusExt;
        let Some(status) = self.child.try_wait()? else {
            return Ok(None);
        };
        let code = status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        Ok(Some(Finished {
            output: self.output(),
            status: code,
        }))
    }

    /// Kills it, if it still runs.
    pub(crate) fn end(&mut self) {
        // It may have ended long ago.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// The end of what was said, on one line.
pub(crate) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    lines[lines.len().saturating_sub(6)..].join(" | ")
}
