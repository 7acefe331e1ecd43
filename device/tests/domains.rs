//! Schedules by domains of ranks, over a world in plain memory, against a reference of a line.

#[macro_use]
#[path = "schedules/hooks.rs"]
#[allow(dead_code)]
mod hooks;
#[path = "schedules/folds.rs"]
#[allow(dead_code)]
mod folding;
#[path = "common/in_domains.rs"]
mod in_domains;
#[path = "domains/pairs.rs"]
mod pairs;
#[path = "domains/rooms.rs"]
mod rooms;
#[path = "domains/rooted.rs"]
mod rooted;
#[path = "common/world.rs"]
mod world;

use folding::{Becomes, Bytes, Folding, Settled, tree};
use fusewire_device::{
    hooks::Hooks,
    launch::{Grid, Params, Shape, Unpack, share_packs},
    pack::Pack,
    protocol::{Hierarchical, HostHierarchical, Protocol, TwoShot},
    schedule::{AllGather, AllReduce, Broadcast, Member, Reduce, ReduceScatter, Schedule},
    wait::{AbortRecord, Flow, kind},
};
use hooks::{Aligned, Raw};
use in_domains::InDomains;
use world::{Noise, World};

/// A kernel of a protocol.
type Entry<S> = unsafe fn(Grid, &Params<InDomains, S, Raw>) -> Flow;

/// A protocol's kernel, what it is called, and the kinds of blocks that it has.
struct Way<S>(&'static str, Entry<S>, u32);

fn by_domains<S: Schedule, H: Unpack<Raw = Raw>>() -> [Way<S>; 2] {
    [
        Way("on GPUs", Hierarchical::exchange::<S, H>, kinds::<S>()),
        Way("on CPUs", HostHierarchical::exchange::<S, H>, 1),
    ]
}

const fn kinds<S: Schedule>() -> u32 {
    match (S::TWO_STEPS, S::FOLDS) {
        (true, true) => 3,
        (true, false) => 2,
        (false, _) => 4,
    }
}

/// Whether a rank has blocks behind those of two kinds: by domains to a root, that alone.
fn has_third<S: Schedule>(schedule: &S, rank: u32) -> bool {
    schedule.root().is_none_or(|root| root == rank)
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
    fn launch<S: Schedule, H: Hooks>(
        &self,
        way: &Way<S>,
        schedule: S,
        shape: [usize; 2],
        raws: &[Raw],
        deadline: u64,
        joins: impl Fn(u32) -> bool + Sync,
    ) -> Vec<Vec<Flow>> {
        self.world.run(way.2 * self.channels, |rank, grid| {
            if !joins(rank) {
                return Ok(());
            }
            self.block::<S, H>(way, schedule, shape, raws[rank as usize], deadline, (rank, grid))
        })
    }

    /// One block's part of it, on a rank.
    fn block<S: Schedule, H: Hooks>(
        &self,
        Way(_, entry, kinds): &Way<S>,
        schedule: S,
        [n, rows]: [usize; 2],
        raw: Raw,
        deadline: u64,
        (rank, grid): (u32, Grid),
    ) -> Flow {
        if grid.block >= 2 * self.channels && !has_third(&schedule, rank) {
            return Ok(());
        }
        let packs = n.div_ceil(Pack::<H::Wire>::LANES) as u64;
        let shape = Shape {
            elements: n as u64,
            rows: rows as u64,
            cols: (n / rows) as u64,
            // A ring holds four turns of whatever takes more room than what crosses the wire.
            chunk: 512 / H::PARTIALS.max(H::RELAYS).max(1) as u64,
            share: share_packs(packs, self.channels),
            channels: self.channels,
            ..world::NO_ELEMENTS
        };
        let (ops, control) = (self.world.ops(rank), self.world.control(rank, deadline));
        let shape = shape.name_cut(0, 0, None);
        let params = Params { ops: InDomains(ops, self.each), control, shape, raw, schedule };
        // SAFETY: every block of the grid runs it, with slices of as many elements.
        unsafe { entry(Grid { blocks: kinds * self.channels, ..grid }, &params) }
    }

    /// The same of all ranks, which end as they should.
    fn runs<S: Schedule, H: Hooks>(&self, way: &Way<S>, schedule: S, shape: [usize; 2], raws: &[Raw]) {
        let flows = self.launch::<S, H>(way, schedule, shape, raws, 5_000, |_| true);
        for (rank, flows) in flows.iter().enumerate() {
            assert!(
                flows.iter().all(|flow| flow.is_ok()),
                "{} {} of {shape:?}, domains of {}, rank {rank}: {:?}",
                S::NAME,
                way.0,
                self.each,
                self.world.record(rank as u32)
            );
        }
    }

    /// Two launches with fresh values: each rank's output is the fold of all ranks' inputs.
    fn folds<H: Becomes>(&self, way: &Way<AllReduce>, n: usize) {
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
            self.runs::<_, H>(way, AllReduce, [n, 1], &raws);
            for (k, old) in wanted.iter_mut().enumerate() {
                let folded = tree(0, ranks, &|rank| H::sent(inputs[rank as usize].all()[k]));
                *old = H::becomes(*old, folded);
            }
        }
        for (rank, got) in outputs.iter().enumerate() {
            assert_eq!(
                got.all(),
                wanted,
                "{} of {n}, domains of {}, rank {rank} of {ranks}",
                way.0,
                self.each
            );
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
                for way in 0..2 {
                    ground.folds::<Folding>(&by_domains::<_, Folding>()[way], n);
                    ground.folds::<Settled>(&by_domains::<_, Settled>()[way], n);
                    ground.folds::<Bytes>(&by_domains::<_, Bytes>()[way], n);
                }
                // On the same channels, from where the others have left them.
                ground.folds::<Folding>(&Way("in two steps", TwoShot::exchange::<_, Folding>, 3), n);
            }
        }
    }
}

