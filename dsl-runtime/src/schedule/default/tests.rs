mod domains;
mod lines;

use super::*;
use fusewire_device::schedule::{
    AllGather, AllReduce, AllToAll, Broadcast, Member, NOBODY, Reduce, ReduceScatter, Schedule, SendRecv,
};

/// What a rank of two sends over a transport that has everything.
fn work(hooks: Hooks, symmetric: bool, sent: usize) -> Work {
    among(2, hooks, symmetric, sent)
}

/// The same of a rank of `world`.
fn among(world: u32, hooks: Hooks, symmetric: bool, sent: usize) -> Work {
    Work {
        pattern: Pattern::of(&AllToAll, Member { rank: 0, world }),
        world,
        wire_bytes: sent,
        whole: true,
        symmetric,
        hooks,
        tiles: 0,
        alone_packs: ALONE_PACKS,
        ll_packs: LL_PACKS,
        rows: false,
        lines: true,
        in_place: false,
        narrow: false,
        keeps: true,
        relays: 0,
        partials: 0,
        domain: 0,
        limit: u32::MAX,
        on_host: false,
    }
}

#[test]
fn bytes_travel_by_size_place_and_hooks() {
    use Protocol::{Bulk, Copy, Direct, Ll, Ll128, Simple};
    for (hooks, symmetric, ways) in [
        (Hooks::Copy, true, [Ll128, Ll128, Bulk, Bulk, Copy]),
        (Hooks::Copy, false, [Ll128, Ll128, Ll128, Simple, Simple]),
        (Hooks::Work, false, [Ll128, Ll128, Ll128, Simple, Simple]),
        (Hooks::Slow, false, [Ll128, Ll128, Ll128, Simple, Simple]),
        (Hooks::Work, true, [Ll128, Ll128, Direct, Direct, Direct]),
        (Hooks::Transpose, true, [Ll128, Direct, Direct, Direct, Direct]),
        (Hooks::Transpose, false, [Ll128, Simple, Simple, Simple, Simple]),
    ] {
        let found = [16, 1 << 20, 4 << 20, 32 << 20, 96 << 20].map(|sent| {
            // The copy engine and bulk copies are for hooks that copy.
            let has = |p| hooks == Hooks::Copy || !matches!(p, Bulk | Copy);
            work(hooks, symmetric, sent).protocol(has, |_| true)
        });
        assert_eq!(found, ways, "symmetric: {symmetric}");
    }
    // Beside what else there is.
    for (hooks, symmetric, sent, way) in [
        (Hooks::Work, true, 3 << 20, Ll128),
        (Hooks::Copy, true, 3 << 20, Bulk),
        (Hooks::Slow, false, 12 << 20, Ll128),
        (Hooks::Slow, false, 13 << 20, Simple),
    ] {
        let has = |p| hooks == Hooks::Copy || !matches!(p, Bulk | Copy);
        assert_eq!(work(hooks, symmetric, sent).protocol(has, |_| true), way, "{sent}");
    }
    // Where there is no LL128: of rows, and without NVLink.
    for (symmetric, sent, [by_rows, way]) in [
        (false, 1 << 20, [Ll, Ll]),
        (false, 2 << 20, [Simple, Ll]),
        (false, 3 << 20, [Simple, Simple]),
        (true, 1 << 20, [Ll, Ll]),
        (true, 2 << 20, [Direct, Direct]),
    ] {
        let has = |p| !matches!(p, Bulk | Copy | Ll128);
        for (rows, lines, in_place, way) in [
            (true, true, false, by_rows),
            (true, true, true, way),
            (false, false, false, way),
            (true, false, false, way),
        ] {
            let work = Work { rows, lines, in_place, ..work(Hooks::Copy, symmetric, sent) };
            assert_eq!(work.protocol(has, |_| true), way, "{sent}");
            assert_ne!(work.protocol(has, |p| p != Ll), Ll, "{sent}");
        }
        // A reduce, of which there is none by LL128: staging is faster.
        assert_ne!(work(Hooks::Copy, symmetric, sent).protocol(has, |_| true), Ll, "{sent}");
    }
    // By tiles of 4 KiB.
    for (symmetric, sent, way) in [
        (true, 96 << 10, Ll128),
        (true, 1 << 20, Ll128),
        (true, 2 << 20, Direct),
        (false, 2 << 20, Ll128),
        (false, 4 << 20, Simple),
    ] {
        let work = Work { tiles: (sent >> 12) as u32, ..work(Hooks::Transpose, symmetric, sent) };
        assert_eq!(
            work.protocol(|p| !matches!(p, Bulk | Copy), |_| true),
            way,
            "symmetric: {symmetric}, {sent}"
        );
    }
    for odd in [
        Work { whole: false, ..work(Hooks::Copy, true, 4 << 20) },
        Work { on_host: true, ..work(Hooks::Copy, true, 4 << 20) },
    ] {
        assert_ne!(odd.protocol(|_| true, |_| true), Bulk);
    }
}

