//! Input and output in one buffer: an element is stored to when it has been sent, whoever is late, by every schedule that has that.

use super::support::{POISON, misuse, works};
use crate::check::{same, says};
use crate::kernels::in_place::{gathered_in_place, linked_in_place, moved_in_place, summed_in_place};
use crate::run::Ground;
use crate::{AllGatherOf, AllReduceOf, Outcome, Rank, ReduceScatterOf, Subject, reference};
use fusewire::device::prelude::*;
use fusewire::{Buffer, LaunchOptions, Options, Protocol, Stream};
use std::time::Duration;

/// Which schedule, and its root.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum What {
    AllGather,
    Broadcast(usize),
    Scatter(usize),
    Gather(usize),
    AllReduce,
    ReduceScatter,
    Reduce(usize),
}

impl What {
    /// With the first and the last rank as roots.
    pub(super) fn every(ranks: usize) -> Vec<What> {
        let mut all = vec![What::AllGather, What::AllReduce, What::ReduceScatter];
        for root in [0, ranks - 1] {
            all.extend([What::Broadcast(root), What::Scatter(root), What::Gather(root), What::Reduce(root)]);
        }
        all
    }

    /// Chunks of a rank's buffer.
    pub(super) fn chunks(self, rank: usize, ranks: usize) -> usize {
        match self {
            What::AllGather | What::ReduceScatter => ranks,
            What::Scatter(root) | What::Gather(root) if rank == root => ranks,
            _ => 1,
        }
    }

    /// What `rank` stores to: of each chunk its number, and which chunk of which ranks comes together there.
    pub(super) fn stored(self, rank: usize, ranks: usize) -> Vec<(usize, Vec<(usize, usize)>)> {
        // Chunk `c` of all, where only the root has as many.
        let only = |root: usize, rank: usize, c: usize| if rank == root { c } else { 0 };
        match self {
            What::AllGather => (0..ranks).map(|c| (c, vec![(c, c)])).collect(),
            What::Broadcast(root) => vec![(0, vec![(root, 0)])],
            What::Scatter(root) => vec![(only(root, rank, rank), vec![(root, rank)])],
            What::Gather(root) if rank == root => {
                (0..ranks).map(|c| (c, vec![(c, only(root, c, c))])).collect()
            }
            What::ReduceScatter => vec![(rank, (0..ranks).map(|from| (from, rank)).collect())],
            What::AllReduce => vec![(0, (0..ranks).map(|from| (from, 0)).collect())],
            What::Reduce(root) if rank == root => vec![(0, (0..ranks).map(|from| (from, 0)).collect())],
            What::Gather(_) | What::Reduce(_) => vec![],
        }
    }

    /// How it is launched.
    fn ways<X: Subject>(self, ground: &Ground<X>) -> Vec<LaunchOptions> {
        let by = |protocol| LaunchOptions::default().protocol(protocol);
        let staged = by(if self == What::AllReduce { Protocol::TwoShot } else { Protocol::Simple });
        let mut ways = vec![LaunchOptions::default(), staged.clone(), staged.channels(1).chunk(256)];
        if matches!(self, What::Broadcast(_) | What::Reduce(_)) {
            ways.extend([by(Protocol::TwoShot), by(Protocol::TwoShot).channels(1).chunk(256)]);
        }
        if ground.in_domains() && !matches!(self, What::Scatter(_) | What::Gather(_)) {
            ways.extend([by(Protocol::Hierarchical), by(Protocol::Hierarchical).channels(1).chunk(256)]);
        }
        if X::MAPS {
            ways.extend([by(Protocol::Ll), by(Protocol::Ll).channels(3)]);
        }
        if X::MAPS && !matches!(self, What::Reduce(_)) {
            ways.extend([by(Protocol::Ll128), by(Protocol::Ll128).channels(1)]);
        }
        if X::MAPS && self == What::AllReduce {
            ways.extend([by(Protocol::Ll128TwoShot), by(Protocol::Ll128TwoShot).channels(1)]);
        }
        ways
    }
}

/// The launchers of every schedule, of one module for what is moved and one for what is folded.
pub(super) trait Launches<X: Subject>: Sized {
    fn new(transport: &X) -> fusewire::Result<Self>;
    fn launch(
        &self,
        stream: &Stream,
        what: What,
        buffers: (&mut Buffer<u32>, &Buffer<u32>),
        options: &LaunchOptions,
    ) -> fusewire::Result<()>;
}