/// A rank never comes: every other one ends, in its domain and in the others.
fn alone<S: Schedule, H: Unpack<Raw = Raw>>(schedule: S) {
    for way in by_domains::<S, H>() {
        // So many that nobody has room for all that it sends.
        let (ground, n, missing) = (Ground::new(2, 2, 1), 20_000, 3);
        let chunks = [0, 1].map(|end| {
            let of = |rank| schedule.chunks(Member { rank, world: 4 })[end];
            (0..4).map(of).max().unwrap_or(0) as usize * n
        });
        let mut inputs: Vec<Aligned<u16>> = (0..4).map(|_| Aligned::new(chunks[0], |_| 1)).collect();
        let mut outputs: Vec<Aligned<u32>> = (0..4).map(|_| Aligned::new(chunks[1], |_| 0)).collect();
        let raws: Vec<Raw> = inputs
            .iter_mut()
            .zip(&mut outputs)
            .map(|(i, o)| Raw { input: i.raw(), output: o.raw() })
            .collect();
        let flows = ground.launch::<_, H>(&way, schedule, [n, 1], &raws, 100, |rank| rank != missing);
        for rank in 0..3 {
            assert!(flows[rank as usize].iter().any(|flow| flow.is_err()), "{}, rank {rank}", way.0);
        }
        let records: Vec<_> = (0..3).map(|rank| ground.world.record(rank)).collect();
        let expired = |record: &AbortRecord| record.kind == kind::EXPIRED;
        assert!(records.iter().any(expired), "{}: {records:?}", way.0);
    }
}

#[test]
fn nobody_waits_longer_than_the_deadline() {
    alone::<_, Folding>(AllReduce);
    alone::<_, Folding>(ReduceScatter);
    alone::<_, pairs::Chained>(AllGather);
    for root in 0..4 {
        alone::<_, Folding>(Reduce { root });
        alone::<_, pairs::Chained>(Broadcast { root });
    }
}
