//! Real processes, each with a deadline, none left behind.
//!
//! Read first: [`Place`] (where and as which user a process runs), [`Server`], [`client`].

#![allow(dead_code, reason = "every test file uses a part of it")]

pub(crate) mod hosts;
pub(crate) mod matrix;

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use testbed::namespace::Namespace;
use testbed::owned::OwnedChild;
pub(crate) use testbed::packages::{has_program, is_root};
pub(crate) use testbed::run_as::AS_NOBODY;

/// How long anything may take. Machines that run tests are busy; a hang is still a hang.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// Where and as which user processes run.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    prefix: Vec<String>,
    program: PathBuf,
    environment: Vec<(String, String)>,
}

impl Place {
    /// Here, as ourselves.
    pub(crate) fn here() -> Self {
        Place {
            prefix: Vec::new(),
            program: env!("CARGO_BIN_EXE_nonic").into(),
            environment: Vec::new(),
        }
    }

    /// In a network namespace.
    pub(crate) fn in_namespace(mut self, namespace: &Namespace) -> Self {
        self.prefix.extend(namespace.enter());
        self
    }

    /// As the user nobody, with a copy of the program that this user may read.
    pub(crate) fn run_by_nobody(mut self, program: PathBuf) -> Self {
        self.prefix.extend(AS_NOBODY.map(str::to_owned));
        self.program = program;
        self
    }

    pub(crate) fn with_environment(mut self, key: &str, value: impl Into<String>) -> Self {
        self.environment.push((key.to_owned(), value.into()));
        self
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = match self.prefix.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        command.args(arguments).envs(self.environment.clone());
        command.env_remove("NONIC_FAULTS").stdin(Stdio::null());
        command
    }
}

/// A process that is killed with this value, if it still runs. A test fails if it does not end in time.
#[derive(Debug)]
pub(crate) struct Process {
    child: OwnedChild,
    name: String,
}

impl Process {
    /// Starts a command; the child has its pipes.
    fn spawn(command: &mut Command) -> (Self, Pipes) {
        let name = format!("{command:?}");
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{name}: {error}"));
        let pipes = Pipes {
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
        };
        let child = child.into();
        (Process { child, name }, pipes)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.child.runs()
    }

    /// Ends it with SIGKILL: it cannot clean up.
    pub(crate) fn kill(mut self) {
        self.child.kill();
    }

    /// Sends it a signal, by name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args(["-s", name, &self.pid().to_string()])
            .status();
        assert!(sent.is_ok_and(|status| status.success()), "our own child");
    }

    /// Waits for it to end; whether it succeeded.
    pub(crate) fn wait(&mut self, deadline: Instant) -> bool {
        let status = self.child.wait_until(deadline).expect("our own child");
        let status = status.unwrap_or_else(|| panic!("still runs after its deadline: {}", self.name));
        status.success()
    }
}

impl From<Child> for Process {
    fn from(child: Child) -> Self {
        Process {
            name: format!("process {}", child.id()),
            child: child.into(),
        }
    }
}

/// What a process prints to, as far as it was piped.
struct Pipes {
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
}

/// A server that listens.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) process: Process,
    /// Where it listens.
    pub(crate) address: String,
    /// Whether it has a socket at port 4791 of that address.
    pub(crate) joined: bool,
    lines: Receiver<String>,
}

impl Server {
    /// Starts `nonic ping --server`, or `perf`, and waits until it listens.
    pub(crate) fn start(place: &Place, tool: &str, bind: &str, more: &[&str]) -> Self {
        let mut arguments = vec![tool, "--json", "--server", "--bind", bind];
        arguments.extend(more);
        let mut command = place.command(&arguments);
        command.stdout(Stdio::piped());
        let (process, pipes) = Process::spawn(&mut command);
        let stdout = pipes.stdout.expect("asked for");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut server = Server {
            process,
            address: String::new(),
            joined: false,
            lines,
        };
        let event = server.next_event();
        assert_eq!(event["event"], "listening", "{event}");
        server.address = event["address"].as_str().expect("an address").to_owned();
        server.joined = event["receives_from_other_hosts"].as_bool().unwrap_or_default();
        server
    }

    /// The next thing it says.
    pub(crate) fn next_event(&self) -> Value {
        let line = self.lines.recv_timeout(DEADLINE);
        let line = line.unwrap_or_else(|_| panic!("no news from {}", self.process.name));
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }
}

/// What a process left behind.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) success: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    /// The one JSON document it printed.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}

/// A client under way.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) process: Process,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
    started: Instant,
}

impl Client {
    pub(crate) fn start(place: &Place, arguments: &[&str]) -> Self {
        let mut command = place.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let (process, pipes) = Process::spawn(&mut command);
        let stdout = collect(pipes.stdout.expect("asked for"));
        let stderr = collect(pipes.stderr.expect("asked for"));
        Client {
            process,
            stdout,
            stderr,
            started: Instant::now(),
        }
    }

    pub(crate) fn finish(mut self) -> Outcome {
        let success = self.process.wait(self.started + DEADLINE);
        let text = |pipe: &Receiver<String>| pipe.recv_timeout(DEADLINE).expect("it ended");
        Outcome {
            success,
            stdout: text(&self.stdout),
            stderr: text(&self.stderr),
        }
    }

    /// It must succeed; the JSON it printed.
    pub(crate) fn json(self) -> Value {
        let name = self.process.name.clone();
        let outcome = self.finish();
        assert!(outcome.success, "{name}: {}", outcome.stderr);
        outcome.json()
    }
}

/// Runs a program to its end.
pub(crate) fn run(place: &Place, arguments: &[&str]) -> Outcome {
    Client::start(place, arguments).finish()
}

fn collect(mut pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

/// Whether something the test needs is missing. Where changes are accepted nothing may be.
pub(crate) fn missing(reason: Option<String>) -> bool {
    let Some(reason) = reason else {
        return false;
    };
    assert!(
        std::env::var_os("CI").is_none(),
        "CI cannot run this test: {reason}"
    );
    eprintln!("NOT TESTED: {reason}");
    true
}

/// A directory that every user may read, with a copy of the program.
pub(crate) fn readable_copy() -> (tempfile::TempDir, PathBuf) {
    readable_copy_of(env!("CARGO_BIN_EXE_nonic").as_ref())
}

/// The same with a copy of another program.
pub(crate) fn readable_copy_of(original: &Path) -> (tempfile::TempDir, PathBuf) {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let everyone = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), everyone.clone()).expect("our own directory");
    let program = directory
        .path()
        .join(original.file_name().expect("a program has a name"));
    std::fs::copy(original, &program).expect("room for a copy");
    std::fs::set_permissions(&program, everyone).expect("our own file");
    (directory, program)
}
