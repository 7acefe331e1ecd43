//! What libraries for inference have a kernel of its own for, each as a hook of a few lines: what follows a layer whose ranks each have a part of the sum.
//! Every element is compared with what `f64` gives; `--time` times graph replays as well, `--save` leaves files for `bench/peers/against_torch.py`.

use clap::Parser;
use fusewire::kernel::Supports;
use fusewire::prelude::*;
use fusewire::schedule::{AllGather, AllReduce, ReduceScatter};
use fusewire::{LaunchOptions, Protocol};
use fusewire_examples::ranks::{Ranks, replayed};
use fusewire_examples::rows::{bf16s, check, greatest, number, step};
use fusewire_examples::saved::{Save, Saved};
use std::process::ExitCode;

/// Elements of a row: the hidden size of a model.
const COLS: usize = 4096;

/// All-reduce, residual, RMSNorm, and e4m3 with a scale that is known; the sum is kept for the next layer's residual.
#[comm_kernel(transports(Shm, Nvl), schedules(all_reduce), grain = row(4096), reduce(sum, f32))]
mod per_tensor {
    pub struct Args<'a> {
        pub input: &'a [Bf16],
        pub residual: &'a [Bf16],
        pub gamma: &'a [Bf16],
        pub next: Out<'a, Bf16>,
        pub output: Out<'a, F8E4M3>,
        pub inverse: f32,
    }
    pub fn consume(ctx: &ConsumeRow, args: &Args, row: Row<f32>) {
        let (residual, gamma) = (args.residual.row(ctx), args.gamma.each_row(ctx));
        let x = row.zip(&residual.to_f32(), |x, residual| x + residual);
        args.next.row(ctx).set(&x.to());
        let scale = math::fast::rsqrt(x.map(|x| x * x).sum(ctx) / 4096.0 + 1e-6) * args.inverse;
        args.output.row(ctx).set(&x.zip(&gamma.to_f32(), |x, gamma| x * scale * gamma).to());
    }
}

/// The same with a scale for each 128 elements.
#[comm_kernel(transports(Shm, Nvl), schedules(all_reduce), grain = row(4096), reduce(sum, f32))]
mod per_group {
    pub struct Args<'a> {
        pub input: &'a [Bf16],
        pub residual: &'a [Bf16],
        pub gamma: &'a [Bf16],
        pub next: Out<'a, Bf16>,
        pub output: Out<'a, F8E4M3>,
        pub scales: PerGroup<'a, f32, 128>,
    }
    pub fn consume(ctx: &ConsumeRow, args: &Args, row: Row<f32>) {
        let (residual, gamma) = (args.residual.row(ctx), args.gamma.each_row(ctx));
        let x = row.zip(&residual.to_f32(), |x, residual| x + residual);
        args.next.row(ctx).set(&x.to());
        let scale = math::fast::rsqrt(x.map(|x| x * x).sum(ctx) / 4096.0 + 1e-6);
        let normed: Scaled<F8E4M3, 128> = x.zip(&gamma.to_f32(), |x, gamma| x * scale * gamma).quantise(ctx);
        args.output.row(ctx).set(&normed.values);
        args.scales.at(ctx).set(&normed.scales);
    }
}

/// All-gather of what is e4m3 in memory, scales beside it, and bfloat16 where it arrives: weights that ranks hold a part of.
#[comm_kernel(transports(Shm, Nvl), schedules(all_gather), grain = row(4096))]
mod gathered {
    pub struct Args<'a> {
        pub input: &'a [F8E4M3],
        pub scales: &'a [f32],
        pub output: Out<'a, Bf16>,
    }
    pub fn produce(ctx: &ProduceRow, args: &Args) -> Scaled<F8E4M3, 128> {
        Scaled { values: args.input.row(ctx), scales: args.scales.groups(ctx) }
    }
    pub fn consume(ctx: &ConsumeRow, args: &Args, row: Scaled<F8E4M3, 128>) {
        args.output.row(ctx).set(&row.dequantise().to());
    }
}

