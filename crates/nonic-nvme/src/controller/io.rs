//! Commands of an I/O queue: Read, Write, Flush.

use super::{Data, Limits, Pending, Queue, Step};
use crate::wire::{Status, nvm};

impl Queue {
    pub(super) fn handle_io(&mut self, pending: Pending, data: &Data<'_>) -> Step {
        let command = pending.command;
        // A flush may be for all namespaces; there is one.
        let all = command.opcode == nvm::FLUSH && command.nsid == u32::MAX;
        if command.nsid != 1 && !all {
            return self.refuse(pending, Status::INVALID_NAMESPACE);
        }
        let step = match command.opcode {
            nvm::FLUSH => return Step::DiskFlush { pending },
            nvm::READ => self.extent(&pending).and_then(|(at, length)| {
                let to = data.room(length)?;
                Ok((at, length, Direction::ToHost(to)))
            }),
            nvm::WRITE => self.extent(&pending).and_then(|(at, length)| {
                let from = data.source(length)?;
                Ok((at, length, Direction::FromHost(from)))
            }),
            _ => Err(Status::INVALID_OPCODE),
        };
        match step {
            Ok((at, length, Direction::ToHost(to))) => Step::DiskRead {
                at,
                length,
                to,
                pending,
            },
            Ok((at, length, Direction::FromHost(from))) => Step::DiskWrite {
                at,
                length,
                from,
                stable: command.force_unit_access(),
                pending,
            },
            Err(status) => self.refuse(pending, status),
        }
    }

    /// Which bytes of the disk a Read or Write is about, if they are all there and not too many.
    fn extent(&self, pending: &Pending) -> Result<(u64, usize), Status> {
        let namespace = self.subsystem.namespace();
        let (first, count) = (pending.command.first_block(), pending.command.blocks());
        let end = first.checked_add(count.into());
        if end.is_none_or(|end| end > namespace.blocks) {
            return Err(Status::LBA_OUT_OF_RANGE);
        }
        let length = (count as usize) << namespace.block_shift;
        if length > Limits::TRANSFER {
            return Err(Status::INVALID_FIELD);
        }
        Ok((first << namespace.block_shift, length))
    }
}

enum Direction {
    ToHost(crate::wire::KeyedSgl),
    FromHost(super::Source),
}
