//! What several hooks use.

use base::STEPS;

/// `x` rounded down to eighths.
#[inline]
pub fn step(x: f32) -> f32 {
    (x * STEPS as f32) as i32 as f32 / STEPS as f32
}
