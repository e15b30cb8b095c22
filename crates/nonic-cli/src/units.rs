//! Sizes and durations as people write them: `64K`, `8MiB`, `5s`, `250ms`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A number of bytes. `K`, `M` and `G` are powers of two, with or without `B` or `iB`.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Size(pub(crate) u64);

const BINARY: [(&str, u32); 4] = [("G", 30), ("M", 20), ("K", 10), ("", 0)];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let upper = text.trim().to_ascii_uppercase();
        let bare = upper
            .strip_suffix("IB")
            .or_else(|| upper.strip_suffix('B'))
            .unwrap_or(&upper);
        let (digits, shift) = BINARY
            .iter()
            .find_map(|(suffix, shift)| bare.strip_suffix(suffix).map(|digits| (digits, *shift)))
            .unwrap_or((bare, 0));
        let number: u64 = digits
            .parse()
            .map_err(|_| format!("`{text}` is no size; write it like 2, 64K or 8MiB"))?;
        number
            .checked_mul(1 << shift)
            .map(Size)
            .ok_or_else(|| format!("`{text}` is too large"))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = BINARY
            .iter()
            .find(|(_, shift)| self.0 >= 1 << shift && self.0 % (1 << shift) == 0);
        match unit {
            Some((suffix, shift)) if !suffix.is_empty() => write!(f, "{} {suffix}iB", self.0 >> shift),
            _ => write!(f, "{} B", self.0),
        }
    }
}

/// Reads a duration; a bare number is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let trimmed = text.trim();
    let end = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    let seconds_per_unit = match unit.trim() {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" | "" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("`{text}` is no duration; write it like 5s, 250ms or 2m")),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| format!("`{text}` is no duration; write it like 5s, 250ms or 2m"))?;
    Duration::try_from_secs_f64(number * seconds_per_unit).map_err(|_| format!("`{text}` is too long"))
}

/// A duration in nanoseconds with a unit that suits it.
pub(crate) fn nanoseconds(ns: u64) -> String {
    match ns {
        0..10_000_000 => format!("{:.2} µs", ns as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// The number of a queue pair as logs, ladders, perftest and Wireshark have it.
pub(crate) fn queue_pair_number(number: u64) -> String {
    format!("{number:#08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let expected = [
            ("2", 2),
            ("64K", 65_536),
            ("64k", 65_536),
            ("64KiB", 65_536),
            ("8MB", 8 << 20),
            ("1g", 1 << 30),
            ("7b", 7),
        ];
        for (text, bytes) in expected {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for bad in [
            "",
            "K",
            "-1",
            "1.5K",
            "12X",
            "99999999999999999999",
            "17179869184G",
        ] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_written_in_the_largest_unit_that_divides_them() {
        let expected = [
            (0, "0 B"),
            (2, "2 B"),
            (1024, "1 KiB"),
            (1536, "1536 B"),
            (8 << 20, "8 MiB"),
        ];
        for (bytes, text) in expected {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        let expected = [
            ("5", 5_000_000_000),
            ("5s", 5_000_000_000),
            ("0.5s", 500_000_000),
            ("250ms", 250_000_000),
            ("3us", 3_000),
            ("2m", 120_000_000_000),
        ];
        for (text, ns) in expected {
            assert_eq!(duration(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
        for bad in ["", "s", "-1s", "5 parsecs", "1e400s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