#[test]
fn folds_take_two_steps_where_those_send_fewer_bytes() {
    let all_reduce = |world, relays, bytes, on_host| {
        let pattern = Pattern::of(&AllReduce, Member { rank: 0, world });
        let work = among(world, Hooks::Work, false, bytes);
        Work { pattern, relays, on_host, ..work }.protocol(|_| true, |_| false)
    };
    for (world, relays, bytes, way) in [
        // Of two ranks as many bytes, and half of the work.
        (2, 1, 6 << 20, Protocol::Simple),
        (2, 1, 8 << 20, Protocol::TwoShot),
        (2, 2, 1 << 30, Protocol::Simple),
        (4, 1, 1 << 20, Protocol::Simple),
        (4, 1, 2 << 20, Protocol::TwoShot),
        // 7/4 of a chunk in place of 7.
        (8, 1, 512 << 10, Protocol::TwoShot),
        // What is passed on takes twice as much: 9/4 of a chunk in place of 3.
        (4, 2, 2 << 20, Protocol::Simple),
        (4, 2, 4 << 20, Protocol::TwoShot),
        (8, 0, 1 << 30, Protocol::Simple),
        (1, 1, 1 << 30, Protocol::Local),
    ] {
        assert_eq!(all_reduce(world, relays, bytes, false), way, "{world} ranks, {relays}, {bytes} bytes");
    }
    // Rows where they save more.
    for (world, bytes, way) in
        [(2, 1 << 30, Protocol::Simple), (4, 4 << 20, Protocol::Simple), (4, 8 << 20, Protocol::TwoShot)]
    {
        let pattern = Pattern::of(&AllReduce, Member { rank: 0, world });
        let work = Work { pattern, relays: 1, rows: true, ..among(world, Hooks::Work, false, bytes) };
        assert_eq!(work.protocol(|_| true, |_| false), way, "rows of {world} ranks, {bytes} bytes");
    }
    assert_eq!(all_reduce(3, 1, 512 << 10, true), Protocol::TwoShot);
    assert_eq!(all_reduce(2, 1, 1 << 30, true), Protocol::Simple);
    for (world, bytes, way) in [
        (2, 1 << 20, Protocol::Ll128),
        (3, 256 << 10, Protocol::Ll128),
        (3, 1 << 20, Protocol::Ll128TwoShot),
        (4, 128 << 10, Protocol::Ll128),
        (8, 64 << 10, Protocol::Ll128),
        (8, 128 << 10, Protocol::Ll128TwoShot),
        (4, 256 << 10, Protocol::Ll128TwoShot),
        (4, 8 << 20, Protocol::Ll128TwoShot),
        (4, 16 << 20, Protocol::TwoShot),
    ] {
        let pattern = Pattern::of(&AllReduce, Member { rank: 0, world });
        let work = Work { pattern, relays: 1, ..among(world, Hooks::Work, false, bytes) };
        assert_eq!(work.protocol(|_| true, |_| true), way, "{world} ranks, {bytes} bytes");
    }
    for world in 2..17 {
        let pattern = Pattern::of(&AllReduce, Member { rank: 0, world });
        let cut =
            Work { pattern, relays: 1, ..among(world, Hooks::Work, false, 64 << 20) }.cut(Protocol::TwoShot);
        assert!(pattern.blocks(Protocol::TwoShot, cut, false) <= 96);
    }
}

