//! Reduce-scatter, all-reduce and reduce: every contribution, in the declared order, once.

use super::faults::{DEADLINE, mended, told};
use super::support::{POISON, fault, misuse, operation, roots, works};
use crate::check::{same, says};
use crate::data::Data;
use crate::kernels::folds::{averaged, greatest, ordered, summed};
use crate::run::Ground;
use crate::{AllReduceOf, Outcome, Rank, ReduceOf, ReduceScatterOf, Subject, reference};
use fusewire::device::prelude::*;
use fusewire::kernel::HookSet;
use fusewire::schedule::{AllReduceLauncher, ReduceLauncher, ReduceScatterLauncher};
use fusewire::{Buffer, LaunchOptions, Operation, Options, Protocol, Transport};
use std::time::Duration;

/// Which schedule, and its root.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    ReduceScatter,
    AllReduce,
    Reduce(usize),
}

impl What {
    fn every(ranks: usize) -> impl Iterator<Item = What> {
        [What::ReduceScatter, What::AllReduce].into_iter().chain(roots(ranks).into_iter().map(What::Reduce))
    }

    /// Chunks of a rank's input and of its output that a launch uses.
    pub(super) fn chunks(self, rank: usize, ranks: usize) -> [usize; 2] {
        match self {
            What::ReduceScatter => [ranks, 1],
            What::AllReduce => [1, 1],
            What::Reduce(root) => [1, usize::from(rank == root)],
        }
    }

    /// Which chunk of every rank becomes that of `rank`.
    pub(super) fn source(self, rank: usize) -> usize {
        if matches!(self, What::ReduceScatter) { rank } else { 0 }
    }
}

pub(super) struct All<X: Transport, H> {
    reduce_scatter: ReduceScatterLauncher<X, H>,
    all_reduce: AllReduceLauncher<X, H>,
    reduce: ReduceLauncher<X, H>,
}

impl<X: Transport + ReduceScatterOf<H> + AllReduceOf<H> + ReduceOf<H>, H: HookSet> All<X, H> {
    pub(super) fn new(transport: &X) -> fusewire::Result<Self> {
        Ok(All {
            reduce_scatter: ReduceScatterOf::<H>::reduce_scatter(transport)?,
            all_reduce: AllReduceOf::<H>::all_reduce(transport)?,
            reduce: ReduceOf::<H>::reduce(transport)?,
        })
    }

    pub(super) fn launch(
        &self,
        ground: &Ground<X>,
        what: What,
        args: H::Args<'_>,
        options: &LaunchOptions,
    ) -> fusewire::Result<()> {
        let stream = &ground.stream;
        match what {
            What::ReduceScatter => self.reduce_scatter.launch_with(stream, args, options),
            What::AllReduce => self.all_reduce.launch_with(stream, args, options),
            What::Reduce(root) => self.reduce.launch_with(stream, root, args, options),
        }
    }
}

/// What `ordered` makes of every rank's element `at`.
pub(super) fn in_order(data: Data, ranks: usize, at: usize) -> u32 {
    let lifted = |rank| data.any::<u32>(rank, at).wrapping_add(1) ^ 0x5bd1_e995;
    let fold = |left: u32, right: u32| {
        left.wrapping_mul(0x0100_0193).rotate_left(7).wrapping_add(right ^ right >> 15)
    };
    reference::tree(0, ranks, &lifted, &fold)
}

