//! Device math over all `f32`: whether the exact tier has the host's bits, and how large the errors of the fast tier are.
//!
//! `math --device cuda` takes less than a minute on 16 cores, which the host's side of the comparison needs. On CPU threads
//! (`--device host`) both sides are the host's: the program is tested so.

use clap::Parser;
use fusewire::kernel::Supports;
use fusewire::prelude::*;
use fusewire::schedule::{AllToAll, AllToAllLauncher};
use std::process::ExitCode;

/// Device math over all `f32`.
#[derive(Parser)]
struct Arguments {
    /// `host` or `cuda`.
    #[arg(long, default_value = "cuda", value_parser = ["host", "cuda"])]
    device: String,
    /// The exact tier is compared for each so many-th bit pattern.
    #[arg(long, default_value_t = 11)]
    stride: u32,
    /// The fast tier is measured for each so many-th bit pattern.
    #[arg(long, default_value_t = 1)]
    fast_stride: u32,
}

/// What is done with a bit pattern, and for each block of them one number comes back.
#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all))]
mod sweep {
    pub struct Args<'a> {
        /// Numbers of blocks.
        pub blocks: &'a [u32],
        pub output: Out<'a, u64>,
        pub function: u32,
        pub stride: u32,
        /// Bounds of the arguments of the fast tier.
        pub low: f32,
        pub high: f32,
    }

    pub fn produce(ctx: &Produce, args: &Args) -> u64 {
        let block = args.blocks[ctx.index()];
        if args.function < FAST { checksum(args.function, block, args.stride) } else { errors(args, block) }
    }

    /// Bit patterns in a block.
    pub const BLOCK: u64 = 4096;
    /// The first function of the fast tier; those before are exact.
    pub const FAST: u32 = 64;

    /// The bits of an exact function's results over a block, in order.
    pub fn checksum(function: u32, block: u32, stride: u32) -> u64 {
        let mut sum = 0u64;
        let first = u64::from(block) * BLOCK;
        for n in first..first + BLOCK {
            let bits = n * u64::from(stride);
            if bits <= u64::from(u32::MAX) {
                sum =
                    (sum ^ exact(function, bits as u32)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            }
        }
        sum
    }

    /// An exact function of what `bits` are, or are turned into where it has other arguments.
    pub fn exact(function: u32, bits: u32) -> u64 {
        let x = f32::from_bits(bits);
        let mixed = u64::from(bits).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (y, z) = (f32::from_bits(mixed as u32), f32::from_bits((mixed >> 32) as u32));
        // One half of all sizes, one half from -32 to 32.
        let w = if bits & 1 == 0 { f64::from_bits(mixed) } else { mixed as i64 as f64 / (1u64 << 58) as f64 };
        let narrow = |y: f32| u64::from(y.to_bits());
        match function {
            0 => narrow(math::exp(x)),
            1 => narrow(math::exp2(x)),
            2 => narrow(math::ln(x)),
            3 => narrow(math::log2(x)),
            4 => narrow(math::tanh(x)),
            5 => narrow(math::erf(x)),
            6 => narrow(math::sin(x)),
            7 => narrow(math::cos(x)),
            8 => narrow(math::sqrt(x)),
            9 => narrow(math::rsqrt(x)),
            10 => narrow(math::recip(x)),
            11 => narrow(math::floor(x)) ^ narrow(math::ceil(x)).rotate_left(16),
            12 => {
                narrow(math::trunc(x))
                    ^ narrow(math::round_ties_even(x)).rotate_left(16)
                    ^ narrow(math::round(x)).rotate_left(8)
            }
            13 => narrow(math::pow(x, w as f32)),
            14 => narrow(math::fma(x, y, z)),
            15 => narrow(math::min(x, y)) ^ narrow(math::max(x, y)).rotate_left(16),
            16 => narrow(math::min_nan(x, y)) ^ narrow(math::max_nan(x, y)).rotate_left(16),
            17 => math::exp(w).to_bits(),
            18 => math::exp2(w).to_bits(),
            19 => math::ln(w).to_bits(),
            20 => math::log2(w).to_bits(),
            21 => math::tanh(w).to_bits(),
            22 => math::erf(w).to_bits(),
            23 => math::sin(w).to_bits(),
            24 => math::cos(w).to_bits(),
            25 => math::sqrt(w).to_bits() ^ math::rsqrt(w).to_bits().rotate_left(16),
            26 => {
                math::recip(w).to_bits()
                    ^ math::floor(w).to_bits().rotate_left(16)
                    ^ math::round(w).to_bits().rotate_left(8)
            }
            27 => math::pow(math::recip(w), 0.25 * w).to_bits(),
            _ => {
                math::min(w, f64::from(x)).to_bits()
                    ^ math::max_nan(w, f64::from(x)).to_bits().rotate_left(16)
            }
        }
    }

    /// The largest error of a fast function over a block, in ulps, and by itself: the bits of two `f32`.
    fn errors(args: &Args, block: u32) -> u64 {
        let (mut ulps, mut absolute) = (0f32, 0f32);
        let first = u64::from(block) * BLOCK;
        for n in first..first + BLOCK {
            let bits = n * u64::from(args.stride);
            let (x, got, want, digits, least) = fast(args.function - FAST, bits as u32);
            // What is subnormal may be zero; what overflows is not looked at.
            let size = want.abs();
            let normal =
                x.abs() >= f32::MIN_POSITIVE && size >= power_of_two(least) && size < power_of_two(1 - least);
            if bits <= u64::from(u32::MAX) && normal && x >= args.low && x <= args.high {
                let error = (f64::from(got) - want).abs();
                let exponent = (want.to_bits() >> 52 & 0x7ff) as i32 - 1023;
                ulps = math::max_nan(ulps, (error / power_of_two(exponent - digits)) as f32);
                absolute = math::max_nan(absolute, error as f32);
            }
        }
        u64::from(ulps.to_bits()) << 32 | u64::from(absolute.to_bits())
    }

    fn power_of_two(k: i32) -> f64 {
        f64::from_bits(((k + 1023) as u64) << 52)
    }

    /// Argument, result, what it should be, digits of the mantissa and the least normal exponent of the result's type.
    fn fast(function: u32, bits: u32) -> (f32, f32, f64, i32, i32) {
        let x = f32::from_bits(bits);
        let w = f64::from(x);
        let (half, brain) = (F16::from_bits(bits as u16), Bf16::from_bits(bits as u16));
        let (h, b) = (half.to_f32(), brain.to_f32());
        let y = (bits.wrapping_mul(0x9e37_79b9) as i32 as f32) / (1 << 28) as f32;
        let (x, got, want) = match function {
            0 => (x, math::fast::exp2(x), math::exp2(w)),
            1 => (x, math::fast::exp(x), math::exp(w)),
            2 => (x, math::fast::log2(x), math::log2(w)),
            3 => (x, math::fast::ln(x), math::ln(w)),
            4 => (x, math::fast::sqrt(x), math::sqrt(w)),
            5 => (x, math::fast::rsqrt(x), math::rsqrt(w)),
            6 => (x, math::fast::recip(x), math::recip(w)),
            7 => (x, math::fast::sin(x), math::sin(w)),
            8 => (x, math::fast::cos(x), math::cos(w)),
            9 => (x, math::fast::tanh(x), math::tanh(w)),
            10 => (x, math::fast::erf(x), math::erf(w)),
            11 => (x, math::fast::pow(x, y), math::pow(w, f64::from(y))),
            12 => (h, math::fast::exp2(Pack::splat(half)).get(0).to_f32(), math::exp2(f64::from(h))),
            13 => (h, math::fast::tanh(Pack::splat(half)).get(0).to_f32(), math::tanh(f64::from(h))),
            14 => (b, math::fast::exp2(Pack::splat(brain)).get(0).to_f32(), math::exp2(f64::from(b))),
            _ => (b, math::fast::tanh(Pack::splat(brain)).get(0).to_f32(), math::tanh(f64::from(b))),
        };
        match function {
            0..12 => (x, got, want, 23, -126),
            12 | 13 => (x, got, want, 10, -14),
            _ => (x, got, want, 7, -126),
        }
    }
}

