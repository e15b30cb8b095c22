//! The server's side: waits for clients and does its part of whatever run they ask for.
//!
//! `nonic ping --server` and `nonic perf --server` are the same server. Each client has a thread of its own.

use crate::exchange::{Conversation, DEFAULT_PORT, Message, PATIENCE, VERSION, expected};
use crate::output;
use crate::perf::connections::Crowd;
use crate::perf::rig::{Rig, Role};
use crate::perf::run::{Run, Test};
use crate::perf::{bandwidth_target, connections_target, latency_target};
use crate::site::{Choice, Site, Sites};
use anyhow::{Context, Result, bail};
use nonic::Standing;
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// More clients at once are turned away.
const MAX_CLIENTS: usize = 256;

/// How to serve.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Serving {
    /// Wait for clients instead of being one
    #[arg(long)]
    pub(crate) server: bool,
    /// Listen on this TCP address (default: all, port 18515; port 0 is any free one)
    #[arg(long, value_name = "IP[:PORT]", value_parser = bind_address, requires = "server")]
    bind: Option<SocketAddr>,
    /// End after the first client
    #[arg(long, requires = "server")]
    once: bool,
}

/// What all clients share.
#[derive(Debug)]
struct Server {
    choice: Choice,
    sites: Sites,
    json: bool,
    clients: AtomicUsize,
}

pub(crate) fn run(arguments: &Serving, choice: &Choice, json: bool) -> Result<()> {
    let listener = listen(arguments.bind)?;
    let local = listener.local_addr()?;
    let server = Arc::new(Server {
        choice: choice.clone(),
        sites: Sites::default(),
        json,
        clients: AtomicUsize::new(0),
    });
    // A device that is known already is opened now: what cannot work should say so before a client comes.
    let known = !local.ip().is_unspecified() || choice.device_is_named();
    let site = known.then(|| server.sites.find(choice, local)).transpose()?;
    announce(local, site.as_ref(), json)?;
    for stream in listener.incoming() {
        let stream = match stream {
            Ok(stream) => stream,
            // The client that hung up again is its own affair; without descriptors left, others must end first.
            Err(error) => {
                server.report("refused", &error.to_string());
                std::thread::sleep(std::time::Duration::from_millis(100));
                continue;
            }
        };
        if arguments.once {
            return server.serve(stream);
        }
        if server.clients.load(Ordering::Relaxed) >= MAX_CLIENTS {
            server.report("refused", "too many clients at once");
            continue;
        }
        let server = Arc::clone(&server);
        server.clients.fetch_add(1, Ordering::Relaxed);
        std::thread::Builder::new()
            .name("client".to_owned())
            .spawn(move || {
                // Said already, by `serve`.
                let _ = server.serve(stream);
                server.clients.fetch_sub(1, Ordering::Relaxed);
            })
            .context("cannot start a thread for a client")?;
    }
    Ok(())
}

impl Server {
    fn serve(&self, stream: TcpStream) -> Result<()> {
        let peer = stream
            .peer_addr()
            .map_or_else(|_| "?".to_owned(), |peer| peer.to_string());
        let mut conversation = Conversation::new(stream)?;
        let outcome = self.converse(&mut conversation, &peer);
        if let Err(error) = &outcome {
            self.report(&peer, &format!("{error:#}"));
            conversation.complain(error);
        }
        outcome
    }

    fn converse(&self, conversation: &mut Conversation, peer: &str) -> Result<()> {
        let hello = conversation.expect("nonic", PATIENCE)?;
        let version: u32 = hello.field("version")?;
        if version != VERSION {
            bail!("the client speaks version {version}, this server {VERSION}; use the same nonic on both");
        }
        let site = self.sites.find(&self.choice, conversation.local_addr()?)?;
        let hello = Message::new("nonic")
            .with("version", VERSION)
            .with("mtu", site.mtu().bytes());
        conversation.say(&hello)?;
        while let Some(message) = conversation.next()? {
            if message.verb() == "connections" {
                let crowd = Crowd::from_message(&message)?;
                self.report(peer, &format!("{} connections", crowd.count));
                connections_target::serve(crowd, &site, conversation)?;
                continue;
            }
            let run = Run::from_message(&expected("run", message)?)?;
            self.report(peer, &format!("{run} on {} {}", site.device_name(), site.ip()));
            let mut rig = Rig::build(&run, Role::Server, &site, conversation)?;
            match run.test {
                Test::Lat => latency_target::serve(&mut rig, conversation)?,
                Test::Bw | Test::Rate => bandwidth_target::serve(&mut rig, conversation)?,
            }
        }
        Ok(())
    }

    /// Tells what happens. Whether anyone reads it changes nothing.
    fn report(&self, peer: &str, what: &str) {
        let _ = match self.json {
            true => output::json(&json!({ "event": "client", "peer": peer, "what": what })),
            false => output::line(format_args!("{peer}: {what}")),
        };
    }
}

fn announce(local: SocketAddr, site: Option<&Site>, json: bool) -> Result<()> {
    if json {
        return output::json(&json!({
            "event": "listening",
            "address": local.to_string(),
            "device": site.map(Site::device_name),
            "holder": site.map(|site| site.standing() == Standing::Holder),
        }));
    }
    match site {
        None => output::line(format_args!("listening on {local}")),
        Some(site) => {
            let standing = match site.standing() {
                Standing::Holder => "this process holds UDP port 4791".to_owned(),
                Standing::Waiting {
                    holder_pid: Some(pid),
                } => format!("process {pid} holds UDP port 4791"),
                Standing::Waiting { holder_pid: None } => "another process holds UDP port 4791".to_owned(),
                Standing::Retry { reason } => format!("UDP port 4791 is not available: {reason:?}"),
            };
            output::line(format_args!(
                "listening on {local} ({}, {standing})",
                site.device_name()
            ))
        }
    }
}

fn listen(bind: Option<SocketAddr>) -> Result<TcpListener> {
    if let Some(address) = bind {
        return TcpListener::bind(address)
            .with_context(|| format!("cannot listen on {address}; choose another with --bind"));
    }
    // The IPv6 wildcard takes IPv4 too; a host without IPv6 has only the other.
    let wildcards = [
        IpAddr::from(Ipv6Addr::UNSPECIFIED),
        IpAddr::from(Ipv4Addr::UNSPECIFIED),
    ];
    let bound = TcpListener::bind(wildcards.map(|ip| SocketAddr::new(ip, DEFAULT_PORT)).as_slice());
    bound.with_context(|| {
        format!("cannot listen on TCP port {DEFAULT_PORT}; choose another with --bind IP:PORT")
    })
}

/// Reads `IP` or `IP:PORT`.
fn bind_address(text: &str) -> Result<SocketAddr, String> {
    use std::net::ToSocketAddrs;
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    // With a scope (`fe80::1%eth0`), which only the resolver knows how to read.
    let (host, port) = crate::site::split_port(text).map_err(|error| format!("{error:#}"))?;
    let mut found = (host, port)
        .to_socket_addrs()
        .map_err(|_| format!("`{text}` is no IP:PORT"))?;
    found.next().ok_or_else(|| format!("`{text}` has no address"))
}
