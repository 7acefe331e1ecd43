//! Hooks of whole rows: block-scaled 8-bit floats on the wire of an all-to-all and of an all-reduce; and what follows a layer whose ranks each have a
//! part of the sum, in one kernel: all-reduce, residual, RMSNorm, quantisation; and the same in place. Every element is compared with what `f64` gives; `--time` times graph
//! replays as well, `--save` leaves files for `bench/peers/against_torch.py`.

use clap::Parser;
use fusewire::kernel::Supports;
use fusewire::prelude::*;
use fusewire::schedule::{AllReduce, AllToAll};
use fusewire::{LaunchOptions, Protocol};
use fusewire_examples::ranks::{Ranks, replayed};
use fusewire_examples::rows::{bf16s, check, greatest, number, step};
use fusewire_examples::saved::Save;
use std::process::ExitCode;

/// Elements of a row: the hidden size of a model.
const COLS: usize = 4096;

/// Half the bytes on the wire: e4m3, with one scale for each 128 elements.
#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all), grain = row(4096))]
mod quantised {
    pub struct Args<'a> {
        pub input: &'a [Bf16],
        pub output: Out<'a, Bf16>,
    }
    pub fn produce(ctx: &ProduceRow, args: &Args) -> Scaled<F8E4M3, 128> {
        args.input.row(ctx).to_f32().quantise(ctx)
    }
    pub fn consume(ctx: &ConsumeRow, args: &Args, row: Scaled<F8E4M3, 128>) {
        args.output.row(ctx).set(&row.dequantise().to());
    }
}

/// The same of what is added up: the sum itself is exact in f32.
#[comm_kernel(transports(Shm, Nvl), schedules(all_reduce), grain = row(4096), reduce(sum, f32))]
mod summed {
    pub struct Args<'a> {
        pub input: &'a [Bf16],
        pub output: Out<'a, Bf16>,
    }
    pub fn produce(ctx: &ProduceRow, args: &Args) -> Scaled<F8E4M3, 128> {
        args.input.row(ctx).to_f32().quantise(ctx)
    }
}

/// All ranks' parts are added up, and the residual; the sum is normed, and quantised with a scale for each row.
#[comm_kernel(transports(Shm, Nvl), schedules(all_reduce), grain = row(4096), reduce(sum, f32))]
mod normed {
    pub struct Args<'a> {
        pub input: &'a [Bf16],
        pub residual: &'a [Bf16],
        pub gamma: &'a [Bf16],
        pub output: Out<'a, F8E4M3>,
        pub scales: PerRow<'a, f32>,
        pub epsilon: f32,
    }
    pub fn consume(ctx: &ConsumeRow, args: &Args, row: Row<f32>) {
        let (residual, gamma) = (args.residual.row(ctx), args.gamma.each_row(ctx));
        let x = row.zip(&residual.to_f32(), |x, residual| x + residual);
        let squares = x.map(|x| x * x).sum(ctx);
        let scale = math::fast::rsqrt(squares / 4096.0 + args.epsilon);
        let weighted = x.zip(&gamma.to_f32(), |x, gamma| x * gamma);
        let most = math::max(weighted.map(f32::abs).max(ctx) * scale, f32::MIN_POSITIVE);
        let factor = scale * (448.0 / most);
        args.output.row(ctx).set(&weighted.map(|x| x * factor).to());
        args.scales.at(ctx).set(most / 448.0);
    }
}

/// The same in place, without scales: the norm stands where this rank's part was, and the sum where the residual was.
#[comm_kernel(transports(Shm, Nvl), schedules(all_reduce), grain = row(4096), reduce(sum, f32))]
mod normed_in_place {
    pub struct Args<'a> {
        pub hidden: InOut<'a, Bf16>,
        pub residual: Out<'a, Bf16>,
        pub gamma: &'a [Bf16],
        pub epsilon: f32,
    }
    pub fn consume(ctx: &ConsumeRow, args: &Args, row: Row<f32>) {
        let (residual, gamma) = (args.residual.row(ctx), args.gamma.each_row(ctx));
        let x = row.zip(&residual.get().to_f32(), |x, residual| x + residual);
        residual.set(&x.to());
        let scale = math::fast::rsqrt(x.map(|x| x * x).sum(ctx) / 4096.0 + args.epsilon);
        args.hidden.row(ctx).set(&x.zip(&gamma.to_f32(), |x, gamma| x * scale * gamma).to());
    }
}