/// Reduce-scatter, bias, GELU.
#[comm_kernel(transports(Shm, Nvl), schedules(reduce_scatter), grain = row(4096), reduce(sum, f32))]
mod activated {
    pub struct Args<'a> {
        pub input: &'a [Bf16],
        pub bias: &'a [Bf16],
        pub output: Out<'a, Bf16>,
    }
    pub fn consume(ctx: &ConsumeRow, args: &Args, row: Row<f32>) {
        let bias = args.bias.each_row(ctx).to_f32();
        args.output.row(ctx).set(&row.zip(&bias, |x, bias| gelu(x + bias)).to());
    }
    fn gelu(x: f32) -> f32 {
        0.5 * x * (1.0 + math::fast::tanh(0.797_884_6 * (x + 0.044_715 * x * x * x)))
    }
}

/// All-reduce with one byte an element on the wire each way: rows leave in e4m3, are added up in f32, and the sums travel in e4m3 too.
#[comm_kernel(
    transports(Shm, Nvl),
    schedules(all_reduce),
    grain = row(4096),
    reduce(sum, f32, result = Scaled<F8E4M3, 128>)
)]
mod both_ways {
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

/// The average of gradients: the same bits in every run, and on every rank.
#[comm_kernel(transports(Shm, Nvl), schedules(all_reduce), reduce(average, f32))]
mod averaged {
    pub struct Args<'a> {
        pub input: &'a [Bf16],
        pub output: Out<'a, Bf16>,
    }
}

/// Hooks behind a layer.
#[derive(Parser)]
struct Options {
    /// `host` or `cuda`.
    #[arg(long, default_value = "host", value_parser = ["host", "cuda"])]
    device: String,
    #[command(flatten)]
    ranks: Ranks,
    /// Rows of each rank's part.
    #[arg(long, value_delimiter = ',', default_value = "1,9")]
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
}

impl Options {
    fn how(&self) -> LaunchOptions {
        LaunchOptions { protocol: self.protocol, channels: self.channels, ..LaunchOptions::default() }
    }

    /// The same where there is no second step.
    fn in_one_step(&self) -> LaunchOptions {
        let protocol = self.protocol.filter(|protocol| *protocol != Protocol::TwoShot);
        LaunchOptions { protocol, ..self.how() }
    }
}

/// One rank's place in a run.
struct Run<'r, X: Transport> {
    transport: &'r X,
    device: Device,
    stream: Stream,
    options: &'r Options,
    saved: Option<Saved>,
    me: usize,
    ranks: usize,
}

impl<X: Transport> Run<'_, X> {
    /// Queues it once; times it if that is asked for.
    fn run(
        &self,
        what: &str,
        rows: usize,
        mut launch: impl FnMut() -> fusewire::Result<()>,
    ) -> fusewire::Result<()> {
        launch()?;
        if self.options.time {
            let time = replayed(self.transport.link().world(), &self.stream, launch)?;
            if self.me == 0 {
                println!("{what}: {rows} rows, {} ranks: {:.1} us", self.ranks, time.as_secs_f64() * 1e6);
            }
        }
        Ok(())
    }

    fn saved(&self, rows: usize) -> Option<&Saved> {
        self.saved.as_ref().and_then(|saved| saved.of(rows))
    }

    fn poisoned<T: Element>(&self, n: usize) -> fusewire::Result<Buffer<T>> {
        let mut buffer = self.device.buffer(n)?;
        buffer.fill_bytes(&self.stream, 0xff)?;
        Ok(buffer)
    }
}

fn value(rank: usize, i: usize) -> f64 {
    f64::from(Bf16::from_f32(number(rank, i)).to_f32())
}

/// An error of bfloat16, and of f32 sums on the way.
fn rounding(x: f64) -> f64 {
    x.abs() / 250.0 + 1e-4
}

