//! Checks memory: cells hold what was written to them, revoked memory never changes again, and nothing else is touched.

use super::Check;
use super::content::{Arena, Pieces, is_overlay};
use super::model::{Cell, Model, Program};
use super::request::Source;

impl Model {
    /// Whether a cell holds at least version `at_least`: see [`Cell::check`].
    pub(crate) fn check_cell(&self, number: usize, at_least: usize) -> Check {
        let cell = &self.cells[number];
        cell.check(number, &self.arenas[cell.arena], at_least)
    }

    /// A key is gone: nothing it covered may change any more.
    pub(crate) fn revoked(&mut self, export: usize) {
        if self.exports[export].revoked_ns.is_none() {
            self.exports[export].revoked_ns = Some(self.now_ns);
            for cell in self.exports[export].cells.clone() {
                self.freeze(cell);
            }
        }
    }

    /// Whatever is in a cell now must stay.
    pub(crate) fn freeze(&mut self, cell: usize) {
        let cell = &mut self.cells[cell];
        cell.freeze(&self.arenas[cell.arena]);
    }

    /// Checks every cell for the last time and notes its content in the image.
    pub(crate) fn settle_cells(&mut self) -> Check {
        for number in 0..self.cells.len() {
            let arena = self.cells[number].arena;
            if self.arenas[arena].region.is_none() {
                continue;
            }
            self.cells[number]
                .settle(number, &mut self.arenas[arena])
                .or_else(|what| self.excuse(arena, what))?;
        }
        Ok(())
    }

    /// Compares every arena with its image, byte for byte.
    pub(crate) fn compare_arenas(&self) -> Check {
        for (number, arena) in self.arenas.iter().enumerate() {
            if let Some(at) = arena.first_difference() {
                let what = format!(
                    "memory {number}: the byte at {at} of {} is not what it should be ({})",
                    arena.size,
                    self.owner_of(number, at)
                );
                self.excuse(number, what)?;
            }
        }
        Ok(())
    }

    /// Memory that a damaged stream without CRCs may write may hold anything.
    pub(crate) fn excuse(&self, arena: usize, what: String) -> Check {
        let excused = |program: &Program| program.arena == arena && program.damaged;
        match self.programs.iter().any(excused) {
            true => Ok(()),
            false => Err(what),
        }
    }

    /// What a byte belongs to, for a message.
    fn owner_of(&self, arena: usize, at: usize) -> String {
        let within = |pieces: &Pieces| {
            let mut all = pieces.0.iter();
            all.any(|(offset, length)| (*offset as usize..(offset + length) as usize).contains(&at))
        };
        let Some(number) = self.programs.iter().position(|program| program.arena == arena) else {
            return "a shared buffer".into();
        };
        let program = &self.programs[number];
        let mut receives = program.receives.iter();
        if let Some(index) = receives.position(|receive| within(&receive.buffer)) {
            return format!("receive {index} of QP {number}");
        }
        let target = program.ops.iter().position(|op| match &op.source {
            Source::Target(buffer, _) => within(buffer),
            _ => false,
        });
        match target {
            Some(index) => format!("where request {index} of QP {number} puts what it fetches"),
            None => format!("between the buffers of QP {number}"),
        }
    }
}

impl Cell {
    /// Whether it holds at least version `at_least`, or a later one that was posted, the next one possibly in part.
    pub(crate) fn check(&self, number: usize, arena: &Arena, at_least: usize) -> Check {
        let actual = match &self.frozen {
            Some(bytes) => bytes.clone(),
            None => arena.read(&Pieces::one(self.offset, self.length)),
        };
        let mut below = self.versions[at_least].bytes();
        for version in at_least..=self.posted.max(at_least) {
            let above = if version < self.posted {
                self.versions[version + 1].bytes()
            } else {
                below.clone()
            };
            if is_overlay(&actual, &above, &below, self.mtu) {
                return Ok(());
            }
            below = above;
        }
        let expected = self.versions[at_least].bytes();
        let count = actual.iter().zip(&expected).filter(|(a, b)| a != b).count();
        Err(format!(
            "cell {number} holds none of versions {at_least} to {}: {count} of {} bytes differ from the first of them",
            self.posted, self.length
        ))
    }

    /// Whatever is in it now must stay.
    pub(crate) fn freeze(&mut self, arena: &Arena) {
        if self.frozen.is_none() && arena.region.is_some() {
            self.frozen = Some(arena.read(&Pieces::one(self.offset, self.length)));
        }
    }

    /// Checks it for the last time and notes its content in the image.
    pub(crate) fn settle(&self, number: usize, arena: &mut Arena) -> Check {
        self.check(number, arena, self.known)
            .map_err(|what| format!("at the end: {what}"))?;
        let place = Pieces::one(self.offset, self.length);
        let actual = arena.read(&place);
        if self.frozen.as_ref().is_some_and(|frozen| *frozen != actual) {
            return Err(format!("cell {number} changed after its key was revoked"));
        }
        place.scatter(&mut arena.image, &actual);
        Ok(())
    }
}

impl Arena {
    /// The first byte that is not what the image says.
    pub(crate) fn first_difference(&self) -> Option<usize> {
        self.region.as_ref()?;
        self.with(|bytes| {
            if bytes == self.image {
                return None;
            }
            let mut pairs = bytes.iter().zip(&self.image);
            pairs.position(|(actual, expected)| actual != expected)
        })
    }
}

/// Says where two byte strings differ.
pub(crate) fn difference(actual: &[u8], expected: &[u8]) -> String {
    let first = actual.iter().zip(expected).position(|(a, b)| a != b);
    let count = actual.iter().zip(expected).filter(|(a, b)| a != b).count();
    match first {
        Some(at) => format!("{count} of {} bytes differ, the first at {at}", expected.len()),
        None => format!("{} bytes instead of {}", actual.len(), expected.len()),
    }
}
