//! A process whose output goes to a file: what it has printed so far can be read while it runs. [`crate::process`] has those whose
//! output is wanted at their end.
//!
//! It has no time limit of its own: its callers wait for it and for something else at the same time, such as a guest.

use crate::owned::{OwnedChild, end_with_us};
use anyhow::{Context, Result};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How often something is polled that does not announce itself.
pub const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A running process; what it prints goes to a file. It does not outlive its value, nor us.
pub struct LoggedProcess {
    child: OwnedChild,
    output: PathBuf,
}

/// What a command printed, and its exit status.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Both outputs, as they came.
    pub output: String,
    /// 128 and more: it ended by a signal.
    pub status: i32,
}

impl LoggedProcess {
    /// Starts `words`; what it prints goes to the file `output`.
    pub fn start(words: &[&str], environment: &[(&str, &str)], output: PathBuf) -> Result<Self> {
        let file = File::create(&output).with_context(|| format!("cannot write {}", output.display()))?;
        let (program, arguments) = words.split_first().context("an empty command line")?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file);
        end_with_us(&mut command);
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        Ok(Self {
            child: child.into(),
            output,
        })
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.status(), Ok(None))
    }

    /// What it has printed so far.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.output).unwrap_or_default()).into_owned()
    }

    /// What it printed and its exit status (128 and more: a signal), if it has ended.
    pub fn finished(&mut self) -> Result<Option<Finished>> {
        use std::os::unix::process::ExitStatusExt;
        let Some(status) = self.child.status()? else {
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
    pub fn end(&mut self) {
        self.child.kill();
    }
}
