//! Plans the queue pairs' send requests, and the receives the other side needs.

use super::model::Half;
use super::plan::Plan;
use crate::program::content::{Pieces, draw_content};
use crate::program::model::{Export, Receive};
use crate::program::request::{Change, Expect, Kind, Op, Source, Writing};
use nonic_core::{SendFlags, Service};
use nonic_netem::Prng;

/// The most gather or scatter elements a request has.
pub(crate) const MAX_SGE: u32 = 32;
/// The most inline data.
pub(crate) const MAX_INLINE: u32 = 256;
/// The longest message where it is not known which receive gets it, so that all are as long as the longest.
const MAX_SHARED: u32 = 3000;
/// Room in a datagram's receive for the network header.
pub(crate) const GRH_LEN: u32 = 40;

/// Plans both directions of a connection.
pub(super) fn plan_pair(plan: &mut Plan, first: usize, prng: &mut Prng) {
    let busy = match prng.below(10) {
        0..=5 => 24,
        6..=8 => 60,
        _ => 6,
    };
    for qp in [first, first + 1] {
        if plan.qps[qp].half == Some(Half::Target) {
            continue;
        }
        let count = if prng.percent(15) { 0 } else { prng.range(1, busy) };
        Planner::new(plan, qp, prng).plan(count);
    }
    for qp in [first, first + 1] {
        plan_receives(plan, qp, prng);
    }
}

/// The receives a queue pair needs for what its peer sends.
fn plan_receives(plan: &mut Plan, qp: usize, prng: &mut Prng) {
    let Some(peer) = plan.model.programs[qp].peer else {
        return;
    };
    if plan.qps[qp].half == Some(Half::Initiator) {
        return;
    }
    let lengths = plan.model.message_lengths(peer);
    let arena = plan.model.programs[qp].arena;
    let extra = prng.below(4) as usize;
    let short_at = (prng.below(100) < 2).then(|| prng.index(lengths.len() + 1));
    if let Some(srq) = plan.model.programs[qp].srq {
        // Only the length counts: the queue's buffers are drawn when all its users are known.
        let receives = lengths.iter().map(|length| Receive::new(Pieces::one(0, *length)));
        plan.model.srqs[srq].receives.extend(receives);
        return;
    }
    // A message that gets lost leaves its receive to the next one.
    let longest = lengths
        .iter()
        .copied()
        .max()
        .filter(|_| plan.qps[qp].service == Service::Uc);
    for (index, length) in lengths.iter().copied().chain(vec![64; extra]).enumerate() {
        let length = length.max(longest.unwrap_or(0));
        let short = short_at == Some(index) && index < lengths.len() && length > 0;
        let room = if short {
            prng.below(u64::from(length)) as u32
        } else {
            length + prng.below(2) as u32 * prng.below(40) as u32
        };
        let buffer = plan.model.arenas[arena].allocate_pieces(room, MAX_SGE, prng);
        plan.model.programs[qp].receives.push(Receive {
            short,
            ..Receive::new(buffer)
        });
    }
}

/// Plans one queue pair's requests.
pub(super) struct Planner<'a> {
    pub(super) plan: &'a mut Plan,
    pub(super) prng: &'a mut Prng,
    pub(super) qp: usize,
    peer: usize,
    pub(super) mtu: u32,
    pub(super) service: Service,
    /// How often a request is signaled, in percent.
    signaled: u64,
    /// Exports of the peer that this side may use for a while, or invalidates.
    victim: Option<usize>,
}

impl<'a> Planner<'a> {
    fn new(plan: &'a mut Plan, qp: usize, prng: &'a mut Prng) -> Self {
        let peer = plan.model.programs[qp]
            .peer
            .expect("connected services have a peer");
        let (mtu, service) = (plan.qps[qp].terms.mtu.bytes(), plan.qps[qp].service);
        let signaled = prng.pick(&[100, 100, 50, 15]);
        Planner {
            plan,
            prng,
            qp,
            peer,
            mtu,
            service,
            signaled,
            victim: None,
        }
    }

    fn plan(mut self, count: u64) {
        if self.prng.percent(25) {
            self.victim = Some(self.add_export());
        }
        let bad_at = self.prng.percent(12).then(|| self.prng.below(count + 1));
        for index in 0..count {
            if bad_at == Some(index) {
                self.bad();
            }
            if self.service == Service::Rc {
                self.reliable();
            } else {
                self.unreliable();
            }
        }
    }

