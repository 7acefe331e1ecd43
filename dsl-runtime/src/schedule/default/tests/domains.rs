//! Where adapters carry less, calls go by domains.

use super::*;

#[test]
fn all_reduces_go_by_domains_where_adapters_carry_less() {
    use Protocol::{Hierarchical, Simple, TwoShot};
    let all_reduce = |[domains, each]: [u32; 2], [relays, partials]: [u32; 2], bytes, on_host| {
        let world = domains * each;
        let pattern = Pattern::of(&AllReduce, Member { rank: 0, world });
        let work = among(world, Hooks::Work, false, bytes);
        let work = Work { pattern, relays, partials, domain: each, on_host, ..work };
        // As on a mesh.
        let has = |p| matches!(p, Simple | TwoShot | Hierarchical);
        work.protocol(has, |_| false)
    };
    for (domains, hooks, bytes, way) in [
        // Half a chunk in place of one.
        ([2, 2], [1, 1], 512 << 10, Hierarchical),
        ([2, 2], [1, 1], 256 << 10, Simple),
        // Accumulators take twice as much: an eighth of a chunk twice, in place of one.
        ([2, 8], [1, 2], 384 << 10, Hierarchical),
        ([2, 8], [1, 2], 256 << 10, TwoShot),
        // As many bytes.
        ([2, 2], [1, 2], 1 << 20, Simple),
        ([2, 2], [1, 2], 64 << 20, TwoShot),
        // Of many domains of two ranks, each of which gets a part of every other.
        ([8, 2], [1, 1], 64 << 20, TwoShot),
        ([3, 2], [1, 1], 64 << 20, Hierarchical),
        // What cannot be folded ahead of the rest, or not be passed on.
        ([2, 8], [1, 0], 64 << 20, TwoShot),
        ([2, 8], [0, 1], 64 << 20, Simple),
        ([16, 1], [1, 1], 64 << 20, TwoShot),
    ] {
        for on_host in [false, true] {
            let found = all_reduce(domains, hooks, bytes, on_host);
            match on_host && way != Hierarchical {
                // How those of CPU threads are told from each other is another test's.
                true => assert_ne!(found, Hierarchical, "{domains:?}, {hooks:?}, {bytes} bytes"),
                false => assert_eq!(found, way, "{domains:?}, {hooks:?}, {bytes} bytes"),
            }
        }
    }
    // Where domains are not aligned.
    assert_ne!(
        Work { domain: 0, partials: 1, relays: 1, ..among(4, Hooks::Work, false, 64 << 20) }
            .protocol(|_| true, |_| false),
        Hierarchical
    );
    for [domains, each] in [[2, 2], [2, 8], [4, 4]] {
        let world = domains * each;
        let pattern = Pattern::of(&AllReduce, Member { rank: 0, world });
        let work = Work { pattern, relays: 1, domain: each, ..among(world, Hooks::Work, false, 64 << 20) };
        assert!(pattern.blocks(Hierarchical, work.cut(Hierarchical), false) <= 96);
        assert_eq!(work.parts(Hierarchical), each);
    }
}

