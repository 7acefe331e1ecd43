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

/// Rows in place, of which every element that is sent tells of all that were read.
#[comm_kernel(
    transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb),
    schedules(all_reduce, reduce_scatter, reduce),
    grain = row(80),
    reduce(Linked)
)]
pub mod linked_rows {
    use fusewire::device::fold::Fold;

    /// As `linked_in_place` has it: device code sees its own module alone.
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

    /// As `linked_in_place` has them, by rows.
    pub struct Args<'a> {
        /// What a rank contributes, then what came of it.
        pub values: InOut<'a, u32>,
        /// What is added to each column.
        pub by: &'a [u32],
    }

    pub(crate) fn produce(ctx: &ProduceRow, args: &Args) -> Row<u32> {
        let row = args.values.get_row(ctx);
        let sum = row.sum(ctx);
        row.zip(&args.by.each_row(ctx), |x, by| x.wrapping_add(by).wrapping_add(sum))
    }

    pub(crate) fn consume(ctx: &ConsumeRow, args: &Args, row: Row<u32>) {
        let place = args.values.row(ctx);
        let old = place.get();
        let sum = old.sum(ctx);
        place.set(&row.zip(&old, |x, old| old.wrapping_mul(5).wrapping_add(x) ^ sum));
    }
}

/// The same of rows that are moved.
#[comm_kernel(
    transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb),
    schedules(all_gather, broadcast, scatter, gather),
    grain = row(80)
)]
pub mod moved_rows {
    /// As `linked_rows` has them.
    pub struct Args<'a> {
        /// What is sent, and what came of it.
        pub values: InOut<'a, u32>,
        /// What is added to each column.
        pub by: &'a [u32],
    }

    pub(crate) fn produce(ctx: &ProduceRow, args: &Args) -> Row<u32> {
        let row = args.values.get_row(ctx);
        let sum = row.sum(ctx);
        row.zip(&args.by.each_row(ctx), |x, by| x.wrapping_add(by).wrapping_add(sum))
    }

    pub(crate) fn consume(ctx: &ConsumeRow, args: &Args, row: Row<u32>) {
        let place = args.values.row(ctx);
        let old = place.get();
        let sum = old.sum(ctx);
        place.set(&row.zip(&old, |x, old| old.wrapping_mul(5).wrapping_add(x) ^ sum));
    }
}

/// A layer's end: all ranks' parts and the residual are added up, and the sum is normed in place of the part, by rows that warps share.
#[comm_kernel(
    transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb),
    schedules(all_reduce),
    grain = row(2304),
    elements(f32, Bf16),
    reduce(sum, f32)
)]
pub mod normed_in_place {
    /// One chunk of rows.
    pub struct Args<'a, T> {
        /// What a rank contributes, then the norm.
        pub hidden: InOut<'a, T>,
        /// What is added, then the sum.
        pub residual: Out<'a, T>,
        /// One for each column.
        pub gamma: &'a [T],
    }

    pub(crate) fn consume<T: Float>(ctx: &ConsumeRow, args: &Args<T>, row: Row<f32>) {
        let residual = args.residual.row(ctx);
        let x = row.zip(&residual.get().to_f32(), |x, residual| x + residual);
        residual.set(&x.to());
        let scale = 1.0 / (x.map(|x| x * x).sum(ctx) / 2304.0 + 1e-5);
        args.hidden
            .row(ctx)
            .set(&x.zip(&args.gamma.each_row(ctx).to_f32(), |x, gamma| x * scale * gamma).to());
    }
}

/// Scales on the wire in both directions, in place.
#[comm_kernel(
    transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb),
    schedules(all_reduce),
    grain = row(384),
    reduce(sum, f32, result = Scaled<F8E4M3, 128>)
)]
pub mod quantised_in_place {
    /// One chunk of rows.
    pub struct Args<'a> {
        /// What a rank contributes, then the sum.
        pub values: InOut<'a, F16>,
    }

    pub(crate) fn produce(ctx: &ProduceRow, args: &Args) -> Scaled<F8E4M3, 128> {
        args.values.get_row(ctx).to_f32().quantise(ctx)
    }

    pub(crate) fn consume(ctx: &ConsumeRow, args: &Args, row: Scaled<F8E4M3, 128>) {
        args.values.row(ctx).set(&row.dequantise().to());
    }
}

/// Rows without `consume`: sums that are rounded where they are stored, of bytes too.
#[comm_kernel(
    transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb),
    schedules(all_reduce, reduce_scatter),
    grain = row(64),
    elements(f32, F16, F8E4M3),
    reduce(sum, f32)
)]
pub mod summed_rows {
    /// One chunk of rows, or one for each rank.
    pub struct Args<'a, T> {
        /// What a rank contributes, then the sum.
        pub values: InOut<'a, T>,
    }

    pub(crate) fn produce<T: Float>(ctx: &ProduceRow, args: &Args<T>) -> Row<T> {
        args.values.get_row(ctx)
    }
}
