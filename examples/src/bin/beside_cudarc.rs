//! Beside another library on the same GPUs: its memory, its stream and its graph, with nothing copied and nothing waited for. Here that
//! library is cudarc; of others, PyTorch among them, addresses and streams come as the same numbers.

use clap::Parser;
use cudarc::driver::{CudaContext, sys};
use fusewire::prelude::*;
use fusewire_examples::ranks::Ranks;
use std::process::ExitCode;

/// Sends each rank its chunk, and adds what comes to the output.
#[comm_kernel(transports(Nvl), schedules(all_to_all))]
mod exchange {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn consume(ctx: &Consume, args: &Args, value: f32) {
        args.output.at(ctx).add(value);
    }
}

/// An all-to-all on memory, a stream and a graph of cudarc's.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    ranks: Ranks,
}

const CHUNK: usize = 4096;
const REPLAYS: usize = 100;

fn main() -> ExitCode {
    Options::parse().ranks.run(true, 1, |world| {
        let kernels = exchange::all_to_all(&Nvl::rendezvous(world, fusewire::Options::default())?)?;
        rank(world, &kernels).map_err(|error| match error.downcast::<fusewire::Error>() {
            Ok(ours) => *ours,
            Err(theirs) => fusewire::Error::Misuse { what: theirs.to_string() },
        })
    })
}

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn rank(world: &World, kernels: &fusewire::schedule::AllToAllLauncher<Nvl, exchange::Hooks>) -> Outcome<()> {
    let (me, ranks) = (world.rank(), world.size());
    let context = CudaContext::new(me)?;
    let theirs = context.new_stream()?;
    let device = Device::cuda(me)?;
    let stream = Stream::from_cudarc(&device, &theirs)?;

    // What cudarc queues before and behind the launch keeps its order.
    let sent: Vec<f32> = (0..CHUNK * ranks).map(|i| (me * 1000 + i / CHUNK) as f32).collect();
    let input = Buffer::from_cudarc(&device, theirs.clone_htod(&sent)?)?;
    let mut output = Buffer::from_cudarc(&device, theirs.alloc_zeros(CHUNK * ranks)?)?;
    let launch = |input: &Buffer<f32>, output: &mut Buffer<f32>| {
        kernels.launch(&stream, exchange::Launch { input: input.view(), output: output.view_mut() })
    };
    launch(&input, &mut output)?;
    let once = |i: usize| (i / CHUNK * 1000 + me) as f32;
    let expect = |output: &mut Buffer<f32>, times: usize| -> Outcome<()> {
        // SAFETY: used on that stream alone.
        let got = theirs.clone_dtoh(&unsafe { output.lend_cudarc(&theirs)? }.view())?;
        theirs.synchronize()?;
        let wrong = got.iter().enumerate().filter(|(i, got)| **got != times as f32 * once(*i)).count();
        match wrong {
            0 => Ok(()),
            _ => Err(format!("{wrong} of {} elements are wrong behind {times} launches", got.len()).into()),
        }
    };
    expect(&mut output, 1)?;

    // Into a graph that cudarc captures, with a graph of ours as one of its nodes. It keeps the input, which is dropped here.
    let ours = stream.capture(|| launch(&input, &mut output))?;
    theirs.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    launch(&input, &mut output)?;
    ours.launch(&stream)?;
    drop((input, ours));
    let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = theirs.end_capture(flags)?.ok_or("nothing was captured")?;
    // Other work of ours in between, on the same memory and the same stream.
    for _ in 0..REPLAYS {
        graph.launch()?;
    }
    launch(&Buffer::from_cudarc(&device, theirs.clone_htod(&sent)?)?, &mut output)?;
    stream.synchronize()?;
    expect(&mut output, 2 + 2 * REPLAYS)?;

    // Another handle of theirs is the same stream: none of its work is waited for.
    let same = Stream::from_cudarc(&device, &theirs)?;
    output.fill_bytes(&same, 0)?;
    launch(&Buffer::from_cudarc(&device, theirs.clone_htod(&sent)?)?, &mut output)?;
    drop(same);
    expect(&mut output, 1)?;

    // A stream of ours in other hands, and back: the same.
    let ours = device.stream()?;
    // SAFETY: a stream of this library, which has a handle.
    let again = unsafe { Stream::from_raw(&device, ours.as_raw(), ())? };
    assert_eq!(again.as_raw(), ours.as_raw());
    // Order between the two libraries' streams, by the buffer that both use.
    output.fill_bytes(&ours, 0)?;
    expect(&mut output, 0)?;

    // What cannot be is refused.
    let host = vec![0f32; 64];
    // SAFETY: refused, so never used.
    let refused = unsafe { Buffer::<f32>::from_raw(&device, host.as_ptr().addr() as u64, 64, ()) };
    println!("rank {me}: {}", refused.err().ok_or("memory of the host was taken")?);
    drop((graph, stream, output));
    theirs.synchronize()?;
    world.barrier()?;
    if me == 0 {
        println!("{ranks} ranks: {REPLAYS} replays of a graph of cudarc's, in its memory and on its stream");
    }
    Ok(())
}
