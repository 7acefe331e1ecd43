//! Hooks whose input and output are one buffer.

use fusewire::prelude::*;

/// A sum of rounded values in place of what this rank contributes.
#[comm_kernel(
    transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb),
    schedules(all_reduce, reduce_scatter),
    reduce(sum, f32)
)]
pub mod summed_in_place {
    /// What a rank contributes, then the sum.
    pub struct Args<'a> {
        /// What this rank contributes, then the sum.
        pub values: InOut<'a, Bf16>,
    }
}

/// A fold that tells every order apart, in place, with work on both sides.
#[comm_kernel(
    transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb),
    schedules(all_reduce, reduce_scatter, reduce),
    reduce(Linked)
)]
pub mod linked_in_place {
    use fusewire::device::fold::Fold;

    /// Neither associative nor commutative.
    pub struct Linked;

    impl Fold<u32> for Linked {
        type Acc = u32;
        fn lift(value: u32) -> u32 {
            value
        }
        fn fold(left: u32, right: u32) -> u32 {
            left.rotate_left(9) ^ right.wrapping_mul(0x9e37_79b1)
        }
    }

    /// What a rank contributes, then what came of it.
    pub struct Args<'a> {
        /// What a rank contributes, then what came of it.
        pub values: InOut<'a, u32>,
        /// What is added to each of a chunk.
        pub by: &'a [u32],
    }

    pub(crate) fn produce(ctx: &Produce, args: &Args) -> u32 {
        args.values.get(ctx).wrapping_add(args.by[ctx.pos])
    }

    pub(crate) fn consume(ctx: &Consume, args: &Args, value: u32) {
        args.values.at(ctx).update(|old| old.wrapping_mul(5).wrapping_add(value));
    }
}

/// What is moved in place, with work on both sides.
#[comm_kernel(
    transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb),
    schedules(all_gather, broadcast, scatter, gather)
)]
pub mod moved_in_place {
    /// As `linked_in_place` has them.
    pub struct Args<'a> {
        /// What is sent, and what came of it.
        pub values: InOut<'a, u32>,
        /// What is added to each of a chunk.
        pub by: &'a [u32],
    }

    pub(crate) fn produce(ctx: &Produce, args: &Args) -> u32 {
        args.values.get(ctx).wrapping_add(args.by[ctx.pos])
    }

    pub(crate) fn consume(ctx: &Consume, args: &Args, value: u32) {
        args.values.at(ctx).update(|old| old.wrapping_mul(5).wrapping_add(value));
    }
}

/// As it is.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb), schedules(all_gather))]
pub mod gathered_in_place {
    /// One chunk of every rank.
    pub struct Args<'a> {
        /// This rank's chunk, then all.
        pub values: InOut<'a, u16>,
    }
}
