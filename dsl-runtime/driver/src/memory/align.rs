//! Rounding sizes up to a granularity.

/// `bytes` rounded up to a multiple of `granularity`; `None` if that does not fit a `usize` or if
/// `granularity` is 0.
pub const fn round_up(bytes: usize, granularity: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(granularity)
}

#[cfg(test)]
mod tests {
    use super::round_up;

    #[test]
    fn sizes_go_up_to_the_next_multiple() {
        const MIB: usize = 1 << 20;
        assert_eq!(round_up(0, 2 * MIB), Some(0));
        assert_eq!(round_up(1, 2 * MIB), Some(2 * MIB));
        assert_eq!(round_up(2 * MIB, 2 * MIB), Some(2 * MIB));
        assert_eq!(round_up(2 * MIB + 1, 2 * MIB), Some(4 * MIB));
        assert_eq!(round_up(10, 3), Some(12));
    }

    #[test]
    fn what_cannot_be_rounded_is_none() {
        assert_eq!(round_up(usize::MAX, 4096), None);
        assert_eq!(round_up(1, 0), None);
    }
}
