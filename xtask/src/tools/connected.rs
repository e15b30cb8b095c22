//! Runs a case of programs that find each other by the connection manager.
//!
//! Their command lines differ from program to program, so each case has its own, with `{words}` for what depends on the
//! place: `{to}` and `{from}` are the addresses of server and client, `{ethernet-to}` and `{ethernet-from}` those on an
//! interface with multicast, `{device}` is the device there, `{group}` a multicast group, `{port}` an unused port and
//! `{ipv6}` the option `-6` where that is needed. `{source}` and `{copy}` are files, if the case has any. A line may
//! begin with variables, `NAME=value`, as in a shell.

use super::case::{Connected, Reached};
use super::files::Files;
use super::pair::fresh_port;
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::process::Command;
use testbed::process::{Process, Ready};
use testbed::run_as::RunAs;
use testbed::topology::{Topology, on_nonic};

/// Runs it.
pub(crate) fn run(topology: &Topology<'_>, nonic: &Path, case: &Connected) -> Result<()> {
    let port = fresh_port();
    let files = case.copied_bytes.map(Files::new).transpose()?;
    let command = |run_as: &RunAs<'_>, line: &str| {
        let line = match &files {
            Some(files) => files.fill_in(line),
            None => line.to_owned(),
        };
        command(topology, nonic, run_as, &line, port)
    };
    let server = Process::start(&mut command(&topology.server, &case.server))?;
    let ready = match case.reached {
        Reached::Port if topology.is_iwarp() => Ready::Tcp(port),
        Reached::Port => Ready::Service(port),
        Reached::Fixed(port) => Ready::Service(port),
        Reached::Group => Ready::Group,
        Reached::Udp => Ready::Udp(port),
        Reached::Tcp => Ready::Tcp(port),
    };
    if let Err(error) = server.wait_until(ready, topology) {
        bail!("the server: {error:#}: {}", server.stop());
    }
    let client = || Process::start(&mut command(&topology.client, &case.client));
    let printed = match clients(case.clients, client) {
        Ok(printed) => printed,
        Err(error) => bail!("{error:#}; the server: {}", server.stop()),
    };
    ensure!(
        printed.contains(case.prints),
        "the client does not print {:?}: {printed}",
        case.prints
    );
    if let Some(files) = &files {
        files.compare()?;
    }
    if case.server_ends {
        server.finish().context("the server")?;
        return Ok(());
    }
    ensure!(server.runs(), "the server ended: {}", server.stop());
    Ok(())
}

/// Runs the clients; what the last one printed.
fn clients(count: usize, start: impl Fn() -> Result<Process>) -> Result<String> {
    let mut printed = String::new();
    for turn in 1..=count {
        printed = start()?.finish().with_context(|| format!("client {turn}"))?;
    }
    Ok(printed)
}

/// One side's command, with what depends on the place filled in.
pub(crate) fn command(
    topology: &Topology<'_>,
    nonic: &Path,
    run_as: &RunAs<'_>,
    line: &str,
    port: u16,
) -> Command {
    let line = line
        .replace("{to}", topology.address)
        .replace("{from}", topology.client_address)
        .replace("{ethernet-to}", topology.ethernet[0])
        .replace("{ethernet-from}", topology.ethernet[1])
        .replace("{device}", topology.device)
        .replace("{ipv6}", if topology.group.is_ipv6() { "-6" } else { "" })
        .replace("{group}", &topology.group.to_string())
        .replace("{port}", &port.to_string());
    let mut words = line.split_whitespace().peekable();
    let mut variables = Vec::new();
    while let Some(variable) = words.next_if(|word| word.contains('=')) {
        variables.extend(variable.split_once('='));
    }
    let mut command = on_nonic(run_as, nonic, words.next().unwrap_or_default());
    command.args(words).envs(variables);
    command
}
