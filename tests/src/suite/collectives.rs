//! All-gather, broadcast, scatter and gather.

use super::support::{POISON, fault, misuse, roots, works};
use crate::check::{same, says};
use crate::data::Data;
use crate::kernels::collectives::{counted, gathered, scaled};
use crate::run::Ground;
use crate::{AllGatherOf, BroadcastOf, GatherOf, Outcome, Rank, ScatterOf, Subject, reference};
use fusewire::schedule::{AllGatherLauncher, BroadcastLauncher, GatherLauncher, ScatterLauncher};
use fusewire::{Buffer, LaunchOptions, Protocol, Transport};
use std::time::Duration;

/// Which schedule, and its root.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    AllGather,
    Broadcast(usize),
    Scatter(usize),
    Gather(usize),
}

impl What {
    /// Chunks of a rank's input and of its output that a launch uses.
    fn chunks(self, rank: usize, ranks: usize) -> [usize; 2] {
        let all = |root| if rank == root { ranks } else { 0 };
        match self {
            What::AllGather => [1, ranks],
            What::Broadcast(root) => [usize::from(rank == root), 1],
            What::Scatter(root) => [all(root), 1],
            What::Gather(root) => [1, all(root)],
        }
    }

    /// Whose chunk arrives as chunk `chunk` of `rank`, and which of it.
    fn source(self, rank: usize, chunk: usize) -> (usize, usize) {
        match self {
            What::AllGather | What::Gather(_) => (chunk, 0),
            What::Broadcast(root) => (root, 0),
            What::Scatter(root) => (root, rank),
        }
    }
}

pub(super) struct All<X: Transport> {
    all_gather: AllGatherLauncher<X, counted::Hooks>,
    broadcast: BroadcastLauncher<X, counted::Hooks>,
    scatter: ScatterLauncher<X, counted::Hooks>,
    gather: GatherLauncher<X, counted::Hooks>,
}

impl<X: Subject> All<X> {
    pub(super) fn new(transport: &X) -> fusewire::Result<Self> {
        Ok(All {
            all_gather: AllGatherOf::<counted::Hooks>::all_gather(transport)?,
            broadcast: BroadcastOf::<counted::Hooks>::broadcast(transport)?,
            scatter: ScatterOf::<counted::Hooks>::scatter(transport)?,
            gather: GatherOf::<counted::Hooks>::gather(transport)?,
        })
    }

    fn launch(
        &self,
        ground: &Ground<X>,
        what: What,
        args: counted::Launch<'_>,
        options: &LaunchOptions,
    ) -> fusewire::Result<()> {
        let stream = &ground.stream;
        match what {
            What::AllGather => self.all_gather.launch_with(stream, args, options),
            What::Broadcast(root) => self.broadcast.launch_with(stream, root, args, options),
            What::Scatter(root) => self.scatter.launch_with(stream, root, args, options),
            What::Gather(root) => self.gather.launch_with(stream, root, args, options),
        }
    }
}

/// Eager calls and replays of one schedule, whose outputs chain what arrives; every element is produced once a call.
pub(super) fn chained<X: Subject>(
    rank: &Rank<X>,
    ground: &Ground<X>,
    all: &All<X>,
    what: What,
    chunk: usize,
    options: &LaunchOptions,
) -> Outcome {
    const EAGER: usize = 2;
    const REPLAYS: usize = 3;
    let (me, ranks, stream) = (rank.me(), rank.size(), &ground.stream);
    let [sent, received] = what.chunks(me, ranks);
    // Not more than is used, but what a rank does not use may not be empty.
    let [inputs, outputs] = [sent, received].map(|chunks| (chunks * chunk).max(1));
    let data: Vec<Data> = (0..EAGER + REPLAYS).map(|k| rank.data(10 * chunk + k)).collect();
    let sources: Vec<Buffer<u32>> = data
        .iter()
        .map(|d| ground.device.buffer_from(&d.all::<u32>(me, inputs)))
        .collect::<fusewire::Result<_>>()?;
    let mut input = ground.device.buffer::<u32>(inputs)?;
    let mut output = ground.device.buffer::<u32>(outputs)?;
    let mut calls = ground.device.buffer::<u32>(inputs)?;
    let options = options.clone().elements(chunk);
    let launch = |input: &Buffer<u32>, output: &mut Buffer<u32>, calls: &mut Buffer<u32>| {
        let args =
            counted::Launch { input: input.view(), output: output.view_mut(), calls: calls.view_mut() };
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
    let got = output.read(stream)?;
    same(format_args!("{about}"), &got[..received * chunk], |i| {
        let (from, part) = what.source(me, i / chunk);
        data.iter().fold(0, |old, d| reference::link(old, d.any(from, part * chunk + i % chunk)))
    });
    let counts = calls.read(stream)?;
    same(format_args!("calls of `produce`: {about}"), &counts[..sent * chunk], |_| data.len() as u32);
    Ok(())
}

fn every<X: Subject>(rank: &Rank<X>) -> impl Iterator<Item = What> {
    let ranks = rank.size();
    let rooted = roots(ranks)
        .into_iter()
        .flat_map(|root| [What::Broadcast(root), What::Scatter(root), What::Gather(root)]);
    std::iter::once(What::AllGather).chain(rooted)
}

/// Around packs and lines, of few and of many channels, with roots in every place.
pub fn of_every_size<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let all = All::new(&ground.transport)?;
    let staged = LaunchOptions::default().protocol(Protocol::Simple);
    for chunk in [0, 1, 3, 16, 95, 1001] {
        for what in every(rank) {
            chained(rank, &ground, &all, what, chunk, &LaunchOptions::default())?;
            chained(rank, &ground, &all, what, chunk, &staged)?;
            chained(rank, &ground, &all, what, chunk, &staged.clone().channels(2).chunk(256))?;
            if X::MAPS {
                for way in [Protocol::Ll, Protocol::Ll128] {
                    let flagged = LaunchOptions::default().protocol(way);
                    chained(rank, &ground, &all, what, chunk, &flagged)?;
                    chained(rank, &ground, &all, what, chunk, &flagged.channels(2))?;
                }
            }
            if matches!(what, What::AllGather | What::Broadcast(_)) && ground.in_domains() {
                let by_domains = LaunchOptions::default().protocol(Protocol::Hierarchical);
                chained(rank, &ground, &all, what, chunk, &by_domains)?;
                chained(rank, &ground, &all, what, chunk, &by_domains.channels(2).chunk(256))?;
            }
            if matches!(what, What::Broadcast(_)) {
                let two_shot = LaunchOptions::default().protocol(Protocol::TwoShot);
                chained(rank, &ground, &all, what, chunk, &two_shot)?;
                chained(rank, &ground, &all, what, chunk, &two_shot.channels(2).chunk(256))?;
            }
        }
    }
    Ok(())
}