#[test]
fn a_root_takes_two_steps_where_its_link_carries_less() {
    let root = 1;
    // What is passed on takes twice as much: of three ranks as many bytes as in one step.
    let reduce = Pattern::of(&Reduce { root }, Member { rank: 0, world: 3 });
    let wide = Work { pattern: reduce, relays: 2, ..among(3, Hooks::Work, false, 1 << 30) };
    assert_eq!(wide.protocol(|_| true, |_| false), Protocol::Simple);
    // CPU threads fold parts, and copy as they are.
    let copies = Pattern::of(&Broadcast { root }, Member { rank: 0, world: 3 });
    for (pattern, way) in [(reduce, Protocol::TwoShot), (copies, Protocol::Simple)] {
        let work = Work { pattern, relays: 1, on_host: true, ..among(3, Hooks::Work, false, 1 << 20) };
        assert_eq!(work.protocol(|_| true, |_| false), way);
    }
    for (world, sent, ways) in [
        // A single peer has nobody to pass anything on to.
        (2, 1 << 30, [Protocol::Simple; 2]),
        (3, 1 << 20, [Protocol::Simple; 2]),
        (3, 2 << 20, [Protocol::TwoShot, Protocol::Simple]),
        (3, 10 << 20, [Protocol::TwoShot; 2]),
        (4, 1 << 20, [Protocol::TwoShot, Protocol::Simple]),
        (4, 5 << 20, [Protocol::TwoShot; 2]),
        (8, 256 << 10, [Protocol::Simple; 2]),
    ] {
        for rank in 0..world {
            let me = Member { rank, world };
            let patterns = [Pattern::of(&Broadcast { root }, me), Pattern::of(&Reduce { root }, me)];
            for (pattern, way) in patterns.into_iter().zip(ways) {
                let work = Work { pattern, relays: 1, ..among(world, Hooks::Work, false, sent) };
                assert_eq!(work.protocol(|_| true, |_| false), way, "rank {rank} of {world}, {sent} bytes");
                let cut = work.cut(Protocol::TwoShot);
                assert!(pattern.widest().blocks(Protocol::TwoShot, cut, false) <= 96);
                // The root of a broadcast sends, and what folds for a root takes nothing.
                let kinds = if pattern.once && rank == root { 1 } else { 2 };
                assert!(world == 2 || pattern.blocks(Protocol::TwoShot, cut, false) == kinds * cut.channels);
            }
        }
    }
}

#[test]
fn grids_hold_no_more_multiprocessors_than_pay() {
    use Protocol::{Bulk, Direct, Ll128, Simple};
    for (world, shift) in [1, 2, 3, 4, 8, 16].into_iter().flat_map(|w| (4..30).map(move |s| (w, s))) {
        let transpose = among(world, Hooks::Transpose, true, 1 << shift);
        let tiled = Work { tiles: 1 << (shift - 4), ..transpose };
        let others = [Hooks::Copy, Hooks::Work, Hooks::Slow];
        let others = others.map(|hooks| among(world, hooks, true, 1 << shift));
        for work in others.into_iter().chain([transpose, tiled]) {
            for protocol in [Ll128, Direct, Bulk, Simple] {
                let mut cut = work.cut(protocol);
                cut.groups = work.groups(protocol, cut.channels, cut.self_copy);
                let most = work.multiprocessors(protocol);
                let blocks = work.pattern.blocks(protocol, cut, false);
                assert!(blocks <= most, "{blocks} of {most}: {protocol:?}, {world} ranks, 2^{shift} bytes");
                // Links that are full stay so.
                if protocol == Bulk {
                    assert!(cut.channels <= BULK_BLOCKS && cut.self_copy * world.max(2) >= BULK_BLOCKS);
                }
            }
        }
    }
}

