//! Links: the interface between the NIC and what carries its packets.
//!
//! A [`Link`] is one local address with everything that brings packets to it and takes them away. A shard has one for each
//! of the device's addresses. It works in batches, so that the dynamic call costs nothing beside the system call it leads
//! to. [`udp`] is the one that ships, with [lanes](lane) through memory beside its sockets. [`pcap`] and [`faults`] are
//! decorators of any link. Tests have a link in memory (`memory.rs`). What is not about packets, such as claiming queue
//! pair numbers on this host, is the link's [`Presence`], which decorators pass through.
//!
//! A link looks at packets just enough to know which process they are for. It never queues what is to be sent: for packets
//! that cannot leave now it returns [`WouldBlock`](io::ErrorKind::WouldBlock), and the caller keeps them.
//!
//! A byte stream is not a link: it has partial writes and a connection to each peer. The TCP streams that carry iWARP stand
//! beside this trait ([`crate::stream`]), not behind it.

mod counters;
pub(crate) mod datagrams;
pub(crate) mod faults;
pub(crate) mod lane;
#[cfg(all(test, not(loom)))]
pub(crate) mod memory;
pub(crate) mod pcap;
pub(crate) mod udp;

pub use counters::LinkCounters;
pub use datagrams::Datagrams;
pub(crate) use datagrams::Deliver;

/// Executes a record that came from one address to another; what a READ asks for is written to the room behind it.
pub(crate) type ExecuteRecord<'a> = dyn FnMut((IpAddr, IpAddr), &[u8], &mut [u8]) -> RecordAnswer + 'a;

use crate::host::{Block, ClaimError, PortState};
use crate::netdev::LocalAddress;
use nonic_core::cm::ListenerId;
use nonic_core::{LaneId, RecordAnswer, Time, Transmit};
use std::io;
use std::net::IpAddr;

/// The places where a link looks for packets, such as sockets, numbered from zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sources {
    /// So many of them, the first ones, may be busy: they are worth polling again and again.
    pub(crate) busy: usize,
    /// How many there are.
    pub(crate) all: usize,
}

/// Carries packets to and from one local address.
pub(crate) trait Link: Send {
    /// How many packets one batch may have that is to be sent. May drop to 1 after a send has failed.
    fn max_segments(&self) -> usize;

    /// What there is to look at.
    fn sources(&self) -> Sources;

    /// Takes what one source has, with one system call or a few, and gives the packets for the NIC to `deliver`. How many
    /// bytes came; [`WouldBlock`](io::ErrorKind::WouldBlock) if nothing did.
    fn receive(&mut self, now: Time, source: usize, deliver: &mut Deliver<'_>) -> io::Result<usize>;

    /// Sends a batch as a whole.
    fn send(&mut self, now: Time, transmit: &Transmit, bytes: &[u8]) -> io::Result<()>;

    /// Whether records wait in a lane that leads from this link to itself. No thread is woken for them: the thread that
    /// writes them also executes them, with [`Link::receive_records`], in the same turn.
    fn has_records_for_itself(&self) -> bool {
        false
    }

    /// Executes records that came through [lanes](lane). How many.
    fn receive_records(&mut self, _: &mut ExecuteRecord<'_>) -> u64 {
        0
    }

    /// A thread is about to sleep: a peer that writes to a lane must wake it. Whether records wait already.
    fn fall_asleep(&mut self) -> bool {
        false
    }

    /// A thread is awake and will look for packets; others may still sleep.
    fn wake(&mut self, _others_sleep: bool) {}

    /// When [`Link::receive`] or [`Presence::attend`] is needed though no descriptor says so.
    fn next_timeout(&self) -> Option<Time>;

    /// The link's counters.
    fn counters(&self) -> LinkCounters;

    /// Flushes what it has recorded, so that other processes see it.
    fn sync(&mut self);

    /// Its place on this host.
    fn presence(&self) -> &dyn Presence;

    /// The same, to change it.
    fn presence_mut(&mut self) -> &mut dyn Presence;
}

/// A link's place on its host: what the kernel and other processes must know so that packets find their way. Decorators do
/// not concern themselves with it.
pub(crate) trait Presence {
    /// The address.
    fn address(&self) -> LocalAddress;

    /// The UDP port that packets leave from.
    fn port(&self) -> u16;

    /// Asks processes of this host for memory of theirs that requests would like to find mapped, if there is any.
    fn ask_for_memory(&mut self) {}

    /// Takes a block of queue pair numbers: this one, or any that is free.
    fn claim(&mut self, wanted: Option<Block>) -> Result<Block, ClaimError>;

    /// Gives a block back.
    fn release(&mut self, block: Block);

    /// Whether a queue pair number or connection identifier of this block is ours.
    fn owns(&self, block: Block) -> bool;

    /// Listens for connection requests to a service; [`io::ErrorKind::AddrInUse`] if another listener has it.
    fn listen(&mut self, listener: ListenerId, service_id: u64) -> io::Result<()>;

    /// Stops listening.
    fn unlisten(&mut self, listener: ListenerId);

    /// Joins a multicast group.
    fn join(&mut self, group: IpAddr) -> io::Result<()>;

    /// Leaves it.
    fn leave(&mut self, group: IpAddr);

    /// Looks for the way to a queue pair of a peer. Whether an answer is worth waiting for.
    fn find_way(&mut self, now: Time, remote: IpAddr, qpn: u32) -> bool;

    /// Whether the answer has come, or is no longer worth waiting for.
    fn way_is_settled(&self, now: Time, remote: IpAddr, qpn: u32) -> bool;

    /// A peer is about to send to us. If it is on another host, the kernel should know that its packets are for this
    /// process.
    fn expect_packets_from(&mut self, now: Time, remote: IpAddr);

    /// Whether the kernel steers by all blocks and services that it was to be told of.
    fn is_steered(&self, now: Time) -> bool;

    /// Does what is due.
    fn attend(&mut self, now: Time);

    /// The next notice about a peer, from processes of this host or from other hosts.
    fn poll_notice(&mut self) -> Option<Notice>;

    /// How many descriptors lanes need.
    fn lane_descriptors(&self) -> usize {
        0
    }

    /// Whether the program has closed a descriptor of ours.
    fn has_lost_descriptor(&self) -> bool;

    /// Takes nothing from the shared port any more: this process is about to end.
    fn retire(&mut self);

    /// Whether we have a socket at the shared port.
    fn port_state(&self) -> PortState;

    /// Makes the kernel refuse batches, as it does where it cannot segment.
    #[cfg(test)]
    fn forbid_batches(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Something a link learned about a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notice {
    /// No process has the RoCE port there. That host's kernel says so, or a sender that forges its messages.
    Refused(IpAddr),
    /// A lane that the NIC writes records to has ended.
    LaneEnded(LaneId),
    /// The process that had this block of numbers at an address of this host has ended.
    ProcessEnded {
        /// The address.
        ip: IpAddr,
        /// The block it had.
        block: Block,
    },
}
