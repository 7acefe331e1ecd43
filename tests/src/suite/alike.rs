//! Ranks of a host that launch different collectives are told at once, by rank and field; what may differ between ranks is launched.

use super::faults::mended;
use super::support::works;
use crate::check::{same, says};
use crate::kernels::collectives::counted;
use crate::kernels::copying::copy;
use crate::kernels::folds::summed;
use crate::kernels::schedules::ring_all_gather;
use crate::run::Ground;
use crate::{AllReduceOf, AllToAllOf, BroadcastOf, CustomOf, Outcome, Rank, SendRecvOf, Subject, reference};
use fusewire::{Error, LaunchOptions, Operation, Protocol, Result};
use std::time::{Duration, Instant};

/// Nothing here may run into it.
const DEADLINE: Duration = Duration::from_secs(60);
/// A small part of it: by then every rank is told.
const SOON: Duration = Duration::from_secs(6);

fn by(protocol: Protocol) -> LaunchOptions {
    LaunchOptions::default().protocol(protocol).deadline(DEADLINE)
}

/// Collective: what the ranks launched differs, and each of them hears of these.
fn refused<X: Subject>(rank: &Rank<X>, ground: &Ground<X>, launched: Result<()>, parts: &[&str]) -> Outcome {
    let start = Instant::now();
    match launched.and_then(|()| ground.stream.synchronize()) {
        Ok(()) | Err(Error::Fault(_)) => {}
        Err(other) => return Err(other.into()),
    }
    // A rank whose kernel waits for nobody is told as well.
    let fault = loop {
        match ground.transport.check().map_err(Error::from) {
            Ok(()) => assert!(start.elapsed() < SOON, "rank {} was not told", rank.me()),
            Err(Error::Fault(fault)) => break fault,
            Err(other) => return Err(other.into()),
        }
    };
    assert!(start.elapsed() < SOON, "it took {:?} to tell {fault}", start.elapsed());
    assert!(matches!(fault.operation, Some(Operation::Disagreed { .. })), "{fault}");
    assert_eq!(fault.reader, rank.me());
    says(&fault, parts);
    says(&fault, &[&format!("rank {} refused to launch on {}", fault.rank, X::NAME), "rank 0", "renew"]);
    rank.world.barrier()?;
    mended(rank, ground)?;
    // The next is not to stop who still reads.
    Ok(rank.world.barrier()?)
}

/// In other channels than their peers', kernels would wait for each other.
pub fn protocols_that_differ<X: Subject>(rank: &Rank<X>) -> Outcome {
    let (ground, odd) = (rank.small()?, rank.me() == 0);
    let folder = AllReduceOf::<summed::Hooks<f32>>::all_reduce(&ground.transport)?;
    let input = ground.device.buffer::<f32>(3000)?;
    let mut output = ground.device.buffer::<f32>(3000)?;
    let args = summed::Launch { input: input.view(), output: output.view_mut() };
    let way = if odd { Protocol::TwoShot } else { Protocol::Simple };
    let launched = folder.launch_with(&ground.stream, args, &by(way));
    refused(rank, &ground, launched, &["protocol: ", "in two steps on rank 0", "by Simple on rank "])?;
    if X::MAPS {
        let copier = AllToAllOf::<copy::Hooks<u32>>::all_to_all(&ground.transport)?;
        let sent = ground.device.buffer::<u32>(64 * rank.size())?;
        let mut arrived = ground.device.buffer::<u32>(64 * rank.size())?;
        for (way, told) in [(Protocol::Ll128, "by LL128 on rank 0"), (Protocol::Ll, "by LL on rank 0")] {
            let args = copy::Launch { input: sent.view(), output: arrived.view_mut() };
            let way = if odd { way } else { Protocol::Simple };
            let launched = copier.launch_with(&ground.stream, args, &by(way));
            refused(rank, &ground, launched, &["protocol: ", told, "by Simple on rank "])?;
        }
        // By as many elements as another protocol carries.
        let args = summed::Launch { input: input.view(), output: output.view_mut() };
        let options = LaunchOptions::default().elements(if odd { 2900 } else { 16 }).deadline(DEADLINE);
        let launched = folder.launch_with(&ground.stream, args, &options);
        refused(rank, &ground, launched, &["elements to a peer: ", "2900 on rank 0", "16 on rank "])?;
    }
    Ok(())
}

/// Two roots need no word of each other: such a launch ended without a fault.
pub fn roots_that_differ<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = BroadcastOf::<counted::Hooks>::broadcast(&ground.transport)?;
    let input = ground.device.buffer::<u32>(40)?;
    let (mut output, mut calls) = (ground.device.buffer::<u32>(40)?, ground.device.buffer::<u32>(40)?);
    for root in [usize::from(rank.me() != 0), usize::from(rank.me() == 0)] {
        let args =
            counted::Launch { input: input.view(), output: output.view_mut(), calls: calls.view_mut() };
        let options = LaunchOptions::default().deadline(DEADLINE);
        let launched = launcher.launch_with(&ground.stream, root, args, &options);
        refused(rank, &ground, launched, &["(root: ", "0 on rank ", "1 on rank "])?;
    }
    Ok(())
}

