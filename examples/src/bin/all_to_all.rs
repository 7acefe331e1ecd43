//! Four hooks in a fused all-to-all, each element checked against an independent reference, and timed.
//!
//! Runs on 4 rank processes over host shared memory, or on all GPUs; a GPU alone is shared by 4 ranks, threads of one process. Under
//! torchrun, mpirun or srun it is one of their ranks.

use clap::Parser;
use fusewire::kernel::Supports;
use fusewire::prelude::*;
use fusewire::schedule::{AllToAll, AllToAllLauncher};
use fusewire_examples::hooks::{copy, gather, scale_add, transpose};
use fusewire_examples::ranks::{Ranks, bytes_text, gpus, parse_bytes, slowest_median};
use fusewire_examples::reference;
use std::process::ExitCode;

const HOOKS: [&str; 4] = ["copy", "transpose", "scale_add", "gather"];

/// The example all-to-all.
#[derive(Parser)]
struct Options {
    /// Where kernels run: `host` (CPU threads), `cuda`, or `auto` (`cuda` where there is a GPU).
    #[arg(long, default_value = "auto", value_parser = ["auto", "host", "cuda"])]
    device: String,
    #[command(flatten)]
    ranks: Ranks,
    /// Bytes of each rank's whole input; several separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = parse_bytes)]
    size: Vec<usize>,
    /// Hooks to run.
    #[arg(long, value_delimiter = ',', value_parser = HOOKS)]
    hooks: Vec<String>,
    /// Timed launches of each; their median is shown.
    #[arg(long, default_value_t = 7)]
    repeat: usize,
}

fn main() -> ExitCode {
    let mut options = Options::parse();
    let cuda = match options.device.as_str() {
        "cuda" => true,
        "host" => false,
        _ => gpus() > 0,
    };
    if cuda && gpus() == 1 {
        options.ranks.ranks.get_or_insert(4);
    }
    options.ranks.run(cuda, 4, |world| match cuda {
        true => rank(world, &Nvl::rendezvous(world, fusewire::Options::default())?, &options),
        false => {
            let layout = fusewire::Options::per_peer(1 << 20).channels(4);
            rank(world, &Shm::rendezvous(world, layout)?, &options)
        }
    })
}

fn rank<X: Transport>(world: &World, transport: &X, options: &Options) -> fusewire::Result<()>
where
    copy::Hooks: Supports<AllToAll, X>,
    transpose::Hooks: Supports<AllToAll, X>,
    scale_add::Hooks: Supports<AllToAll, X>,
    gather::Hooks: Supports<AllToAll, X>,
{
    let on_gpu = X::NAME == "Nvl";
    let sizes = match options.size.as_slice() {
        [] if on_gpu => vec![64 << 10, 1 << 20, 16 << 20, 256 << 20],
        [] => vec![64 << 10, 1 << 20, 16 << 20],
        some => some.to_vec(),
    };
    let hooks: Vec<&str> = if options.hooks.is_empty() {
        HOOKS.to_vec()
    } else {
        options.hooks.iter().map(String::as_str).collect()
    };
    if world.rank() == 0 {
        let place = Device::of(transport);
        println!(
            "all-to-all over {} on {} ranks ({})\n",
            X::NAME,
            world.size(),
            if on_gpu { format!("{:?}", place) } else { "CPU threads".into() }
        );
        println!("{:>10}  {:>10}  {:>12}  {:>10}  checked", "hook", "size", "time", "GB/s");
    }
    let all = All {
        copy: copy::all_to_all(transport)?,
        transpose: transpose::all_to_all(transport)?,
        scale_add: scale_add::all_to_all(transport)?,
        gather: gather::all_to_all(transport)?,
    };
    let mut checked = 0u64;
    for size in sizes {
        for hook in &hooks {
            checked += all.one(world, transport, hook, size, options.repeat)?;
        }
    }
    let total: u64 = world.all_gather_as(&checked)?.into_iter().sum();
    if world.rank() == 0 {
        let what = match on_gpu {
            true => "kernels from embedded PTX, on GPUs",
            false => "the hooks' host twin, on CPU threads",
        };
        println!("\n{total} elements checked on {} ranks, none differs.", world.size());
        println!("GB/s: wire bytes of one rank in one direction. {} ranks ran {what}.", world.size());
        if on_gpu && world.local_ranks().len() > gpus() {
            println!(
                "They share {}: no link was crossed, and times say nothing of NVLink.",
                match gpus() {
                    1 => "one GPU and its memory, each with multiprocessors of its own".into(),
                    n => format!("{n} GPUs"),
                }
            );
        }
        println!(
            "The same kernel as PTX: cargo fusewire ptx --manifest-path examples/Cargo.toml transpose --schedule all_to_all --transport Nvl --arch sm_90"
        );
    }
    world.barrier()?;
    Ok(())
}