/// LL128 is chosen only where so many blocks' buffers hold the chunk.
#[test]
fn default_grids_stay_within_their_limit() {
    for (limit, world, shift) in [4, 8, 16, 32]
        .into_iter()
        .flat_map(|l| [2, 4, 8].map(|w| (l, w)))
        .flat_map(|(l, w)| (4..27).map(move |s| (l, w, s)))
    {
        for hooks in [Hooks::Copy, Hooks::Work, Hooks::Slow] {
            let work = Work { limit, ..among(world, hooks, false, 1 << shift) };
            let room = u64::from(work.most_flagged_channels(Protocol::Ll128)) * line::PACKS * 16;
            let protocol = work.protocol(|_| true, |_| work.wire_bytes as u64 <= room);
            let mut cut = work.cut(protocol);
            if protocol == Protocol::Ll128 {
                cut.channels = cut.channels.max((work.wire_bytes as u64).div_ceil(line::PACKS * 16) as u32);
            }
            cut.groups = work.groups(protocol, cut.channels, cut.self_copy);
            let blocks = work.pattern.blocks(protocol, cut, false);
            assert!(blocks <= limit, "{blocks} of {limit}: {protocol:?}, {world} ranks, 2^{shift} bytes");
        }
    }
}

#[test]
fn what_goes_before_bulk_copies_is_a_part_that_lines_hold() {
    for (world, bytes, channels, packs, threads) in [
        (2, 2 << 20, 8, FIRST, FIRST_THREADS),
        (2, 256 << 10, 8, 4096, FIRST_THREADS),
        (2, 16 << 20, 1, line::PACKS, FIRST_THREADS),
        (4, 16 << 20, 4, FIRST / 3, 32),
        (2, 256, 8, 0, 32),
        (1, 2 << 20, 8, 0, 32),
    ] {
        let work = among(world, Hooks::Copy, true, bytes);
        let first = work.first(channels);
        assert_eq!((first, work.bulk_threads(first)), (packs, threads), "{world} ranks, {bytes} bytes");
        assert!(first.is_multiple_of(8) && 4 * 16 * first <= bytes as u64);
    }
    let pair = SendRecv { to: 1, from: 1 };
    let pattern = Pattern::of(&pair, Member { rank: 0, world: 2 });
    let sendrecv = Work { pattern, ..work(Hooks::Copy, true, 2 << 20) };
    assert_eq!(sendrecv.first(8), 0);
}

#[test]
fn short_calls_have_a_block_for_each_peer() {
    let short = among(4, Hooks::Copy, false, 1 << 18);
    let Cut { channels, self_copy, .. } = short.cut(Protocol::Simple);
    assert_eq!(short.groups(Protocol::Simple, channels, self_copy), 3);
    // With the channels that a caller asks for, as far as multiprocessors go.
    assert_eq!([4, 7, 14].map(|channels| short.groups(Protocol::Simple, channels, 4)), [3, 2, 1]);
    let long = among(4, Hooks::Copy, false, 1 << 22);
    assert_eq!(long.groups(Protocol::Simple, 1, 1), 1);
}

