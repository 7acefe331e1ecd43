//! The cases.

use crate::Subject;
use crate::ground::{Ground, mix, options};
use fusewire::device::element::Element;
use fusewire::kernel::{HookSet, Supports};
use fusewire::schedule::{
    AllGatherLauncher, AllReduceLauncher, AllToAll, AllToAllLauncher, BroadcastLauncher, CustomLauncher,
    ReduceScatterLauncher, SendRecv, SendRecvLauncher,
};
use fusewire::{Error, LaunchOptions, Result, Transport, View, ViewMut, World};
use std::fmt::{Debug, Display};
use std::time::{Duration, Instant};

/// A case: what a rank of it does.
pub(crate) struct Case {
    pub name: &'static str,
    pub body: fn(World, u64) -> Result<()>,
}

macro_rules! cases {
    ($($name:ident,)*) => {
        pub(crate) fn all<S: Subject>() -> Vec<Case> {
            vec![$(Case { name: stringify!($name), body: $name::<S> },)*]
        }
    };
}
cases! {
    chunks_of_every_size, elements_of_one_and_eight_bytes, folds, every_number_of_channels, calls_follow_each_other, replays,
    tiles_signals_and_heaps, a_rank_that_does_not_come, a_hook_that_panics, an_abort, kernels_that_differ, transports_come_and_go,
}

/// No element of what is sent.
const NONE: u64 = u64::MAX;
/// What is in an output that nobody has written.
const POISON: u8 = 0xa5;
/// How long waits last where one is meant to expire.
const SHORT: Duration = Duration::from_millis(400);
/// By when all ranks know of a fault.
const KNOWN: Duration = Duration::from_secs(8);

#[track_caller]
fn same<T: PartialEq + Debug>(what: impl Display, got: &[T], expected: impl Fn(usize) -> T) {
    if let Some(i) = (0..got.len()).find(|&i| got[i] != expected(i)) {
        panic!("{what}: element {i} is {:?}, not {:?}", got[i], expected(i));
    }
}

/// The launchers of the marking hooks.
struct Marked<S: Subject> {
    all_to_all: AllToAllLauncher<S::On, S::Marked>,
    sendrecv: SendRecvLauncher<S::On, S::Marked>,
    all_gather: AllGatherLauncher<S::On, S::Marked>,
    broadcast: BroadcastLauncher<S::On, S::Marked>,
}

impl<S: Subject> Marked<S> {
    fn new(ground: &Ground<S>) -> Result<Self> {
        let on = &ground.transport;
        Ok(Marked {
            all_to_all: AllToAllLauncher::new(on)?,
            sendrecv: SendRecvLauncher::new(on)?,
            all_gather: AllGatherLauncher::new(on)?,
            broadcast: BroadcastLauncher::new(on)?,
        })
    }

    /// One call of schedule `which` with `n` elements a chunk; every element is compared.
    fn call(
        &self,
        ground: &Ground<S>,
        which: usize,
        call: u64,
        n: usize,
        options: &LaunchOptions,
    ) -> Result<()> {
        let ((me, size), stream) = (ground.place(), &ground.stream);
        let root = call as usize % size;
        let (sent, taken) = match which {
            0 => (n * size, n * size),
            2 => (n, n * size),
            _ => (n, n),
        };
        let value = |rank: usize, i: usize| ground.value(call, rank, i) as u32;
        let input: Vec<u32> = (0..sent).map(|i| value(me, i)).collect();
        let (input, mut output) = (ground.device.buffer_from(&input)?, ground.device.buffer::<u32>(taken)?);
        output.fill_bytes(stream, POISON)?;
        let args = S::marked(input.view(), output.view_mut(), NONE);
        let (next, previous) = ((me + 1) % size, (me + size - 1) % size);
        match which {
            0 => self.all_to_all.launch_with(stream, args, options)?,
            1 if size == 1 => return Ok(()),
            1 => self.sendrecv.launch_with(stream, Some(next), Some(previous), args, options)?,
            2 => self.all_gather.launch_with(stream, args, options)?,
            _ => self.broadcast.launch_with(stream, root, args, options)?,
        }
        let marked = |from: usize, at: usize, pos: usize| {
            (value(from, at) ^ (from as u32) << 24).wrapping_add(1000 * from as u32 + pos as u32)
        };
        let name = ["all_to_all", "sendrecv", "all_gather", "broadcast"][which];
        let what = format!("{name} number {call} of {n} elements at rank {me}, {options:?}");
        same(what, &output.read(stream)?, |i| match which {
            0 => marked(i / n, me * n + i % n, i % n),
            1 => marked(previous, i, i),
            2 => marked(i / n, i % n, i % n),
            _ => marked(root, i, i),
        });
        Ok(())
    }
}