const EXACT: [&str; 29] = [
    "exp",
    "exp2",
    "ln",
    "log2",
    "tanh",
    "erf",
    "sin",
    "cos",
    "sqrt",
    "rsqrt",
    "recip",
    "floor, ceil",
    "trunc, round",
    "pow",
    "fma",
    "min, max",
    "min_nan, max_nan",
    "exp f64",
    "exp2 f64",
    "ln f64",
    "log2 f64",
    "tanh f64",
    "erf f64",
    "sin f64",
    "cos f64",
    "sqrt, rsqrt f64",
    "recip, floor f64",
    "pow f64",
    "min, max_nan f64",
];

const INF: f32 = f32::INFINITY;
const PI: f32 = std::f32::consts::PI;

/// Functions of the fast tier, by number, name and bounds of the argument.
const FAST: [(u32, &str, f32, f32); 21] = [
    (0, "exp2", -INF, INF),
    (1, "exp", -1.0, 1.0),
    (1, "exp", -INF, INF),
    (2, "log2", 0.0, 0.5),
    (2, "log2", 0.5, 2.0),
    (2, "log2", 2.0, INF),
    (3, "ln", 0.0, 0.5),
    (3, "ln", 0.5, 2.0),
    (3, "ln", 2.0, INF),
    (4, "sqrt", 0.0, INF),
    (5, "rsqrt", 0.0, INF),
    (6, "recip", -INF, INF),
    (7, "sin", -PI, PI),
    (8, "cos", -PI, PI),
    (9, "tanh", -INF, INF),
    (10, "erf", -INF, INF),
    (11, "pow, y to 8", 0.5, 2.0),
    (12, "exp2 f16x2", -INF, INF),
    (13, "tanh f16x2", -INF, INF),
    (14, "exp2 bf16x2", -INF, INF),
    (15, "tanh bf16x2", -INF, INF),
];

