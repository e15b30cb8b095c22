//! Axes: map values to positions, and choose the ticks.

mod linear;
mod logarithmic;

pub use linear::LinearAxis;
pub use logarithmic::LogarithmicAxis;

/// A scale from values to positions.
pub trait Axis {
    /// Where a value is.
    fn position(&self, value: f64) -> f64;

    /// Round values, few of them, in rising order.
    fn ticks(&self) -> Vec<f64>;
}