/// Elements around a pack, a chunk and a channel's staging.
const SIZES: [usize; 19] =
    [1, 2, 3, 4, 5, 31, 32, 33, 63, 64, 65, 255, 257, 991, 992, 1024, 1025, 4099, 20_001];

fn chunks_of_every_size<S: Subject>(world: World, seed: u64) -> Result<()> {
    let ground = Ground::<S>::new(world, seed, options())?;
    let marked = Marked::new(&ground)?;
    for (call, n) in SIZES.into_iter().enumerate() {
        for which in 0..4 {
            marked.call(&ground, which, call as u64, n, &LaunchOptions::default())?;
        }
    }
    Ok(())
}

/// All-to-all and sendrecv of copies.
fn copies<S: Subject, T: Element, H>(
    ground: &Ground<S>,
    args: for<'a> fn(View<'a, T>, ViewMut<'a, T>) -> H::Args<'a>,
) -> Result<()>
where
    H: Supports<AllToAll, S::On> + Supports<SendRecv, S::On> + HookSet,
{
    let ((me, size), stream) = (ground.place(), &ground.stream);
    let all_to_all = AllToAllLauncher::<S::On, H>::new(&ground.transport)?;
    let sendrecv = SendRecvLauncher::<S::On, H>::new(&ground.transport)?;
    for (call, n) in SIZES.into_iter().enumerate() {
        let value = |rank: usize, i: usize| T::from_bits64(ground.value(call as u64, rank, i));
        let input: Vec<T> = (0..n * size).map(|i| value(me, i)).collect();
        let (input, mut output) = (ground.device.buffer_from(&input)?, ground.device.buffer::<T>(n * size)?);
        output.fill_bytes(stream, POISON)?;
        all_to_all.launch(stream, args(input.view(), output.view_mut()))?;
        same(format_args!("{n} of {} to each", T::NAME), &output.read(stream)?, |i| {
            value(i / n, me * n + i % n)
        });
        if size > 1 {
            let (next, previous) = ((me + 1) % size, (me + size - 1) % size);
            let options = LaunchOptions::default().elements(n);
            output.fill_bytes(stream, POISON)?;
            sendrecv.launch_with(
                stream,
                Some(next),
                Some(previous),
                args(input.view(), output.view_mut()),
                &options,
            )?;
            same(format_args!("{n} of {} in a ring", T::NAME), &output.read(stream)?[..n], |i| {
                value(previous, i)
            });
        }
    }
    Ok(())
}

fn elements_of_one_and_eight_bytes<S: Subject>(world: World, seed: u64) -> Result<()> {
    let ground = Ground::<S>::new(world, seed, options())?;
    copies::<S, u8, S::Bytes>(&ground, S::bytes)?;
    copies::<S, u64, S::Longs>(&ground, S::longs)
}

