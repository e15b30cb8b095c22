//! Polynomials over GF(2) modulo the CRC-32 polynomial, in reflected form: bit 31 is the coefficient of
//! x^0. Just enough to move a CRC backwards over a known number of bytes.

/// The CRC-32 polynomial without its x^32 term, reflected.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// x^0.
const ONE: u32 = 1 << 31;

/// Product of two polynomials.
pub(super) const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 32;
    while bit > 0 {
        bit -= 1;
        // From the coefficient of x^0 upwards; the mask is all ones where the bit is set, so no branches.
        product ^= b & (a >> bit & 1).wrapping_neg();
        b = times_x(b);
    }
    product
}

/// x^(-8·`bytes`): multiplying a CRC register by it takes `bytes` zero bytes off the end of the message.
/// `None` above 65 535, which no datagram reaches.
pub(super) fn inverse_power_of_bytes(bytes: usize) -> Option<u32> {
    let high = HIGH.get(bytes >> 8)?;
    Some(multiply(*high, LOW[bytes & 0xff]))
}

/// x^(-8·i).
static LOW: [u32; 256] = powers(inverse_of_one_byte());
/// x^(-8·256·i).
static HIGH: [u32; 256] = powers(multiply(LOW[255], LOW[1]));

/// The first 256 powers of `base`.
const fn powers(base: u32) -> [u32; 256] {
    let mut table = [ONE; 256];
    let mut index = 1;
    while index < table.len() {
        table[index] = multiply(table[index - 1], base);
        index += 1;
    }
    table
}

/// x^-8.
const fn inverse_of_one_byte() -> u32 {
    let mut value = ONE;
    let mut step = 0;
    while step < 8 {
        value = divided_by_x(value);
        step += 1;
    }
    value
}

/// Multiplies by x: one step of the CRC register with a zero bit.
const fn times_x(value: u32) -> u32 {
    value >> 1 ^ POLYNOMIAL & (value & 1).wrapping_neg()
}

/// Divides by x. The polynomial has a constant term, so adding it makes any odd value divisible.
const fn divided_by_x(value: u32) -> u32 {
    if value & ONE == 0 {
        value << 1
    } else {
        (value ^ POLYNOMIAL) << 1 | 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dividing_undoes_multiplying() {
        for value in [ONE, 1, 0xdead_beef, 0xffff_ffff, 0x8000_0001] {
            assert_eq!(divided_by_x(times_x(value)), value);
            assert_eq!(times_x(divided_by_x(value)), value);
        }
    }

    #[test]
    fn inverse_powers_take_zero_bytes_off() {
        for bytes in [0usize, 1, 2, 255, 256, 257, 4096, 65_535] {
            let inverse = inverse_power_of_bytes(bytes).unwrap();
            let mut value = inverse;
            for _ in 0..8 * bytes {
                value = times_x(value);
            }
            assert_eq!(value, ONE, "{bytes}");
        }
        assert_eq!(inverse_power_of_bytes(65_536), None);
    }

    #[test]
    fn one_is_neutral_and_products_commute() {
        assert_eq!(multiply(ONE, 0x1234_5678), 0x1234_5678);
        assert_eq!(
            multiply(0xcafe_babe, 0x0bad_f00d),
            multiply(0x0bad_f00d, 0xcafe_babe)
        );
    }
}
