//! UDP port 4791 of an address, which all processes of one user share.
//!
//! Every process binds a socket of its own to the port (`SO_REUSEPORT`). The kernel allows that only to processes of the
//! user that came first, so every reader of the port belongs to that user. When a process ends, the kernel takes its socket
//! out of the group, so there is no moment at which the port of a living process has no reader.
//! [`steering`](super::steering) decides which of the sockets a packet goes to. A process hands over what it receives for
//! another one.
//!
//! The processes of another user cannot join. The processes at the port hand over what is for them. They try again to join
//! after [`RETRY_NS`], and as soon as a process that handed something over has ended ([`Port::try_again`]). Then they try a
//! few times in quick succession: the kernel closes the descriptors of a process one by one, and its socket at the port may
//! come after the line that told of its end.
//!
//! This module reads no clock and never blocks: the caller brings the time.

use std::io;
use std::net::IpAddr;

use crate::netdev::LocalAddress;
use crate::socket::{ROCE_PORT, WireSocket};

/// The wait while another user or program has the port, or the address is missing.
const RETRY_NS: u64 = 1_000_000_000;
/// The first wait for a process that is about to go; each that follows is twice as long.
const SOON_NS: u64 = 1_000_000;

/// The owner of port 4791 of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortOwner {
    /// No process has it.
    Nobody,
    /// Processes of this user. If it is ours, we may join them.
    User {
        /// Which one.
        uid: u32,
    },
    /// A program that took the port of all addresses, such as a kernel's own RoCE driver, or that cannot be seen.
    Other,
}

/// Finds the owner of port 4791 of an address, by binding it for a moment and in the kernel's table of sockets.
pub fn port_owner(address: LocalAddress) -> io::Result<PortOwner> {
    match WireSocket::bind(address.with_port(ROCE_PORT)) {
        Ok(_) => Ok(PortOwner::Nobody),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let (table, name) = match address.ip {
                IpAddr::V4(ip) => ("/proc/net/udp", words(&ip.octets())),
                IpAddr::V6(ip) => ("/proc/net/udp6", words(&ip.octets())),
            };
            let uid = uid_of(
                &std::fs::read_to_string(table)?,
                &format!("{name}:{ROCE_PORT:04X}"),
            );
            Ok(uid.map_or(PortOwner::Other, |uid| PortOwner::User { uid }))
        }
        Err(error) => Err(error),
    }
}

/// An address as the kernel's table has it: words of the processor's own byte order.
pub(super) fn words(octets: &[u8]) -> String {
    let words = octets.chunks_exact(4).filter_map(|word| word.first_chunk());
    words
        .map(|word| format!("{:08X}", u32::from_ne_bytes(*word)))
        .collect()
}

/// The user of the first socket with this local address and port.
fn uid_of(table: &str, local: &str) -> Option<u32> {
    const LOCAL: usize = 1;
    const UID: usize = 7;
    let mut sockets = table.lines().map(|line| line.split_ascii_whitespace());
    let mut socket = sockets.find(|fields| fields.clone().nth(LOCAL) == Some(local))?;
    socket.nth(UID)?.parse().ok()
}

/// This process's share of the port.
#[derive(Debug)]
pub struct Port {
    address: LocalAddress,
    state: State,
}

#[derive(Debug)]
enum State {
    Joined(WireSocket),
    Retry {
        at_ns: u64,
        /// How long that is after the last attempt.
        pause_ns: u64,
        reason: RetryReason,
    },
    /// For good.
    Left,
}

/// Whether this process has a socket at the port, for users and tests to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortState {
    /// It has.
    Joined,
    /// It has not; another attempt is due, unless it left.
    Retry {
        /// Why not.
        reason: RetryReason,
    },
}

/// Why this process has no socket at the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryReason {
    /// Another user's processes have the port, which pass on what is for this one.
    Taken,
    /// A program has it that passes nothing on, such as a kernel's own RoCE driver: nothing can arrive from other hosts.
    Foreign,
    /// The port cannot be bound for another reason, such as an address that the host lost.
    Unavailable(io::ErrorKind),
}

impl Port {
    /// Makes a first attempt, which cannot fail: see [`port_state`](Self::port_state) for what became of it.
    pub fn join(address: LocalAddress, now_ns: u64) -> Self {
        let state = attempt(address, now_ns, RETRY_NS);
        Port { address, state }
    }

    /// Tries again if it is time to. Whether [`socket`](Self::socket) may have changed.
    pub fn poll(&mut self, now_ns: u64) -> bool {
        match self.state {
            State::Retry { at_ns, pause_ns, .. } if at_ns <= now_ns => {
                self.attempt(now_ns, (2 * pause_ns).min(RETRY_NS))
            }
            _ => false,
        }
    }

    /// Tries again now and in a moment, unless the port is had already. Whether [`socket`](Self::socket) has changed.
    pub fn try_again(&mut self, now_ns: u64) -> bool {
        self.attempt(now_ns, SOON_NS)
    }

    /// Makes an attempt; if it fails, the next is due after `pause_ns`.
    fn attempt(&mut self, now_ns: u64, pause_ns: u64) -> bool {
        if matches!(self.state, State::Joined(_) | State::Left) {
            return false;
        }
        self.state = attempt(self.address, now_ns, pause_ns);
        matches!(self.state, State::Joined(_))
    }

    /// When [`poll`](Self::poll) must be called even if nothing happens. Changes only with an attempt.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        match self.state {
            State::Joined(_) | State::Left => None,
            State::Retry { at_ns, .. } => Some(at_ns),
        }
    }

    /// This process's socket at the port.
    pub fn socket(&self) -> Option<&WireSocket> {
        match &self.state {
            State::Joined(socket) => Some(socket),
            State::Retry { .. } | State::Left => None,
        }
    }

    /// Gives the socket up for good. Packets that are in it are lost; those that come later go to the processes that stay.
    pub fn leave(&mut self) {
        self.state = State::Left;
    }

    /// Whether there is a socket, and if not, why. The caller finds out whether a port that is taken is
    /// [foreign](RetryReason::Foreign).
    pub fn port_state(&self) -> PortState {
        match &self.state {
            State::Joined(_) => PortState::Joined,
            State::Retry { reason, .. } => PortState::Retry { reason: *reason },
            State::Left => PortState::Retry {
                reason: RetryReason::Unavailable(io::ErrorKind::NotConnected),
            },
        }
    }
}

fn attempt(address: LocalAddress, now_ns: u64, pause_ns: u64) -> State {
    let reason = match WireSocket::bind_shared(address.with_port(ROCE_PORT)) {
        Ok(socket) => return State::Joined(socket),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => RetryReason::Taken,
        Err(error) => RetryReason::Unavailable(error.kind()),
    };
    State::Retry {
        at_ns: now_ns.saturating_add(pause_ns),
        pause_ns,
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  371: 00000000:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 11 2 0 0
  372: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000    53        0 12 2 0 0
  373: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 13 2 0 0
";

    #[test]
    fn the_user_of_a_socket_is_found_by_address_and_port() {
        let local = |last| format!("{}:12B7", words(&[127, 0, 0, last]));
        assert_eq!(uid_of(TABLE, &local(1)), Some(1000));
        assert_eq!(
            uid_of(TABLE, &local(2)),
            None,
            "one who has all addresses is not looked for"
        );
        assert_eq!(uid_of("", &local(1)), None);
    }
}