fn folds<S: Subject>(world: World, seed: u64) -> Result<()> {
    let ground = Ground::<S>::new(world, seed, options())?;
    let ((me, size), stream) = (ground.place(), &ground.stream);
    let all = AllReduceLauncher::<S::On, S::Summed>::new(&ground.transport)?;
    let scattered = ReduceScatterLauncher::<S::On, S::Summed>::new(&ground.transport)?;
    for (call, n) in SIZES.into_iter().enumerate() {
        // Whole numbers, whose sums are exact in any order.
        let value = |rank: usize, i: usize| (ground.value(call as u64, rank, i) % 2001) as f32 - 1000.0;
        let sum = |i: usize| (0..size).map(|rank| value(rank, i)).sum::<f32>();
        let input: Vec<f32> = (0..n * size).map(|i| value(me, i)).collect();
        let (input, mut output) = (ground.device.buffer_from(&input)?, ground.device.buffer::<f32>(n)?);
        output.fill_bytes(stream, POISON)?;
        all.launch(stream, S::summed(input.view().slice(..n)?, output.view_mut()))?;
        same(format_args!("{n} of all ranks"), &output.read(stream)?, sum);
        output.fill_bytes(stream, POISON)?;
        scattered.launch(stream, S::summed(input.view(), output.view_mut()))?;
        same(format_args!("{n} for each rank"), &output.read(stream)?, |i| sum(me * n + i));
    }
    Ok(())
}

fn every_number_of_channels<S: Subject>(world: World, seed: u64) -> Result<()> {
    let ground = Ground::<S>::new(world, seed, options())?;
    let marked = Marked::new(&ground)?;
    let mut call = 0;
    for channels in 1..=4 {
        for chunk in [256, 1024] {
            for n in [7, 1500] {
                for which in 0..4 {
                    let options = LaunchOptions::default().channels(channels).chunk(chunk);
                    marked.call(&ground, which, call, n, &options)?;
                    call += 1;
                }
            }
        }
    }
    Ok(())
}

fn calls_follow_each_other<S: Subject>(world: World, seed: u64) -> Result<()> {
    let ground = Ground::<S>::new(world, seed, options())?;
    let ((me, size), stream) = (ground.place(), &ground.stream);
    let marked = Marked::new(&ground)?;
    for round in 0..6u64 {
        // Queued together, and looked at behind the last one.
        let mut calls = Vec::new();
        for k in 0..8 {
            let draw = mix(seed ^ round << 8 ^ k);
            let (n, whole) = ((draw >> 32) as usize % 3000 + 1, draw & 1 == 0);
            let value = |rank: usize, i: usize| ground.value(8 * round + k, rank, i) as u32;
            let taken = n * size;
            let sent: Vec<u32> = (0..if whole { taken } else { n }).map(|i| value(me, i)).collect();
            calls.push((
                8 * round + k,
                n,
                whole,
                ground.device.buffer_from(&sent)?,
                ground.device.buffer::<u32>(taken)?,
            ));
        }
        for (_, _, whole, input, output) in &mut calls {
            output.fill_bytes(stream, POISON)?;
            let args = S::marked(input.view(), output.view_mut(), NONE);
            match whole {
                true => marked.all_to_all.launch(stream, args)?,
                false => marked.all_gather.launch(stream, args)?,
            }
        }
        for (call, n, whole, _, output) in &calls {
            let at = |i: usize| if *whole { me * n + i % n } else { i % n };
            same(format_args!("call {call} of {n} elements"), &output.read(stream)?, |i| {
                let from = i / n;
                (ground.value(*call, from, at(i)) as u32 ^ (from as u32) << 24)
                    .wrapping_add(1000 * from as u32 + (i % n) as u32)
            });
        }
    }
    Ok(())
}

