//! Common parts of SVG plots: paper, title, colours, axes with their ticks, lines, and names.
//!
//! A [`Drawing`] is a file in the making, an [`Axis`] says where a value is on it, and a [`Frame`] is the rectangle
//! between two axes. The caller decides what is drawn, and where: this is no charting library and knows nothing of what
//! is plotted.
//!
//! ```
//! use nonic_plot::{Anchor, Drawing};
//!
//! let mut drawing = Drawing::new("Half a round trip", (400.0, 100.0), 16.0, &[]);
//! drawing.text((16.0, 60.0), Anchor::Start, "1.53 µs");
//! assert!(drawing.finish().starts_with("<svg"));
//! ```
//!
//! A drawing has its own background, light or dark as the reader's system is, so it is readable on any page.

#![forbid(unsafe_code)]

mod axis;
mod drawing;
mod frame;

pub use axis::{Axis, LinearAxis, LogarithmicAxis};
pub use drawing::{Anchor, Drawing, Hue, LineStyle};
pub use frame::Frame;

/// A number without needless digits: `0.25`, `40` or `2500`.
#[must_use]
pub fn number(value: f64) -> String {
    shortest(&format!("{value:.3}")).to_owned()
}

/// A decimal number without zeros at its end.
#[must_use]
pub fn shortest(number: &str) -> &str {
    match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_no_needless_digits() {
        let numbers = [0.25, 0.5, 2.0, 40.0, 2500.0].map(number);
        assert_eq!(numbers, ["0.25", "0.5", "2", "40", "2500"]);
        assert_eq!(shortest("100"), "100");
    }
}