#[test]
fn rooted_schedules_and_folds_have_more_channels() {
    use fusewire_device::schedule::{
        AllGather, AllReduce, Broadcast, Gather, Reduce, ReduceScatter, Scatter,
    };
    for world in 2..9 {
        let me = Member { rank: world / 2, world };
        let root = 0;
        let cut = |pattern: Pattern, hooks, each: usize| {
            let work = Work { pattern, ..among(world, hooks, false, each << 20) };
            let cut = work.cut(Protocol::Simple);
            assert!(pattern.widest().blocks(Protocol::Simple, cut, false) <= 96);
            cut.channels
        };
        for each in [64, 256] {
            for pattern in [Pattern::of(&AllReduce, me), Pattern::of(&ReduceScatter, me)] {
                assert!(!pattern.rooted && cut(pattern, Hooks::Work, each) == 48);
            }
            let others = [Pattern::of(&AllGather, me), Pattern::of(&AllToAll, me)];
            // What goes to more than four others in the same way has more.
            let most = [if world > 5 { 48 } else { 32 }, 32];
            for (other, most) in others.into_iter().zip(most) {
                assert!(!other.rooted && cut(other, Hooks::Work, each) <= most);
            }
            for (pattern, hooks) in [
                (Pattern::of(&Broadcast { root }, me), Hooks::Copy),
                (Pattern::of(&Gather { root }, me), Hooks::Copy),
                (Pattern::of(&Scatter { root }, me), Hooks::Copy),
                (Pattern::of(&Reduce { root }, me), Hooks::Work),
            ] {
                assert!(pattern.rooted);
                assert!(cut(pattern, hooks, each) == 64, "{pattern:?}");
            }
        }
    }
    assert!(!Pattern::of(&SendRecv { to: 1, from: NOBODY }, Member { rank: 0, world: 2 }).rooted);
}

#[test]
fn a_rank_alone_has_blocks_by_its_chunk() {
    use fusewire_device::schedule::AllReduce;
    let alone = |sent| among(1, Hooks::Work, false, sent);
    // Two packs for each thread, up to more blocks than any GPU holds.
    let blocks = |work: Work| work.cut(Protocol::Simple).self_copy;
    assert_eq!([16, 64 << 10, 1 << 30].map(|sent| blocks(alone(sent))), [1, 4, ALONE_BLOCKS]);
    // Of rows one for each team of a block, here of 3 packs by four teams.
    assert_eq!([48, 16 * 12 + 48].map(|sent| blocks(Work { alone_packs: 12, ..alone(sent) })), [1, 2]);
    // Each waits for nobody: a long chunk has more, each with 64 KiB.
    assert_eq!([1 << 20, 256 << 20].map(|sent| alone(sent).more_alone()), [16, 4096]);
    // By itself, a block has a pack for each thread, then as many as a block of others; of rows and tiles no fewer than before.
    let blocks_of = |work: Work| work.cut(Protocol::Local).self_copy;
    let sizes = [0, 16, 512 << 10, 2 << 20, 16 << 20];
    assert_eq!(sizes.map(|sent| blocks_of(alone(sent))), [1, 1, 128, 128, ALONE_BLOCKS]);
    assert_eq!(blocks_of(Work { rows: true, alone_packs: 12, ..alone(16 * 12 + 48) }), 2);
    // Whole turns, here of 1024 packs. A block's last turn may be short, the others' are not.
    let turns = |hooks, mib: usize, blocks, resident, at_full| {
        let work = Work { hooks, ..alone(mib << 20) };
        let Alone { blocks, full } = work.in_turns(blocks, resident, at_full, 1024);
        (blocks, full)
    };
    // In a quarter of what a device holds: of copies, and of what computes in two turns at most, which has full occupancy where one would not do.
    let sizes = [(1, 128), (4, 256), (8, 512), (16, 528)];
    assert_eq!(
        sizes.map(|(mib, blocks)| turns(Hooks::Work, mib, blocks, 528, None)),
        [(128, false), (128, false), (512, false), (512, false)]
    );
    assert_eq!(
        sizes.map(|(mib, blocks)| turns(Hooks::Work, mib, blocks, 528, Some(1056))),
        [(128, false), (256, true), (256, true), (512, false)]
    );
    let copies = [(4, 256), (16, 1024)].map(|(mib, blocks)| turns(Hooks::Copy, mib, blocks, 1056, None));
    assert_eq!(copies, [(256, false), (256, false)]);
    let rows = Work { rows: true, ..alone(16 << 20) };
    assert_eq!(rows.in_turns(528, 528, None, 1024), Alone { blocks: 528, full: false });
    // A block for each part of what is long, and that is sooner by packs.
    let long = |rows, hooks, mib: usize| Work { rows, hooks, ..alone(mib << 20) }.long_alone();
    let (few, many) = (Some((128, 4)), Some((256, 2)));
    assert_eq!([11, 12, 24, 64].map(|mib| long(false, Hooks::Work, mib)), [None, few, many, many]);
    assert_eq!([12, 24].map(|mib| long(false, Hooks::Copy, mib)), [None, Some((128, 8))]);
    assert_eq!([32, 64].map(|mib| long(false, Hooks::Slow, mib)), [None, Some((128, 8))]);
    let narrow = |mib: usize| Work { narrow: true, hooks: Hooks::Slow, ..alone(mib << 20) }.long_alone();
    assert_eq!([7, 8, 12, 64].map(narrow), [None, Some((128, 8)), Some((256, 1)), Some((256, 1))]);
    assert_eq!(Work { keeps: false, ..alone(12 << 20) }.long_alone(), None);
    assert_eq!([1, 64].map(|mib| long(true, Hooks::Work, mib)), [Some((128, 2)), Some((128, 2))]);
    assert_eq!(long(false, Hooks::Transpose, 64), None);
    // What folds does so within its channels, and needs no staging for them.
    let me = Member { rank: 0, world: 1 };
    let folds = Work { pattern: Pattern::of(&AllReduce, me), ..alone(4 << 20) };
    let cut = folds.cut(Protocol::Simple);
    assert_eq!((cut.channels, cut.self_copy), (256, 0));
    // The caller's limit stands.
    assert_eq!(blocks(Work { limit: 3, ..alone(1 << 30) }), 3);
    assert_eq!(Work { limit: 3, ..alone(1 << 30) }.more_alone(), 3);
}

