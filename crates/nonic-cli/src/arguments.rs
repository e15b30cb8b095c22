//! Arguments that several commands have in common: which end a process is, and where the other one is.

use crate::local_gid::{self, DeviceChoice};
use std::net::{SocketAddr, ToSocketAddrs};

/// Which end of a conversation this process is, and where the other is.
#[derive(Debug, clap::Args)]
pub(crate) struct Ends {
    #[arg(
        help = "The server: HOST, HOST:PORT, [IPV6]:PORT or IPV6%INTERFACE",
        conflicts_with_all = ["server", "loopback"]
    )]
    pub(crate) host: Option<String>,
    #[command(flatten)]
    pub(crate) serving: Serving,
    /// Start a server on this host as a child process and talk to it
    #[arg(long, conflicts_with = "server")]
    pub(crate) loopback: bool,
    #[command(flatten)]
    pub(crate) choice: DeviceChoice,
}

/// How to serve.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Serving {
    /// Wait for clients instead of being one
    #[arg(long)]
    pub(crate) server: bool,
    /// Listen at this address (default: all of this host's, port 18515; port 0 is any free one)
    #[arg(long, value_name = "IP[:PORT]", value_parser = bind_address, requires = "server")]
    pub(crate) bind: Option<SocketAddr>,
    /// End after the first client
    #[arg(long, requires = "server")]
    pub(crate) once: bool,
}

/// Reads `IP` or `IP:PORT`.
fn bind_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    // With a scope (`fe80::1%eth0`), which only the resolver knows how to read.
    let (host, port) = local_gid::split_port(text).map_err(|error| format!("{error:#}"))?;
    let mut found = (host, port)
        .to_socket_addrs()
        .map_err(|_| format!("`{text}` is no IP:PORT"))?;
    found.next().ok_or_else(|| format!("`{text}` has no address"))
}
