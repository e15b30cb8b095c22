//! The set of extension headers that follow the BTH, as a bit set known at compile time.

/// Which extension headers a packet carries behind its BTH.
///
/// ```
/// use nonic_wire::{HeaderSet, Opcode};
/// let headers = Opcode::RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE.headers();
/// assert!(headers.contains(HeaderSet::RETH) && headers.contains(HeaderSet::IMMEDIATE));
/// assert!(!headers.contains(HeaderSet::AETH));
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct HeaderSet(u16);

impl HeaderSet {
    /// Bytes of the base transport header, which every packet has and which is in no set.
    pub(crate) const BTH_LEN: usize = 12;

    /// No extension header: the BTH alone.
    pub const NONE: HeaderSet = HeaderSet(0);
    /// Datagram extended transport header.
    pub const DETH: HeaderSet = HeaderSet(1);
    /// XRC extended transport header.
    pub const XRCETH: HeaderSet = HeaderSet(1 << 1);
    /// Flush extended transport header.
    pub const FETH: HeaderSet = HeaderSet(1 << 2);
    /// RDMA extended transport header.
    pub const RETH: HeaderSet = HeaderSet(1 << 3);
    /// Atomic extended transport header.
    pub const ATOMIC: HeaderSet = HeaderSet(1 << 4);
    /// Acknowledge extended transport header.
    pub const AETH: HeaderSet = HeaderSet(1 << 5);
    /// Atomic acknowledge extended transport header.
    pub const ATOMIC_ACK: HeaderSet = HeaderSet(1 << 6);
    /// Immediate data.
    pub const IMMEDIATE: HeaderSet = HeaderSet(1 << 7);
    /// Invalidate extended transport header.
    pub const IETH: HeaderSet = HeaderSet(1 << 8);

    /// Lengths in bytes, by bit number. Bits are numbered in the order in which headers stand on the wire.
    const LENGTHS: [u8; 9] = [8, 4, 4, 16, 28, 4, 8, 4, 4];

    /// Whether every header of `other` is in this set.
    pub const fn contains(self, other: HeaderSet) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any header of `other` is in this set.
    pub const fn intersects(self, other: HeaderSet) -> bool {
        self.0 & other.0 != 0
    }

    /// The headers in either set.
    pub const fn union(self, other: HeaderSet) -> HeaderSet {
        HeaderSet(self.0 | other.0)
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Bytes these headers take on the wire.
    pub const fn wire_len(self) -> usize {
        let mut total = 0;
        let mut bit = 0;
        while bit < Self::LENGTHS.len() {
            if self.0 >> bit & 1 == 1 {
                total += Self::LENGTHS[bit] as usize;
            }
            bit += 1;
        }
        total
    }
}