/// Eager calls and replays of one schedule, whose outputs chain what was folded; every element is consumed once a call.
pub(super) fn chained<X: Subject>(
    rank: &Rank<X>,
    ground: &Ground<X>,
    all: &All<X, ordered::Hooks>,
    what: What,
    chunk: usize,
    options: &LaunchOptions,
) -> Outcome {
    const EAGER: usize = 2;
    const REPLAYS: usize = 3;
    let (me, ranks, stream) = (rank.me(), rank.size(), &ground.stream);
    let [sent, received] = what.chunks(me, ranks);
    // What a rank does not use may not be empty.
    let [inputs, outputs] = [sent, received].map(|chunks| (chunks * chunk).max(1));
    let data: Vec<Data> = (0..EAGER + REPLAYS).map(|k| rank.data(10 * chunk + k)).collect();
    let sources: Vec<Buffer<u32>> = data
        .iter()
        .map(|d| ground.device.buffer_from(&d.all::<u32>(me, inputs)))
        .collect::<fusewire::Result<_>>()?;
    let mut input = ground.device.buffer::<u32>(inputs)?;
    let mut output = ground.device.buffer::<u32>(outputs)?;
    let mut calls = ground.device.buffer::<u32>(outputs)?;
    let options = options.clone().elements(chunk);
    let launch = |input: &Buffer<u32>, output: &mut Buffer<u32>, calls: &mut Buffer<u32>| {
        let args =
            ordered::Launch { input: input.view(), output: output.view_mut(), calls: calls.view_mut() };
        all.launch(ground, what, args, &options)
    };
    for source in &sources[..EAGER] {
        input.copy_from(stream, source)?;
        launch(&input, &mut output, &mut calls)?;
    }
    let graph = stream.capture(|| launch(&input, &mut output, &mut calls))?;
    for source in &sources[EAGER..] {
        input.copy_from(stream, source)?;
        graph.launch(stream)?;
    }
    let about = format!("{what:?} of {chunk} elements, {options:?}, at rank {me}");
    let part = what.source(me) * chunk;
    let got = output.read(stream)?;
    same(format_args!("{about}"), &got[..received * chunk], |i| {
        data.iter().fold(0, |old, d| reference::link(old, in_order(*d, ranks, part + i)))
    });
    let counts = calls.read(stream)?;
    same(format_args!("calls of `consume`: {about}"), &counts[..received * chunk], |_| data.len() as u32);
    Ok(())
}

/// Around packs, of few and of many channels, with every root.
pub fn of_every_size<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let all = All::new(&ground.transport)?;
    let staged = LaunchOptions::default().protocol(Protocol::Simple);
    for chunk in [0, 1, 3, 16, 95, 1001] {
        for what in What::every(rank.size()) {
            chained(rank, &ground, &all, what, chunk, &LaunchOptions::default())?;
            chained(rank, &ground, &all, what, chunk, &staged.clone().channels(1))?;
            chained(rank, &ground, &all, what, chunk, &staged.clone().channels(2).chunk(256))?;
            if X::MAPS {
                let words = LaunchOptions::default().protocol(Protocol::Ll);
                chained(rank, &ground, &all, what, chunk, &words)?;
                chained(rank, &ground, &all, what, chunk, &words.channels(2))?;
            }
            if X::MAPS && !matches!(what, What::Reduce(_)) {
                let lines = LaunchOptions::default().protocol(Protocol::Ll128);
                chained(rank, &ground, &all, what, chunk, &lines)?;
                chained(rank, &ground, &all, what, chunk, &lines.channels(2))?;
            }
            if !matches!(what, What::ReduceScatter) {
                let two_shot = LaunchOptions::default().protocol(Protocol::TwoShot);
                chained(rank, &ground, &all, what, chunk, &two_shot)?;
                chained(rank, &ground, &all, what, chunk, &two_shot.channels(1).chunk(256))?;
            }
            if ground.in_domains() {
                let by_domains = LaunchOptions::default().protocol(Protocol::Hierarchical);
                chained(rank, &ground, &all, what, chunk, &by_domains)?;
                chained(rank, &ground, &all, what, chunk, &by_domains.channels(1).chunk(256))?;
            }
            if X::MAPS && matches!(what, What::AllReduce) {
                let lines = LaunchOptions::default().protocol(Protocol::Ll128TwoShot);
                chained(rank, &ground, &all, what, chunk, &lines)?;
                chained(rank, &ground, &all, what, chunk, &lines.channels(3))?;
            }
        }
    }
    Ok(())
}

