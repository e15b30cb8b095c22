//! The server's side: waits for clients and does its part of whatever run they ask for.
//!
//! `nonic ping --server` and `nonic perf --server` are the same server. Each client has a thread of its own.

use crate::arguments::Serving;
use crate::conversation::{Conversation, GREETING};
use crate::door::Door;
use crate::exchange::{Message, PATIENCE, VERSION, expected};
use crate::output;
use crate::perf::connections_test::Crowd;
use crate::perf::meeting::Meeting;
use crate::perf::rig::Rig;
use crate::perf::run::{Run, Test};
use crate::perf::{bandwidth_target, connections_target, latency_target};
use crate::site::{Choice, Site, Sites};
use anyhow::{Context, Result, bail};
use nonic::{Device, Incoming, Listener, RejectReason, RetryReason, Standing};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// More clients at once are turned away.
const MAX_CLIENTS: usize = 256;

/// What all clients share.
#[derive(Debug)]
struct Server {
    json: bool,
    clients: AtomicUsize,
}

pub(crate) fn run(arguments: &Serving, choice: &Choice, json: bool) -> Result<()> {
    let door = Door::open(arguments.bind, choice, &Sites::default())?;
    let server = Arc::new(Server {
        json,
        clients: AtomicUsize::new(0),
    });
    announce(&door, json)?;
    loop {
        let (device, incoming) = door.next();
        let peer = incoming.peer_addr().ip().to_string();
        if !incoming.private_data().starts_with(GREETING) {
            server.report(&peer, "refused: it is no nonic");
            // It may have given up already.
            let _ = incoming.reject(b"this port is for `nonic ping` and `nonic perf`");
            continue;
        }
        if arguments.once {
            return server.serve(&device, incoming, &peer);
        }
        if server.clients.load(Ordering::Relaxed) >= MAX_CLIENTS {
            server.report(&peer, "refused: too many clients at once");
            let _ = incoming.reject_with(RejectReason::NO_RESOURCES, b"too many clients at once");
            continue;
        }
        let server = Arc::clone(&server);
        server.clients.fetch_add(1, Ordering::Relaxed);
        std::thread::Builder::new()
            .name("client".to_owned())
            .spawn(move || {
                // Said already, by `serve`.
                let _ = server.serve(&device, incoming, &peer);
                server.clients.fetch_sub(1, Ordering::Relaxed);
            })
            .context("cannot start a thread for a client")?;
    }
}

impl Server {
    fn serve(&self, device: &Device, incoming: Incoming, peer: &str) -> Result<()> {
        let outcome = self.converse(device, incoming, peer);
        if let Err(error) = &outcome {
            self.report(peer, &format!("{error:#}"));
        }
        outcome
    }

    fn converse(&self, device: &Device, incoming: Incoming, peer: &str) -> Result<()> {
        let site = Sites::at(device, incoming.local_ip())?;
        let mut conversation = Conversation::accept(&site, incoming)?;
        let outcome = self.do_runs(&site, &mut conversation, peer);
        if let Err(error) = &outcome {
            conversation.complain(error);
        }
        outcome
    }

    fn do_runs(&self, site: &Site, conversation: &mut Conversation, peer: &str) -> Result<()> {
        let hello = conversation.expect("nonic", PATIENCE)?;
        let version: u32 = hello.field("version")?;
        if version != VERSION {
            bail!("the client speaks version {version}, this server {VERSION}; use the same nonic on both");
        }
        // Where the queue pairs of this client's runs are connected.
        let listener = Listener::bind(&site.device, SocketAddr::new(site.ip(), 0))?;
        let hello = Message::new("nonic")
            .with("version", VERSION)
            .with("mtu", site.mtu().bytes())
            .with("port", listener.local_addr().port());
        conversation.say(&hello)?;
        while let Some(message) = conversation.next()? {
            if message.verb() == "connections" {
                let crowd = Crowd::from_message(&message)?;
                self.report(peer, &format!("{} connections", crowd.count));
                connections_target::serve(crowd, site, &listener, conversation)?;
                continue;
            }
            let run = Run::from_message(&expected("run", message)?)?;
            self.report(peer, &format!("{run} on {} {}", site.device_name(), site.ip()));
            let mut rig = Rig::build(&run, Meeting::Passive(&listener), site, conversation)?;
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

fn announce(door: &Door, json: bool) -> Result<()> {
    let standing = door.site.as_ref().map(Site::standing);
    if json {
        return output::json(&json!({
            "event": "listening",
            "address": door.address(),
            "devices": door.devices(),
            "receives_from_other_hosts": standing.map(|standing| standing == Standing::Joined),
        }));
    }
    let standing = match standing {
        None | Some(Standing::Joined) => String::new(),
        Some(Standing::Retry {
            reason: RetryReason::Taken,
        }) => ", UDP port 4791 is another user's, who passes on what comes from other hosts".to_owned(),
        Some(Standing::Retry {
            reason: RetryReason::Unavailable(kind),
        }) => format!(", UDP port 4791 is not available: {kind}"),
    };
    let devices = door.devices().join(", ");
    output::line(format_args!(
        "listening on {} ({devices}{standing})",
        door.address()
    ))
}