/// Of two kernels that all have prepared, rank 0 launches the second first; behind launches in which they agree.
pub fn kernels_in_another_order<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let folder = AllReduceOf::<summed::Hooks<f32>>::all_reduce(&ground.transport)?;
    let copier = AllToAllOf::<copy::Hooks<f32>>::all_to_all(&ground.transport)?;
    let n = 32 * rank.size();
    let input = ground.device.buffer::<f32>(n)?;
    let (mut sums, mut copies) = (ground.device.buffer::<f32>(n)?, ground.device.buffer::<f32>(n)?);
    let options = &LaunchOptions::default().deadline(DEADLINE);
    let mut launch = |folds: bool| match folds {
        true => {
            let args = summed::Launch { input: input.view(), output: sums.view_mut() };
            folder.launch_with(&ground.stream, args, options)
        }
        false => {
            let args = copy::Launch { input: input.view(), output: copies.view_mut() };
            copier.launch_with(&ground.stream, args, options)
        }
    };
    for turn in [true, false, false, true] {
        launch(turn)?;
    }
    let launched = launch(rank.me() == 0).and_then(|()| launch(rank.me() != 0));
    let fields = ["collective launch number 5", "schedule: ", "`all_to_all`", "`all_reduce`", "kernel: "];
    refused(rank, &ground, launched, &fields)
}

/// Replays are compared with replays.
pub fn graphs_that_differ<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let copier = AllToAllOf::<copy::Hooks<u32>>::all_to_all(&ground.transport)?;
    let n = 120 * rank.size();
    let input = ground.device.buffer::<u32>(n)?;
    let mut output = ground.device.buffer::<u32>(n)?;
    let mut graph = |elements: &[usize]| {
        ground.stream.capture(|| {
            elements.iter().try_for_each(|elements| {
                let args = copy::Launch { input: input.view(), output: output.view_mut() };
                let options = LaunchOptions::default().elements(*elements).deadline(DEADLINE);
                copier.launch_with(&ground.stream, args, &options)
            })
        })
    };
    let (both, odd) = (graph(&[50, 60, 70])?, graph(if rank.me() == 0 { &[50, 60] } else { &[60, 50] })?);
    let one = graph(if rank.me() == 0 { &[80] } else { &[90] })?;
    (0..3).try_for_each(|_| both.launch(&ground.stream))?;
    let launched = odd.launch(&ground.stream);
    refused(rank, &ground, launched, &["number 10 ", "graphs of 2 collective launches"])?;
    let launched = both.launch(&ground.stream).and_then(|()| one.launch(&ground.stream));
    refused(rank, &ground, launched, &["number 8 ", "elements to a peer: ", "80 on rank 0", "90 on rank "])
}

/// Nothing that ranks need not have in common counts: sends between some of them, schedules of one's own, blocks, deadlines, who replays what
/// another launches, and launches of nothing.
pub fn what_may_differ<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let (me, size, stream) = (rank.me(), rank.size(), &ground.stream);
    let copier = AllToAllOf::<copy::Hooks<u32>>::all_to_all(&ground.transport)?;
    let sender = SendRecvOf::<copy::Hooks<u32>>::sendrecv(&ground.transport)?;
    let ring = CustomOf::<ring_all_gather::Hooks>::custom(&ground.transport)?;
    let (chunk, data) = (90, rank.data(1));
    let input = ground.device.buffer_from(&data.all::<u32>(me, chunk * size))?;
    let mut output = ground.device.buffer::<u32>(chunk * size)?;
    let own = ground.device.buffer::<f32>(10)?;
    let mut all = ground.device.buffer::<f32>(10 * size)?;
    let mut aside = ground.device.buffer::<u32>(chunk)?;
    let options = match me {
        0 => LaunchOptions::default().deadline(Duration::from_secs(20)),
        _ => LaunchOptions::default(),
    };
    let launch = |output: &mut fusewire::Buffer<u32>, chunk| {
        let args = copy::Launch { input: input.view(), output: output.view_mut() };
        copier.launch_with(stream, args, &options.clone().elements(chunk))
    };
    let three = stream.capture(|| [60, 70, chunk].into_iter().try_for_each(|n| launch(&mut output, n)))?;
    let two = stream.capture(|| [70, chunk].into_iter().try_for_each(|n| launch(&mut output, n)))?;
    let nested = stream.capture(|| {
        launch(&mut output, 60)?;
        two.launch(stream)?;
        launch(&mut output, 80)
    })?;
    let four = [60, 70, chunk, 80];
    let flat = stream.capture(|| four.into_iter().try_for_each(|n| launch(&mut output, n)))?;
    // More often than a ring has places.
    for round in 0..100 {
        // Rank 0 sends to rank 1, and others know nothing of it.
        let args = copy::Launch { input: input.view().slice(..chunk)?, output: aside.view_mut() };
        match me {
            0 => sender.send(stream, 1, args)?,
            1 => sender.recv(stream, 0, args)?,
            _ => {}
        }
        if round % 10 == 3 {
            let args = ring_all_gather::Launch { own: own.view(), all: all.view_mut(), most: 100 };
            ring.launch(stream, 1, args)?;
        }
        if (round + me) % 4 == 0 {
            launch(&mut output, 0)?;
        }
        match (round + me) % 4 {
            0 => nested.launch(stream)?,
            1 => flat.launch(stream)?,
            2 => three.launch(stream).and_then(|()| launch(&mut output, 80))?,
            _ => four.into_iter().try_for_each(|n| launch(&mut output, n))?,
        }
        // A rank that refuses a launch for reasons of its own has launched nothing.
        if me == round % size {
            let args = copy::Launch { input: input.view(), output: output.view_mut() };
            let cannot = copier.launch_with(stream, args, &LaunchOptions::default().elements(chunk + 1));
            assert!(matches!(cannot, Err(Error::Misuse { .. })), "{cannot:?}");
        }
    }
    launch(&mut output, chunk)?;
    same("behind launches in which ranks may differ", &output.read(stream)?, |i| {
        reference::all_to_all(me, chunk, i, |peer, at| data.any(peer, at))
    });
    works(rank, &ground)
}
