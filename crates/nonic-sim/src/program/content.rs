//! Expected bytes: contents, and the buffers they lie in.
//!
//! All data of all runs is cut from one fixed pool of random bytes. A [`Content`] names pieces of the pool,
//! so expected bytes are never stored, only compared; source buffers are the pool itself, registered
//! read-only.

use nonic_core::{Access, Fault, HeapRegion, KeySpec, PdId, Region, Sge};
use nonic_netem::Prng;
use std::sync::{Arc, OnceLock};

/// Length of the pool. Arenas and messages must be shorter.
pub(crate) const POOL_LEN: usize = 4 << 20;

/// How much of it a key covers, and contents are drawn from.
pub(crate) const POOL_COVERED: u64 = POOL_LEN as u64 - 64;

/// The pool.
pub(crate) fn pool() -> &'static [u8] {
    static POOL: OnceLock<Vec<u8>> = OnceLock::new();
    POOL.get_or_init(|| {
        let mut prng = Prng::new(0x6e6f_6e69_6300);
        let mut bytes = Vec::with_capacity(POOL_LEN);
        while bytes.len() < POOL_LEN {
            bytes.extend_from_slice(&prng.next_u64().to_le_bytes());
        }
        bytes
    })
}

/// The pool as memory that a NIC can read but not write.
pub(crate) struct PoolRegion;

impl PoolRegion {
    /// What its key is good for.
    pub(crate) fn key_spec(pd: PdId) -> KeySpec {
        KeySpec {
            pd,
            region: Arc::new(PoolRegion),
            offset: 0,
            length: POOL_COVERED,
            iova: 0,
            access: Access::REMOTE_READ,
            bound_qp: None,
            invalidatable: false,
        }
    }
}

impl Region for PoolRegion {
    fn len(&self) -> usize {
        POOL_LEN
    }

    fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), Fault> {
        let end = offset.checked_add(out.len()).ok_or(Fault)?;
        out.copy_from_slice(pool().get(offset..end).ok_or(Fault)?);
        Ok(())
    }

    fn write(&self, _: usize, _: &[u8]) -> Result<(), Fault> {
        Err(Fault)
    }

    fn compare_swap(&self, _: usize, _: u64, _: u64) -> Result<u64, Fault> {
        Err(Fault)
    }

    fn fetch_add(&self, _: usize, _: u64) -> Result<u64, Fault> {
        Err(Fault)
    }
}

/// A list of (offset, length) pieces, of the pool or of an arena.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Pieces(pub(crate) Vec<(u32, u32)>);

/// Expected bytes: pieces of the pool.
pub(crate) type Content = Pieces;

impl Pieces {
    pub(crate) fn one(offset: usize, length: u32) -> Self {
        Pieces(vec![(offset as u32, length)])
    }

    pub(crate) fn length(&self) -> u32 {
        self.0.iter().map(|(_, length)| length).sum()
    }

    /// As a list for a request, of memory that begins at `iova`.
    pub(crate) fn sges(&self, iova: u64, lkey: u32) -> Vec<Sge> {
        let element = |(offset, length): &(u32, u32)| Sge {
            addr: iova + u64::from(*offset),
            length: *length,
            lkey,
        };
        self.0.iter().map(element).collect()
    }

    /// The pool's bytes it names.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.gather(pool())
    }

    /// The bytes it names in `memory`.
    pub(crate) fn gather(&self, memory: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.length() as usize);
        for (offset, length) in &self.0 {
            out.extend_from_slice(&memory[*offset as usize..][..*length as usize]);
        }
        out
    }

    /// Puts `data` where it names, as far as it goes.
    pub(crate) fn scatter(&self, memory: &mut [u8], data: &[u8]) {
        let mut rest = data;
        for (offset, length) in &self.0 {
            let (here, behind) = rest.split_at(rest.len().min(*length as usize));
            memory[*offset as usize..][..here.len()].copy_from_slice(here);
            rest = behind;
        }
    }

    /// Its first `length` bytes.
    pub(crate) fn prefix(&self, length: u32) -> Pieces {
        let mut left = length;
        let mut pieces = Vec::new();
        for (offset, length) in &self.0 {
            let here = left.min(*length);
            if here > 0 {
                pieces.push((*offset, here));
            }
            left -= here;
        }
        Pieces(pieces)
    }
}

/// Bytes at the end of an arena that no key covers.
pub(crate) const UNCOVERED: usize = 16;

/// A span of memory under test, with an image of what it should hold.
pub(crate) struct Arena {
    /// The NIC's life it belongs to.
    pub(crate) host: usize,
    /// Bytes planned so far; the real length once it is built.
    pub(crate) size: usize,
    /// Where in the pool its initial content begins.
    pub(crate) shift: usize,
    /// The address of its first byte.
    pub(crate) iova: u64,
    /// Its memory, once built.
    pub(crate) region: Option<std::sync::Arc<HeapRegion>>,
    /// What is known to be there.
    pub(crate) image: Vec<u8>,
    /// The key that covers all of it.
    pub(crate) key: u32,
}

