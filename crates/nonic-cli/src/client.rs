//! The client's side of a conversation: connect, choose the device, agree on runs.

use crate::exchange::{Conversation, Message, PATIENCE, VERSION};
use crate::loopback::LocalServer;
use crate::perf::rig::{Rig, Role};
use crate::perf::run::Run;
use crate::server::Serving;
use crate::site::{self, Choice, Site, Sites};
use anyhow::{Context, Result, bail};
use nonic::PathMtu;

/// Which end of a conversation this process is, and where the other is.
#[derive(Debug, clap::Args)]
pub(crate) struct Ends {
    #[arg(
        help = "The server: HOST, HOST:PORT, [IPV6]:PORT or IPV6%INTERFACE",
        conflicts_with_all = ["server", "loopback"],
        required_unless_present_any = ["server", "loopback"]
    )]
    host: Option<String>,
    #[command(flatten)]
    pub(crate) serving: Serving,
    /// Start a server on this host as a child process and talk to it
    #[arg(long, conflicts_with = "server")]
    loopback: bool,
    #[command(flatten)]
    pub(crate) choice: Choice,
}

/// A connection to a server, and our device that reaches it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) conversation: Conversation,
    pub(crate) site: Site,
    /// The largest path MTU both interfaces carry.
    pub(crate) mtu: PathMtu,
    /// Who is at the other end, for people.
    pub(crate) peer: String,
    /// Lives until the conversation above has ended.
    _server: Option<LocalServer>,
}

impl Session {
    /// Connects to a server, or starts one on this host.
    pub(crate) fn open(ends: &Ends) -> Result<Self> {
        let choice = &ends.choice;
        let server = ends.loopback.then(|| LocalServer::start(choice)).transpose()?;
        let peer = match (&server, &ends.host) {
            (Some(server), _) => server.address.clone(),
            (None, Some(host)) => host.clone(),
            (None, None) => bail!("say which server to talk to, or use --server or --loopback"),
        };
        let mut conversation = Conversation::new(site::connect(&peer)?)?;
        let site = Sites::default().find(choice, conversation.local_addr()?)?;
        conversation.say(&Message::new("nonic").with("version", VERSION))?;
        let hello = conversation.expect("nonic", PATIENCE)?;
        let version: u32 = hello.field("version")?;
        if version != VERSION {
            bail!("the server speaks version {version}, this program {VERSION}; use the same nonic on both");
        }
        let theirs = PathMtu::from_bytes(hello.field("mtu")?).context("the server's MTU is none")?;
        Ok(Session {
            mtu: theirs.min(site.mtu()),
            conversation,
            site,
            peer,
            _server: server,
        })
    }

    /// Agrees on a run with the server and connects.
    pub(crate) fn start(&mut self, run: &Run) -> Result<Rig> {
        run.check()?;
        self.conversation.say(&run.to_message())?;
        Rig::build(run, Role::Client, &self.site, &mut self.conversation)
    }
}
