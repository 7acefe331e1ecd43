//! What several hooks use.

use base::STEPS;

/// `x` rounded down to eighths.
#[inline]
pub fn step(x: f32) -> f32 {
    (x * STEPS as f32) as i32 as f32 / STEPS as f32
}

/// A fold of this crate's: what is farthest from zero.
pub struct Farthest;

impl fusewire::device::fold::Fold<f32> for Farthest {
    type Acc = f32;
    fn lift(value: f32) -> f32 {
        value
    }
    fn fold(left: f32, right: f32) -> f32 {
        if right.abs() > left.abs() { right } else { left }
    }
}
