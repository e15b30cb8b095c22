//! A shard's blocks of queue pair numbers: claiming them on the host, and giving them back.

use super::Shard;
use crate::host::{Block, ClaimError};
use std::io;

impl Shard {
    /// Claims one block of queue pair numbers, the same on every link.
    pub(crate) fn claim_block(&mut self) -> Result<Block, ClaimError> {
        /// Enough to find one of the last free blocks of a crowded host.
        const TRIES: usize = 16_384;
        if self.carriers.streams.is_some() {
            return self.take_own_block();
        }
        let Some(first) = self.carriers.links.first() else {
            return Err(io::Error::from(io::ErrorKind::NotConnected).into());
        };
        let address = first.presence().address();
        for _ in 0..TRIES {
            let (lead, others) = self.carriers.links.split_first_mut().expect("just seen");
            let block = lead.presence_mut().claim(None)?;
            let refused = others
                .iter_mut()
                .find_map(|link| link.presence_mut().claim(Some(block)).err());
            match refused {
                None => {
                    self.nic.add_qpn_block(block.number());
                    self.common.map.insert(block, self.index);
                    return Ok(block);
                }
                // Taken on another address; draw again.
                Some(ClaimError::Full(_)) => self.release_block(block),
                Some(error) => {
                    self.release_block(block);
                    return Err(error);
                }
            }
        }
        Err(ClaimError::Full(address))
    }

    /// A block of numbers that no other process has to know of: peers name connections, not queue pairs.
    fn take_own_block(&mut self) -> Result<Block, ClaimError> {
        let blocks = (0..=u16::MAX).filter_map(Block::new);
        let block = { blocks }.find(|block| !self.common.map.contains(*block));
        let block = block.ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        self.nic.add_qpn_block(block.number());
        self.common.map.insert(block, self.index);
        Ok(block)
    }

    /// Gives back the blocks of numbers that no queue pair needs any more.
    pub(crate) fn release_spare_blocks(&mut self) {
        while let Some(number) = self.nic.take_spare_qpn_block() {
            if let Some(block) = Block::new(number) {
                self.common.map.remove(block);
                self.release_block(block);
            }
        }
    }

    fn release_block(&mut self, block: Block) {
        for link in &mut self.carriers.links {
            link.presence_mut().release(block);
        }
    }
}
