//! What every plan of a program needs, whatever it draws: exports, cells and their versions, and how long receives must be.

use super::model::{Cell, Export, Model};
use super::request::{Kind, Source, Writing};

impl Model {
    /// Adds memory of a program under a key of its own.
    pub(crate) fn add_export(&mut self, owner: usize, export: Export) -> usize {
        let number = self.exports.len();
        self.exports.push(export);
        self.programs[owner].exports.push(number);
        number
    }

    /// Adds a cell at an arena and offset, written in pieces of `unit`, perhaps inside an export.
    pub(crate) fn add_cell(
        &mut self,
        (arena, offset): (usize, usize),
        length: u32,
        export: Option<usize>,
        unit: usize,
    ) -> usize {
        let number = self.cells.len();
        let initial = self.arenas[arena].initial(offset, length);
        let cell = Cell::new((arena, offset), export, initial, unit);
        self.cells.push(cell);
        if let Some(export) = export {
            self.exports[export].cells.push(number);
        }
        number
    }

    /// A WRITE of the next version of a cell.
    pub(crate) fn write_of(&mut self, cell: usize, how: Writing, source: &Source) -> Kind {
        let versions = &mut self.cells[cell].versions;
        let version = versions.len();
        versions.push(source.content().clone());
        Kind::Write { cell, version, how }
    }

    /// How long the receives must be for the messages of a program: a WRITE takes one and leaves it empty.
    pub(crate) fn message_lengths(&self, sender: usize) -> Vec<u32> {
        let messages = self.programs[sender].ops.iter().filter(|op| op.kind.is_message());
        messages
            .map(|op| match op.kind {
                Kind::Write { .. } => 0,
                _ => op.length,
            })
            .collect()
    }
}
