//! A device library for the tests: one function that is inlined and one that is not.
#![no_std]

pub mod far;

/// Inlined into its caller.
pub fn near(values: &[u32], i: usize) -> u32 {
    values[i].checked_ilog2().unwrap_or(7)
}
