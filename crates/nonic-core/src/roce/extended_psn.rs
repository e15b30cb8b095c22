//! Packet sequence numbers without their wrap.

use nonic_wire::Psn;
use std::ops::{Add, AddAssign, Sub};

/// A packet's number in one endless sequence; its low 24 bits are the PSN on the wire. A 2 GiB message spans half of what 24
/// bits can count: with 64, "before" and "after" have one meaning.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct ExtendedPsn(u64);

impl ExtendedPsn {
    /// Where a sequence begins. One lap up, so that every number can be compared with an older one.
    pub(crate) fn starting_at(psn: Psn) -> Self {
        ExtendedPsn((1 << 24) + u64::from(psn.value()))
    }

    /// As it stands on the wire.
    pub(crate) fn psn(self) -> Psn {
        Psn::new(self.0 as u32)
    }

    pub(crate) fn next(self) -> Self {
        self + 1
    }

    /// The one before. There is one: a sequence begins a lap up.
    pub(crate) fn prev(self) -> Self {
        ExtendedPsn(self.0 - 1)
    }

    /// The number nearest to this one that stands on the wire as `psn`.
    pub(crate) fn nearest(self, psn: Psn) -> Option<Self> {
        let ahead = psn.distance_from(self.psn());
        self.0.checked_add_signed(i64::from(ahead)).map(ExtendedPsn)
    }
}

impl Add<u32> for ExtendedPsn {
    type Output = Self;

    fn add(self, count: u32) -> Self {
        ExtendedPsn(self.0 + u64::from(count))
    }
}

impl AddAssign<u32> for ExtendedPsn {
    fn add_assign(&mut self, count: u32) {
        *self = *self + count;
    }
}

impl Sub for ExtendedPsn {
    type Output = u64;

    fn sub(self, earlier: Self) -> u64 {
        self.0 - earlier.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_number_is_found_across_the_wrap() {
        let last = ExtendedPsn::starting_at(Psn::new(0xff_ffff));
        assert_eq!(last.next().psn(), Psn::new(0));
        assert_eq!(last.nearest(Psn::new(4)), Some(last + 5));
        assert_eq!((last + 5).nearest(Psn::new(0xff_ffff)), Some(last));
        assert!(last < last.next());
    }

    #[test]
    fn the_start_has_numbers_before_it() {
        let start = ExtendedPsn::starting_at(Psn::new(0));
        assert!(
            start
                .nearest(Psn::new(0xff_ffff))
                .is_some_and(|before| before < start)
        );
    }
}
