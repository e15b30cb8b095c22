//! Servers that listen on a TCP port and end with their client, for cases that are scripted.

use super::bench::Bench;
use crate::tools::pair::fresh_port;
use anyhow::{Context, Result, bail};
use testbed::process::{Process, Ready};
use testbed::temporary::Scratch;

/// Runs a Python script of ours on both hosts: `script server {to} PORT`, and once that listens, `script client {from} {to} PORT`.
/// It fails if either does. What the client printed.
pub(crate) fn python_pair(bench: &Bench<'_>, script: &str, extra: &str) -> Result<String> {
    let scratch = Scratch::new()?;
    let file = scratch.write("pair.py", script)?;
    let file = file.display();
    let home = scratch.folder().display();
    let port = fresh_port();
    let python = format!("HOME={home} {{venv}}/bin/python {file}");
    let server = bench.server(&format!("{python} server {{to}} {port} {extra}"));
    let client = bench.client(&format!("{python} client {{from}} {{to}} {port} {extra}"));
    pair(bench, server, client, port)
}

/// A server that listens on a TCP port and ends with its client; what the client printed.
pub(crate) fn pair(
    bench: &Bench<'_>,
    mut server: std::process::Command,
    mut client: std::process::Command,
    port: u16,
) -> Result<String> {
    let server = Process::start(&mut server)?;
    if let Err(error) = server.wait_until(Ready::Tcp(port), &bench.topology) {
        bail!("the server: {error:#}: {}", server.stop());
    }
    match Process::start(&mut client)?.finish() {
        Err(error) => bail!("the client: {error:#}; the server: {}", server.stop()),
        Ok(printed) => {
            server.finish().context("the server")?;
            Ok(printed)
        }
    }
}