/// Blocks of one function's launch.
struct Sweep {
    function: u32,
    stride: u32,
    low: f32,
    high: f32,
}

impl Sweep {
    /// What the device has for each block of `patterns` bit patterns.
    fn run<X: Transport>(
        &self,
        kernel: &AllToAllLauncher<X, sweep::Hooks>,
        device: &Device,
        stream: &Stream,
        patterns: u64,
    ) -> fusewire::Result<Vec<u64>> {
        let count = patterns.div_ceil(u64::from(self.stride) * sweep::BLOCK) as u32;
        let blocks = device.buffer_from(&(0..count).collect::<Vec<_>>())?;
        let mut output = device.buffer::<u64>(count as usize)?;
        let &Sweep { function, stride, low, high } = self;
        let launch =
            sweep::Launch { blocks: blocks.view(), output: output.view_mut(), function, stride, low, high };
        kernel.launch(stream, launch)?;
        output.read(stream)
    }
}

/// In how many blocks the host's results differ; on all its cores.
fn differing(function: u32, stride: u32, device: &[u64]) -> usize {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = device.len().div_ceil(threads);
    let count = |part: usize, sums: &[u64]| {
        let block = |k: usize| (part * share + k) as u32;
        sums.iter()
            .enumerate()
            .filter(|&(k, &sum)| sweep::checksum(function, block(k), stride) != sum)
            .count()
    };
    std::thread::scope(|scope| {
        let parts = device.chunks(share).enumerate();
        let running: Vec<_> = parts.map(|(part, sums)| scope.spawn(move || count(part, sums))).collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    })
}

fn rank<X: Transport>(transport: &X, arguments: &Arguments) -> fusewire::Result<()>
where
    sweep::Hooks: Supports<AllToAll, X>,
{
    let (device, kernel) = (Device::of(transport), sweep::all_to_all(transport)?);
    let stream = device.stream()?;
    println!("on {}; exact tier, each {}. bit pattern:", X::NAME, arguments.stride);
    let mut wrong = 0;
    for (function, name) in (0..).zip(EXACT) {
        let sweep = Sweep { function, stride: arguments.stride, low: 0.0, high: 0.0 };
        let sums = sweep.run(&kernel, &device, &stream, 1 << 32)?;
        let differ = differing(function, arguments.stride, &sums);
        println!("{name:18} {differ} of {} blocks differ from the host's", sums.len());
        wrong += differ;
    }
    println!(
        "fast tier, each {}. bit pattern: largest error in ulp and by itself, results normal",
        arguments.fast_stride
    );
    for (number, name, low, high) in FAST {
        let (patterns, stride) = if number < 12 { (1 << 32, arguments.fast_stride) } else { (1 << 16, 1) };
        let sweep = Sweep { function: sweep::FAST + number, stride, low, high };
        let errors = sweep.run(&kernel, &device, &stream, patterns)?;
        let largest =
            |shift: u32| errors.iter().map(|e| f32::from_bits((e >> shift) as u32)).fold(0.0, f32::max);
        println!("{name:14} [{low:e}, {high:e}]  {:.3} ulp  {:e}", largest(32), largest(0));
    }
    assert_eq!(wrong, 0, "the exact tier has other bits than the host's");
    Ok(())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let run = |world: World| match arguments.device.as_str() {
        "cuda" => rank(&Nvl::rendezvous(&world, Options::default())?, &arguments),
        _ => rank(&Shm::rendezvous(&world, 1 << 20)?, &arguments),
    };
    match World::threads(1, run)
        .map_err(Into::into)
        .and_then(|ends| ends.into_iter().collect::<fusewire::Result<()>>())
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