/// Ranks send a part to each peer in turn and take one from each in turn, so nobody waits in a circle.
pub fn many_times_the_staging<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let all = All::new(&ground.transport)?;
    let options = LaunchOptions::default().protocol(Protocol::Simple).channels(1);
    let chunk = 5 * ground.window() / size_of::<u32>() + 7;
    for what in What::every(rank.size()).take(3) {
        chained(rank, &ground, &all, what, chunk, &options)?;
        chained(rank, &ground, &all, what, chunk, &options.clone().channels(3))?;
    }
    if ground.in_domains() {
        let by_domains = options.clone().protocol(Protocol::Hierarchical);
        chained(rank, &ground, &all, What::AllReduce, rank.size() * chunk, &by_domains)?;
        chained(rank, &ground, &all, What::ReduceScatter, chunk, &by_domains)?;
        for root in 0..rank.size() {
            chained(rank, &ground, &all, What::Reduce(root), rank.size() * chunk, &by_domains)?;
        }
    }
    let two_shot = options.protocol(Protocol::TwoShot);
    for what in What::every(rank.size()).skip(1) {
        chained(rank, &ground, &all, what, rank.size() * chunk, &two_shot)?;
    }
    Ok(())
}

/// As by default, and where it can be in two steps, or by domains.
pub(super) fn ways<X: Subject>(ground: &Ground<X>, what: What) -> Vec<LaunchOptions> {
    let mut ways = vec![LaunchOptions::default()];
    if !matches!(what, What::ReduceScatter) {
        ways.push(LaunchOptions::default().protocol(Protocol::TwoShot));
    }
    if ground.in_domains() {
        ways.push(LaunchOptions::default().protocol(Protocol::Hierarchical));
    }
    if X::MAPS && matches!(what, What::AllReduce) {
        ways.push(LaunchOptions::default().protocol(Protocol::Ll128TwoShot));
    }
    ways
}

/// Wire types narrower than what they are folded in, orders, folds; the same bits as the reference's.
pub fn of_every_kind<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let sums = All::<X, summed::Hooks<Bf16>>::new(&ground.transport)?;
    let means = AllReduceOf::<averaged::Hooks>::all_reduce(&ground.transport)?;
    let most = ReduceScatterOf::<greatest::Hooks>::reduce_scatter(&ground.transport)?;
    let (me, ranks, stream) = (rank.me(), rank.size(), &ground.stream);
    for chunk in [1, 9, 130, rank.scale.pick(3000, 300_001)] {
        let data = rank.data(chunk);
        // Of many magnitudes, so that sums round.
        let value = |rank: usize, i: usize| {
            let power = data.below(rank, i + (1 << 40), 40) as i32 - 20;
            Bf16::from_f32(data.small(rank, i) * reference::power_of_two(power))
        };
        for what in [What::ReduceScatter, What::AllReduce, What::Reduce(ranks - 1)] {
            let [sent, received] = what.chunks(me, ranks);
            let input: Vec<Bf16> = (0..sent * chunk).map(|i| value(me, i)).collect();
            let input = ground.device.buffer_from(&input)?;
            let mut output = ground.device.buffer::<Bf16>(chunk)?;
            for options in ways(&ground, what) {
                output.fill_bytes(stream, POISON)?;
                let args = summed::Launch { input: input.view(), output: output.view_mut() };
                sums.launch(&ground, what, args, &options)?;
                let (got, part) = (output.read(stream)?, what.source(me) * chunk);
                let bits: Vec<u16> = got[..received * chunk].iter().map(|v| v.to_bits()).collect();
                same(format_args!("sums, {what:?} of {chunk}, {options:?}, at rank {me}"), &bits, |i| {
                    reference::rounded_sum(ranks, &|rank| value(rank, part + i).to_f32())
                });
            }
        }
        let input: Vec<f32> = (0..chunk).map(|i| data.small(me, i)).collect();
        let input = ground.device.buffer_from(&input)?;
        let mut output = ground.device.buffer::<f32>(chunk)?;
        // The means' order is no tree.
        let tree = |options: &LaunchOptions| options.protocol != Some(Protocol::Hierarchical);
        for options in ways(&ground, What::AllReduce).into_iter().filter(tree) {
            output.fill_bytes(stream, POISON)?;
            let args = averaged::Launch { input: input.view(), output: output.view_mut(), scale: 0.75 };
            means.launch_with(stream, args, &options)?;
            same(format_args!("means of {chunk}, {options:?}, at rank {me}"), &output.read(stream)?, |i| {
                let of = |rank| reference::through_e4m3(data.small(rank, i));
                (1..ranks).fold(of(0), |sum, rank| sum + of(rank)) / ranks as f32 * 0.75
            });
        }
        let input = ground.device.buffer_from(&data.all::<i64>(me, ranks * chunk))?;
        let mut output = ground.device.buffer::<i64>(chunk)?;
        most.launch(stream, greatest::Launch { input: input.view(), output: output.view_mut() })?;
        same(format_args!("greatest of {chunk}, at rank {me}"), &output.read(stream)?, |i| {
            (0..ranks).map(|rank| data.any::<i64>(rank, me * chunk + i)).max().unwrap_or(0)
        });
    }
    Ok(())
}