macro_rules! launchers {
    ($all:ident of $moved:ident and $linked:ident) => {
        struct $all<X: fusewire::Transport> {
            all_gather: fusewire::schedule::AllGatherLauncher<X, $moved::Hooks>,
            broadcast: fusewire::schedule::BroadcastLauncher<X, $moved::Hooks>,
            scatter: fusewire::schedule::ScatterLauncher<X, $moved::Hooks>,
            gather: fusewire::schedule::GatherLauncher<X, $moved::Hooks>,
            all_reduce: fusewire::schedule::AllReduceLauncher<X, $linked::Hooks>,
            reduce_scatter: fusewire::schedule::ReduceScatterLauncher<X, $linked::Hooks>,
            reduce: fusewire::schedule::ReduceLauncher<X, $linked::Hooks>,
        }

        impl<X: Subject> $crate::suite::in_place::Launches<X> for $all<X> {
            fn new(transport: &X) -> fusewire::Result<Self> {
                Ok($all {
                    all_gather: $crate::AllGatherOf::<$moved::Hooks>::all_gather(transport)?,
                    broadcast: $crate::BroadcastOf::<$moved::Hooks>::broadcast(transport)?,
                    scatter: $crate::ScatterOf::<$moved::Hooks>::scatter(transport)?,
                    gather: $crate::GatherOf::<$moved::Hooks>::gather(transport)?,
                    all_reduce: $crate::AllReduceOf::<$linked::Hooks>::all_reduce(transport)?,
                    reduce_scatter: $crate::ReduceScatterOf::<$linked::Hooks>::reduce_scatter(transport)?,
                    reduce: $crate::ReduceOf::<$linked::Hooks>::reduce(transport)?,
                })
            }

            fn launch(
                &self,
                stream: &fusewire::Stream,
                what: What,
                (values, by): (&mut fusewire::Buffer<u32>, &fusewire::Buffer<u32>),
                options: &fusewire::LaunchOptions,
            ) -> fusewire::Result<()> {
                let (values, by) = (values.view_mut(), by.view());
                match what {
                    What::AllGather => {
                        self.all_gather.launch_with(stream, $moved::Launch { values, by }, options)
                    }
                    What::Broadcast(root) => {
                        self.broadcast.launch_with(stream, root, $moved::Launch { values, by }, options)
                    }
                    What::Scatter(root) => {
                        self.scatter.launch_with(stream, root, $moved::Launch { values, by }, options)
                    }
                    What::Gather(root) => {
                        self.gather.launch_with(stream, root, $moved::Launch { values, by }, options)
                    }
                    What::AllReduce => {
                        self.all_reduce.launch_with(stream, $linked::Launch { values, by }, options)
                    }
                    What::ReduceScatter => {
                        self.reduce_scatter.launch_with(stream, $linked::Launch { values, by }, options)
                    }
                    What::Reduce(root) => {
                        self.reduce.launch_with(stream, root, $linked::Launch { values, by }, options)
                    }
                }
            }
        }
    };
}
pub(super) use launchers;

launchers!(All of moved_in_place and linked_in_place);

/// What is added to element `i` of a chunk by `rank`.
pub(super) fn added(rank: usize, i: usize) -> u32 {
    (7 * i + 3 * rank + 1) as u32
}

/// What one call makes of all ranks' buffers.
fn step(what: What, chunk: usize, before: &[Vec<u32>]) -> Vec<Vec<u32>> {
    let (ranks, mut after) = (before.len(), before.to_vec());
    for (rank, buffer) in after.iter_mut().enumerate() {
        for (to, from) in what.stored(rank, ranks) {
            for i in 0..chunk {
                let sent = |k: usize| {
                    let (rank, part) = from[k];
                    before[rank][part * chunk + i].wrapping_add(added(rank, i))
                };
                let value = reference::tree(0, from.len(), &sent, &reference::linked);
                let place = &mut buffer[to * chunk + i];
                *place = place.wrapping_mul(5).wrapping_add(value);
            }
        }
    }
    after
}

/// Call after call on what the last one left, eager and replayed. `step` says what a call makes of all ranks' buffers.
pub(super) fn chain<X: Subject>(
    rank: &Rank<X>,
    ground: &Ground<X>,
    all: &impl Launches<X>,
    (what, chunk, by): (What, usize, &[u32]),
    (number, options): (usize, &LaunchOptions),
    step: impl Fn(&[Vec<u32>]) -> Vec<Vec<u32>>,
) -> fusewire::Result<()> {
    let (me, ranks, stream) = (rank.me(), rank.size(), &ground.stream);
    let late = |call: usize| {
        let turn = (me + call) % ranks;
        std::thread::sleep(Duration::from_micros(rank.scale.pick(100, 100) * turn as u64));
    };
    let calls = rank.scale.pick(2, 6);
    let data = rank.data(8 * chunk + number);
    let mut expected: Vec<Vec<u32>> =
        (0..ranks).map(|rank| data.all(rank, chunk * what.chunks(rank, ranks))).collect();
    let by = ground.device.buffer_from(by)?;
    let mut values = ground.device.buffer_from(&expected[me])?;
    let mut launch = || all.launch(stream, what, (&mut values, &by), options);
    for call in 0..calls {
        late(call);
        launch()?;
    }
    let graph = stream.capture(|| (0..2).try_for_each(|_| launch()))?;
    for call in 0..calls {
        late(call);
        graph.launch(stream)?;
    }
    for _ in 0..3 * calls {
        expected = step(&expected);
    }
    let about = format!("{what:?} of {chunk} elements in place, {options:?}, at rank {me}");
    same(format_args!("{about}"), &values.read(stream)?, |i| expected[me][i]);
    Ok(())
}

