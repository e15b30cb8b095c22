//! A server and its clients.

use super::{Libraries, succeeded};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to listen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a server and a client, the latter again for as long as the server does not listen yet.
pub(crate) fn pair(libraries: &Libraries, program: [&str; 2], server: &[&str], client: &[&str]) {
    let running = libraries
        .command(program[0])
        .args(server)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the server starts");
    let last = until_served(libraries, program[1], client);
    // Whichever failed first explains it, so that both are shown before either is judged.
    let server = running.wait_with_output().expect("the server ends");
    let what = format!("{program:?}: server {server:?}, client");
    succeeded(&last, &what);
    succeeded(&server, "server");
}

/// Runs a client, again for as long as there is no listener yet.
pub(crate) fn until_served(libraries: &Libraries, program: &str, arguments: &[&str]) -> Output {
    let started = Instant::now();
    loop {
        let output = libraries.command(program).args(arguments).output();
        let output = output.expect("the client starts");
        if output.status.success() || !was_refused(&output) || started.elapsed() > PATIENCE {
            return output;
        }
    }
}

fn was_refused(output: &Output) -> bool {
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    // The last is what rstream says when poll tells it.
    ["REJECTED", "UNREACHABLE", "refused", "rpoll: "]
        .iter()
        .any(|word| said.contains(word))
}

/// A port no other test of this machine is likely to use. Each has 64 of its own. They are below those that the kernel
/// gives to TCP connections, some of which rest for a minute after their end: over iWARP no socket could listen there
/// meanwhile.
pub(crate) fn port(which: u32) -> String {
    (20_000 + (std::process::id() * 64 + which) % 12_000).to_string()
}

/// A server that does not end by itself.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(libraries: &Libraries, program: &str, arguments: &[&str]) -> Self {
        let child = libraries
            .command(program)
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Running(child.expect("the server starts"))
    }

    /// Sends it a signal, which `timeout` passes on.
    fn signal(&self, signal: libc::c_int) {
        // SAFETY: a child of ours that was not waited for.
        unsafe { libc::kill(self.0.id() as libc::pid_t, signal) };
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.signal(libc::SIGTERM);
        // It has ended, or will when its time is over.
        let _ = self.0.wait();
    }
}
