//! A folder for one run: scripts of ours that its processes read, and whatever they write. Every user may.

use super::bench::Bench;
use crate::tools::pair::fresh_port;
use anyhow::{Context, Result, bail};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use testbed::process::{Process, Ready};

/// It is gone when the value is.
pub(crate) struct Scratch {
    folder: PathBuf,
}

impl Scratch {
    pub(crate) fn new() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("nonic-scratch-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let scratch = Self { folder };
        std::fs::set_permissions(&scratch.folder, PermissionsExt::from_mode(0o777))?;
        Ok(scratch)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A file in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes a file that every user may read; its path.
    pub(crate) fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> Result<PathBuf> {
        let path = self.path(name);
        std::fs::write(&path, contents).with_context(|| format!("cannot write {}", path.display()))?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

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