/// All-reduces with a norm behind them.
fn normed<X: Transport>(run: &Run<'_, X>, rows: usize) -> fusewire::Result<()>
where
    per_tensor::Hooks: Supports<AllReduce, X>,
    per_group::Hooks: Supports<AllReduce, X>,
{
    let Run { transport, device, stream, me, ranks, .. } = run;
    let (n, ranks) = (rows * COLS, *ranks);
    let (residual, gamma) = (bf16s(ranks, n), bf16s(ranks + 1, COLS));
    let input = device.buffer_from(&bf16s(*me, n))?;
    let (residuals, weights) = (device.buffer_from(&residual)?, device.buffer_from(&gamma)?);
    let x = |i: usize| (0..ranks).map(|rank| value(rank, i)).sum::<f64>() + f64::from(residual[i].to_f32());
    let norms: Vec<f64> = (0..rows)
        .map(|row| (0..COLS).map(|k| x(row * COLS + k).powi(2)).sum::<f64>() / COLS as f64 + 1e-6)
        .map(|squares| 1.0 / squares.sqrt())
        .collect();
    let want = |i: usize| x(i) * norms[i / COLS] * f64::from(gamma[i % COLS].to_f32());

    let kernel = per_tensor::all_reduce(*transport)?;
    let (mut next, mut output) = (run.poisoned::<Bf16>(n)?, run.poisoned::<F8E4M3>(n)?);
    run.run("all-reduce, residual, RMSNorm, e4m3 of one scale", rows, || {
        let (input, residual, gamma) = (input.view(), residuals.view(), weights.view());
        let (next, output) = (next.view_mut(), output.view_mut());
        let launch = per_tensor::Launch { input, residual, gamma, next, output, inverse: 8.0 };
        kernel.launch_with(stream, launch, &run.options.how())
    })?;
    check("the next residual", next.read(stream)?.iter().map(|x| x.to_f32()), |i| (x(i), rounding(x(i))));
    check("of one scale", output.read(stream)?.iter().map(|x| x.to_f32() / 8.0), |i| {
        (want(i), 1.01 * step(want(i), 448.0 / 8.0))
    });
    let inputs = |saved: &Saved, case: &str| {
        saved.array(case, "input", COLS, &input.read(stream)?)?;
        saved.array(case, "residual", COLS, &residuals.read(stream)?)?;
        saved.array(case, "gamma", COLS, &weights.read(stream)?)
    };
    if let Some(saved) = run.saved(rows) {
        inputs(saved, "per_tensor")?;
        saved.array("per_tensor", "next", COLS, &next.read(stream)?)?;
        saved.array("per_tensor", "output", COLS, &output.read(stream)?)?;
    }

    let kernel = per_group::all_reduce(*transport)?;
    let (mut next, mut output) = (run.poisoned::<Bf16>(n)?, run.poisoned::<F8E4M3>(n)?);
    let mut scales = run.poisoned::<f32>(n / 128)?;
    run.run("all-reduce, residual, RMSNorm, e4m3 of a scale for each 128", rows, || {
        let (input, residual, gamma) = (input.view(), residuals.view(), weights.view());
        let (next, output, scales) = (next.view_mut(), output.view_mut(), scales.view_mut());
        let launch = per_group::Launch { input, residual, gamma, next, output, scales };
        kernel.launch_with(stream, launch, &run.options.how())
    })?;
    let (got, scale, most) = (output.read(stream)?, scales.read(stream)?, greatest(n, 128, want));
    check("scales", scale.iter().copied(), |g| (most[g] / 448.0, most[g] * 1e-6));
    check("of a scale for each 128", got.iter().enumerate().map(|(i, x)| x.to_f32() * scale[i / 128]), |i| {
        (want(i), 1.01 * step(want(i), most[i / 128]))
    });
    if let Some(saved) = run.saved(rows) {
        inputs(saved, "per_group")?;
        saved.array("per_group", "next", COLS, &next.read(stream)?)?;
        saved.array("per_group", "output", COLS, &got)?;
        saved.array("per_group", "scales", COLS / 128, &scale)?;
    }
    Ok(())
}

/// A reduce-scatter.
fn scattered<X: Transport>(run: &Run<'_, X>, rows: usize) -> fusewire::Result<()>
where
    activated::Hooks: Supports<ReduceScatter, X>,
{
    let Run { transport, device, stream, me, ranks, .. } = run;
    let (part, me, ranks) = (rows * COLS, *me, *ranks);
    let input = device.buffer_from(&bf16s(me, ranks * part))?;
    let kernel = activated::reduce_scatter(*transport)?;
    let bias = bf16s(ranks, COLS);
    let (biases, mut output) = (device.buffer_from(&bias)?, run.poisoned::<Bf16>(part)?);
    run.run("reduce-scatter, bias, GELU", rows, || {
        let (input, bias) = (input.view(), biases.view());
        let launch = activated::Launch { input, bias, output: output.view_mut() };
        kernel.launch_with(stream, launch, &run.options.in_one_step())
    })?;
    check("GELU", output.read(stream)?.iter().map(|x| x.to_f32()), |i| {
        let sum = (0..ranks).map(|rank| value(rank, me * part + i)).sum::<f64>();
        let x = sum + f64::from(bias[i % COLS].to_f32());
        let gelu = 0.5 * x * (1.0 + (0.797_884_560_8 * (x + 0.044_715 * x * x * x)).tanh());
        (gelu, rounding(gelu) + x.abs() * 1e-3)
    });
    if let Some(saved) = run.saved(rows) {
        saved.array("activated", "input", COLS, &input.read(stream)?)?;
        saved.array("activated", "bias", COLS, &biases.read(stream)?)?;
        saved.array("activated", "output", COLS, &output.read(stream)?)?;
    }
    Ok(())
}

/// An average, whose bits are those of the tree over the ranks.
fn mean<X: Transport>(run: &Run<'_, X>, rows: usize) -> fusewire::Result<()>
where
    averaged::Hooks: Supports<AllReduce, X>,
{
    let Run { transport, device, stream, me, ranks, .. } = run;
    let (n, ranks) = (rows * COLS, *ranks);
    let kernel = averaged::all_reduce(*transport)?;
    let (input, mut output) = (device.buffer_from(&bf16s(*me, n))?, run.poisoned::<Bf16>(n)?);
    run.run("average of gradients", rows, || {
        let launch = averaged::Launch { input: input.view(), output: output.view_mut() };
        kernel.launch_with(stream, launch, &run.options.how())
    })?;
    fn sum(ranks: std::ops::Range<usize>, i: usize) -> f32 {
        if ranks.len() == 1 {
            return Bf16::from_f32(number(ranks.start, i)).to_f32();
        }
        let middle = ranks.start + ranks.len().next_power_of_two() / 2;
        sum(ranks.start..middle, i) + sum(middle..ranks.end, i)
    }
    check("average", output.read(stream)?.iter().map(|x| x.to_f32()), |i| {
        (f64::from(Bf16::from_f32(sum(0..ranks, i) / ranks as f32).to_f32()), 0.0)
    });
    if let Some(saved) = run.saved(rows) {
        saved.array("averaged", "input", COLS, &input.read(stream)?)?;
        saved.array("averaged", "output", COLS, &output.read(stream)?)?;
    }
    Ok(())
}

/// An all-reduce and an all-gather of 8-bit floats. The all-reduce is of as many rows as all ranks have.
fn narrow<X: Transport>(run: &Run<'_, X>, rows: usize) -> fusewire::Result<()>
where
    both_ways::Hooks: Supports<AllReduce, X>,
    gathered::Hooks: Supports<AllGather, X>,
{
    let Run { transport, device, stream, me, ranks, .. } = run;
    let (part, me, ranks) = (rows * COLS, *me, *ranks);
    let n = ranks * part;
    let kernel = both_ways::all_reduce(*transport)?;
    let (input, mut output) = (device.buffer_from(&bf16s(me, n))?, run.poisoned::<Bf16>(n)?);
    run.run("all-reduce by e4m3 both ways", rows, || {
        let launch = both_ways::Launch { input: input.view(), output: output.view_mut() };
        kernel.launch_with(stream, launch, &run.options.how())
    })?;
    let most: Vec<Vec<f64>> = (0..ranks).map(|rank| greatest(n, 128, |i| value(rank, i))).collect();
    let sum = |i: usize| (0..ranks).map(|rank| value(rank, i)).sum::<f64>();
    let sent = |i: usize| (0..ranks).map(|rank| step(value(rank, i), most[rank][i / 128])).sum::<f64>();
    let sums = greatest(n, 128, |i| sum(i).abs() + sent(i));
    check("both ways", output.read(stream)?.iter().map(|x| x.to_f32()), |i| {
        (sum(i), sent(i) + 1.1 * step(sum(i).abs() + sent(i), sums[i / 128]) + rounding(sum(i)))
    });
    if let Some(saved) = run.saved(rows) {
        saved.array("both_ways", "input", COLS, &input.read(stream)?)?;
        saved.array("both_ways", "output", COLS, &output.read(stream)?)?;
    }

    let kernel = gathered::all_gather(*transport)?;
    let scales_of = |rank: usize| most[rank][..part / 128].iter().map(|most| (most / 448.0) as f32);
    let held = |rank: usize, i: usize| {
        let scale = (most[rank][i / 128] / 448.0) as f32;
        (F8E4M3::from_f32(value(rank, i) as f32 / scale), scale)
    };
    let input = device.buffer_from(&(0..part).map(|i| held(me, i).0).collect::<Vec<_>>())?;
    let scales = device.buffer_from(&scales_of(me).collect::<Vec<_>>())?;
    output.fill_bytes(stream, 0xff)?;
    run.run("all-gather of e4m3, bfloat16 where it arrives", rows, || {
        let (input, scales) = (input.view(), scales.view());
        let launch = gathered::Launch { input, scales, output: output.view_mut() };
        kernel.launch_with(stream, launch, &run.options.in_one_step())
    })?;
    check("gathered", output.read(stream)?.iter().map(|x| x.to_f32()), |i| {
        let (value, scale) = held(i / part, i % part);
        let want = f64::from(value.to_f32()) * f64::from(scale);
        (want, rounding(want))
    });
    if let Some(saved) = run.saved(rows) {
        saved.array("gathered", "input", COLS, &input.read(stream)?)?;
        saved.array("gathered", "scales", COLS / 128, &scales.read(stream)?)?;
        saved.array("gathered", "output", COLS, &output.read(stream)?)?;
    }
    Ok(())
}

fn rank<X: Transport>(transport: &X, options: &Options) -> fusewire::Result<()>
where
    per_tensor::Hooks: Supports<AllReduce, X>,
    per_group::Hooks: Supports<AllReduce, X>,
    averaged::Hooks: Supports<AllReduce, X>,
    both_ways::Hooks: Supports<AllReduce, X>,
    gathered::Hooks: Supports<AllGather, X>,
    activated::Hooks: Supports<ReduceScatter, X>,
{
    let world = transport.link().world();
    let (device, me, ranks) = (Device::of(transport), world.rank(), world.size());
    let stream = device.stream()?;
    let saved = options.save.run(&options.rows, me, ranks)?;
    let run = Run { transport, device, stream, options, saved, me, ranks };
    for &rows in &options.rows {
        normed(&run, rows)?;
        scattered(&run, rows)?;
        narrow(&run, rows)?;
        mean(&run, rows)?;
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