/// Ranks that send to all wait for the slowest; receivers take a part from each in turn, so nobody waits in a circle.
pub fn many_times_the_staging<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let all = All::new(&ground.transport)?;
    let options = LaunchOptions::default().protocol(Protocol::Simple).channels(1);
    let chunk = 5 * ground.window() / size_of::<u32>() + 7;
    for what in every(rank).take(4) {
        chained(rank, &ground, &all, what, chunk, &options)?;
        chained(rank, &ground, &all, what, chunk, &options.clone().channels(3))?;
    }
    if ground.in_domains() {
        let by_domains = options.clone().protocol(Protocol::Hierarchical);
        chained(rank, &ground, &all, What::AllGather, chunk, &by_domains)?;
        for root in 0..rank.size() {
            chained(rank, &ground, &all, What::Broadcast(root), rank.size() * chunk, &by_domains)?;
        }
    }
    let two_shot = options.protocol(Protocol::TwoShot);
    for root in roots(rank.size()) {
        chained(rank, &ground, &all, What::Broadcast(root), rank.size() * chunk, &two_shot)?;
    }
    Ok(())
}

/// By every way that there is into symmetric outputs, and with hooks by pack.
pub fn straight_into_outputs<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.meet(fusewire::Options::per_peer(64 << 10).channels(8))?;
    let plain = AllGatherOf::<gathered::Hooks>::all_gather(&ground.transport)?;
    let scaled = AllGatherOf::<scaled::Hooks>::all_gather(&ground.transport)?;
    let (me, stream) = (rank.me(), &ground.stream);
    for chunk in [1, 7, 64, 1000, rank.scale.pick(20_000, 500_000)] {
        let (n, data) = (chunk * rank.size(), rank.data(chunk));
        let input = ground.device.buffer_from(&data.all::<u32>(me, chunk))?;
        let symmetric = || match X::MAPS {
            true => Buffer::<u32>::symmetric(&ground.transport, n),
            false => ground.device.buffer::<u32>(n),
        };
        let mut output = symmetric()?;
        let args = gathered::Launch { input: input.view(), output: output.view_mut() };
        let spaces = plain.spaces(&args, &LaunchOptions::default())?;
        for way in spaces.iter().map(|space| space.start.protocol) {
            output.fill_bytes(stream, POISON)?;
            let options = LaunchOptions::default().protocol(way);
            let args = gathered::Launch { input: input.view(), output: output.view_mut() };
            plain.launch_with(stream, args, &options)?;
            let got = output.read(stream)?;
            same(format_args!("{chunk} elements, {way:?}, at rank {me}"), &got, |i| {
                data.any::<u32>(i / chunk, i % chunk)
            });
        }
        let values = |rank: usize, i: usize| (data.any::<u32>(rank, i) % 4096) as f32;
        let floats: Vec<f32> = (0..chunk).map(|i| values(me, i)).collect();
        let input = ground.device.buffer_from(&floats)?;
        let mut output = match X::MAPS {
            true => Buffer::<f32>::symmetric(&ground.transport, n)?,
            false => ground.device.buffer::<f32>(n)?,
        };
        let ways = if X::MAPS { &[None, Some(Protocol::Direct)][..] } else { &[None] };
        for way in ways {
            output.fill_bytes(stream, POISON)?;
            let args = scaled::Launch { input: input.view(), output: output.view_mut(), factor: 0.5 };
            let options = LaunchOptions { protocol: *way, ..LaunchOptions::default() };
            scaled.launch_with(stream, args, &options)?;
            let got = output.read(stream)?;
            same(format_args!("{chunk} scaled elements, {way:?}, at rank {me}"), &got, |i| {
                values(i / chunk, i % chunk) * 0.5
            });
        }
    }
    Ok(())
}