fn replays<S: Subject>(world: World, seed: u64) -> Result<()> {
    let ground = Ground::<S>::new(world, seed, options())?;
    let ((me, size), stream) = (ground.place(), &ground.stream);
    let marked = Marked::new(&ground)?;
    let n = 1300;
    let (mut input, mut output) =
        (ground.device.buffer::<u32>(n * size)?, ground.device.buffer::<u32>(n * size)?);
    let graph = stream
        .capture(|| marked.all_to_all.launch(stream, S::marked(input.view(), output.view_mut(), NONE)))?;
    for round in 0..20u64 {
        let value = |rank: usize, i: usize| ground.value(1000 + round, rank, i) as u32;
        input.fill_from(&(0..n * size).map(|i| value(me, i)).collect::<Vec<_>>())?;
        output.fill_bytes(stream, POISON)?;
        graph.launch(stream)?;
        same(format_args!("replay {round}"), &output.read(stream)?, |i| {
            let from = i / n;
            (value(from, me * n + i % n) ^ (from as u32) << 24)
                .wrapping_add(1000 * from as u32 + (i % n) as u32)
        });
        marked.call(
            &ground,
            round as usize % 4,
            round,
            1 + 97 * round as usize,
            &LaunchOptions::default(),
        )?;
    }
    Ok(())
}

fn tiles_signals_and_heaps<S: Subject>(world: World, seed: u64) -> Result<()> {
    let ground = Ground::<S>::new(world, seed, options())?;
    let ((me, size), stream) = (ground.place(), &ground.stream);
    let previous = (me + size - 1) % size;
    let tiles = CustomLauncher::<S::On, S::Tiles>::new(&ground.transport)?;
    let rounds = CustomLauncher::<S::On, S::Rounds>::new(&ground.transport)?;
    for (call, n) in [1, 40, 1000, 5000].into_iter().enumerate() {
        let value = |rank: usize, i: usize| ground.value(call as u64, rank, i) as u32;
        let own: Vec<u32> = (0..n).map(|i| value(me, i)).collect();
        let (own, mut got) = (ground.device.buffer_from(&own)?, ground.device.buffer::<u32>(n)?);
        for blocks in 1..=4 {
            got.fill_bytes(stream, POISON)?;
            tiles.launch(stream, blocks, S::tiles(own.view(), got.view_mut(), 500))?;
            same(format_args!("tiles of {n} by {blocks} blocks"), &got.read(stream)?, |i| value(previous, i));
        }
        got.fill_bytes(stream, POISON)?;
        rounds.launch(stream, 1, S::rounds(25 + call as u32, got.view_mut()))?;
        assert_eq!(got.read(stream)?[0], 25 + call as u32, "rounds of signals");
        // Twice, so that the second message overwrites the first one.
        for name in ["put", "get"] {
            for again in 0..2 {
                let value =
                    |rank: usize, i: usize| ground.value(50 + 2 * call as u64 + again, rank, i) as u32;
                let message: Vec<u32> = (0..n).map(|i| value(me, i)).collect();
                let message = ground.device.buffer_from(&message)?;
                got.fill_bytes(stream, POISON)?;
                let way = if name == "put" { S::put } else { S::get };
                let Some(outcome) = way(&ground, message.view(), got.view_mut()) else { break };
                outcome?;
                same(format_args!("{name} of {n}"), &got.read(stream)?, |i| value(previous, i));
            }
        }
    }
    Ok(())
}

/// Collective: waits until this rank knows of a fault, and gives what is said of it.
fn told<S: Subject>(ground: &Ground<S>) -> Result<String> {
    let start = Instant::now();
    match ground.stream.synchronize() {
        Ok(()) | Err(Error::Fault(_)) => ground.world.barrier()?,
        Err(other) => return Err(other),
    }
    loop {
        match ground.transport.check() {
            Err(error) => return Ok(error.to_string()),
            Ok(()) => assert!(start.elapsed() < KNOWN, "rank {} was not told", ground.world.rank()),
        }
    }
}

/// Collective: the fault is over.
fn mended<S: Subject>(ground: &Ground<S>, marked: &Marked<S>) -> Result<()> {
    ground.world.barrier()?;
    ground.transport.renew()?;
    (0..4).try_for_each(|which| marked.call(ground, which, 77, 300, &LaunchOptions::default()))
}

