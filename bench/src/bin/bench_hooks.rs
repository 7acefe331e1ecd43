//! What hooks cost: GELU, SiLU, softmax and RMSNorm by the fast tier, one rank alone, from `produce` to `consume`. Every element is compared with what `f64`
//! gives. `bench/baselines/hooks.cu` is the same by hand; `--save` leaves files for `bench/peers/against_torch.py`.

use clap::Parser;
use fusewire::kernel::Supports;
use fusewire::prelude::*;
use fusewire::schedule::AllToAll;
use fusewire::{LaunchOptions, Protocol};
use fusewire_examples::ranks::replayed;
use fusewire_examples::rows::{bf16s, check, number};
use fusewire_examples::saved::Save;
use std::process::ExitCode;

/// Elements of a row.
const COLS: usize = 4096;

#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all))]
mod gelu {
    pub struct Args<'a> {
        pub input: &'a [Bf16],
        pub output: Out<'a, Bf16>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> Pack<Bf16> {
        args.input.pack(ctx).map_f32(|x| {
            // As `nvcc` makes it of the same formula: it contracts products and sums unless told otherwise.
            let (half, cubed) = (0.5 * x, math::fma(0.044_715 * x * x, x, x));
            math::fma(half, math::fast::tanh(0.797_884_6 * cubed), half)
        })
    }
}

#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all))]
mod silu {
    pub struct Args<'a> {
        pub input: &'a [Bf16],
        pub output: Out<'a, Bf16>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> Pack<Bf16> {
        args.input.pack(ctx).map_f32(|x| x * math::fast::recip(1.0 + math::fast::exp(-x)))
    }
}

#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all), grain = row(4096))]
mod softmax {
    pub struct Args<'a> {
        pub input: &'a [Bf16],
        pub output: Out<'a, Bf16>,
    }
    pub fn produce(ctx: &ProduceRow, args: &Args) -> Row<Bf16> {
        let x = args.input.row(ctx).to_f32();
        let most = x.max(ctx);
        let powers = x.map(|x| math::fast::exp(x - most));
        let scale = math::fast::recip(powers.sum(ctx));
        powers.map(|x| x * scale).to()
    }
}

#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all), grain = row(4096))]
mod rms_norm {
    pub struct Args<'a> {
        pub input: &'a [Bf16],
        pub gamma: &'a [Bf16],
        pub output: Out<'a, Bf16>,
    }
    pub fn produce(ctx: &ProduceRow, args: &Args) -> Row<Bf16> {
        let (x, gamma) = (args.input.row(ctx).to_f32(), args.gamma.each_row(ctx).to_f32());
        let scale = math::fast::rsqrt(x.map(|x| x * x).sum(ctx) / 4096.0 + 1e-6);
        x.zip(&gamma, |x, gamma| x * scale * gamma).to()
    }
}

/// What hooks cost.
#[derive(Parser)]
struct Options {
    /// `host` or `cuda`.
    #[arg(long, default_value = "host", value_parser = ["host", "cuda"])]
    device: String,
    /// Rows of 4096 elements.
    #[arg(long, value_delimiter = ',', default_value = "1,7")]
    rows: Vec<usize>,
    /// Time graph replays.
    #[arg(long)]
    time: bool,
    #[command(flatten)]
    save: Save,
    /// How it is done, by the protocol's name; by default as for a rank alone.
    #[arg(long)]
    protocol: Option<Protocol>,
    /// Blocks.
    #[arg(long)]
    blocks: Option<u32>,
    /// Threads of a block.
    #[arg(long)]
    threads: Option<u32>,
}

