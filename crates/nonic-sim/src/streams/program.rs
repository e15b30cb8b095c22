//! Plans the program of a side: its requests, drawn before the run.

use super::Streams;
use crate::program::content::{POOL_COVERED, Pieces, draw_content};
use crate::program::model::{Export, Word};
use crate::program::request::{Bad, Change, Expect, Kind, Op, Source, Writing};
use nonic_core::{SendFlags, Status};
use nonic_netem::Prng;

/// The most gather or scatter elements a request has.
pub(super) const MAX_SGE: u32 = 8;
/// The most inline data.
pub(super) const MAX_INLINE: u32 = 128;

/// What all of a connection keeps to: how long messages are, and how many.
#[derive(Copy, Clone, Debug)]
pub(super) struct Scale {
    pub(super) longest: u32,
    pub(super) requests: u64,
}

/// Plans the requests of one side.
pub(super) struct Planner<'a> {
    world: &'a mut Streams,
    prng: &'a mut Prng,
    side: usize,
    scale: Scale,
    signaled: u64,
    /// Memory of the peer that this side writes.
    cells: Vec<usize>,
    words: Vec<usize>,
    /// Keys of the peer that this side may use, and in the end invalidates.
    lent: Vec<usize>,
    /// What a READ of this side brings, where, and no request has used since.
    fetched: Option<(Pieces, Pieces)>,
}

impl<'a> Planner<'a> {
    pub(super) fn new(world: &'a mut Streams, side: usize, scale: Scale, prng: &'a mut Prng) -> Self {
        let signaled = prng.pick(&[100, 50, 15]);
        Planner {
            world,
            prng,
            side,
            scale,
            signaled,
            cells: Vec::new(),
            words: Vec::new(),
            lent: Vec::new(),
            fetched: None,
        }
    }

    pub(super) fn plan(mut self, count: u64, fetches: bool) {
        for _ in 0..self.prng.below(3) {
            self.lend();
        }
        for number in 0..count {
            match self.prng.below(100) {
                // A responder may have to wait for it.
                _ if number == 0 && self.side % 2 == 0 => self.send(),
                0..=34 => self.send(),
                35..=39 => self.send_invalidate(),
                40..=69 => self.write(),
                70..=72 => self.local_invalidate(),
                _ if !fetches => self.send(),
                73..=81 => self.read_pool(),
                82..=89 => self.read_cell(),
                _ => self.atomic(),
            }
        }
    }

    /// Memory of the peer under a key of its own.
    fn lend(&mut self) {
        let length = self.prng.range(8, 600) as u32;
        let export = self.export(self.side ^ 1, length);
        self.lent.push(export);
        let Export { arena, offset, .. } = self.world.model.exports[export];
        let cell = self.cell(arena, offset, length, Some(export));
        self.cells.push(cell);
    }

    fn export(&mut self, side: usize, length: u32) -> usize {
        let arena = self.world.model.programs[side].arena;
        let offset = self.world.model.arenas[arena].allocate(length, self.prng);
        let export = Export::new(arena, offset, length);
        self.world.model.add_export(side, export)
    }

    fn cell(&mut self, arena: usize, offset: usize, length: u32, export: Option<usize>) -> usize {
        // A stream may end anywhere.
        let unit = 1;
        self.world.model.add_cell((arena, offset), length, export, unit)
    }

    fn length(&mut self) -> u32 {
        let segment = self.world.sides[self.side].mss as u64;
        let drawn = match self.prng.below(10) {
            0 => 0,
            1..=4 => self.prng.range(1, 64),
            5 | 6 => self.prng.below(3) * segment + self.prng.range(0, 40),
            7 => segment.saturating_sub(self.prng.below(40)),
            _ => self.prng.below(u64::from(self.scale.longest) + 1),
        };
        (drawn as u32).min(self.scale.longest)
    }

    fn outgoing(&mut self, length: u32) -> Source {
        let content = draw_content(length, MAX_SGE, self.prng);
        match length <= MAX_INLINE && self.prng.percent(30) {
            true => Source::Inline(content),
            false => Source::Pool(content),
        }
    }

    fn push(&mut self, kind: Kind, length: u32, source: Source, mut flags: SendFlags, expect: Expect) {
        flags.set(SendFlags::SIGNALED, self.prng.percent(self.signaled));
        flags.set(SendFlags::SOLICITED, self.prng.percent(20));
        flags.set(
            SendFlags::FENCE,
            flags.contains(SendFlags::FENCE) || self.prng.percent(8),
        );
        let ops = &mut self.world.model.programs[self.side].ops;
        ops.push(Op::new(kind, length, source, flags, expect));
    }

    fn good(&mut self, kind: Kind, length: u32, source: Source) {
        self.push(kind, length, source, SendFlags::empty(), Expect::Success);
    }

    fn send(&mut self) {
        if let Some((place, content)) = self.fetched.take_if(|_| self.prng.percent(40)) {
            // What a READ brings is sent on: only the fence makes that right.
            let (length, source) = (content.length(), Source::Fetched(place, content));
            let kind = Kind::Send { immediate: None };
            return self.push(kind, length, source, SendFlags::FENCE, Expect::Success);
        }
        let length = self.length();
        let source = self.outgoing(length);
        self.good(Kind::Send { immediate: None }, length, source);
    }

