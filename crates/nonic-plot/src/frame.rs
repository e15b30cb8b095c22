//! The rectangle between two axes: its grid, and the numbers beside it.

use crate::axis::Axis;
use crate::drawing::{Anchor, Drawing};

/// From a text's foot to the middle of its letters.
const HALF_LETTER: f64 = 4.5;

/// A rectangle on a drawing.
#[derive(Copy, Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Frame {
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
}

impl Frame {
    /// Where the ends of an axis across are.
    #[must_use]
    pub fn across(&self) -> (f64, f64) {
        (self.left, self.right)
    }

    /// Where the ends of an axis up are.
    #[must_use]
    pub fn up(&self) -> (f64, f64) {
        (self.bottom, self.top)
    }

    /// Draws a line across for each tick of the axis up, with its name at the left.
    pub fn draw_ticks_up(&self, drawing: &mut Drawing, up: &impl Axis, name: impl Fn(f64) -> String) {
        for tick in up.ticks() {
            let y = up.position(tick);
            drawing.grid_line((self.left, y), (self.right, y));
            let place = (self.left - 8.0, y + HALF_LETTER);
            drawing.text(place, Anchor::End, &name(tick));
        }
    }

    /// Names a tick of the axis across, below.
    pub fn name_tick_across(&self, drawing: &mut Drawing, x: f64, name: &str) {
        drawing.text((x, self.bottom + 20.0), Anchor::Middle, name);
    }

    /// Says below what the axis across is of, so far down.
    pub fn name_across(&self, drawing: &mut Drawing, down: f64, name: &str) {
        let middle = f64::midpoint(self.left, self.right);
        drawing.text((middle, self.bottom + down), Anchor::Middle, name);
    }

    /// Draws the two axes.
    pub fn draw_axes(&self, drawing: &mut Drawing) {
        drawing.axes([
            (self.left, self.top),
            (self.left, self.bottom),
            (self.right, self.bottom),
        ]);
    }

    /// Heights near the wanted ones for names `apart` from each other, all of them beside the frame.
    #[must_use]
    pub fn spread(&self, wanted: &[f64], apart: f64) -> Vec<f64> {
        let mut order: Vec<usize> = (0..wanted.len()).collect();
        order.sort_by(|one, other| wanted[*one].total_cmp(&wanted[*other]));
        let mut heights = wanted.to_vec();
        let mut free_from = self.top;
        for index in &order {
            heights[*index] = heights[*index].max(free_from);
            free_from = heights[*index] + apart;
        }
        // What was pushed off the lower end is pushed back, and what is above it makes room.
        let mut free_to = self.bottom + apart;
        for index in order.iter().rev() {
            heights[*index] = heights[*index].min(free_to);
            free_to = heights[*index] - apart;
        }
        heights
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LinearAxis, number};

    const FRAME: Frame = Frame {
        left: 64.0,
        right: 640.0,
        top: 52.0,
        bottom: 420.0,
    };

    #[test]
    fn names_do_not_overlap_and_keep_their_order() {
        for wanted in [
            vec![100.0, 101.0, 99.0],
            vec![FRAME.bottom, FRAME.bottom, FRAME.bottom, FRAME.bottom - 1.0],
            vec![FRAME.top; 5],
            vec![],
        ] {
            let heights = FRAME.spread(&wanted, 18.0);
            let mut sorted = heights.clone();
            sorted.sort_by(f64::total_cmp);
            assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] >= 18.0 - 1e-9));
            for (one, first) in wanted.iter().enumerate() {
                for (other, second) in wanted.iter().enumerate() {
                    assert!(first >= second || heights[one] < heights[other]);
                }
            }
        }
    }

    #[test]
    fn each_tick_has_a_line_and_a_name() {
        let mut drawing = Drawing::new("", (860.0, 480.0), 64.0, &[]);
        FRAME.draw_ticks_up(&mut drawing, &LinearAxis::new(10.0, FRAME.up()), number);
        FRAME.draw_axes(&mut drawing);
        let svg = drawing.finish();
        assert_eq!(svg.matches("class=\"grid\"").count(), 6);
        assert!(svg.contains(">0</text>") && svg.contains(">10</text>"));
        assert!(svg.contains("class=\"axis\" d=\"M64.0 52.0L64.0 420.0L640.0 420.0\""));
    }
}