fn rank<X: Transport>(transport: &X, options: &Options) -> fusewire::Result<()>
where
    gelu::Hooks: Supports<AllToAll, X>,
    silu::Hooks: Supports<AllToAll, X>,
    softmax::Hooks: Supports<AllToAll, X>,
    rms_norm::Hooks: Supports<AllToAll, X>,
{
    let Options { protocol, blocks: self_copy, threads, .. } = *options;
    let how = LaunchOptions { protocol, self_copy, threads, ..LaunchOptions::default() };
    let world = transport.link().world();
    let (device, stream) = (Device::of(transport), Device::of(transport).stream()?);
    let value = |rank: usize, i: usize| f64::from(Bf16::from_f32(number(rank, i)).to_f32());
    let saved = options.save.run(&options.rows, 0, 1)?;
    for &rows in &options.rows {
        let saved = saved.as_ref().and_then(|saved| saved.of(rows));
        let n = rows * COLS;
        let (input, gamma) = (device.buffer_from(&bf16s(0, n))?, device.buffer_from(&bf16s(1, COLS))?);
        let mut output = device.buffer::<Bf16>(n)?;
        let mut report = |what: &str,
                          launch: &mut dyn FnMut(&mut Buffer<Bf16>) -> fusewire::Result<()>,
                          want: &dyn Fn(usize) -> f64| {
            output.fill_bytes(&stream, 0xff)?;
            launch(&mut output)?;
            if options.time {
                let time = replayed(world, &stream, || launch(&mut output))?;
                println!("fusewire, {what}: {rows} rows: {:.2} us", time.as_secs_f64() * 1e6);
            }
            let got = output.read(&stream)?;
            check(what, got.iter().map(|x| x.to_f32()), |i| (want(i), want(i).abs() / 200.0 + 2e-3));
            if let Some(saved) = saved {
                saved.array(what, "input", COLS, &input.read(&stream)?)?;
                saved.array(what, "gamma", COLS, &gamma.read(&stream)?)?;
                saved.array(what, "output", COLS, &got)?;
            }
            Ok::<_, fusewire::Error>(())
        };
        let kernel = gelu::all_to_all(transport)?;
        report(
            "GELU",
            &mut |output| {
                let launch = gelu::Launch { input: input.view(), output: output.view_mut() };
                kernel.launch_with(&stream, launch, &how)
            },
            &|i| {
                let x = value(0, i);
                0.5 * x * (1.0 + (0.797_884_560_8 * (x + 0.044_715 * x * x * x)).tanh())
            },
        )?;
        let kernel = silu::all_to_all(transport)?;
        report(
            "SiLU",
            &mut |output| {
                let launch = silu::Launch { input: input.view(), output: output.view_mut() };
                kernel.launch_with(&stream, launch, &how)
            },
            &|i| value(0, i) / (1.0 + (-value(0, i)).exp()),
        )?;
        let of_row = |f: fn(f64) -> f64| -> Vec<f64> {
            (0..rows).map(|row| (row * COLS..row * COLS + COLS).map(|i| f(value(0, i))).sum()).collect()
        };
        let (powers, squares) = (of_row(f64::exp), of_row(|x| x * x));
        let kernel = softmax::all_to_all(transport)?;
        report(
            "softmax",
            &mut |output| {
                let launch = softmax::Launch { input: input.view(), output: output.view_mut() };
                kernel.launch_with(&stream, launch, &how)
            },
            &|i| value(0, i).exp() / powers[i / COLS],
        )?;
        let kernel = rms_norm::all_to_all(transport)?;
        report(
            "RMSNorm",
            &mut |output| {
                let (input, gamma) = (input.view(), gamma.view());
                let launch = rms_norm::Launch { input, gamma, output: output.view_mut() };
                kernel.launch_with(&stream, launch, &how)
            },
            &|i| value(0, i) / (squares[i / COLS] / COLS as f64 + 1e-6).sqrt() * value(1, i % COLS),
        )?;
        println!("{rows} rows of {COLS}: every element is right");
    }
    Ok(())
}

fn main() -> ExitCode {
    let options = Options::parse();
    let run = |world: World| match options.device.as_str() {
        "cuda" => rank(&Nvl::rendezvous(&world, 1 << 20)?, &options),
        _ => rank(&Shm::rendezvous(&world, 1 << 20)?, &options),
    };
    let done = World::threads(1, run).map_err(fusewire::Error::from);
    match done.and_then(|ranks| ranks.into_iter().collect::<fusewire::Result<()>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
