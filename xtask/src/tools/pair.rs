//! Runs a case of programs that find each other by TCP: starts the server, waits until it listens, starts the
//! client, waits for both.

use super::case::Case;
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};
use testbed::process::{Process, Ready};
use testbed::run_as::RunAs;
use testbed::topology::{Topology, on_nonic};

/// One process that looks and ends, and names our device.
pub(super) fn alone(topology: &Topology<'_>, nonic: &Path, case: &Case) -> Result<()> {
    let mut command = on_nonic(&topology.client, nonic, case.program);
    let process = Process::start(command.args(&case.options))?;
    let printed = process.finish()?;
    ensure!(
        printed.contains(topology.device),
        "it does not name {}: {printed}",
        topology.device
    );
    Ok(())
}

/// A server and a client with the same options; what the client printed.
pub(super) fn both(topology: &Topology<'_>, nonic: &Path, case: &Case) -> Result<String> {
    let port = fresh_port();
    let gid_index = topology.gid_index.to_string();
    let is_example = case.program.starts_with("ibv_");
    let arguments = |run_as: &RunAs<'_>| {
        let mut command = on_nonic(run_as, nonic, case.program);
        command.args(["-d", topology.device, "-p", &port.to_string()]);
        command.args([if is_example { "-g" } else { "-x" }, &gid_index]);
        if !case.service.is_empty() {
            command.args(["-c", case.service]);
        }
        command.args(&case.options).args(&case.limits);
        command
    };
    let server = Process::start(&mut arguments(&topology.server))?;
    server
        .wait_until(Ready::Tcp(port), topology)
        .context("the server")?;
    let client = Process::start(arguments(&topology.client).arg(topology.address))?;
    // If one side fails, what it says explains the other's failure too.
    let (client, server) = (client.finish(), server.finish());
    match (client, server) {
        (Ok(printed), Ok(_)) => Ok(printed),
        (Err(client), Ok(_)) => Err(client.context("the client")),
        (Ok(_), Err(server)) => Err(server.context("the server")),
        (Err(client), Err(server)) => bail!("the client: {client:#}; the server: {server:#}"),
    }
}

/// Ports of cases that follow each other must not be in the way of each other.
pub(crate) fn fresh_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(20000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
