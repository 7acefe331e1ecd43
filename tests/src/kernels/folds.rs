//! Hooks of schedules that fold.

use fusewire::prelude::*;

/// A sum of rounded values, rounded once: as a gradient is reduced.
#[comm_kernel(
    transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb),
    schedules(reduce_scatter, all_reduce, reduce),
    elements(f32, F16, Bf16, F8E4M3),
    reduce(sum, f32)
)]
pub mod summed {
    /// What a rank contributes, and the sum.
    pub struct Args<'a, T> {
        /// What this rank contributes.
        pub input: &'a [T],
        /// The sum.
        pub output: Out<'a, T>,
    }
}

/// A sum of integers.
#[comm_kernel(
    transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb),
    schedules(reduce_scatter, all_reduce, reduce),
    reduce(sum, i32)
)]
pub mod totals {
    /// What a rank contributes, and the sum.
    pub struct Args<'a> {
        /// What this rank contributes.
        pub input: &'a [i32],
        /// The sum.
        pub output: Out<'a, i32>,
    }
}

/// A fold that tells every order apart, chained over calls.
#[comm_kernel(
    transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb),
    schedules(reduce_scatter, all_reduce, reduce),
    reduce(Ordered)
)]
pub mod ordered {
    use fusewire::device::fold::Fold;

    /// Neither associative nor commutative.
    pub struct Ordered;

    impl Fold<u32> for Ordered {
        type Acc = u32;
        fn lift(value: u32) -> u32 {
            value ^ 0x5bd1_e995
        }
        fn fold(left: u32, right: u32) -> u32 {
            left.wrapping_mul(0x0100_0193).rotate_left(7).wrapping_add(right ^ right >> 15)
        }
    }

    /// What a rank contributes, and the chain so far.
    pub struct Args<'a> {
        /// What this rank contributes.
        pub input: &'a [u32],
        /// The chain so far.
        pub output: Out<'a, u32>,
        /// Calls of `consume`, by element of the output.
        pub calls: Accumulate<'a, u32>,
    }

    pub(crate) fn produce(ctx: &Produce, args: &Args) -> u32 {
        args.input[ctx.index()].wrapping_add(1)
    }

    pub(crate) fn consume(ctx: &Consume, args: &Args, value: u32) {
        args.calls.add(ctx.index(), 1);
        args.output.at(ctx).update(|old| old.wrapping_mul(0x0100_0193).wrapping_add(value));
    }
}

/// The mean of 8-bit floats from rank 0 up, with work on both sides.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb), schedules(all_reduce), reduce(average, f32, order = ranks))]
pub mod averaged {
    /// What a rank contributes, and the scaled mean.
    pub struct Args<'a> {
        /// What this rank contributes.
        pub input: &'a [f32],
        /// The scaled mean.
        pub output: Out<'a, f32>,
        /// The factor.
        pub scale: f32,
    }

    pub(crate) fn produce(ctx: &Produce, args: &Args) -> F8E4M3 {
        F8E4M3::from_f32(args.input[ctx.index()])
    }

    pub(crate) fn consume(ctx: &Consume, args: &Args, value: f32) {
        args.output.at(ctx).set(value * args.scale);
    }
}

/// The mean, rounded once for `consume` and for other ranks.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb), schedules(all_reduce), reduce(average, f32, result = Bf16))]
pub mod rounded {
    /// What a rank contributes, and what comes of it.
    pub struct Args<'a> {
        /// What this rank contributes.
        pub input: &'a [Bf16],
        /// The mean, and 1.
        pub output: Out<'a, f32>,
    }

    pub(crate) fn consume(ctx: &Consume, args: &Args, value: Bf16) {
        args.output.at(ctx).set(value.to_f32() + 1.0);
    }
}

/// The greatest of each element, in place of bytes.
#[comm_kernel(
    transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb),
    schedules(reduce_scatter),
    reduce(max, i64)
)]
pub mod greatest {
    /// What a rank contributes, and the greatest.
    pub struct Args<'a> {
        /// What this rank contributes.
        pub input: &'a [i64],
        /// The greatest.
        pub output: Out<'a, i64>,
    }
}
