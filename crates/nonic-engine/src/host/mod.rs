//! The host: how processes share one address with no daemon, no privilege and no files.
//!
//! RoCEv2 has one UDP port, 4791, which all processes at an address must share, and queue pair numbers that belong to one
//! process each. The kernel's *abstract* Unix socket names record which process has which numbers. Such names are unique in
//! the network namespace (as the port is), need no permission, and vanish with the process however it dies.
//!
//! | name | kind | whose |
//! |---|---|---|
//! | `nonic/3/<address>/block/<hex>` | packets | the owner of 4096 queue pair numbers: its inbox |
//! | `nonic/3/<address>/service/<hex>` | packets | the process that listens on a service of the connection manager: its inbox |
//! | `nonic/3/inspect/<process>/<hex>` | a stream | a process that tells its user what is in it (`inspect/`) |
//!
//! Where this says *process*, a shard of a device is meant. A process has one or several for each device it opens. They
//! treat each other as other processes, with sockets, blocks and inboxes of their own.
//!
//! - A 24-bit QPN is a 12-bit [`Block`] and a 12-bit index. A process claims whole blocks
//!   ([`BlockClaim`]) and numbers its queue pairs within them.
//! - Every process of a user has a socket at the port ([`Port`]), and tells the kernel which packets are for which of them
//!   (`steering.rs`, `survey.rs`). So no process depends on another of its user.
//! - A process that receives a packet for another one (`demultiplex.rs`) passes it to the owner's inbox through an
//!   [`Outbox`]. All packets for processes of other users than the one that came to the port first take that way: the
//!   kernel does not let those processes join the port.
//! - Processes on one host need none of this among themselves: they ask a block where its owner listens
//!   ([`Message::WhereAreYou`]) and send to that port directly (`routes.rs`).
//!
//! # Interference by other processes
//!
//! Abstract names have no permissions. Any process in the network namespace, of any user, can write to an inbox and claim
//! names; that includes containers that share the namespace. What such a process can do, and what not:
//!
//! - It can forge packets as if it were the network, source address included. What arrives in an inbox deserves exactly the
//!   trust of what arrives on the wire, and is checked as such. The sender's user is not checked: the process that hands
//!   packets over may rightly belong to another user.
//! - It can take names before any other process does. A name of another host's address is worth nothing: no process asks
//!   there (`routes.rs`). The names of free blocks and services of this host are open to every process, as TCP ports are.
//! - It cannot join the port of another user, and so does not read packets for other processes. If its user has the port,
//!   it does: packets of other hosts for all processes at the address come there.
//! - It cannot make another process send elsewhere: a question is answered on the line it was asked on, so only the owner
//!   of a name answers for it; and what the owner says concerns packets for the owner.
//! - It cannot use up descriptors (`lines.rs`), nor keep other senders from being heard: each line has its turn
//!   ([`Inbox`]), and we hang up on a process that answers more than it was asked ([`Outbox`]).
//!
//! SECURITY.md has the same as a table, with the test for each.
//!
//! # Fork
//!
//! A forked child shares its parent's sockets. If it keeps the one at the port, the kernel still gives packets to that
//! socket after the parent has ended, and no process reads them. If it keeps a claim, no other process notices that the
//! parent has ended. A child that goes on to `exec` closes both by itself; for the moment in between, what the parent drops
//! stays taken. Nothing closes them in a child that lives on without `exec`.
//!
//! # Services
//!
//! Messages of the connection manager go to QP 1, which belongs to no process. The process that receives such a message
//! finds the one it is for: a request by the service it asks for ([`ServiceName`]), everything else by the identifier that
//! its receiver chose, whose upper twelve bits are one of the receiver's blocks. The process that received it also refuses
//! a request for a service without a listener, and answers a message for a process that has ended.

mod claim;
pub(crate) mod demultiplex;
pub(crate) mod holder;
mod inbox;
mod lines;
mod locality;
mod message;
mod outbox;
pub(crate) mod port;
pub(crate) mod routes;
pub(crate) mod steering;
pub(crate) mod survey;

use std::fmt;
use std::time::Duration;

use rustix::net::SocketAddrUnix;

use crate::netdev::LocalAddress;

pub use claim::{BlockClaim, ClaimError, ServiceClaim};
pub use inbox::{Inbox, InboxBuffer};
pub use message::Message;
pub use outbox::{Delivery, Heard, Outbox};
pub use port::{Port, PortOwner, PortState, RetryReason, port_owner};

