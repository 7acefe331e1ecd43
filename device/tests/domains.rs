//! All-reduces by domains of ranks, over a world in plain memory, against a reference of a line.

#[macro_use]
#[path = "schedules/hooks.rs"]
#[allow(dead_code)]
mod hooks;
#[path = "schedules/folds.rs"]
#[allow(dead_code)]
mod folding;
#[path = "common/in_domains.rs"]
mod in_domains;
#[path = "common/world.rs"]
mod world;

use folding::{Becomes, Bytes, Folding, Settled, tree};
use fusewire_device::{
    launch::{Grid, Params, Shape, share_packs},
    pack::Pack,
    protocol::{Hierarchical, HostHierarchical, Protocol, TwoShot},
    schedule::AllReduce,
    wait::{AbortRecord, Flow, kind, operation},
};
use hooks::{Aligned, Raw};
use in_domains::InDomains;
use world::{Noise, World};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Hierarchical,
    Host,
    TwoShot,
}

/// A world, and how it is used.
struct Ground {
    world: World,
    /// Ranks of a domain.
    each: u32,
    channels: u32,
}

impl Ground {
    fn new(domains: u32, each: u32, channels: u32) -> Self {
        Ground { world: World::new(domains * each, 2 * channels, 2048), each, channels }
    }

    fn ranks(&self) -> u32 {
        self.world.layout.world
    }

    /// One launch on the ranks that `joins` names, with so many milliseconds for each wait.
    fn launch<H: Becomes>(
        &self,
        way: Way,
        n: usize,
        raws: &[Raw],
        deadline: u64,
        joins: impl Fn(u32) -> bool + Sync,
    ) -> Vec<Vec<Flow>> {
        let packs = n.div_ceil(Pack::<H::Wire>::LANES) as u64;
        let blocks = if way == Way::Host { self.channels } else { 3 * self.channels };
        self.world.run(blocks, |rank, grid| {
            if !joins(rank) {
                return Ok(());
            }
            let shape = Shape {
                elements: n as u64,
                cols: n as u64,
                // A ring holds four turns of whatever takes more room than what crosses the wire.
                chunk: 512 / H::PARTIALS.max(H::RELAYS) as u64,
                share: share_packs(packs, self.channels),
                channels: self.channels,
                ..world::NO_ELEMENTS
            };
            let (ops, control) = (self.world.ops(rank), self.world.control(rank, deadline));
            let shape = shape.name_cut(0, 0, None);
            let params = Params {
                ops: InDomains(ops, self.each),
                control,
                shape,
                raw: raws[rank as usize],
                schedule: AllReduce,
            };
            let grid = Grid { blocks, ..grid };
            // SAFETY: every block of the grid runs it, with slices of as many elements.
            unsafe {
                match way {
                    Way::Hierarchical => Hierarchical::exchange::<_, H>(grid, &params),
                    Way::Host => HostHierarchical::exchange::<_, H>(grid, &params),
                    Way::TwoShot => TwoShot::exchange::<_, H>(grid, &params),
                }
            }
        })
    }

    /// Two launches with fresh values: each rank's output is the fold of all ranks' inputs.
    fn folds<H: Becomes>(&self, way: Way, n: usize) {
        let ranks = self.ranks();
        let mut noise = Noise(u64::from(ranks) << 24 | n as u64);
        let mut outputs: Vec<Aligned<u32>> = (0..ranks).map(|_| Aligned::new(n, |_| 0)).collect();
        let mut wanted = vec![0; n];
        for _ in 0..2 {
            let mut inputs: Vec<Aligned<u16>> =
                (0..ranks).map(|_| Aligned::new(n, |_| noise.next() as u16)).collect();
            let raws: Vec<Raw> = inputs
                .iter_mut()
                .zip(&mut outputs)
                .map(|(i, o)| Raw { input: i.raw(), output: o.raw() })
                .collect();
            let flows = self.launch::<H>(way, n, &raws, 5_000, |_| true);
            for rank in 0..ranks {
                assert!(
                    flows[rank as usize].iter().all(|flow| flow.is_ok()),
                    "{way:?} of {n}, domains of {}, rank {rank} of {ranks}: {:?}",
                    self.each,
                    self.world.record(rank)
                );
            }
            for (k, old) in wanted.iter_mut().enumerate() {
                let folded = tree(0, ranks, &|rank| H::sent(inputs[rank as usize].all()[k]));
                *old = H::becomes(*old, folded);
            }
        }
        for (rank, got) in outputs.iter().enumerate() {
            assert_eq!(got.all(), wanted, "{way:?} of {n}, domains of {}, rank {rank} of {ranks}", self.each);
        }
    }
}

/// Domains, and ranks of each.
const DOMAINS: [(u32, u32); 5] = [(2, 2), (4, 2), (2, 4), (3, 2), (5, 4)];

#[test]
fn domains_come_to_what_all_ranks_do() {
    for (domains, each) in DOMAINS {
        for channels in [1, 2] {
            let ground = Ground::new(domains, each, channels);
            for n in [0, 1, 3, 16, 127, 1000, 2501, domains as usize * 2500] {
                for way in [Way::Hierarchical, Way::Host] {
                    ground.folds::<Folding>(way, n);
                    ground.folds::<Settled>(way, n);
                    ground.folds::<Bytes>(way, n);
                }
                // On the same channels, from where the others have left them.
                ground.folds::<Folding>(Way::TwoShot, n);
            }
        }
    }
}

/// A rank never comes: every other one ends, in its domain and in the others.
#[test]
fn nobody_waits_longer_than_the_deadline() {
    for way in [Way::Hierarchical, Way::Host] {
        let (ground, n, missing) = (Ground::new(2, 2, 1), 3000, 3);
        let mut inputs: Vec<Aligned<u16>> = (0..4).map(|_| Aligned::new(n, |_| 1)).collect();
        let mut outputs: Vec<Aligned<u32>> = (0..4).map(|_| Aligned::new(n, |_| 0)).collect();
        let raws: Vec<Raw> = inputs
            .iter_mut()
            .zip(&mut outputs)
            .map(|(i, o)| Raw { input: i.raw(), output: o.raw() })
            .collect();
        let flows = ground.launch::<Folding>(way, n, &raws, 100, |rank| rank != missing);
        for rank in 0..3 {
            assert!(flows[rank as usize].iter().any(|flow| flow.is_err()), "{way:?}, rank {rank}");
        }
        let records: Vec<_> = (0..3).map(|rank| ground.world.record(rank)).collect();
        let expired =
            |record: &AbortRecord| (record.kind, record.operation) == (kind::EXPIRED, operation::RECEIVE);
        assert!(records.iter().any(expired), "{way:?}: {records:?}");
    }
}
