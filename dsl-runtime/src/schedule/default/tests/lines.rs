use super::*;
use fusewire_device::schedule::{Gather, Scatter};

#[test]
fn lines_leave_few_blocks_to_the_own_chunk() {
    for (world, hooks, bytes, channels, self_copy) in [
        (2, Hooks::Copy, 1 << 20, 12, 4),
        (4, Hooks::Copy, 1 << 20, 13, 3),
        (4, Hooks::Work, 1 << 18, 28, 4),
        (4, Hooks::Work, 1 << 20, 79, 11),
        (2, Hooks::Work, 2 << 20, 48, 16),
        (2, Hooks::Slow, 2 << 20, 39, 25),
        (4, Hooks::Slow, 2 << 20, 70, 20),
    ] {
        let cut = among(world, hooks, false, bytes).cut(Protocol::Ll128);
        assert_eq!((cut.channels, cut.self_copy), (channels, self_copy), "{world} ranks");
    }
}

/// Of two ranks, the one that a rooted schedule's bytes come from or go to.
fn two<S: Schedule>(schedule: S, hooks: Hooks, bytes: usize) -> Work {
    Work { pattern: Pattern::of(&schedule, Member { rank: 0, world: 2 }), ..work(hooks, false, bytes) }
}

#[test]
fn folds_of_two_ranks_leave_room_for_the_next_and_give_warps_as_many_rows() {
    for (bytes, channels) in [
        (1 << 10, 1),
        (16 << 10, 16),
        (64 << 10, 24),
        (128 << 10, 35),
        (256 << 10, 56),
        (1 << 20, 57),
        (1100 << 10, 61),
        (64 * 39 * 30 * 16, 64),
        // In turn: of each warp as many bundles.
        (64 * 39 * 30 * 16 + 16, 40),
        (2 << 20, 46),
        (4 << 20, 55),
        (8 << 20, 55),
    ] {
        let work = two(AllReduce, Hooks::Slow, bytes);
        let Cut { channels: found, self_copy, .. } = work.cut(Protocol::Ll128);
        assert_eq!((found, self_copy), (channels, 0), "{bytes} bytes");
        // An H200 holds 264, and a launch follows where two of as many leave half of that.
        assert!(2 * (found + found) <= 264, "{bytes} bytes");
    }
}

#[test]
fn copies_with_one_peer_have_as_many_blocks_as_their_bytes_want() {
    let found = |work: Work| [work.cut(Protocol::Ll128).channels, work.cut(Protocol::Ll128).self_copy];
    for (bytes, all, one, part) in [
        (64 << 10, 16, 24, [20, 4]),
        (128 << 10, 40, 24, [18, 6]),
        (1 << 20, 32, 32, [24, 8]),
        (8 << 20, 64, 64, [48, 16]),
    ] {
        assert_eq!(found(two(AllGather, Hooks::Copy, bytes)), [all, 0], "{bytes} bytes");
        assert_eq!(found(two(Broadcast { root: 0 }, Hooks::Copy, bytes)), [one, 0], "{bytes} bytes");
        assert_eq!(found(two(Scatter { root: 0 }, Hooks::Copy, bytes)), part, "{bytes} bytes");
        assert_eq!(found(two(Gather { root: 0 }, Hooks::Copy, bytes)), part, "{bytes} bytes");
        // As many as before.
        assert_eq!(found(two(AllToAll, Hooks::Copy, bytes)).iter().sum::<u32>(), 16, "{bytes} bytes");
    }
    let work = two(AllGather, Hooks::Copy, 1 << 20);
    assert!(work.leaves_room(Protocol::Ll128) && !work.leaves_room(Protocol::Simple));
    for work in [
        two(Broadcast { root: 0 }, Hooks::Copy, 1 << 20),
        two(AllGather, Hooks::Work, 1 << 20),
        two(AllToAll, Hooks::Copy, 1 << 20),
    ] {
        assert!(!work.leaves_room(Protocol::Ll128));
    }
}

#[test]
fn folds_of_two_ranks_go_by_lines_as_far_as_those_hold_them() {
    let way = |bytes, lines| {
        let work = Work { relays: 1, ..two(AllReduce, Hooks::Work, bytes) };
        let most = u64::from(work.most_flagged_channels(Protocol::Ll128)) * line::PACKS * 16;
        work.protocol(
            |p| !matches!(p, Protocol::Direct | Protocol::Bulk | Protocol::Copy),
            |p| lines && p == Protocol::Ll128 && bytes as u64 <= most,
        )
    };
    assert_eq!(
        [6, 12, 13].map(|mib| way(mib << 20, true)),
        [Protocol::Ll128, Protocol::Ll128, Protocol::TwoShot]
    );
    assert_eq!([6, 8].map(|mib| way(mib << 20, false)), [Protocol::Simple, Protocol::TwoShot]);
}
