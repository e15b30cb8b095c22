//! How fast a line is, and so how long bytes occupy it. In integers: a simulated run must be the same on every machine.

/// The rate of a line.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Rate {
    /// How long a byte occupies the line, in femtoseconds; 0 on a line without a limit.
    byte_time_fs: u64,
}

const FS_PER_NS: u64 = 1_000_000;

impl Rate {
    /// A line that everything passes at once.
    pub const UNLIMITED: Rate = Rate { byte_time_fs: 0 };

    /// So many bits in a second, but at least one.
    pub const fn bits_per_second(bits: u64) -> Rate {
        let bits = if bits == 0 { 1 } else { bits };
        Rate {
            byte_time_fs: 8_000_000_000_000_000 / bits,
        }
    }

    /// A byte takes so many picoseconds: 80 at 100 Gbit/s. None is a line without a limit.
    pub const fn of_byte_time_ps(ps: u64) -> Rate {
        Rate {
            byte_time_fs: ps * 1000,
        }
    }

    /// How long so many bytes occupy the line.
    pub fn occupied_ns(self, bytes: u64) -> u64 {
        scale(bytes, self.byte_time_fs, FS_PER_NS)
    }

    /// How many bytes pass in so long; none is what a line without a limit leaves waiting.
    pub fn bytes_in(self, ns: u64) -> u64 {
        match self.byte_time_fs {
            0 => 0,
            fs => scale(ns, FS_PER_NS, fs),
        }
    }
}

/// `value * by / divisor`, with a division of 128 bits only where the product needs it.
fn scale(value: u64, by: u64, divisor: u64) -> u64 {
    match value.checked_mul(by) {
        Some(product) => product / divisor,
        None => (u128::from(value) * u128::from(by) / u128::from(divisor)) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_as_long_as_the_rate_says() {
        let gigabit = Rate::bits_per_second(1_000_000_000);
        assert_eq!(gigabit, Rate::of_byte_time_ps(8_000));
        assert_eq!(gigabit.occupied_ns(1500), 12_000);
        assert_eq!(gigabit.bytes_in(12_000), 1500);
        assert_eq!(gigabit.bytes_in(1_000_000_000_000), 125_000_000_000);
        let odd = Rate::bits_per_second(3_000_000_000);
        assert_eq!(odd.occupied_ns(3_000_000), 7_999_998, "to a part in a million");
        assert_eq!(
            Rate::bits_per_second(1).occupied_ns(1 << 30),
            (1 << 30) * 8_000_000_000
        );
        assert_eq!(Rate::UNLIMITED.occupied_ns(u64::MAX), 0);
    }
}
