//! Claims of a name: a block of queue pair numbers, or a service. The owner of the name has its [`Inbox`].

use std::io;

use super::inbox::Inbox;
use super::{Block, BlockName, ServiceName};
use crate::netdev::LocalAddress;

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

    /// The address and block, by which other processes reach the inbox.
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

    /// The same, to read from.
    pub fn inbox_mut(&mut self) -> &mut Inbox {
        &mut self.inbox
    }

    fn claim_first_free(
        address: LocalAddress,
        blocks: impl Iterator<Item = Block>,
    ) -> Result<Self, ClaimError> {
        for block in blocks {
            let name = BlockName { address, block };
            match Inbox::open(name) {
                Ok(inbox) => return Ok(BlockClaim { name, inbox }),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(ClaimError::Full(address))
    }
}

impl ServiceClaim {
    /// Listens on a service; [`io::ErrorKind::AddrInUse`] if another listener has it.
    pub fn claim(name: ServiceName) -> io::Result<Self> {
        let inbox = Inbox::open(name)?;
        Ok(ServiceClaim { name, inbox })
    }

    /// The address and service.
    pub fn name(&self) -> ServiceName {
        self.name
    }

    /// Where requests for it arrive.
    pub fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// The same, to read from.
    pub fn inbox_mut(&mut self) -> &mut Inbox {
        &mut self.inbox
    }
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