    /// Memory of the peer under a key of its own, taken away at some time or by an invalidation.
    fn add_export(&mut self) -> usize {
        let arena = self.plan.model.programs[self.peer].arena;
        let length = self.prng.range(64, 8192) as u32;
        let offset = self.plan.model.arenas[arena].allocate(length, self.prng);
        let revocable = self.prng.percent(40);
        let bound = self.prng.percent(30);
        let export = Export {
            bound_to: bound.then_some(self.peer),
            revocable,
            ..Export::new(arena, offset, length)
        };
        self.plan.model.add_export(self.peer, export)
    }

    fn reliable(&mut self) {
        match self.prng.below(100) {
            0..=19 => self.send(),
            20..=26 => self.send_immediate(),
            27..=46 => self.write(Writing::Plain),
            47..=53 => {
                let how = Writing::WithImmediate(self.prng.next_u32());
                self.write(how);
            }
            54..=69 => self.read_pool(),
            70..=83 => self.atomic(),
            84..=88 => self.write_then_read(),
            89..=92 => self.read_then_fenced_write(),
            93..=95 => self.read_then_fenced_send(),
            96 => self.send_invalidate(),
            97 => self.local_invalidate(),
            _ => self.write_over(),
        }
    }

    fn unreliable(&mut self) {
        match self.prng.below(100) {
            0..=39 => self.send(),
            40..=54 => self.send_immediate(),
            55..=79 => self.write(Writing::Plain),
            80..=97 => {
                let how = Writing::WithImmediate(self.prng.next_u32());
                self.write(how);
            }
            _ => self.local_invalidate(),
        }
    }

    fn draw_length(&mut self) -> u32 {
        let mtu = u64::from(self.mtu);
        let length = match self.prng.below(100) {
            0..=5 => 0,
            6..=35 => self.prng.range(1, 64),
            36..=64 => self.prng.range(1, 4) * mtu + self.prng.below(3) - 1,
            65..=88 => self.prng.range(1, 2 * mtu),
            89..=98 => self.prng.range(1, 12 * mtu.min(2048)),
            _ if self.prng.percent(30) => self.prng.range(30_000, 300_000),
            _ => self.prng.range(1, 64),
        };
        length as u32
    }

    fn message_length(&mut self) -> u32 {
        let length = self.draw_length();
        if self.plan.model.programs[self.peer].srq.is_some() || self.service == Service::Uc {
            length.min(MAX_SHARED)
        } else {
            length
        }
    }

    fn source(&mut self, length: u32) -> Source {
        let inline = length <= MAX_INLINE && self.prng.percent(25);
        let content = draw_content(length, MAX_SGE, self.prng);
        if inline {
            Source::Inline(content)
        } else {
            Source::Pool(content)
        }
    }

    pub(super) fn push(&mut self, kind: Kind, length: u32, source: Source, flags: SendFlags, expect: Expect) {
        let mut flags = flags;
        if self.prng.below(100) < self.signaled {
            flags |= SendFlags::SIGNALED;
        }
        if self.prng.percent(20) {
            flags |= SendFlags::SOLICITED;
        }
        if self.prng.percent(5) {
            flags |= SendFlags::FENCE;
        }
        self.plan.model.programs[self.qp]
            .ops
            .push(Op::new(kind, length, source, flags, expect));
    }

    fn send(&mut self) {
        let length = self.message_length();
        let source = self.source(length);
        let kind = Kind::Send { immediate: None };
        self.push(kind, length, source, SendFlags::empty(), Expect::Success);
    }

    fn send_immediate(&mut self) {
        let length = self.message_length();
        let source = self.source(length);
        let immediate = Some(self.prng.next_u32());
        self.push(
            Kind::Send { immediate },
            length,
            source,
            SendFlags::empty(),
            Expect::Success,
        );
    }