    fn send_invalidate(&mut self) {
        let Some(export) = self.lent.pop() else {
            return self.send();
        };
        // No request may use it behind that.
        self.cells
            .retain(|cell| self.world.model.cells[*cell].export != Some(export));
        let length = self.length().min(200);
        let source = self.outgoing(length);
        // A READ may be answered after a later message has come: the fence keeps the key as long as it is needed.
        let kind = Kind::SendInvalidate { export };
        self.push(kind, length, source, SendFlags::FENCE, Expect::Success);
    }

    fn local_invalidate(&mut self) {
        let export = self.export(self.side, 16);
        self.good(
            Kind::LocalInvalidate { export },
            0,
            Source::Inline(Pieces::default()),
        );
    }

    fn write(&mut self) {
        let cell = match self.cells.is_empty() || self.prng.percent(40) {
            false => self.prng.pick(&self.cells),
            true => {
                let length = self.length();
                let arena = self.world.model.programs[self.side ^ 1].arena;
                let offset = self.world.model.arenas[arena].allocate(length, self.prng);
                let cell = self.cell(arena, offset, length, None);
                self.cells.push(cell);
                cell
            }
        };
        let length = self.world.model.cells[cell].length;
        let source = self.outgoing(length);
        let how = match self.prng.percent(30) {
            true => Writing::WithImmediate(self.prng.next_u32()),
            false => Writing::Plain,
        };
        let kind = self.world.model.write_of(cell, how, &source);
        self.good(kind, length, source);
    }

    fn read_pool(&mut self) {
        let length = self.length();
        let offset = self.prng.below(POOL_COVERED - u64::from(length)) as u32;
        let content = Pieces::one(offset as usize, length);
        let arena = self.world.model.programs[self.side].arena;
        let place = self.world.model.arenas[arena].allocate_pieces(length, MAX_SGE, self.prng);
        self.fetched = Some((place.clone(), content.clone()));
        self.good(Kind::ReadPool { offset }, length, Source::Target(place, content));
    }

    fn read_cell(&mut self) {
        if self.cells.is_empty() {
            return self.read_pool();
        }
        let cell = self.prng.pick(&self.cells);
        let (length, versions) = (
            self.world.model.cells[cell].length,
            self.world.model.cells[cell].versions.len(),
        );
        let arena = self.world.model.programs[self.side].arena;
        let place = self.world.model.arenas[arena].allocate_pieces(length, MAX_SGE, self.prng);
        let version = versions - 1;
        let content = self.world.model.cells[cell].versions[version].clone();
        self.good(
            Kind::ReadCell { cell, version },
            length,
            Source::Target(place, content),
        );
    }

    fn atomic(&mut self) {
        let peer = self.side ^ 1;
        let word = match self.words.is_empty() || self.prng.percent(30) {
            false => self.prng.pick(&self.words),
            true => {
                let arena = self.world.model.programs[peer].arena;
                let offset = self.world.model.arenas[arena].allocate_word();
                self.world.model.words.push(Word::new(arena, offset, true));
                self.words.push(self.world.model.words.len() - 1);
                self.world.model.words.len() - 1
            }
        };
        let change = match self.prng.percent(50) {
            true => Change::Add(self.prng.next_u64()),
            false => Change::Swap {
                compare: 0,
                swap: self.prng.next_u64(),
            },
        };
        let guess = self.prng.percent(70);
        let arena = self.world.model.programs[self.side].arena;
        let place = Pieces::one(self.world.model.arenas[arena].allocate(8, self.prng), 8);
        let kind = Kind::Atomic {
            word,
            change,
            guess,
            entry: 0,
        };
        self.good(kind, 8, Source::Target(place, Pieces::default()));
    }

    /// The last request of this side must fail.
    pub(super) fn fail(mut self, fetches: bool) {
        let ops = &mut self.world.model.programs[self.side].ops;
        let kept = self.prng.index(ops.len() + 1).max(1);
        ops.truncate(kept);
        let (bad, expect) = self.prng.pick(&[
            (Bad::WriteUnknownKey, Expect::Refused(Status::Flushed)),
            (Bad::WriteOutOfBounds, Expect::Refused(Status::Flushed)),
            (Bad::WriteReadOnly, Expect::Refused(Status::Flushed)),
            (Bad::ReadUnknownKey, Expect::Refused(Status::RemoteAccess)),
            (Bad::ReadOutOfBounds, Expect::Refused(Status::RemoteAccess)),
            (Bad::AtomicUnaligned, Expect::Refused(Status::RemoteOperation)),
            (Bad::SendInvalidateUnknownKey, Expect::Refused(Status::Flushed)),
            (Bad::LocalUnknownKey, Expect::Local(Status::LocalProtection)),
        ]);
        let reads = matches!(
            bad,
            Bad::ReadUnknownKey | Bad::ReadOutOfBounds | Bad::AtomicUnaligned
        );
        if reads && !fetches {
            return;
        }
        let length = match bad {
            Bad::AtomicUnaligned => 8,
            _ => self.length().clamp(1, 3000),
        };
        let source = if reads {
            let arena = self.world.model.programs[self.side].arena;
            let offset = self.world.model.arenas[arena].allocate(length, self.prng);
            Source::Target(Pieces::one(offset, length), Pieces::default())
        } else {
            Source::Pool(draw_content(length, 1, self.prng))
        };
        self.push(Kind::Bad(bad), length, source, SendFlags::empty(), expect);
    }
}