impl Arena {
    /// A plan for one; it grows by [`Arena::allocate`].
    pub(crate) fn plan(host: usize, prng: &mut Prng) -> Self {
        let iova = match prng.below(3) {
            0 => 0,
            1 => 0x7f00_0000_0000 + (prng.below(1 << 20) << 12),
            _ => prng.below(1 << 62) & !7,
        };
        Arena {
            host,
            size: 16,
            shift: prng.below(1 << 16) as usize & !7,
            iova,
            region: None,
            image: Vec::new(),
            key: 0,
        }
    }

    /// Reserves `length` bytes, with guards around them.
    pub(crate) fn allocate(&mut self, length: u32, prng: &mut Prng) -> usize {
        let at = self.size;
        self.size += length as usize + 1 + prng.below(12) as usize;
        at
    }

    /// Reserves an aligned word.
    pub(crate) fn allocate_word(&mut self) -> usize {
        let at = self.size.next_multiple_of(8);
        self.size = at + 16;
        at
    }

    /// Reserves `length` bytes cut into up to `max_pieces` pieces with gaps between them.
    pub(crate) fn allocate_pieces(&mut self, length: u32, max_pieces: u32, prng: &mut Prng) -> Pieces {
        let mut pieces = Vec::new();
        let mut left = length;
        for cut in cuts(length, max_pieces, prng) {
            pieces.push((self.allocate(cut, prng) as u32, cut));
            left -= cut;
        }
        debug_assert_eq!(left, 0);
        Pieces(pieces)
    }

    /// What was there in the beginning.
    pub(crate) fn initial(&self, offset: usize, length: u32) -> Content {
        Pieces::one(self.shift + offset, length)
    }

    /// Makes the memory.
    pub(crate) fn build(&mut self) {
        self.size += UNCOVERED;
        self.image = pool()[self.shift..][..self.size].to_vec();
        self.region = Some(std::sync::Arc::new(HeapRegion::new(self.image.clone())));
    }

    /// How many bytes its key covers.
    pub(crate) fn covered(&self) -> usize {
        self.size - UNCOVERED
    }

    /// Looks at the memory as it is.
    pub(crate) fn with<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R {
        match &self.region {
            Some(region) => region.with(|bytes| look(bytes)),
            None => look(&[]),
        }
    }

    /// The bytes at `pieces` as they are.
    pub(crate) fn read(&self, pieces: &Pieces) -> Vec<u8> {
        self.with(|bytes| pieces.gather(bytes))
    }
}

/// Cuts `length` into up to `max_pieces` lengths, some of which may be zero.
fn cuts(length: u32, max_pieces: u32, prng: &mut Prng) -> Vec<u32> {
    let wanted = match prng.below(10) {
        0..=5 => 1,
        6..=8 => prng.range(1, 4),
        _ => prng.range(1, 32),
    };
    let count = (wanted as u32).min(max_pieces).max(1);
    let mut left = length;
    let mut out = Vec::with_capacity(count as usize);
    for index in 0..count {
        let piece = if index + 1 == count {
            left
        } else {
            prng.below(u64::from(left) + 1) as u32
        };
        out.push(piece);
        left -= piece;
    }
    out
}

/// `length` bytes of the pool in up to `max_pieces` pieces.
pub(crate) fn draw_content(length: u32, max_pieces: u32, prng: &mut Prng) -> Content {
    let pieces = cuts(length, max_pieces, prng)
        .into_iter()
        .map(|cut| (prng.below(POOL_COVERED - u64::from(cut)) as u32, cut));
    Pieces(pieces.collect())
}

/// Whether `actual` is `below`, overlaid from its start by a whole number of packets of `above`.
pub(crate) fn is_overlay(actual: &[u8], above: &[u8], below: &[u8], mtu: usize) -> bool {
    if actual == above || actual == below {
        return true;
    }
    let packets = actual.chunks(mtu).zip(above.chunks(mtu));
    let covered: usize = packets.take_while(|(a, b)| a == b).map(|(a, _)| a.len()).sum();
    actual[covered..] == below[covered..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlay_ends_at_a_packet_border() {
        let (above, below) = ([1u8; 10], [2u8; 10]);
        let mut mixed = below;
        mixed[..8].fill(1);
        assert!(is_overlay(&mixed, &above, &below, 4));
        assert!(is_overlay(&above, &above, &below, 4));
        assert!(is_overlay(&below, &above, &below, 4));
        mixed[8] = 1;
        assert!(!is_overlay(&mixed, &above, &below, 4));
    }

    #[test]
    fn pieces_gather_what_they_scatter() {
        let mut memory = [0u8; 20];
        let pieces = Pieces(vec![(3, 4), (10, 0), (12, 3)]);
        pieces.scatter(&mut memory, &[1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(pieces.gather(&memory), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(pieces.prefix(5), Pieces(vec![(3, 4), (12, 1)]));
    }
}
