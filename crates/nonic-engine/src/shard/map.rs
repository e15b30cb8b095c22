//! The map of queue pairs to the shards of a device: a queue pair is in the shard that owns the block of its number.

use crate::host::Block;
use nonic_wire::Qpn;
use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

/// Blocks of queue pair numbers and the shards that have them.
#[derive(Debug)]
pub(crate) struct ShardMap {
    shards: usize,
    owners: RwLock<HashMap<Block, usize>>,
}

impl ShardMap {
    /// The map of a device with so many shards.
    pub(crate) fn new(shards: usize) -> Self {
        ShardMap {
            shards,
            owners: RwLock::default(),
        }
    }

    /// How many shards there are.
    pub(crate) fn shards(&self) -> usize {
        self.shards
    }

    /// The shard of a queue pair; the first one for numbers that no shard owns: it will say that there is no such queue
    /// pair.
    #[inline]
    pub(crate) fn shard_of(&self, qpn: Qpn) -> usize {
        if self.shards == 1 {
            return 0;
        }
        let owners = self.owners.read().unwrap_or_else(PoisonError::into_inner);
        let block = Block::of_qpn(qpn.value());
        block.and_then(|block| owners.get(&block)).copied().unwrap_or(0)
    }

    /// Whether a block is one of ours.
    pub(crate) fn contains(&self, block: Block) -> bool {
        let owners = self.owners.read().unwrap_or_else(PoisonError::into_inner);
        owners.contains_key(&block)
    }

    pub(crate) fn insert(&self, block: Block, shard: usize) {
        let mut owners = self.owners.write().unwrap_or_else(PoisonError::into_inner);
        owners.insert(block, shard);
    }

    pub(crate) fn remove(&self, block: Block) {
        let mut owners = self.owners.write().unwrap_or_else(PoisonError::into_inner);
        owners.remove(&block);
    }
}