#[test]
fn parts_of_a_root_go_by_domains_where_adapters_carry_less() {
    use Protocol::{Hierarchical, Simple, TwoShot};
    fn way<S: Schedule>(
        of: impl Fn(u32) -> S,
        [domains, each]: [u32; 2],
        [relays, partials]: [u32; 2],
        bytes: usize,
    ) -> Protocol {
        let world = domains * each;
        let ways: Vec<_> = (0..world)
            .flat_map(|rank| [0, world - 1].map(|root| (rank, root)))
            .map(|(rank, root)| {
                let pattern = Pattern::of(&of(root), Member { rank, world });
                let work = among(world, Hooks::Work, false, bytes);
                let work = Work { pattern, relays, partials, domain: each, ..work };
                let cut = work.cut(Hierarchical);
                let kinds = if S::FOLDS && rank == root { 3 } else { 2 };
                assert_eq!(pattern.blocks(Hierarchical, cut, false), kinds * cut.channels);
                assert!(pattern.widest().blocks(Hierarchical, cut, false) <= 96);
                assert_eq!((work.parts(Hierarchical), work.streamed(Hierarchical)), (each, 1));
                assert_eq!(pattern.channels_of_a_step(Hierarchical, 6), 3);
                (cut.channels, work.protocol(|p| matches!(p, Simple | TwoShot | Hierarchical), |_| false))
            })
            .collect();
        assert!(ways.iter().all(|way| *way == ways[0]), "ranks differ: {ways:?}");
        ways[0].1
    }
    for (domains, hooks, bytes, by_domains) in [
        // An eighth of a chunk in place of 8/15.
        ([2, 8], [1, 1], 1 << 20, [true; 2]),
        ([2, 8], [1, 1], 512 << 10, [false; 2]),
        // Half a chunk in place of two thirds.
        ([2, 2], [1, 1], 2 << 20, [true; 2]),
        ([2, 2], [1, 1], 1 << 20, [false; 2]),
        // A chunk in place of 4/5, and 3/4 in place of that.
        ([3, 2], [1, 1], 64 << 20, [false; 2]),
        ([4, 4], [1, 1], 64 << 20, [true; 2]),
        // Accumulators take twice as much.
        ([2, 8], [1, 2], 1 << 20, [true; 2]),
        ([2, 2], [1, 2], 64 << 20, [false, true]),
        // What cannot be folded ahead of the rest, or not be passed on.
        ([2, 8], [1, 0], 64 << 20, [false, true]),
        ([2, 8], [0, 1], 64 << 20, [false; 2]),
        ([16, 1], [1, 1], 64 << 20, [false; 2]),
    ] {
        let found = [
            way(|root| Reduce { root }, domains, hooks, bytes),
            way(|root| Broadcast { root }, domains, hooks, bytes),
        ];
        let found = found.map(|way| way == Hierarchical);
        assert_eq!(found, by_domains, "{domains:?}, {hooks:?}, {bytes} bytes");
    }
}

#[test]
fn chunks_go_by_domains_where_adapters_carry_less() {
    use Protocol::{Hierarchical, Simple};
    fn way<S: Schedule>(
        schedule: S,
        [domains, each]: [u32; 2],
        [relays, partials]: [u32; 2],
        bytes: usize,
    ) -> Protocol {
        let world = domains * each;
        let pattern = Pattern::of(&schedule, Member { rank: 0, world });
        let work = among(world, Hooks::Work, false, bytes);
        let work = Work { pattern, relays, partials, domain: each, ..work };
        let cut = work.cut(Hierarchical);
        assert!(
            pattern.blocks(Hierarchical, cut, false) <= 96 && pattern.blocks(Hierarchical, cut, true) > 0
        );
        assert_eq!(pattern.blocks(Hierarchical, cut, false), 4 * cut.channels);
        assert_eq!((work.parts(Hierarchical), work.streamed(Hierarchical)), (1, domains - 1));
        let found =
            |on_host| Work { on_host, ..work }.protocol(|p| matches!(p, Simple | Hierarchical), |_| false);
        assert_eq!(found(true), found(false));
        found(false)
    }
    for (domains, hooks, bytes, ways) in [
        // One chunk in place of two, whichever way.
        ([2, 2], [1, 1], 256 << 10, [Hierarchical; 2]),
        ([2, 2], [1, 1], 128 << 10, [Simple; 2]),
        // Seven in place of 14.
        ([8, 2], [1, 1], 64 << 10, [Hierarchical; 2]),
        // Accumulators take twice as much: two in place of two, or in place of eight.
        ([2, 2], [1, 2], 64 << 20, [Simple, Hierarchical]),
        ([2, 8], [1, 2], 64 << 10, [Hierarchical; 2]),
        // What cannot be folded ahead of the rest, or is by rows.
        ([2, 8], [1, 0], 64 << 20, [Simple, Hierarchical]),
        ([2, 8], [0, 1], 64 << 20, [Simple; 2]),
    ] {
        let found = [way(ReduceScatter, domains, hooks, bytes), way(AllGather, domains, hooks, bytes)];
        assert_eq!(found, ways, "{domains:?}, {hooks:?}, {bytes} bytes");
    }
    let pattern = Pattern::of(&AllGather, Member { rank: 0, world: 4 });
    let apart = Work { pattern, relays: 1, domain: 0, ..among(4, Hooks::Work, false, 64 << 20) };
    assert_ne!(apart.protocol(|_| true, |_| false), Hierarchical);
}
