//! Checks memory: cells hold what was written to them, and revoked memory never changes again.

use super::content::{Pieces, is_overlay};
use super::{Check, World};

impl World {
    /// Whether a cell holds at least version `at_least`, or a later one that was posted, the next one
    /// possibly in part.
    pub(super) fn check_cell(&self, number: usize, at_least: usize) -> Check {
        let cell = &self.cells[number];
        let actual = match &cell.frozen {
            Some(bytes) => bytes.clone(),
            None => self.arenas[cell.arena].read(&Pieces::one(cell.offset, cell.length)),
        };
        let mut below = cell.versions[at_least].bytes();
        for version in at_least..=cell.posted.max(at_least) {
            let above = if version < cell.posted {
                cell.versions[version + 1].bytes()
            } else {
                below.clone()
            };
            if is_overlay(&actual, &above, &below, cell.mtu) {
                return Ok(());
            }
            below = above;
        }
        let expected = cell.versions[at_least].bytes();
        let count = actual.iter().zip(&expected).filter(|(a, b)| a != b).count();
        Err(format!(
            "cell {number} holds none of versions {at_least} to {}: {count} of {} bytes differ from the first of them",
            cell.posted, cell.length
        ))
    }

    /// A key is gone: nothing it covered may change any more.
    pub(super) fn revoked(&mut self, export: usize) {
        let now_ns = self.fabric.now().as_ns();
        if self.exports[export].revoked_ns.is_none() {
            self.exports[export].revoked_ns = Some(now_ns);
            for cell in self.exports[export].cells.clone() {
                self.freeze(cell);
            }
        }
    }

    /// Whatever is in a cell now must stay.
    pub(super) fn freeze(&mut self, cell: usize) {
        let cell = &mut self.cells[cell];
        let arena = &self.arenas[cell.arena];
        if cell.frozen.is_none() && arena.region.is_some() {
            cell.frozen = Some(arena.read(&Pieces::one(cell.offset, cell.length)));
        }
    }

    /// Checks every cell for the last time and notes its content in the image.
    pub(super) fn settle_cells(&mut self) -> Check {
        for number in 0..self.cells.len() {
            let arena = self.cells[number].arena;
            if self.arenas[arena].region.is_none() {
                continue;
            }
            self.check_cell(number, self.cells[number].known)
                .map_err(|what| format!("at the end: {what}"))?;
            let place = Pieces::one(self.cells[number].offset, self.cells[number].length);
            let actual = self.arenas[arena].read(&place);
            if self.cells[number]
                .frozen
                .as_ref()
                .is_some_and(|frozen| *frozen != actual)
            {
                return Err(format!("cell {number} changed after its key was revoked"));
            }
            place.scatter(&mut self.arenas[arena].image, &actual);
        }
        Ok(())
    }

    /// Compares every arena with its image, byte for byte.
    pub(super) fn compare_arenas(&self) -> Check {
        for (number, arena) in self.arenas.iter().enumerate() {
            let wrong = arena.with(|bytes| {
                let pairs = bytes.iter().zip(&arena.image);
                if bytes == arena.image {
                    None
                } else {
                    pairs.enumerate().find(|(_, (a, b))| a != b).map(|(at, _)| at)
                }
            });
            if let (Some(at), true) = (wrong, arena.region.is_some()) {
                return Err(format!(
                    "memory {number}: the byte at {at} of {} is not what it should be ({})",
                    arena.size,
                    self.owner_of(number, at)
                ));
            }
        }
        Ok(())
    }

    /// Whose byte it is, for a message.
    fn owner_of(&self, arena: usize, at: usize) -> String {
        let within = |pieces: &Pieces| {
            let mut all = pieces.0.iter();
            all.any(|(offset, length)| (*offset as usize..(offset + length) as usize).contains(&at))
        };
        let Some(number) = self.qps.iter().position(|qp| qp.arena == arena) else {
            return "a shared buffer".into();
        };
        let qp = &self.qps[number];
        if let Some(index) = qp.receives.iter().position(|receive| within(&receive.buffer)) {
            return format!("receive {index} of QP {number}");
        }
        let target = qp.ops.iter().position(|op| match &op.source {
            super::model::Source::Target(buffer, _) => within(buffer),
            _ => false,
        });
        match target {
            Some(index) => format!("where request {index} of QP {number} puts what it fetches"),
            None => format!("between the buffers of QP {number}"),
        }
    }
}