/// The four kernels on one transport.
struct All<X: Transport> {
    copy: AllToAllLauncher<X, copy::Hooks>,
    transpose: AllToAllLauncher<X, transpose::Hooks>,
    scale_add: AllToAllLauncher<X, scale_add::Hooks>,
    gather: AllToAllLauncher<X, gather::Hooks>,
}

impl<X: Transport> All<X> {
    /// Runs one hook at one size; how many elements were checked.
    fn one(
        &self,
        world: &World,
        transport: &X,
        hook: &str,
        size: usize,
        repeat: usize,
    ) -> fusewire::Result<u64> {
        let (rank, ranks) = (world.rank(), world.size());
        let chunk = size / size_of::<f32>() / ranks;
        let len = chunk * ranks;
        let (device, scale) = (Device::of(transport), 0.5);
        let stream = device.stream()?;
        let input = device.buffer_from(&(0..len).map(|i| reference::input(rank, i)).collect::<Vec<_>>())?;
        let index = device.buffer_from(&(0..len).map(|i| reference::index(len, i)).collect::<Vec<_>>())?;
        let before: Vec<f32> = match hook {
            "scale_add" => (0..len).map(|i| reference::before(rank, i)).collect(),
            // Whatever is not written shows.
            _ => vec![f32::NAN; len],
        };
        let mut output = device.buffer_from(&before)?;
        let (rows, cols) = reference::shape(chunk);
        let launch = |output: &mut Buffer<f32>| {
            let (input, output) = (input.view(), output.view_mut());
            match hook {
                "copy" => self.copy.launch(&stream, copy::Launch { input, output }),
                "transpose" => {
                    self.transpose.launch(&stream, transpose::Launch { input, output, rows, cols })
                }
                "scale_add" => self.scale_add.launch(&stream, scale_add::Launch { input, output, scale }),
                _ => self.gather.launch(&stream, gather::Launch { input, index: index.view(), output }),
            }
        };
        launch(&mut output)?;
        let got = output.read(&stream)?;
        let wrong = (0..len)
            .find(|i| got[*i].to_bits() != reference::output(hook, rank, ranks, chunk, scale, *i).to_bits());
        if let Some(i) = wrong {
            let want = reference::output(hook, rank, ranks, chunk, scale, i);
            panic!("{hook} of {size} bytes on rank {rank}: element {i} is {}, not {want}", got[i]);
        }
        let mut times = Vec::new();
        for _ in 0..repeat {
            world.barrier()?;
            let start = stream.record()?;
            launch(&mut output)?;
            let end = stream.record()?;
            stream.synchronize()?;
            times.push(end.since(&start)?);
        }
        let time = slowest_median(world, times)?;
        if rank == 0 {
            let wire = (len - chunk) * size_of::<f32>();
            let rate = wire as f64 / time.as_secs_f64() / 1e9;
            println!(
                "{hook:>10}  {:>10}  {:>12}  {rate:>10.2}  {} per rank",
                bytes_text(size),
                format!("{time:.1?}"),
                len
            );
        }
        Ok(len as u64)
    }
}