/// How long who asked a process of this host waits for its answer. A machine with more to do than processors lets a process wait for
/// tenths of a second; one that takes longer is stopped or hangs.
pub(crate) const ANSWERS_WITHIN: Duration = Duration::from_millis(500);

/// The upper twelve bits of a queue pair number: the unit in which processes own them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block(u16);

impl Block {
    /// How many queue pair numbers one block holds.
    pub const QPNS: u32 = nonic_core::QPNS_PER_BLOCK;
    /// The lowest block that can be claimed. Block 0 holds the special QPNs 0 and 1.
    pub const FIRST: Block = Block(1);
    /// The highest block that can be claimed. The one above holds the multicast QPN.
    pub const LAST: Block = Block(0xffe);

    /// The block with this number, if it can be claimed.
    pub const fn new(number: u16) -> Option<Block> {
        if number >= Block::FIRST.0 && number <= Block::LAST.0 {
            Some(Block(number))
        } else {
            None
        }
    }

    /// The block of a queue pair number (its low 24 bits), if a process can own it.
    pub const fn of_qpn(qpn: u32) -> Option<Block> {
        Block::new(((qpn >> 12) & 0xfff) as u16)
    }

    /// The block's number.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The first queue pair number of the block; it holds [`Block::QPNS`] of them.
    pub const fn first_qpn(self) -> u32 {
        (self.0 as u32) << 12
    }
}

/// A block on an address: the name of an inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockName {
    /// The address whose queue pair numbers these are.
    pub address: LocalAddress,
    /// Which of them.
    pub block: Block,
}

impl fmt::Display for BlockName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "nonic/3/{}/block/{:03x}", self.address, self.block.0)
    }
}

/// A service of the connection manager on an address: the name of an inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ServiceName {
    /// Where it is offered.
    pub address: LocalAddress,
    /// What is offered: the 64-bit service identifier.
    pub service_id: u64,
}

impl fmt::Display for ServiceName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "nonic/3/{}/service/{:016x}",
            self.address, self.service_id
        )
    }
}

/// The name of an inbox, to which a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InboxName {
    /// The owner of a block of queue pair numbers.
    Block(BlockName),
    /// The process that listens on a service.
    Service(ServiceName),
}

impl From<BlockName> for InboxName {
    fn from(name: BlockName) -> Self {
        InboxName::Block(name)
    }
}

impl From<ServiceName> for InboxName {
    fn from(name: ServiceName) -> Self {
        InboxName::Service(name)
    }
}

impl fmt::Display for InboxName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InboxName::Block(name) => name.fmt(formatter),
            InboxName::Service(name) => name.fmt(formatter),
        }
    }
}

/// The longest name, `nonic/3/<IPv6>%<scope>/service/<16 digits>`, is well below the limit of 107 bytes.
pub(crate) fn abstract_name(name: &impl fmt::Display) -> rustix::io::Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(name.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_queue_pair_numbers_belong_to_nobody() {
        for qpn in [0, 1, 0xfff, 0xff_f000, 0xff_ffff] {
            assert_eq!(Block::of_qpn(qpn), None, "QPN {qpn:#x}");
        }
    }

    #[test]
    fn a_block_contains_its_queue_pair_numbers() {
        for number in [Block::FIRST, Block::LAST, Block(0x123)] {
            let first = number.first_qpn();
            assert_eq!(Block::of_qpn(first), Some(number));
            assert_eq!(Block::of_qpn(first + Block::QPNS - 1), Some(number));
            assert_ne!(Block::of_qpn(first + Block::QPNS), Some(number));
        }
    }

    #[test]
    fn names_are_distinct_by_address_scope_and_block() {
        let ip = "fe80::1".parse().expect("a literal address");
        let name = |scope_id, block| BlockName {
            address: LocalAddress { ip, scope_id },
            block: Block(block),
        };
        assert_eq!(name(3, 0x2a).to_string(), "nonic/3/fe80::1%3/block/02a");
        assert_ne!(name(3, 0x2a).to_string(), name(4, 0x2a).to_string());
        let longest = LocalAddress {
            ip: std::net::IpAddr::from([0xffff_u16; 8]),
            scope_id: u32::MAX,
        };
        let service_id = u64::MAX;
        let longest = ServiceName {
            address: longest,
            service_id,
        };
        assert!(abstract_name(&longest).is_ok());
    }
}
