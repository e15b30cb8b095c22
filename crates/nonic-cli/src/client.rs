//! The client's side of a conversation: connect, choose the device, agree on runs.

use crate::arguments::Ends;
use crate::conversation::Conversation;
use crate::exchange::{Message, PEER_TIMEOUT, VERSION};
use crate::local_gid::{self, DeviceChoice, LocalGid, OpenDevices};
use crate::loopback::LocalServer;
use crate::perf::cm_side::CmSide;
use crate::perf::resources::RunResources;
use crate::perf::run::Run;
use anyhow::{Context, Result, anyhow, bail};
use nonic::PathMtu;
use std::net::SocketAddr;

/// A connection to a server, and our device that reaches it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) conversation: Conversation,
    pub(crate) local: LocalGid,
    /// Where the server takes the connections of a run.
    pub(crate) run_address: SocketAddr,
    /// The largest path MTU both interfaces carry.
    pub(crate) mtu: PathMtu,
    /// The other end, for people.
    pub(crate) peer: String,
    /// Lives until the conversation above has ended.
    _server: Option<LocalServer>,
}

impl Session {
    /// Connects to a server, or starts one on this host. `command` is the one that talks to it, for advice.
    pub(crate) fn open(ends: &Ends, command: &str) -> Result<Self> {
        let choice = &ends.choice;
        let start = || LocalServer::start(choice, command == "ping");
        let server = ends.loopback.then(start).transpose()?;
        let peer = match (&server, &ends.host) {
            (Some(server), _) => server.address.clone(),
            (None, Some(host)) => host.clone(),
            (None, None) => bail!(
                "say which server to talk to (`nonic {command} HOST`), have both ends here (`nonic {command} --loopback`), \
                 or be the server (`nonic {command} --server`)"
            ),
        };
        let (mut conversation, local) = meet(&peer, choice, command)?;
        conversation.say(&Message::new("nonic").with("version", VERSION))?;
        let hello = conversation.expect("nonic", PEER_TIMEOUT)?;
        let version: u32 = hello.field("version")?;
        if version != VERSION {
            bail!("the server speaks version {version}, this program {VERSION}; use the same nonic on both");
        }
        let mut run_address = conversation.peer_addr();
        run_address.set_port(hello.field("port")?);
        let theirs = PathMtu::from_bytes(hello.field("mtu")?).context("the server's MTU is none")?;
        Ok(Session {
            mtu: theirs.min(local.mtu()),
            conversation,
            local,
            run_address,
            peer,
            _server: server,
        })
    }

    /// Agrees on a run with the server and connects.
    pub(crate) fn start(&mut self, run: &Run) -> Result<RunResources> {
        run.check()?;
        self.conversation.say(&run.to_message())?;
        let side = CmSide::Active(self.run_address);
        RunResources::build(run, side, &self.local, &mut self.conversation)
    }
}

/// Connects to a server, from the device that reaches it.
fn meet(server: &str, choice: &DeviceChoice, command: &str) -> Result<(Conversation, LocalGid)> {
    let devices = OpenDevices::default();
    let mut outcome = Err(anyhow!("`{server}` has no address"));
    for address in local_gid::addresses(server)? {
        outcome = local_gid::local_towards(address)
            .and_then(|local| devices.find(choice, local))
            .and_then(|local| Ok((Conversation::connect(&local, address, command)?, local)));
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}
