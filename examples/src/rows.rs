//! Numbers for programs of whole rows, and what comes of them.

use fusewire::prelude::*;

/// Any number between -4 and 4, the same on every rank that asks.
pub fn number(rank: usize, index: usize) -> f32 {
    let bits = (index as u32 ^ (rank as u32) << 24).wrapping_mul(0x9e37_79b9);
    ((bits ^ bits >> 15).wrapping_mul(0x85eb_ca6b) >> 8) as f32 / (1 << 21) as f32 - 4.0
}

/// So many of them.
pub fn bf16s(rank: usize, n: usize) -> Vec<Bf16> {
    (0..n).map(|i| Bf16::from_f32(number(rank, i))).collect()
}

/// Compares an output with what `f64` gives.
///
/// # Panics
/// If an element is farther from it than it may be.
pub fn check(what: &str, got: impl Iterator<Item = f32>, want: impl Fn(usize) -> (f64, f64)) {
    for (i, got) in got.enumerate() {
        let (want, error) = want(i);
        assert!(
            (f64::from(got) - want).abs() <= error,
            "{what}: element {i} is {got}, not {want} within {error}"
        );
    }
}

/// Half a step of e4m3, or of its subnormal numbers, in a group whose greatest magnitude is `most`.
pub fn step(x: f64, most: f64) -> f64 {
    (x.abs() / 16.0).max(most / 448.0 / 1024.0)
}

/// The greatest magnitude of each group.
pub fn greatest(n: usize, group: usize, x: impl Fn(usize) -> f64) -> Vec<f64> {
    let of = |first: usize| (first..first + group).map(|i| x(i).abs()).fold(0.0, f64::max);
    (0..n / group).map(|g| of(g * group)).collect()
}
