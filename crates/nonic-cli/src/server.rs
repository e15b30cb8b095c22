//! The server's side: waits for clients and does its part of whatever run they ask for.
//!
//! `nonic ping --server` and `nonic perf --server` are the same server. Each client has a thread of its own.

use crate::arguments::Serving;
use crate::conversation::{Conversation, GREETING};
use crate::exchange::{DEFAULT_PORT, Message, PEER_TIMEOUT, VERSION, expected};
use crate::listeners::Listeners;
use crate::local_gid::{DeviceChoice, LocalGid, OpenDevices};
use crate::output;
use crate::perf::cm_side::CmSide;
use crate::perf::connections_test::ConnectionsTest;
use crate::perf::resources::RunResources;
use crate::perf::run::{Run, Test};
use crate::perf::{bandwidth_target, connections_target, latency_target};
use anyhow::{Context, Result, bail};
use nonic::{Device, Incoming, Listener, PortState, RejectReason, RetryReason};
use serde_json::json;
use signal_hook::consts::SIGTERM;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// More clients at once are turned away.
const MAX_CLIENTS: usize = 256;

/// What all clients share.
#[derive(Debug)]
struct Server {
    json: bool,
    clients: AtomicUsize,
}

pub(crate) fn run(arguments: &Serving, choice: &DeviceChoice, json: bool) -> Result<()> {
    let listeners = Listeners::open(arguments.bind, DEFAULT_PORT, choice, &OpenDevices::default())?;
    let server = Arc::new(Server {
        json,
        clients: AtomicUsize::new(0),
    });
    end_when_told()?;
    announce(&listeners, json)?;
    loop {
        let (device, incoming) = listeners.next();
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

/// Ends the process on SIGTERM, as it does by default for all but the first process of a container, which has to ask for it.
fn end_when_told() -> Result<()> {
    // As a shell tells it of a process that was ended by the signal.
    let status = 128 + SIGTERM;
    let always = Arc::new(AtomicBool::new(true));
    signal_hook::flag::register_conditional_shutdown(SIGTERM, status, always)
        .context("cannot wait for signals")?;
    Ok(())
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
        let local = LocalGid::at(device, incoming.local_ip())?;
        let mut conversation = Conversation::accept(&local, incoming)?;
        let outcome = self.do_runs(&local, &mut conversation, peer);
        if let Err(error) = &outcome {
            conversation.complain(error);
        }
        outcome
    }

    fn do_runs(&self, local: &LocalGid, conversation: &mut Conversation, peer: &str) -> Result<()> {
        let hello = conversation.expect("nonic", PEER_TIMEOUT)?;
        let version: u32 = hello.field("version")?;
        if version != VERSION {
            bail!("the client speaks version {version}, this server {VERSION}; use the same nonic on both");
        }
        // Where the queue pairs of this client's runs are connected.
        let listener = Listener::bind(&local.device, SocketAddr::new(local.ip(), 0))?;
        let hello = Message::new("nonic")
            .with("version", VERSION)
            .with("mtu", local.mtu().bytes())
            .with("port", listener.local_addr().port());
        conversation.say(&hello)?;
        while let Some(message) = conversation.next()? {
            if message.verb() == "connections" {
                let test = ConnectionsTest::from_message(&message)?;
                self.report(peer, &format!("{} connections", test.count));
                connections_target::serve(test, local, &listener, conversation)?;
                continue;
            }
            let run = Run::from_message(&expected("run", message)?)?;
            self.report(peer, &format!("{run} on {} {}", local.device_name(), local.ip()));
            let ended = conversation.ended();
            let side = CmSide::Passive(&listener, &ended);
            let mut resources = RunResources::build(&run, side, local, conversation)?;
            match run.test {
                Test::Lat => latency_target::serve(&mut resources, conversation)?,
                Test::Bw | Test::Rate => bandwidth_target::serve(&mut resources, conversation)?,
            }
        }
        Ok(())
    }

    /// Prints an event. A reader that is gone changes nothing.
    fn report(&self, peer: &str, what: &str) {
        let _ = match self.json {
            true => output::json(&json!({ "event": "client", "peer": peer, "what": what })),
            false => output::line(format_args!("{peer}: {what}")),
        };
    }
}

fn announce(listeners: &Listeners, json: bool) -> Result<()> {
    let port_state = listeners.local.as_ref().and_then(LocalGid::port_state);
    if json {
        return output::json(&json!({
            "event": "listening",
            "address": listeners.address(),
            "devices": listeners.devices(),
            "receives_from_other_hosts": port_state.map(|port_state| port_state == PortState::Joined),
        }));
    }
    let port_state = match port_state {
        None | Some(PortState::Joined) => String::new(),
        Some(PortState::Retry {
            reason: RetryReason::Taken,
        }) => ", UDP port 4791 is another user's, who passes on what comes from other hosts".to_owned(),
        Some(PortState::Retry {
            reason: RetryReason::Foreign,
        }) => {
            ", UDP port 4791 is another program's: nothing comes from other hosts, `nonic doctor` says more"
                .to_owned()
        }
        Some(PortState::Retry {
            reason: RetryReason::Unavailable(kind),
        }) => format!(", UDP port 4791 is not available: {kind}"),
    };
    let devices = listeners.devices().join(", ");
    output::line(format_args!(
        "listening on {} ({devices}{port_state})",
        listeners.address()
    ))
}