/// Ranks arrive in another order each time; the bits do not change.
pub fn whoever_is_late<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let all = All::new(&ground.transport)?;
    let (me, ranks) = (rank.me(), rank.size());
    for round in 0..ranks {
        std::thread::sleep(Duration::from_millis(rank.scale.pick(2, 4) * ((me + round) % ranks) as u64));
        for what in [What::AllReduce, What::ReduceScatter, What::Reduce(round)] {
            let ways = [
                Protocol::Simple,
                Protocol::Ll,
                Protocol::Ll128,
                Protocol::TwoShot,
                Protocol::Ll128TwoShot,
                Protocol::Hierarchical,
            ];
            for way in ways {
                let lines = matches!(way, Protocol::Ll128 | Protocol::Ll128TwoShot);
                if way == Protocol::Ll && !X::MAPS
                    || lines && (!X::MAPS || matches!(what, What::Reduce(_)))
                    || way == Protocol::TwoShot && matches!(what, What::ReduceScatter)
                    || way == Protocol::Ll128TwoShot && !matches!(what, What::AllReduce)
                    || way == Protocol::Hierarchical && !ground.in_domains()
                {
                    continue;
                }
                let options = LaunchOptions::default().protocol(way).channels(2);
                chained(rank, &ground, &all, what, 700 + round, &options)?;
            }
        }
    }
    Ok(())
}

