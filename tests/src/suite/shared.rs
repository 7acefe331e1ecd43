//! Ranks beside each other on one device: nothing that a rank does by itself waits for another's kernel.

use super::support::{copy_once, misuse, works};
use crate::check::{same, says};
use crate::kernels::copying::copy;
use crate::{AllToAllOf, Outcome, Rank, Stop, Subject, reference};
use fusewire::peers::Machine;
use fusewire::{Device, LaunchOptions};
use std::time::{Duration, Instant};

/// The first rank's kernel waits for the others', which make, write, read and drop all there is before they launch.
pub fn everything_comes_and_goes_beside_a_kernel_that_waits<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = AllToAllOf::<copy::Hooks<u32>>::all_to_all(&ground.transport)?;
    let (me, chunk) = (rank.me(), 900);
    for round in 0..3 {
        let data = rank.data(round);
        let input = ground.device.buffer_from(&data.all::<u32>(me, rank.size() * chunk))?;
        let mut output = ground.device.buffer::<u32>(rank.size() * chunk)?;
        let first = round % rank.size();
        let launch = |output: &mut fusewire::Buffer<u32>| {
            launcher.launch(&ground.stream, copy::Launch { input: input.view(), output: output.view_mut() })
        };
        if me == first {
            launch(&mut output)?;
        }
        rank.world.barrier()?;
        if me != first {
            let start = Instant::now();
            churn(rank, &ground.device, round)?;
            let took = start.elapsed();
            assert!(
                took < rank.scale.pick(Duration::from_secs(20), Duration::from_secs(5)),
                "it took {took:?}"
            );
            launch(&mut output)?;
        }
        same(format_args!("round {round}"), &output.read(&ground.stream)?, |i| {
            reference::all_to_all(me, chunk, i, |from, at| data.any(from, at))
        });
    }
    works(rank, &ground)
}

/// What a kernel uses goes while it waits for peers, which launch only then: its stream, its input, the launcher, a graph.
pub fn what_goes_while_it_runs_waits_for_nobody<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let (me, chunk) = (rank.me(), 900);
    for (round, replayed) in [false, true, false, true].into_iter().enumerate() {
        let launcher = AllToAllOf::<copy::Hooks<u32>>::all_to_all(&ground.transport)?;
        let (stream, reader) = (ground.device.stream()?, ground.device.stream()?);
        let data = rank.data(round);
        let input = ground.device.buffer_from(&data.all::<u32>(me, rank.size() * chunk))?;
        let mut output = ground.device.buffer::<u32>(rank.size() * chunk)?;
        let run = move |output: &mut fusewire::Buffer<u32>| {
            // They go when this returns. Whoever waits for the kernel then waits until its deadline.
            let (stream, launcher, input) = (stream, launcher, input);
            let mut launch =
                || launcher.launch(&stream, copy::Launch { input: input.view(), output: output.view_mut() });
            if replayed { stream.capture(launch)?.launch(&stream) } else { launch() }
        };
        let mut run = Some(run);
        if let Some(run) = run.take_if(|_| me == round % rank.size()) {
            run(&mut output)?;
        }
        rank.world.barrier()?;
        if let Some(run) = run {
            run(&mut output)?;
        }
        same(format_args!("round {round}"), &output.read(&reader)?, |i| {
            reference::all_to_all(me, chunk, i, |from, at| data.any(from, at))
        });
    }
    works(rank, &ground)
}

/// Streams, events, buffers of all kinds, copies, and an empty graph.
fn churn<X: Subject>(rank: &Rank<X>, device: &Device, round: usize) -> Outcome {
    let stream = device.stream()?;
    for n in [1, 5000, rank.scale.pick(1 << 16, 3 << 20)] {
        let values: Vec<u32> = (0..n as u32).map(|i| i ^ round as u32).collect();
        let one = device.buffer_from(&values)?;
        let mut two = device.buffer::<u32>(n)?;
        let start = stream.record()?;
        two.fill_bytes(&stream, 7)?;
        two.copy_from(&stream, &one)?;
        let end = stream.record()?;
        assert!(two.read(&stream)? == values, "rank {}: a copy of {n} elements", rank.me());
        end.since(&start)?;
        drop((device.shared_buffer::<u32>(n)?, one, two));
    }
    let mut filled = device.buffer::<u8>(1000)?;
    let graph = stream.capture(|| filled.fill_bytes(&stream, 9))?;
    for _ in 0..3 {
        graph.launch(&stream)?;
    }
    drop(graph);
    assert!(filled.read(&stream)? == vec![9; 1000], "rank {}: a replay", rank.me());
    Ok(())
}

/// A stream of the whole GPU is no place for kernels of a rank that has a part of it.
pub fn streams_of_the_whole_gpu_are_refused<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let context = match ground.transport.link().machine() {
        Machine::Cuda(context) if context.place().is_some() => context.clone(),
        _ => return Err(Stop::LeftOut("no rank shares its GPU".into())),
    };
    let launcher = AllToAllOf::<copy::Hooks<u16>>::all_to_all(&ground.transport)?;
    let n = 64 * rank.size();
    let (input, mut output) = (ground.device.buffer::<u16>(n)?, ground.device.buffer::<u16>(n)?);
    let whole = Device::cuda(context.device().ordinal())?;
    let args = copy::Launch { input: input.view(), output: output.view_mut() };
    let told = misuse(launcher.launch(&whole.stream()?, args));
    says(told, &["all of the GPU", "part ", "Device::of(&transport)"]);
    assert!(ground.device.processors() < whole.processors(), "a part is as large as the whole");
    copy_once(&ground, &launcher, rank.data(1), 64, &LaunchOptions::default())
}
