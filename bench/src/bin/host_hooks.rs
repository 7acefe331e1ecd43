//! Hooks on CPU threads beside a plain loop over the same bytes: what fusing costs there.
//!
//! One rank, one thread: both sides read the input, compute, and update the output, once. `cargo run --release --bin host_hooks`.

use clap::Parser;
use fusewire::prelude::*;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Adds what arrives, scaled, element by element.
#[comm_kernel(transports(Shm), schedules(all_to_all))]
mod scale_add {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        2.0 * args.input[ctx.index()]
    }
    pub fn consume(ctx: &Consume, args: &Args, value: f32) {
        args.output.at(ctx).add(value);
    }
}

/// The same by pack.
#[comm_kernel(transports(Shm), schedules(all_to_all))]
mod scale_add_packs {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> Pack<f32> {
        args.input.pack(ctx).map(|x| 2.0 * x)
    }
    pub fn consume(ctx: &Consume, args: &Args, value: Pack<f32>) {
        let own = args.output.at(ctx);
        own.set_pack(own.get_pack().zip(value, |a, b| a + b));
    }
}

/// Sends elements in the order of a table.
#[comm_kernel(transports(Shm), schedules(all_to_all))]
mod permute {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub order: &'a [u32],
        pub output: Out<'a, u32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> u32 {
        args.input[args.order[ctx.index()] as usize]
    }
}

/// Eight bits on the wire, by pack.
#[comm_kernel(transports(Shm), schedules(all_to_all))]
mod to_f8 {
    pub struct Args<'a> {
        pub input: &'a [Bf16],
        pub output: Out<'a, F8E4M3>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> Pack<F8E4M3> {
        let [low, high] = args.input.packs::<2>(ctx).map(Pack::to_f32s);
        Pack::from_f32s(|k| if k < 8 { low[k] } else { high[k - 8] })
    }
}

/// The larger of what arrives and what is there, by pack.
#[comm_kernel(transports(Shm), schedules(all_to_all))]
mod maximum {
    pub struct Args<'a> {
        pub input: &'a [i32],
        pub output: Out<'a, i32>,
    }
    pub fn consume(ctx: &Consume, args: &Args, value: Pack<i32>) {
        let own = args.output.at(ctx);
        own.set_pack(own.get_pack().zip(value, |a, b| if a > b { a } else { b }));
    }
}

/// Bytes against a mask, by pack.
#[comm_kernel(transports(Shm), schedules(all_to_all))]
mod masked {
    pub struct Args<'a> {
        pub input: &'a [u8],
        pub mask: u8,
        pub output: Out<'a, u8>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> Pack<u8> {
        args.input.pack(ctx).map(|x| x & args.mask)
    }
}

/// What is below zero becomes zero, by pack.
#[comm_kernel(transports(Shm), schedules(all_to_all))]
mod rectified {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub bias: f32,
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> Pack<f32> {
        args.input.pack(ctx).map(|x| if x + args.bias > 0.0 { x + args.bias } else { 0.0 })
    }
}

/// Hooks on CPU threads beside plain loops.
#[derive(Parser)]
struct Options {
    /// Bytes of the input.
    #[arg(long, default_value_t = 1 << 20)]
    bytes: usize,
    /// Rounds, of which the median is told.
    #[arg(long, default_value_t = 25)]
    rounds: usize,
}

/// The median time of each of two, run in turn.
fn in_turn(
    rounds: usize,
    mut plain: impl FnMut(),
    mut hooks: impl FnMut() -> fusewire::Result<()>,
) -> fusewire::Result<[Duration; 2]> {
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..rounds + 2 {
        let start = Instant::now();
        plain();
        let between = Instant::now();
        hooks()?;
        if round >= 2 {
            times[0].push(between - start);
            times[1].push(between.elapsed());
        }
    }
    Ok(times.map(|mut t| {
        t.sort();
        t[t.len() / 2]
    }))
}