/// What cannot be, before anything is launched.
pub fn refused<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let (all, ranks) = (All::new(&ground.transport)?, rank.size());
    let mut buffers =
        (ground.device.buffer::<u32>(8)?, ground.device.buffer::<u32>(8)?, ground.device.buffer(8)?);
    let mut launch = |what| {
        let (input, output, calls) = (buffers.0.view(), buffers.1.view_mut(), buffers.2.view_mut());
        all.launch(&ground, what, counted::Launch { input, output, calls }, &LaunchOptions::default())
    };
    for what in [What::Broadcast(ranks), What::Scatter(ranks), What::Gather(usize::MAX)] {
        says(misuse(launch(what)), &["root", &format!("a world of {ranks} ranks")]);
    }
    let plain = AllGatherOf::<gathered::Hooks>::all_gather(&ground.transport)?;
    let (input, mut output) = (ground.device.buffer::<u32>(7)?, ground.device.buffer::<u32>(8 * ranks)?);
    let args = gathered::Launch { input: input.view(), output: output.view_mut() };
    says(misuse(plain.launch(&ground.stream, args)), &["`input` has 7 elements", "1 chunks of 8"]);
    works(rank, &ground)
}

/// Everybody hears of it, also who does not wait for that rank.
pub fn a_rank_never_launches<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let all = All::new(&ground.transport)?;
    let (last, chunk) = (rank.size() - 1, 3 * ground.window());
    let options = LaunchOptions::default()
        .elements(chunk)
        .protocol(Protocol::Simple)
        .deadline(Duration::from_millis(rank.scale.pick(300, 100)));
    let input = ground.device.buffer::<u32>(chunk)?;
    let mut output = ground.device.buffer::<u32>(chunk * rank.size())?;
    let mut calls = ground.device.buffer::<u32>(chunk)?;
    if rank.me() != last {
        let args =
            counted::Launch { input: input.view(), output: output.view_mut(), calls: calls.view_mut() };
        all.launch(&ground, What::AllGather, args, &options)?;
        fault(&ground, Duration::from_secs(10));
    }
    rank.world.barrier()?;
    ground.transport.renew()?;
    works(rank, &ground)
}

/// Each waits for the other, and hears what it launched.
pub fn roots_that_differ<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    // As ranks of several hosts, whose kernels find out.
    ground.apart();
    let all = All::new(&ground.transport)?;
    let chunk = 3 * ground.window();
    let options = LaunchOptions::default()
        .elements(chunk)
        .protocol(Protocol::Simple)
        .deadline(Duration::from_millis(rank.scale.pick(300, 100)));
    let input = ground.device.buffer::<u32>(chunk)?;
    let (mut output, mut calls) = (ground.device.buffer::<u32>(chunk)?, ground.device.buffer::<u32>(chunk)?);
    let args = counted::Launch { input: input.view(), output: output.view_mut(), calls: calls.view_mut() };
    all.launch(&ground, What::Broadcast(rank.me()), args, &options)?;
    says(fault(&ground, Duration::from_secs(10)), &["broadcast of root 0", "broadcast of root 1"]);
    rank.world.barrier()?;
    ground.transport.renew()?;
    works(rank, &ground)
}

/// Where a rank awaits a part that is passed on, one arrives that was sent for another root, and says so.
pub fn roots_that_differ_in_two_steps<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    // As ranks of several hosts, whose kernels find out.
    ground.apart();
    let all = All::new(&ground.transport)?;
    let chunk = 64 * rank.size();
    let options = LaunchOptions::default()
        .elements(chunk)
        .protocol(Protocol::TwoShot)
        .deadline(Duration::from_millis(rank.scale.pick(300, 100)));
    let input = ground.device.buffer::<u32>(chunk)?;
    let (mut output, mut calls) = (ground.device.buffer::<u32>(chunk)?, ground.device.buffer::<u32>(chunk)?);
    let args = counted::Launch { input: input.view(), output: output.view_mut(), calls: calls.view_mut() };
    all.launch(&ground, What::Broadcast(usize::from(rank.me() == 1)), args, &options)?;
    if rank.me() > 1 {
        says(fault(&ground, Duration::from_secs(10)), &["broadcast of root 0", "broadcast of root 1"]);
    } else {
        // Who sends alone may have ended before.
        let _ = ground.stream.synchronize();
    }
    rank.world.barrier()?;
    ground.transport.renew()?;
    works(rank, &ground)
}