    /// A cell of the peer's memory, sometimes in the export that may go away.
    fn add_cell(&mut self, length: u32) -> usize {
        let arena = self.plan.model.programs[self.peer].arena;
        let export = self.victim.filter(|_| self.prng.percent(30));
        let taken = export.map(|export| {
            let export = &self.plan.model.exports[export];
            let cells = &export.cells;
            cells.last().map_or(export.offset, |last| {
                let last = &self.plan.model.cells[*last];
                last.offset + last.length as usize + 1
            })
        });
        let inside = export.zip(taken).filter(|(export, at)| {
            let export = &self.plan.model.exports[*export];
            at + length as usize <= export.offset + export.length as usize
        });
        let (export, offset) = match inside {
            Some((export, at)) => (Some(export), at),
            None => (None, self.plan.model.arenas[arena].allocate(length, self.prng)),
        };
        let unit = self.mtu as usize;
        self.plan.model.add_cell((arena, offset), length, export, unit)
    }

    /// A cell that ATOMIC_WRITE can write.
    fn add_word_cell(&mut self) -> usize {
        let arena = self.plan.model.programs[self.peer].arena;
        let offset = self.plan.model.arenas[arena].allocate_word();
        let unit = self.mtu as usize;
        self.plan.model.add_cell((arena, offset), 8, None, unit)
    }

    fn write(&mut self, how: Writing) {
        let length = self.draw_length();
        let cell = self.add_cell(length);
        self.write_cell(cell, how, SendFlags::empty());
    }

    fn write_cell(&mut self, cell: usize, how: Writing, flags: SendFlags) {
        let length = self.plan.model.cells[cell].length;
        let source = self.source(length);
        self.write_cell_from(cell, how, flags, source);
    }

    fn write_cell_from(&mut self, cell: usize, how: Writing, flags: SendFlags, source: Source) {
        let length = self.plan.model.cells[cell].length;
        let kind = self.plan.model.write_of(cell, how, &source);
        self.push(kind, length, source, flags, Expect::Success);
    }

    fn read_target(&mut self, content: Pieces) -> Source {
        let arena = self.plan.model.programs[self.qp].arena;
        let length = content.length();
        let buffer = self.plan.model.arenas[arena].allocate_pieces(length, MAX_SGE, self.prng);
        Source::Target(buffer, content)
    }

    fn read_pool(&mut self) {
        let length = self.draw_length();
        let content = draw_content(length, 1, self.prng);
        let offset = content.0[0].0;
        let target = self.read_target(content);
        self.push(
            Kind::ReadPool { offset },
            length,
            target,
            SendFlags::empty(),
            Expect::Success,
        );
    }

    fn read_cell(&mut self, cell: usize) -> Pieces {
        let version = self.plan.model.cells[cell].versions.len() - 1;
        let content = self.plan.model.cells[cell].versions[version].clone();
        let length = content.length();
        let target = self.read_target(content);
        let Source::Target(buffer, _) = &target else {
            return Pieces::default();
        };
        let buffer = buffer.clone();
        let kind = Kind::ReadCell { cell, version };
        self.push(kind, length, target, SendFlags::empty(), Expect::Success);
        buffer
    }

    /// The READ must see what the WRITE before it wrote.
    fn write_then_read(&mut self) {
        let length = self.draw_length();
        let cell = self.add_cell(length);
        self.write_cell(cell, Writing::Plain, SendFlags::empty());
        self.read_cell(cell);
    }

    /// The READ must not see what the fenced WRITE after it writes, however often it is repeated.
    fn read_then_fenced_write(&mut self) {
        let length = self.draw_length();
        let cell = self.add_cell(length);
        if self.prng.percent(50) {
            self.write_cell(cell, Writing::Plain, SendFlags::empty());
        }
        self.read_cell(cell);
        self.write_cell(cell, Writing::Plain, SendFlags::FENCE);
    }

    /// What the fenced request sends is what the READ before it brought.
    fn read_then_fenced_send(&mut self) {
        let length = self.message_length();
        let cell = self.add_cell(length);
        if self.prng.percent(50) {
            self.write_cell(cell, Writing::Plain, SendFlags::empty());
        }
        let content = self.plan.model.cells[cell]
            .versions
            .last()
            .expect("a cell has a first version")
            .clone();
        let buffer = self.read_cell(cell);
        let source = Source::Fetched(buffer, content);
        if self.prng.percent(50) {
            let kind = Kind::Send { immediate: None };
            self.push(kind, length, source, SendFlags::FENCE, Expect::Success);
        } else {
            let target = self.add_cell(length);
            self.write_cell_from(target, Writing::Plain, SendFlags::FENCE, source);
        }
    }

