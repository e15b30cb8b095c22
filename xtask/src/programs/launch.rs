//! Starts MPI programs by the launcher of each implementation, on one host or on two.
//!
//! With two hosts a launcher starts its daemon on the other one by `ssh HOST COMMAND`. Here a script stands in for
//! `ssh`, and hands the command over by a named pipe to a shell that already waits there, as the same user: an
//! unprivileged process may not enter another namespace.

use super::bench::Bench;
use anyhow::{Context, Result, bail, ensure};
use std::fmt::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use testbed::process::Process;
use testbed::temporary::Scratch;

/// The program that all ranks run.
const SOURCE: &str = include_str!("mpi_check.c");

/// Which command starts the ranks, and what it understands.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Launcher {
    /// Debian's Open MPI 4.
    OpenMpi4,
    /// Open MPI 5, in an environment of Python.
    OpenMpi5,
    /// MPICH, in an environment of Python.
    Mpich,
}

/// A launcher, what it is given, and what it starts.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) launcher: Launcher,
    /// Variables of the ranks' environment, each as `NAME=value`.
    pub(crate) variables: &'static str,
    pub(crate) options: &'static str,
    pub(crate) ranks: usize,
}

impl Launcher {
    /// The folder of its commands.
    fn commands(self) -> &'static str {
        match self {
            Launcher::OpenMpi4 => "/usr/bin",
            Launcher::OpenMpi5 | Launcher::Mpich => "{venv}/bin",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Launcher::OpenMpi4 | Launcher::OpenMpi5 => "mpirun",
            Launcher::Mpich => "mpiexec",
        }
    }

    fn compiler(self) -> &'static str {
        match self {
            Launcher::OpenMpi4 => "mpicc.openmpi",
            Launcher::OpenMpi5 | Launcher::Mpich => "mpicc",
        }
    }

    /// How it is told which hosts there are, and what to use for `ssh`.
    ///
    /// Open MPI binds ranks to processors. Here both hosts are one machine, so a rank of each would be bound to the same
    /// processor. With sessions scheduled as groups, Linux then let one of two such ranks wait for up to ten seconds, in
    /// which none of its threads could answer the peer.
    fn hosts(self, hosts: [&str; 2], each: usize, ssh: &str) -> String {
        let [first, second] = hosts;
        match self {
            Launcher::OpenMpi4 => {
                format!("--bind-to none --host {first}:{each},{second}:{each} --mca plm_rsh_agent {ssh}")
            }
            Launcher::OpenMpi5 => {
                format!("--bind-to none --host {first}:{each},{second}:{each} --prtemca plm_ssh_agent {ssh}")
            }
            Launcher::Mpich => format!("-hosts {first},{second} -ppn {each} -launcher-exec {ssh}"),
        }
    }
}

impl Launch {
    /// The command as people give it, but for the hosts.
    pub(crate) fn line(&self) -> String {
        let mut line = self.start("");
        // Writing to a string does not fail.
        let _ = write!(line, " -n {} mpi_check", self.ranks);
        line
    }

    /// The launcher, in a folder, and what it is told but for the hosts and the program.
    fn start(&self, folder: &str) -> String {
        let name = self.launcher.name();
        let mut words = Vec::new();
        if self.launcher == Launcher::Mpich {
            words.extend(self.variables.split_whitespace().map(str::to_owned));
            words.push(format!("{folder}{name}"));
        } else {
            // Unlike MPICH's, it gives ranks on other hosts those variables only that it is told of.
            words.push(format!("{folder}{name}"));
            words.extend(
                self.variables
                    .split_whitespace()
                    .map(|variable| format!("-x {variable}")),
            );
        }
        words.extend(self.options.split_whitespace().map(str::to_owned));
        words.join(" ")
    }

    /// Runs it to its end.
    pub(super) fn run(&self, bench: &Bench<'_>) -> Result<()> {
        let folder = Folder::new()?;
        self.compile(bench, &folder)?;
        let topology = &bench.topology;
        let is_one_host = topology.address == topology.client_address;
        let mut line = self.start(&format!("{}/", self.launcher.commands()));
        if is_one_host && self.launcher != Launcher::Mpich {
            line += " --oversubscribe";
        }
        if !is_one_host {
            let hosts = [topology.client_address, topology.address];
            let ssh = folder.file("ssh");
            line += " ";
            line += &self.launcher.hosts(hosts, self.ranks.div_ceil(2), &ssh);
        }
        let _ = write!(line, " -n {} {}", self.ranks, folder.file("mpi_check"));
        let waiting = match is_one_host {
            true => None,
            false => {
                let mut shell = bench.server(&format!("sh {}", folder.file("wait-for-command")));
                Some(Process::start(shell.env("HOME", folder.scratch.folder()))?)
            }
        };
        let launched = Process::start(bench.client(&line).env("HOME", folder.scratch.folder()))?.finish();
        let told = waiting.map(Process::stop).unwrap_or_default();
        match launched {
            Ok(printed) if printed.contains("all is well") => Ok(()),
            Ok(printed) => bail!("not all is well: {printed}"),
            Err(error) => bail!("{error:#}; the other host: {told}"),
        }
    }

    fn compile(&self, bench: &Bench<'_>, folder: &Folder) -> Result<()> {
        let commands = bench.fill_in(self.launcher.commands());
        let compiler = format!("{commands}/{}", self.launcher.compiler());
        let source = folder.file("mpi_check.c");
        std::fs::write(&source, SOURCE).with_context(|| format!("cannot write {source}"))?;
        let mut command = Command::new(&compiler);
        command.args(["-O1", "-o", &folder.file("mpi_check"), &source]);
        let output = command
            .output()
            .with_context(|| format!("cannot start {compiler}"))?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "mpi_check.c does not compile: {complaint}"
        );
        Ok(())
    }
}

/// What both hosts see: the program, what stands in for `ssh`, and a place for the launcher's own files.
struct Folder {
    scratch: Scratch,
}

impl Folder {
    fn new() -> Result<Self> {
        let folder = Self {
            scratch: Scratch::new()?,
        };
        let pipes = [folder.file("command"), folder.file("end")];
        let made = Command::new("mkfifo").args(&pipes).status();
        ensure!(made.context("cannot start mkfifo")?.success(), "mkfifo failed");
        let [command, end] = &pipes;
        // Options come before the host, as ssh has it. It ends when the command has, and everything that it started.
        let ssh = format!(
            "#!/bin/sh\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\nshift\necho \"$*\" > {command}\ncat {end} > /dev/null\n"
        );
        // Opened for both, since to open it for writing alone would wait for a reader.
        let wait = format!("exec 9<>{end}\nread -r command < {command}\nexec sh -c \"$command\"\n");
        std::fs::write(folder.file("ssh"), ssh)?;
        std::fs::write(folder.file("wait-for-command"), wait)?;
        for pipe in &pipes {
            std::fs::set_permissions(pipe, PermissionsExt::from_mode(0o777))?;
        }
        std::fs::set_permissions(folder.file("ssh"), PermissionsExt::from_mode(0o755))?;
        Ok(folder)
    }

    fn file(&self, name: &str) -> String {
        self.scratch.path(name).display().to_string()
    }
}
