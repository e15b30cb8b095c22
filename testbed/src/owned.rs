//! A child process that does not outlive its value. [`crate::process`] and [`crate::logged`] add what becomes of its output.
//!
//! It does not start anything: any `std::process::Child` becomes one, with whatever pipes it has.

use std::io::Result;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// How often we look whether a process has ended. Rarely enough not to disturb what is measured meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Lets a command end when we do, even if we are killed: a server would wait for its client for ever. The kernel does so when the
/// thread ends that starts the command.
pub fn end_with_us(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    let die = || {
        // SAFETY: the call changes this process only, and needs no memory.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        Ok(())
    };
    // SAFETY: between fork and exec there is one system call, which allocates nothing and takes no lock.
    unsafe { command.pre_exec(die) };
}

/// A process that is killed with this value, if it still runs, and with it the processes that it started.
#[derive(Debug)]
pub struct OwnedChild {
    child: Child,
}

impl OwnedChild {
    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has not ended. Unlike [`OwnedChild::status`] it needs no exclusive access.
    pub fn runs(&self) -> bool {
        let state = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap_or_default();
        !state.is_empty() && !state.contains(") Z ")
    }

    /// How it ended, if it has.
    pub fn status(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits for it to end; nothing, if it still runs then.
    pub fn wait_until(&mut self, deadline: Instant) -> Result<Option<ExitStatus>> {
        loop {
            let status = self.status()?;
            if status.is_some() || Instant::now() > deadline {
                return Ok(status);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Ends it with SIGKILL, so that it cannot clean up, and with it the processes that it started: fio's jobs and mpirun's ranks
    /// would outlive it, and keep its pipes open.
    pub fn kill(&mut self) {
        // Once it is known to have ended, its number may be another process's.
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        let started = descendants(&self.id().to_string());
        let _ = self.child.kill();
        for process in started {
            // SAFETY: a number is given to the kernel.
            unsafe { libc::kill(process, libc::SIGKILL) };
        }
        let _ = self.child.wait();
    }
}

impl From<Child> for OwnedChild {
    fn from(child: Child) -> Self {
        Self { child }
    }
}

impl Drop for OwnedChild {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The processes that a process started, and those that these started, as far as they run.
fn descendants(process: &str) -> Vec<libc::pid_t> {
    let path = format!("/proc/{process}/task/{process}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let children = text.split_whitespace();
    children
        .flat_map(|child| child.parse().into_iter().chain(descendants(child)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::process::Stdio;

    fn start(script: &str) -> Child {
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        command.spawn().expect("sh starts")
    }

    #[test]
    fn what_it_started_ends_with_it() {
        let mut child = start("sleep 1000 & echo started; wait");
        let mut pipe = child.stdout.take().expect("asked for");
        let mut first = [0; 8];
        pipe.read_exact(&mut first).expect("it says that it has started");
        drop(OwnedChild::from(child));
        // The pipe ends with the last process that has it.
        assert_eq!(pipe.read(&mut first).expect("our own pipe"), 0);
    }

    #[test]
    fn a_process_that_takes_too_long_is_not_waited_for() {
        let mut child = OwnedChild::from(start("exec sleep 1000"));
        let deadline = Instant::now() + Duration::from_millis(20);
        assert!(child.wait_until(deadline).expect("our own child").is_none());
        assert!(child.runs());
        child.kill();
        assert!(!child.runs());
    }

    #[test]
    fn a_process_that_ends_in_time_tells_how() {
        let mut child = OwnedChild::from(start("exit 3"));
        let deadline = Instant::now() + Duration::from_secs(60);
        let status = child.wait_until(deadline).expect("our own child");
        assert_eq!(status.and_then(|status| status.code()), Some(3));
    }
}