    /// Several WRITEs to one place: a repeated one must not undo a later one.
    fn write_over(&mut self) {
        // XRC has neither ATOMIC_WRITE nor FLUSH.
        if self.plan.qps[self.qp].half.is_none() && self.prng.percent(50) {
            return self.write_word_over();
        }
        let length = self.draw_length();
        let cell = self.add_cell(length);
        for _ in 0..self.prng.range(2, 4) {
            self.write_cell(cell, Writing::Plain, SendFlags::empty());
        }
    }

    /// The same with atomic WRITEs, a FLUSH and a READ among them.
    fn write_word_over(&mut self) {
        let cell = self.add_word_cell();
        for _ in 0..self.prng.range(2, 5) {
            let how = self
                .prng
                .pick(&[Writing::Atomic, Writing::Atomic, Writing::Plain]);
            self.write_cell(cell, how, SendFlags::empty());
            if self.prng.percent(20) {
                let nothing = Source::Pool(Pieces::default());
                let kind = Kind::Flush { cell };
                self.push(kind, 0, nothing, SendFlags::empty(), Expect::Success);
            }
        }
        // A READ must not see what a WRITE after it writes, so there is none.
        if self.prng.percent(50) {
            self.read_cell(cell);
        }
    }

    fn atomic(&mut self) {
        let host = self.plan.model.programs[self.peer].host;
        let mine = self.qp;
        let free = |word: &usize| {
            let word = &self.plan.model.words[*word];
            !word.private || word.history.first().is_none_or(|first| first.qp == mine)
        };
        let usable: Vec<usize> = self.plan.words_of[host].iter().copied().filter(free).collect();
        if usable.is_empty() {
            return self.read_pool();
        }
        let word = self.prng.pick(&usable);
        let value = self.prng.next_u64() | 1;
        let change = if self.prng.percent(55) {
            Change::Add(value)
        } else {
            Change::Swap {
                compare: self.prng.next_u64(),
                swap: value,
            }
        };
        // The history is written when the request is posted; this only claims private words.
        let entry = crate::program::model::Atomic {
            qp: mine,
            change,
            original: None,
        };
        self.plan.model.words[word].history.push(entry);
        let arena = self.plan.model.programs[self.qp].arena;
        let buffer = self.plan.model.arenas[arena].allocate_pieces(8, 4, self.prng);
        let kind = Kind::Atomic {
            word,
            change,
            guess: self.prng.percent(75),
            entry: 0,
        };
        let target = Source::Target(buffer, Pieces::default());
        self.push(kind, 8, target, SendFlags::empty(), Expect::Success);
    }

    fn send_invalidate(&mut self) {
        // Only an export that is not revoked otherwise: then the outcome is certain.
        let Some(export) = self
            .victim
            .filter(|export| !self.plan.model.exports[*export].revocable)
        else {
            return self.send();
        };
        self.victim = None;
        let length = self.message_length().min(2000);
        let source = self.source(length);
        let kind = Kind::SendInvalidate { export };
        // READs of it must be answered before; a later request may overtake them without a fence.
        self.push(kind, length, source, SendFlags::FENCE, Expect::Success);
    }

    /// Invalidates an own export that no peer uses, sometimes a window that it binds itself.
    fn local_invalidate(&mut self) {
        // An unreliable send queue may fail and recover between the two requests.
        let window = self.service == Service::Rc && self.prng.percent(50);
        let arena = self.plan.model.programs[self.qp].arena;
        let offset = self.plan.model.arenas[arena].allocate(64, self.prng);
        let own = Export {
            bound_to: window.then_some(self.qp),
            bound_later: window,
            ..Export::new(arena, offset, 64)
        };
        let export = self.plan.model.add_export(self.qp, own);
        let nothing = Source::Pool(Pieces::default());
        if window {
            let kind = Kind::BindWindow { export };
            self.push(kind, 0, nothing.clone(), SendFlags::empty(), Expect::Success);
            if self.prng.percent(30) {
                return;
            }
        }
        let kind = Kind::LocalInvalidate { export };
        self.push(kind, 0, nothing, SendFlags::empty(), Expect::Success);
    }
}
