//! The layout of a rank's region: nothing overlaps, everything is aligned.

use fusewire_device::{
    mapped::Layout,
    ops::Line,
    protocol::{ll, ll128},
};
use proptest::prelude::*;

proptest! {
    #[test]
    fn regions_never_overlap(
        world in 1u32..9, channels in 1u32..5, signals in 0u32..4, scale in 0u32..8, heap in 0u64..40, ll128_channels in 0u32..3,
        ll_channels in 0u32..3,
    ) {
        let layout = Layout {
            world, channels, signals, ll128_channels, ll_channels, reserved: 0, window: 1024 << scale, heap: 128 * heap,
        };
        // Start, bytes, alignment, and whether a reset clears it.
        let mut parts = vec![(layout.abort(), 128, 128, true), (layout.heap(), layout.heap, 128, false)];
        for peer in 0..world {
            for c in 0..channels {
                parts.push((layout.line(peer, Line::Ready(c)), 128, 128, true));
                parts.push((layout.line(peer, Line::Free(c)), 128, 128, true));
                parts.push((layout.state(peer, c), 128, 128, true));
                parts.push((layout.staging(peer, c), layout.window, 1024, false));
            }
            for c in 0..2 * ll128_channels {
                parts.push((layout.line_state(peer, c), 16, 16, true));
                parts.push((layout.lines(peer, c), ll128::BUFFERS, 128, true));
            }
            for c in 0..2 * ll_channels {
                parts.push((layout.ll_state(peer, c), 16, 16, true));
                parts.push((layout.ll(peer, c), ll::BUFFERS, 128, true));
            }
            for id in 0..signals {
                parts.push((layout.line(peer, Line::User(id)), 128, 128, true));
                parts.push((layout.signal_state(peer, id), 128, 128, true));
            }
        }
        parts.sort();
        for pair in parts.windows(2) {
            prop_assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{:?} in {:?}", pair, layout);
        }
        for &(start, bytes, align, cleared) in &parts {
            prop_assert_eq!(start % align, 0);
            prop_assert!(start + bytes <= layout.total());
            let within = |(from, all): (u64, u64)| from <= start && start + bytes <= from + all;
            prop_assert_eq!(bytes > 0 && layout.cleared().into_iter().any(within), cleared);
        }
        let (start, bytes, ..) = *parts.last().unwrap();
        prop_assert_eq!(start + bytes, layout.total());
        // All but the padding up to pages is used.
        let used: u64 = parts.iter().map(|part| part.1).sum();
        prop_assert!(layout.total() - used < 2 * 4096);
    }
}