/// An all-to-all that somebody else has to end.
fn launched<S: Subject>(ground: &Ground<S>, marked: &Marked<S>, bad: u64, deadline: Duration) -> Result<()> {
    let n = 50 * ground.world.size();
    let (input, mut output) = (ground.device.buffer::<u32>(n)?, ground.device.buffer::<u32>(n)?);
    let options = LaunchOptions::default().deadline(deadline);
    let args = S::marked(input.view(), output.view_mut(), bad);
    marked.all_to_all.launch_with(&ground.stream, args, &options)?;
    match ground.stream.synchronize() {
        Ok(()) | Err(Error::Fault(_)) => Ok(()),
        Err(other) => Err(other),
    }
}

fn a_rank_that_does_not_come<S: Subject>(world: World, seed: u64) -> Result<()> {
    let ground = Ground::<S>::new(world, seed, options())?;
    let marked = Marked::new(&ground)?;
    let (me, size) = ground.place();
    if size == 1 {
        return Ok(());
    }
    for _ in 0..2 {
        if me > 0 {
            let start = Instant::now();
            launched(&ground, &marked, NONE, SHORT)?;
            assert!(start.elapsed() < KNOWN, "the deadline did not end the wait: {:?}", start.elapsed());
        }
        let said = told(&ground)?;
        assert!(said.contains("rank 0") && said.contains("all_to_all"), "{said}");
        mended(&ground, &marked)?;
    }
    Ok(())
}

fn a_hook_that_panics<S: Subject>(world: World, seed: u64) -> Result<()> {
    let ground = Ground::<S>::new(world, seed, options())?;
    let marked = Marked::new(&ground)?;
    let (me, size) = ground.place();
    launched(&ground, &marked, if me + 1 == size { 3 } else { NONE }, KNOWN)?;
    let said = told(&ground)?;
    assert!(said.contains("this element is bad") && said.contains(&format!("rank {}", size - 1)), "{said}");
    mended(&ground, &marked)
}

fn an_abort<S: Subject>(world: World, seed: u64) -> Result<()> {
    let ground = Ground::<S>::new(world, seed, options())?;
    let marked = Marked::new(&ground)?;
    let (me, size) = ground.place();
    if me == 0 {
        std::thread::sleep(Duration::from_millis(50));
        ground.transport.abort_handle().abort("a test ends here")?;
    } else {
        launched(&ground, &marked, NONE, 10 * KNOWN)?;
    }
    let said = told(&ground)?;
    assert!(said.contains("a test ends here") && (size == 1 || said.contains("rank 0")), "{said}");
    mended(&ground, &marked)
}

fn kernels_that_differ<S: Subject>(world: World, seed: u64) -> Result<()> {
    let ground = Ground::<S>::new(world, seed, options())?;
    let (me, size) = ground.place();
    let on = &ground.transport;
    let outcome = match me {
        0 => AllToAllLauncher::<S::On, S::Bytes>::new(on).map(drop),
        _ => AllToAllLauncher::<S::On, S::Longs>::new(on).map(drop),
    };
    match outcome {
        Ok(()) => assert_eq!(size, 1, "ranks with kernels of their own should be told"),
        Err(error) => assert!(error.to_string().contains("`u64`"), "{error}"),
    }
    let marked = Marked::new(&ground)?;
    (0..4).try_for_each(|which| marked.call(&ground, which, 5, 300, &LaunchOptions::default()))
}

fn transports_come_and_go<S: Subject>(world: World, seed: u64) -> Result<()> {
    for round in 0..5 {
        let (one, other) = (
            Ground::<S>::new(world.clone(), seed, options())?,
            Ground::<S>::new(world.clone(), seed, options().channels(1 + round))?,
        );
        let (first, second) = (Marked::new(&one)?, Marked::new(&other)?);
        for which in 0..4 {
            first.call(&one, which, u64::from(round), 700, &LaunchOptions::default())?;
            second.call(&other, which, u64::from(round), 300, &LaunchOptions::default())?;
        }
        // Left as it is, and ended by all.
        drop((first, one));
        drop(second);
        other.transport.close()?;
    }
    Ok(())
}
