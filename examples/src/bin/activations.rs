//! Math in hooks: GELU, SiLU, softmax and RMSNorm of what is sent, eight bfloat16 at a time.

use fusewire::prelude::*;
use std::f64::consts::FRAC_1_SQRT_2;

/// By the exact tier: the same bits on CPU threads and GPUs.
#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all))]
mod gelu {
    pub struct Args<'a> {
        pub input: &'a [Bf16],
        pub output: Out<'a, Bf16>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> Pack<Bf16> {
        // `map_f32` converts two elements with one instruction, and rounds once, at the end.
        let half = core::f32::consts::FRAC_1_SQRT_2;
        args.input.pack(ctx).map_f32(|x| 0.5 * x * (1.0 + math::erf(x * half)))
    }
}

/// By the fast tier: one instruction for each function.
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

/// Rows of eight, each in one pack.
#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all))]
mod softmax {
    pub struct Args<'a> {
        pub input: &'a [Bf16],
        pub output: Out<'a, Bf16>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> Pack<Bf16> {
        let row = args.input.pack(ctx).to_f32s();
        let largest = row[1..8].iter().fold(row[0], |most, &x| math::max(most, x));
        let powers: [f32; 8] = core::array::from_fn(|k| math::fast::exp(row[k] - largest));
        let scale = math::fast::recip(powers.iter().sum::<f32>());
        Pack::from_f32s(|k| powers[k] * scale)
    }
}

/// Rows of eight, each in one pack.
#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all))]
mod rms_norm {
    pub struct Args<'a> {
        pub input: &'a [Bf16],
        pub output: Out<'a, Bf16>,
        pub epsilon: f32,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> Pack<Bf16> {
        let row = args.input.pack(ctx).to_f32s();
        let squares = row[..8].iter().fold(0.0, |sum, &x| math::fma(x, x, sum));
        let scale = math::fast::rsqrt(math::fma(squares, 1.0 / 8.0, args.epsilon));
        Pack::from_f32s(|k| row[k] * scale)
    }
}

/// Compares with what `f64` gives, row by row, and says so.
fn check(name: &str, input: &[Bf16], output: &[Bf16], row: impl Fn(&[f64]) -> Vec<f64>) {
    for (x, y) in input.chunks(8).zip(output.chunks(8)) {
        let x: Vec<f64> = x.iter().map(|x| x.to_f32().into()).collect();
        for (got, want) in y.iter().map(|y| f64::from(y.to_f32())).zip(row(&x)) {
            // Half a unit in the last place of a bfloat16, and what `f32` loses where 1 + erf vanishes.
            assert!(
                (got - want).abs() <= want.abs() * 0.502 / 128.0 + 3e-7,
                "{name} of {x:?}: {got}, not {want}"
            );
        }
    }
    println!("{name}: {} elements are right", output.len());
}

fn rank(world: World) -> fusewire::Result<()> {
    let shm = Shm::rendezvous(&world, 1 << 20)?; // or `Nvl`, on GPUs
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let numbers: Vec<Bf16> =
        (0..4096).map(|i| Bf16::from_f32((i * 37 % 1009) as f32 / 100.0 - 5.0)).collect();
    let input = device.buffer_from(&numbers)?;
    let mut output = device.buffer::<Bf16>(numbers.len())?;
    // Each rank has the same input, and sends a chunk of it to each: what arrives is the own chunk, once from each.
    let chunk = &numbers[numbers.len() / world.size() * world.rank()..][..numbers.len() / world.size()];
    let arrived = chunk.repeat(world.size());

    let kernel = gelu::all_to_all(&shm)?;
    kernel.launch(&stream, gelu::Launch { input: input.view(), output: output.view_mut() })?;
    check("GELU", &arrived, &output.read(&stream)?, |x| {
        x.iter().map(|x| 0.5 * x * (1.0 + f64::from(math::erf((x * FRAC_1_SQRT_2) as f32)))).collect()
    });

    let kernel = silu::all_to_all(&shm)?;
    kernel.launch(&stream, silu::Launch { input: input.view(), output: output.view_mut() })?;
    check("SiLU", &arrived, &output.read(&stream)?, |x| x.iter().map(|x| x / (1.0 + (-x).exp())).collect());

    let kernel = softmax::all_to_all(&shm)?;
    kernel.launch(&stream, softmax::Launch { input: input.view(), output: output.view_mut() })?;
    check("softmax", &arrived, &output.read(&stream)?, |x| {
        let sum: f64 = x.iter().map(|x| x.exp()).sum();
        x.iter().map(|x| x.exp() / sum).collect()
    });

    let kernel = rms_norm::all_to_all(&shm)?;
    let launch = rms_norm::Launch { input: input.view(), output: output.view_mut(), epsilon: 1e-5 };
    kernel.launch(&stream, launch)?;
    check("RMSNorm", &arrived, &output.read(&stream)?, |x| {
        let squares: f64 = x.iter().map(|x| x * x).sum();
        x.iter().map(|x| x / (squares / 8.0 + 1e-5).sqrt()).collect()
    });
    Ok(())
}

fn main() -> fusewire::Result<()> {
    World::threads(2, rank)?.into_iter().collect()
}
