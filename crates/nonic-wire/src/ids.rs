//! The 24-bit numbers of the transport: packet sequence numbers and queue pair numbers.
//!
//! Newtypes keep them apart and keep them in range: no value outside 24 bits can exist.

use std::fmt;

const MASK_24: u32 = 0x00ff_ffff;

/// Packet sequence number: counts modulo 2^24, so it has no total order, only distances.
///
/// ```
/// use nonic_wire::Psn;
/// let last = Psn::new(0xff_ffff);
/// assert_eq!(last.next(), Psn::new(0));
/// assert!(last.is_before(last.next()));
/// assert_eq!(last.distance_from(Psn::new(2)), -3);
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Psn(u32);

impl Psn {
    /// Takes the low 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value & MASK_24)
    }

    /// The number, below 2^24.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The sequence number `count` packets later.
    pub const fn add(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }

    /// The sequence number `count` packets earlier.
    pub const fn sub(self, count: u32) -> Self {
        Self::new(self.0.wrapping_sub(count))
    }

    /// The sequence number of the next packet.
    pub const fn next(self) -> Self {
        self.add(1)
    }

    /// The sequence number of the packet before.
    pub const fn prev(self) -> Self {
        self.sub(1)
    }

    /// `self - other` as a signed distance in `-2^23..2^23`: the shorter way round the circle.
    pub const fn distance_from(self, other: Psn) -> i32 {
        // Bit 23 of the difference is the sign; moving it to bit 31 and back extends it.
        ((self.0.wrapping_sub(other.0) << 8) as i32) >> 8
    }

    /// Whether `self` lies in the half circle before `other`.
    pub const fn is_before(self, other: Psn) -> bool {
        self.distance_from(other) < 0
    }

    /// Whether `self` lies in the half circle after `other`.
    pub const fn is_after(self, other: Psn) -> bool {
        self.distance_from(other) > 0
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

/// Queue pair number.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default, Debug, PartialOrd, Ord)]
pub struct Qpn(u32);

impl Qpn {
    /// The subnet management interface. Has no meaning on RoCE, and is reserved for that reason.
    pub const SMI: Qpn = Qpn(0);
    /// The general services interface: connection management arrives here.
    pub const GSI: Qpn = Qpn(1);
    /// Destination of every multicast packet.
    pub const MULTICAST: Qpn = Qpn(MASK_24);

    /// Takes the low 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value & MASK_24)
    }

    /// The number, below 2^24.
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn psn_wraps_at_24_bits() {
        assert_eq!(Psn::new(0xff_ffff).add(2), Psn::new(1));
        assert_eq!(Psn::new(1).sub(2), Psn::new(0xff_ffff));
        assert_eq!(Psn::new(0).prev().next(), Psn::new(0));
        assert_eq!(Psn::new(0x0123_4567).value(), 0x23_4567);
    }

    #[test]
    fn psn_distance_is_signed_and_takes_the_short_way() {
        assert_eq!(Psn::new(5).distance_from(Psn::new(3)), 2);
        assert_eq!(Psn::new(3).distance_from(Psn::new(5)), -2);
        assert_eq!(Psn::new(0x7f_ffff).distance_from(Psn::new(0)), 0x7f_ffff);
        assert_eq!(Psn::new(0x80_0000).distance_from(Psn::new(0)), -0x80_0000);
        assert!(Psn::new(0).is_after(Psn::new(0xff_ffff)));
        assert!(!Psn::new(9).is_after(Psn::new(9)) && !Psn::new(9).is_before(Psn::new(9)));
    }
}