macro_rules! row {
    ($options:ident, $shm:ident, $module:ident, [$($field:ident: $value:expr),*], $input:expr => $output:ty, |$x:ident, $y:ident| $body:expr) => {{
        let (device, stream) = (Device::of(&$shm), Device::of(&$shm).stream()?);
        let $x = $input;
        let mut own = vec![<$output>::default(); $x.len()];
        let (input, mut output) = (device.buffer_from(&$x)?, device.buffer::<$output>($x.len())?);
        let kernel = $module::all_to_all(&$shm)?;
        let one = LaunchOptions::default().blocks(1);
        let [plain, hooks] = in_turn(
            $options.rounds,
            || {
                let $y = &mut own;
                $body;
                black_box(&mut own);
            },
            || {
                let args = $module::Launch { input: input.view(), $($field: $value,)* output: output.view_mut() };
                kernel.launch_with(&stream, args, &one)?;
                stream.synchronize()
            },
        )?;
        assert!(output.read(&stream)? == own, "{} differs from the plain loop", stringify!($module));
        let (plain, hooks) = (plain.as_secs_f64() * 1e6, hooks.as_secs_f64() * 1e6);
        println!("{:16} {plain:9.1} us {hooks:9.1} us {:6.2}", stringify!($module), hooks / plain);
    }};
}

fn main() -> fusewire::Result<()> {
    let options = Options::parse();
    World::threads(1, |world| rows(&world, &options))?.into_iter().collect()
}

fn rows(world: &World, rounds: &Options) -> fusewire::Result<()> {
    let shm = Shm::rendezvous(world, 1 << 20)?;
    println!("{:16} {:>12} {:>12} {:>6}", "hooks", "plain loop", "fusewire", "ratio");
    let (floats, words) = (rounds.bytes / 4, rounds.bytes / 4);
    let reals = || (0..floats).map(|i| (i % 1000) as f32 - 500.0).collect::<Vec<f32>>();
    row!(rounds, shm, scale_add, [], reals() => f32, |x, y| {
        for (y, x) in y.iter_mut().zip(&x) { *y += 2.0 * x; }
    });
    row!(rounds, shm, scale_add_packs, [], reals() => f32, |x, y| {
        for (y, x) in y.iter_mut().zip(&x) { *y += 2.0 * x; }
    });
    let order: Vec<u32> = (0..words).map(|i| (i * 7919 % words) as u32).collect();
    let table = Device::of(&shm).buffer_from(&order)?;
    row!(rounds, shm, permute, [order: table.view()], (0..words as u32).collect::<Vec<_>>() => u32, |x, y| {
        for (y, from) in y.iter_mut().zip(&order) { *y = x[*from as usize]; }
    });
    let narrow = (0..rounds.bytes / 2).map(|i| Bf16::from_f32((i % 300) as f32 / 8.0)).collect::<Vec<_>>();
    row!(rounds, shm, to_f8, [], narrow => F8E4M3, |x, y| {
        for (y, x) in y.iter_mut().zip(&x) { *y = F8E4M3::from_f32(x.to_f32()); }
    });
    row!(rounds, shm, maximum, [], (0..words as i32).map(|i| i ^ 0x55).collect::<Vec<_>>() => i32, |x, y| {
        for (y, x) in y.iter_mut().zip(&x) { *y = (*y).max(*x); }
    });
    row!(rounds, shm, masked, [mask: 0x5f], (0..rounds.bytes).map(|i| i as u8).collect::<Vec<_>>() => u8, |x, y| {
        for (y, x) in y.iter_mut().zip(&x) { *y = x & 0x5f; }
    });
    row!(rounds, shm, rectified, [bias: 3.0], reals() => f32, |x, y| {
        for (y, x) in y.iter_mut().zip(&x) { *y = (x + 3.0).max(0.0); }
    });
    Ok(())
}
