//! Called across crates.

/// Stays a call, even in one crate.
#[inline(never)]
pub fn far(x: u32) -> u32 {
    x.wrapping_mul(2_654_435_761).rotate_left(5)
}
