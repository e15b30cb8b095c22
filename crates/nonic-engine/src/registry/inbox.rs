//! Claiming a name, a block of queue pair numbers or a service, and reading what others write to it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

use super::message::{MAX_HEADER_BYTES, MAX_PAYLOAD_BYTES, Message};
use super::{Block, BlockName, ServiceName, abstract_name};
use crate::netdev::LocalAddress;

/// How many unreadable messages one [`Inbox::recv`] skips before it lets the caller do other work.
const MAX_JUNK_PER_RECV: usize = 16;

/// Where other processes of this host write to us.
#[derive(Debug)]
pub struct Inbox {
    socket: OwnedFd,
}

/// A block of queue pair numbers that is ours, and its inbox. Dropping it, or dying, gives both back.
#[derive(Debug)]
pub struct BlockClaim {
    name: BlockName,
    inbox: Inbox,
}

/// A service that we listen on, and its inbox. Dropping it, or dying, gives both back.
#[derive(Debug)]
pub struct ServiceClaim {
    name: ServiceName,
    inbox: Inbox,
}

/// Why no block could be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Every block of the address has an owner.
    #[error("all queue pair numbers of {0} are taken")]
    Full(LocalAddress),
    /// The operating system refused.
    #[error("cannot claim queue pair numbers")]
    Io(#[from] io::Error),
}

impl BlockClaim {
    /// Claims a random free block of this address.
    ///
    /// Random, so that a process that restarts gets other numbers: packets still under way to its former
    /// self then find no queue pair instead of a wrong one.
    pub fn claim(address: LocalAddress) -> Result<Self, ClaimError> {
        let count = Block::LAST.number() - Block::FIRST.number() + 1;
        let start = random_u16()? % count;
        let numbers = (0..count).map(|step| Block::FIRST.number() + (start + step) % count);
        Self::claim_first_free(address, numbers.filter_map(Block::new))
    }

    /// Claims one particular block; [`ClaimError::Full`] if it has an owner.
    pub fn claim_block(address: LocalAddress, block: Block) -> Result<Self, ClaimError> {
        Self::claim_first_free(address, std::iter::once(block))
    }

    /// The address and block, by which others reach the inbox.
    pub fn name(&self) -> BlockName {
        self.name
    }

    /// The block itself.
    pub fn block(&self) -> Block {
        self.name.block
    }

    /// Where messages for it arrive.
    pub fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    fn claim_first_free(
        address: LocalAddress,
        blocks: impl Iterator<Item = Block>,
    ) -> Result<Self, ClaimError> {
        let socket = new_socket()?;
        for block in blocks {
            let name = BlockName { address, block };
            let socket_name = abstract_name(&name).map_err(io::Error::from)?;
            match rustix::net::bind(&socket, &socket_name) {
                Ok(()) => {
                    let inbox = Inbox { socket };
                    return Ok(BlockClaim { name, inbox });
                }
                Err(Errno::ADDRINUSE) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        Err(ClaimError::Full(address))
    }
}

impl ServiceClaim {
    /// Listens on a service; [`io::ErrorKind::AddrInUse`] if somebody does.
    pub fn claim(name: ServiceName) -> io::Result<Self> {
        let socket = new_socket()?;
        rustix::net::bind(&socket, &abstract_name(&name)?)?;
        Ok(ServiceClaim {
            name,
            inbox: Inbox { socket },
        })
    }

    /// The address and service.
    pub fn name(&self) -> ServiceName {
        self.name
    }

    /// Where requests for it arrive.
    pub fn inbox(&self) -> &Inbox {
        &self.inbox
    }
}

impl Inbox {
    /// The next message, or `None` when there is nothing to read for now.
    ///
    /// What cannot be read as a message is dropped and counted in the buffer. After a run of it this
    /// returns `None` early while the descriptor stays readable, so that a flood of junk cannot hold the
    /// caller.
    pub fn recv<'b>(&self, buffer: &'b mut InboxBuffer) -> io::Result<Option<Message<'b>>> {
        for _ in 0..MAX_JUNK_PER_RECV {
            // TRUNC makes the kernel say how long the message was, not how much of it fitted.
            let flags = RecvFlags::TRUNC | RecvFlags::DONTWAIT;
            let received =
                rustix::io::retry_on_intr(|| rustix::net::recv(&self.socket, &mut buffer.bytes[..], flags));
            let length = match received {
                Ok((_, length)) => length,
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            if buffer.bytes.get(..length).and_then(Message::decode).is_some() {
                // Decoded a second time because the borrow checker will not let the first result out of
                // the loop; the header is all that is looked at.
                return Ok(Message::decode(&buffer.bytes[..length]));
            }
            buffer.junk += 1;
        }
        Ok(None)
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Where messages land: allocated once, shared by all inboxes of a thread.
#[derive(Debug)]
pub struct InboxBuffer {
    bytes: Box<[u8]>,
    junk: u64,
}

impl InboxBuffer {
    /// A buffer for the longest message.
    pub fn new() -> Self {
        InboxBuffer {
            bytes: vec![0; MAX_HEADER_BYTES + MAX_PAYLOAD_BYTES].into_boxed_slice(),
            junk: 0,
        }
    }

    /// How many messages were dropped because they could not be read.
    pub fn junk(&self) -> u64 {
        self.junk
    }
}

impl Default for InboxBuffer {
    fn default() -> Self {
        Self::new()
    }
}

pub(super) fn new_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        flags,
        None,
    )?)
}

fn random_u16() -> io::Result<u16> {
    let mut bytes = [0; 2];
    let flags = rustix::rand::GetRandomFlags::empty();
    rustix::io::retry_on_intr(|| rustix::rand::getrandom(&mut bytes[..], flags))?;
    Ok(u16::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn blocks() -> impl Iterator<Item = Block> {
        [0x10, 0x11, 0x12].into_iter().filter_map(Block::new)
    }

    #[test]
    fn claims_are_distinct_until_there_is_none_left_and_come_back_when_dropped() {
        let address = LocalAddress::from(IpAddr::from([127, 71, 0, 1]));
        let claim = || BlockClaim::claim_first_free(address, blocks());
        let (first, second, third) = (claim().expect("1"), claim().expect("2"), claim().expect("3"));
        assert_eq!(
            [first.block(), second.block(), third.block()].map(Block::number),
            [0x10, 0x11, 0x12]
        );
        let error = claim().expect_err("none left");
        assert!(matches!(error, ClaimError::Full(full) if full == address));
        assert_eq!(
            error.to_string(),
            "all queue pair numbers of 127.71.0.1 are taken"
        );
        drop(second);
        assert_eq!(claim().expect("one is free again").block().number(), 0x11);
    }

    #[test]
    fn the_same_block_on_two_addresses_has_two_owners() {
        let addresses = [1, 2].map(|last| LocalAddress::from(IpAddr::from([127, 71, 1, last])));
        let claims = addresses.map(|address| {
            BlockClaim::claim_first_free(address, blocks().take(1)).expect("free on this address")
        });
        assert_eq!(claims[0].block(), claims[1].block());
        assert_ne!(claims[0].name(), claims[1].name());
    }

    #[test]
    fn a_random_claim_can_be_claimed() {
        let address = LocalAddress::from(IpAddr::from([127, 71, 2, 1]));
        let claims: Vec<BlockClaim> = (0..64)
            .map(|_| BlockClaim::claim(address).expect("plenty"))
            .collect();
        let mut numbers: Vec<u16> = claims.iter().map(|claim| claim.block().number()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 64);
    }
}