/// Elements, by every schedule.
pub fn chained<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let all = All::new(&ground.transport)?;
    for chunk in [0, 1, 9, 130, rank.scale.pick(1500, 15_001)] {
        let by: Vec<u32> = (0..chunk).map(|i| added(rank.me(), i)).collect();
        for what in What::every(rank.size()) {
            for cut in what.ways(&ground).iter().enumerate() {
                chain(rank, &ground, &all, (what, chunk, &by), cut, |before| step(what, chunk, before))?;
            }
        }
    }
    works(rank, &ground)
}

/// Without hooks: sums that are rounded where they are stored.
pub fn rounded_sums<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let sums = AllReduceOf::<summed_in_place::Hooks>::all_reduce(&ground.transport)?;
    let parts = ReduceScatterOf::<summed_in_place::Hooks>::reduce_scatter(&ground.transport)?;
    let (me, ranks, stream) = (rank.me(), rank.size(), &ground.stream);
    for chunk in [1, 9, 130, rank.scale.pick(1500, 15_001)] {
        let data = rank.data(chunk);
        let value = |rank: usize, i: usize| Bf16::from_f32(data.small(rank, i));
        let sum = |i: usize| reference::rounded_sum(ranks, &|rank| value(rank, i).to_f32());
        let bits = |values: &Buffer<Bf16>| {
            values.read(stream).map(|v| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>())
        };
        let whole = chunk * ranks;
        let own = |n: usize| ground.device.buffer_from(&(0..n).map(|i| value(me, i)).collect::<Vec<_>>());
        for options in What::AllReduce.ways(&ground) {
            let mut values = own(chunk)?;
            sums.launch_with(stream, summed_in_place::Launch { values: values.view_mut() }, &options)?;
            same(format_args!("sums of {chunk}, {options:?}, at rank {me}"), &bits(&values)?, sum);
        }
        for options in What::ReduceScatter.ways(&ground) {
            let mut values = own(whole)?;
            parts.launch_with(stream, summed_in_place::Launch { values: values.view_mut() }, &options)?;
            same(format_args!("parts of {chunk}, {options:?}, at rank {me}"), &bits(&values)?, |i| {
                if i / chunk == me { sum(i) } else { value(me, i).to_bits() }
            });
        }
    }
    works(rank, &ground)
}

/// By every way that there is into symmetric memory.
pub fn into_symmetric_memory<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.meet(Options::per_peer(64 << 10).channels(8))?;
    let gathered = AllGatherOf::<gathered_in_place::Hooks>::all_gather(&ground.transport)?;
    let (me, ranks, stream) = (rank.me(), rank.size(), &ground.stream);
    for chunk in [1, 7, 64, 1000, rank.scale.pick(20_000, 500_000)] {
        let (n, data) = (chunk * ranks, rank.data(chunk));
        let mut values = match X::MAPS {
            true => Buffer::<u16>::symmetric(&ground.transport, n)?,
            false => ground.device.buffer::<u16>(n)?,
        };
        let own = ground.device.buffer_from(&data.all::<u16>(me, chunk))?;
        let spaces = gathered
            .spaces(&gathered_in_place::Launch { values: values.view_mut() }, &LaunchOptions::default())?;
        for way in spaces.iter().map(|space| space.start.protocol) {
            values.fill_bytes(stream, POISON)?;
            let mut before = values.read(stream)?;
            before[me * chunk..][..chunk].copy_from_slice(&own.read(stream)?);
            values.fill_from(&before)?;
            let args = gathered_in_place::Launch { values: values.view_mut() };
            gathered.launch_with(stream, args, &LaunchOptions::default().protocol(way))?;
            same(format_args!("{chunk} elements, {way:?}, at rank {me}"), &values.read(stream)?, |i| {
                data.any::<u16>(i / chunk, i % chunk)
            });
        }
    }
    works(rank, &ground)
}

/// A protocol that would store to what it has not read, and a buffer that is no whole number of chunks.
pub fn refused<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let sums = AllReduceOf::<summed_in_place::Hooks>::all_reduce(&ground.transport)?;
    let parts = ReduceScatterOf::<summed_in_place::Hooks>::reduce_scatter(&ground.transport)?;
    let mut values = ground.device.buffer::<Bf16>(8 * rank.size() + 1)?;
    let simple = LaunchOptions::default().protocol(Protocol::Simple);
    let args = summed_in_place::Launch { values: values.view_mut() };
    says(misuse(sums.launch_with(&ground.stream, args, &simple)), &["in place (`InOut`)", "name one of `"]);
    let args = summed_in_place::Launch { values: values.view_mut() };
    let ranks = rank.size();
    says(misuse(parts.launch(&ground.stream, args)), &[&format!("cut into {ranks} equal chunks")]);
    works(rank, &ground)
}