#[test]
fn hooks_that_copy_hold_few_multiprocessors() {
    for total in (0..31).map(|shift| 1usize << shift) {
        for several in [false, true] {
            assert_eq!(multiprocessors(Protocol::Direct, total, Hooks::Copy, several), 16);
            assert!(multiprocessors(Protocol::Simple, total, Hooks::Copy, several) <= 32);
        }
    }
}

#[test]
fn rows_have_many_blocks_and_short_pieces() {
    let by_rows = |world, bytes| Work { rows: true, ..among(world, Hooks::Slow, false, bytes) };
    let cut = |work: Work| work.cut(Protocol::Simple);
    for bytes in [256 << 10, 2 << 20, 64 << 20] {
        let all_to_all = cut(by_rows(2, bytes));
        assert_eq!((all_to_all.self_copy, all_to_all.channels), (42, 43), "{bytes}");
        for world in [2, 4] {
            let me = Member { rank: 0, world };
            for pattern in [Pattern::of(&AllReduce, me), Pattern::of(&AllGather, me)] {
                let Cut { channels, self_copy, .. } = cut(Work { pattern, ..by_rows(world, bytes) });
                assert_eq!((channels, self_copy), (64, 0), "{world} ranks, {bytes} bytes");
            }
        }
    }
    // What is short has no blocks without work, and what was not measured has as many as other hooks.
    for work in [by_rows(2, 8 << 10), Work { lines: false, ..by_rows(2, 2 << 20) }] {
        let other = Work { rows: false, ..work };
        assert_eq!((cut(work).channels, cut(work).self_copy), (cut(other).channels, cut(other).self_copy));
    }
    let limited = cut(Work { limit: 40, ..by_rows(2, 64 << 20) });
    assert!(limited.self_copy + 2 * limited.channels <= 40);
    for (schedule, least) in [
        (Pattern::of(&AllReduce, Member { rank: 0, world: 2 }), 32 << 10),
        (Pattern::of(&AllGather, Member { rank: 0, world: 2 }), 64 << 10),
    ] {
        assert_eq!([true, false].map(|rows| schedule.enough(128 << 10, rows)), [least, 2 * least]);
        assert_eq!([true, false].map(|rows| schedule.enough(1 << 20, rows)), [128 << 10; 2]);
    }
}