/// Rows on their way.
#[derive(Parser)]
struct Options {
    /// `host` or `cuda`.
    #[arg(long, default_value = "host", value_parser = ["host", "cuda"])]
    device: String,
    #[command(flatten)]
    ranks: Ranks,
    /// Rows that each rank sends to each.
    #[arg(long, value_delimiter = ',', default_value = "1,7,64")]
    rows: Vec<usize>,
    /// Time graph replays.
    #[arg(long)]
    time: bool,
    #[command(flatten)]
    save: Save,
    /// How bytes travel, by its name; by default as the size says.
    #[arg(long)]
    protocol: Option<Protocol>,
    /// Channels to each peer.
    #[arg(long)]
    channels: Option<u32>,
    /// Threads of a block.
    #[arg(long)]
    block_threads: Option<u32>,
}

impl Options {
    fn how(&self) -> LaunchOptions {
        let Options { protocol, channels, block_threads: threads, .. } = *self;
        LaunchOptions { protocol, channels, threads, ..LaunchOptions::default() }
    }
}

fn rank<X: Transport>(transport: &X, options: &Options) -> fusewire::Result<()>
where
    quantised::Hooks: Supports<AllToAll, X>,
    summed::Hooks: Supports<AllReduce, X>,
    normed::Hooks: Supports<AllReduce, X>,
    normed_in_place::Hooks: Supports<AllReduce, X>,
{
    let world = transport.link().world().clone();
    let (me, ranks) = (world.rank(), world.size());
    let (device, stream) = (Device::of(transport), Device::of(transport).stream()?);
    let exchange = quantised::all_to_all(transport)?;
    let sum = summed::all_reduce(transport)?;
    let norm = normed::all_reduce(transport)?;
    let norm_in_place = normed_in_place::all_reduce(transport)?;
    let report = |what: &str, rows: usize, bytes: usize, launch: &mut dyn FnMut() -> fusewire::Result<()>| {
        launch()?;
        if options.time {
            let time = replayed(&world, &stream, launch)?;
            if me == 0 {
                let (us, rate) = (time.as_secs_f64() * 1e6, bytes as f64 / time.as_nanos() as f64);
                println!("{what}: {rows} rows, {ranks} ranks: {us:.1} us, {rate:.0} GB/s of own memory");
            }
        }
        Ok::<_, fusewire::Error>(())
    };
    let saved = options.save.run(&options.rows, me, ranks)?;
    for &rows in &options.rows {
        let saved = saved.as_ref().and_then(|saved| saved.of(rows));
        let chunk = rows * COLS;
        let n = ranks * chunk;
        let input = device.buffer_from(&bf16s(me, n))?;
        let value = |rank: usize, i: usize| f64::from(Bf16::from_f32(number(rank, i)).to_f32());
        let mut output = device.buffer::<Bf16>(n)?;
        output.fill_bytes(&stream, 0xff)?;
        report("all-to-all by e4m3", rows, 4 * n, &mut || {
            let launch = quantised::Launch { input: input.view(), output: output.view_mut() };
            exchange.launch_with(&stream, launch, &options.how())
        })?;
        let sent = |i: usize| value(i / chunk, me * chunk + i % chunk);
        let most = greatest(n, 128, sent);
        check("quantised", output.read(&stream)?.iter().map(|x| x.to_f32()), |i| {
            (sent(i), step(sent(i), most[i / 128]) + sent(i).abs() / 256.0)
        });
        if let Some(saved) = saved {
            saved.array("quantised", "input", COLS, &input.read(&stream)?)?;
            saved.array("quantised", "output", COLS, &output.read(&stream)?)?;
        }

        let each = options.how().elements(chunk);
        output.fill_bytes(&stream, 0xff)?;
        report("all-reduce by e4m3", rows, 4 * chunk, &mut || {
            let launch = summed::Launch { input: input.view(), output: output.view_mut() };
            sum.launch_with(&stream, launch, &each)
        })?;
        let most: Vec<Vec<f64>> = (0..ranks).map(|rank| greatest(chunk, 128, |i| value(rank, i))).collect();
        check("summed", output.read(&stream)?[..chunk].iter().map(|x| x.to_f32()), |i| {
            let parts = (0..ranks).map(|rank| (value(rank, i), most[rank][i / 128]));
            let (sum, steps) =
                parts.fold((0.0, 0.0), |(sum, steps), (x, most)| (sum + x, steps + step(x, most)));
            (sum, steps + (sum.abs() + steps) / 256.0)
        });
        if let Some(saved) = saved {
            saved.array("summed", "input", COLS, &input.read(&stream)?[..chunk])?;
            saved.array("summed", "output", COLS, &output.read(&stream)?[..chunk])?;
        }

        let (residual, gamma) = (bf16s(ranks, chunk), bf16s(ranks + 1, COLS));
        let (residuals, weights) = (device.buffer_from(&residual)?, device.buffer_from(&gamma)?);
        let mut values = device.buffer::<F8E4M3>(chunk)?;
        let mut scales = device.buffer::<f32>(rows)?;
        values.fill_bytes(&stream, 0xff)?;
        scales.fill_bytes(&stream, 0xff)?;
        report("all-reduce, residual, RMSNorm, e4m3", rows, 5 * chunk, &mut || {
            let (input, residual, gamma) = (input.view(), residuals.view(), weights.view());
            let (output, scales) = (values.view_mut(), scales.view_mut());
            let launch = normed::Launch { input, residual, gamma, output, scales, epsilon: 1e-6 };
            norm.launch_with(&stream, launch, &each)
        })?;
        let (got, scale) = (values.read(&stream)?, scales.read(&stream)?);
        let x =
            |i: usize| (0..ranks).map(|rank| value(rank, i)).sum::<f64>() + f64::from(residual[i].to_f32());
        let inverse: Vec<f64> = (0..rows)
            .map(|row| {
                let squares: f64 = (0..COLS).map(|k| x(row * COLS + k).powi(2)).sum();
                1.0 / (squares / COLS as f64 + 1e-6).sqrt()
            })
            .collect();
        let normed = |i: usize| x(i) * inverse[i / COLS] * f64::from(gamma[i % COLS].to_f32());
        let greatest = greatest(chunk, COLS, normed);
        check("scales", scale.iter().copied(), |row| (greatest[row] / 448.0, greatest[row] * 1e-8));
        check("normed", got.iter().enumerate().map(|(i, x)| x.to_f32() * scale[i / COLS]), |i| {
            (normed(i), 1.01 * step(normed(i), greatest[i / COLS]))
        });
        if let Some(saved) = saved {
            saved.array("normed", "input", COLS, &input.read(&stream)?[..chunk])?;
            saved.array("normed", "residual", COLS, &residuals.read(&stream)?)?;
            saved.array("normed", "gamma", COLS, &weights.read(&stream)?)?;
            saved.array("normed", "output", COLS, &got)?;
            saved.array("normed", "scales", 1, &scale)?;
        }

        let (mut hidden, mut sums) = (device.buffer_from(&bf16s(me, chunk))?, device.buffer_from(&residual)?);
        let mut launch = || {
            let (hidden, residual, gamma) = (hidden.view_mut(), sums.view_mut(), weights.view());
            let launch = normed_in_place::Launch { hidden, residual, gamma, epsilon: 1e-6 };
            norm_in_place.launch_with(&stream, launch, &each)
        };
        launch()?;
        if options.time {
            // On values that the launch before left: their number counts.
            report("all-reduce, residual, RMSNorm in place", rows, 8 * chunk, &mut launch)?;
        } else {
            let half = |x: f64| (x, x.abs() / 256.0);
            check("sums in place", sums.read(&stream)?.iter().map(|x| x.to_f32()), |i| half(x(i)));
            check("normed in place", hidden.read(&stream)?.iter().map(|x| x.to_f32()), |i| half(normed(i)));
        }
        if me == 0 {
            println!("{rows} rows of {COLS}, {ranks} ranks: every element is right");
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let options = Options::parse();
    let cuda = options.device == "cuda";
    let how = fusewire::Options::default();
    options.ranks.run(cuda, 2, |world| match cuda {
        true => rank(&Nvl::rendezvous(world, how.clone())?, &options),
        false => rank(&Shm::rendezvous(world, how.clone())?, &options),
    })
}