/// What cannot be, before anything is launched.
pub fn refused<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let (all, ranks) = (All::<X, summed::Hooks<Bf16>>::new(&ground.transport)?, rank.size());
    let launch = |what, inputs: usize| -> fusewire::Result<String> {
        let (input, mut output) = (ground.device.buffer(inputs)?, ground.device.buffer(8)?);
        let args = summed::Launch { input: input.view(), output: output.view_mut() };
        Ok(misuse(all.launch(&ground, what, args, &LaunchOptions::default())))
    };
    says(launch(What::Reduce(ranks), 8)?, &["root", &format!("a world of {ranks} ranks")]);
    says(launch(What::AllReduce, 7)?, &["`input` has 7 elements", "1 chunks of 8"]);
    says(launch(What::ReduceScatter, 8 * ranks - 1)?, &[&format!("{ranks} chunks of 8")]);
    let options = LaunchOptions::default().protocol(Protocol::Ll128);
    let (input, mut output) = (ground.device.buffer(8)?, ground.device.buffer(8)?);
    let args = summed::Launch { input: input.view(), output: output.view_mut() };
    says(misuse(all.launch(&ground, What::Reduce(0), args, &options)), &["Ll128"]);
    let options = LaunchOptions::default().protocol(Protocol::TwoShot);
    let (input, mut output) = (ground.device.buffer(8 * ranks)?, ground.device.buffer(8)?);
    let args = summed::Launch { input: input.view(), output: output.view_mut() };
    says(misuse(all.launch(&ground, What::ReduceScatter, args, &options)), &["TwoShot", "`all_reduce`"]);
    if ranks > 1 {
        let args = summed::Launch { input: input.view(), output: output.view_mut() };
        let options = options.elements(8).channels(1 + ground.transport.link().layout().channels / 2);
        says(
            misuse(all.launch(&ground, What::AllReduce, args, &options)),
            &["two steps over", "for each step"],
        );
    }
    works(rank, &ground)?;
    // A line of 8-bit floats is passed on as four lines of sums, which a quarter of the smallest staging does not hold.
    let least = rank.meet(Options::per_peer(4 << 10).channels(4).ll128_channels(0).ll_channels(0))?;
    let means = AllReduceOf::<averaged::Hooks>::all_reduce(&least.transport)?;
    let input = least.device.buffer_from(&[1.0; 4000])?;
    let mut output = least.device.buffer::<f32>(4000)?;
    let args = averaged::Launch { input: input.view(), output: output.view_mut(), scale: 2.0 };
    let two_shot = LaunchOptions::default().protocol(Protocol::TwoShot);
    says(misuse(means.launch_with(&least.stream, args, &two_shot)), &["TwoShot", "stage four lines"]);
    let args = averaged::Launch { input: input.view(), output: output.view_mut(), scale: 2.0 };
    means.launch(&least.stream, args)?;
    same("means by what the transport has", &output.read(&least.stream)?, |_| 2.0);
    Ok(())
}

/// Everybody hears of it.
pub fn a_rank_never_launches<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let all = All::<X, summed::Hooks<Bf16>>::new(&ground.transport)?;
    let (last, chunk) = (rank.size() - 1, 3 * ground.window());
    let deadline = Duration::from_millis(rank.scale.pick(300, 100));
    let input = ground.device.buffer(chunk)?;
    let mut output = ground.device.buffer(chunk)?;
    if rank.me() != last {
        let args = summed::Launch { input: input.view(), output: output.view_mut() };
        all.launch(&ground, What::AllReduce, args, &LaunchOptions::default().deadline(deadline))?;
        fault(&ground, Duration::from_secs(10));
    }
    rank.world.barrier()?;
    ground.transport.renew()?;
    works(rank, &ground)
}

/// Rank 0 folds more than the others: they hear of the other length at once, or at the deadline of what each has launched.
pub fn counts_that_differ<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    // As ranks of several hosts, whose kernels find out.
    ground.apart();
    let all = All::<X, summed::Hooks<Bf16>>::new(&ground.transport)?;
    let long = 3 * ground.window();
    let input = ground.device.buffer(long * rank.size())?;
    let mut output = ground.device.buffer(long)?;
    for what in [What::AllReduce, What::ReduceScatter] {
        let mut some = ways(&ground, what);
        some.push(LaunchOptions::default().protocol(Protocol::Simple));
        if X::MAPS {
            some.extend([Protocol::Ll, Protocol::Ll128].map(|way| LaunchOptions::default().protocol(way)));
        }
        // Twice as many, and more within a pack; by default also so many that another protocol may carry them.
        for (more, less) in [(400, 200), (203, 201), (long, 16)] {
            for options in if more == long { &some[..1] } else { &some[..] } {
                let mut options = options.clone().elements(if rank.me() == 0 { more } else { less });
                options.deadline = (more == long).then_some(DEADLINE);
                let args = summed::Launch { input: input.view(), output: output.view_mut() };
                all.launch(&ground, what, args, &options)?;
                let fault = told(rank, &ground)?;
                match operation(&fault) {
                    Operation::Expired { .. } if more == long => {
                        says(&fault, &[&format!("of {more} elements"), &format!("of {less} elements")]);
                    }
                    _ => says(&fault, &["number of elements"]),
                }
                mended(rank, &ground)?;
                // The next fault is not to stop who still reads.
                rank.world.barrier()?;
            }
        }
    }
    Ok(())
}
