//! Hooks that compute.

use fusewire::prelude::*;

/// Sends each chunk transposed; the receiver adds it to what it has.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub mod transpose_add {
    /// Chunks of `rows` x `cols`.
    pub struct Args<'a> {
        /// Row-major chunks.
        pub input: &'a [f32],
        /// Sums of their transposes.
        pub output: Out<'a, f32>,
        /// Rows of a chunk of the input.
        pub rows: usize,
        /// Columns of a chunk of the input.
        pub cols: usize,
    }

    pub(crate) fn produce(ctx: &Produce, args: &Args) -> f32 {
        let (row, col) = (ctx.pos % args.rows, ctx.pos / args.rows);
        args.input[ctx.chunk_start + row * args.cols + col]
    }

    pub(crate) fn consume(ctx: &Consume, args: &Args, value: f32) {
        args.output.at(ctx).add(value);
    }
}

/// Transposes each chunk on the way, by tiles.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb), layout(transposed))]
pub mod tiles {
    /// Chunks of `ctx.cols` rows in, of `ctx.rows` rows out.
    pub struct Args<'a> {
        /// Row-major chunks.
        pub input: &'a [Bf16],
        /// Their transposes.
        pub output: Out<'a, Bf16>,
    }

    pub(crate) fn produce(ctx: &Produce, args: &Args) -> Bf16 {
        args.input.transposed(ctx)
    }
}

/// By pack: scaled on the way out, added on arrival.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub mod scale_add {
    /// One chunk a peer, in and out.
    pub struct Args<'a> {
        /// What is scaled.
        pub input: &'a [f32],
        /// What it is added to.
        pub output: Out<'a, f32>,
        /// The factor.
        pub factor: f32,
    }

    pub(crate) fn produce(ctx: &Produce, args: &Args) -> Pack<f32> {
        args.input.pack(ctx).map(|x| x * args.factor)
    }

    pub(crate) fn consume(ctx: &Consume, args: &Args, value: Pack<f32>) {
        args.output.at(ctx).update_pack(|old| old.zip(value, |a, b| a + b));
    }
}

/// Sends `input[index[i] + AFTER]` in place of element `i`.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb), schedules(all_to_all), values(0, 7))]
pub mod gather {
    /// One chunk a peer in `index` and `output`; `input` has any length.
    pub struct Args<'a, const AFTER: usize> {
        /// Where values come from.
        pub input: &'a [i32],
        /// Which of them are sent.
        pub index: &'a [u32],
        /// What arrived.
        pub output: Out<'a, i32>,
    }

    pub(crate) fn produce<const AFTER: usize>(ctx: &Produce, args: &Args<AFTER>) -> i32 {
        args.input[args.index[ctx.index()] as usize + AFTER]
    }

    pub(crate) fn consume<const AFTER: usize>(ctx: &Consume, args: &Args<AFTER>, value: i32) {
        args.output.at(ctx).set(value);
    }
}

/// Says in each value who sent it, from which row and column, and checks on arrival that both ends count alike.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub mod places {
    /// No input: `produce` makes all of it.
    pub struct Args<'a> {
        /// Who sent the element and from where; all ones where the ends differ.
        pub output: Out<'a, u64>,
    }

    pub(crate) fn produce(ctx: &Produce, _args: &Args) -> u64 {
        let (row, col) = ctx.row_col();
        (ctx.rank as u64) << 56 | (ctx.peer as u64) << 48 | (row as u64) << 24 | col as u64
    }

    pub(crate) fn consume(ctx: &Consume, args: &Args, value: u64) {
        let (row, col) = ctx.row_col();
        let here = (ctx.peer as u64) << 56 | (ctx.rank as u64) << 48 | (row as u64) << 24 | col as u64;
        let whole = ctx.rows * ctx.cols == ctx.chunk_len && ctx.valid == 1 && ctx.pos < ctx.chunk_len;
        args.output.at(ctx).set(if here == value && whole { value } else { !0 });
    }
}

/// Counts what arrives.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub mod histogram {
    /// One chunk a peer in `input`.
    pub struct Args<'a> {
        /// Bucket of each element.
        pub input: &'a [u32],
        /// How often each bucket came.
        pub counts: Accumulate<'a, u32>,
        /// How often, in floating point.
        pub weights: Accumulate<'a, f64>,
    }

    pub(crate) fn consume(_ctx: &Consume, args: &Args, value: u32) {
        let bucket = value as usize;
        args.counts.add(bucket, 1);
        args.weights.add(bucket, 0.5);
    }
}

/// A chain over calls: a call that is lost, doubled or out of order changes everything after it.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub mod chain {
    /// One chunk a peer, in and out.
    pub struct Args<'a> {
        /// The next link.
        pub input: &'a [u32],
        /// The chain so far.
        pub output: Out<'a, u32>,
    }

    pub(crate) fn produce(ctx: &Produce, args: &Args) -> Pack<u32> {
        args.input.pack(ctx)
    }

    pub(crate) fn consume(ctx: &Consume, args: &Args, value: Pack<u32>) {
        args.output
            .at(ctx)
            .update_pack(|old| old.zip(value, |a, b| a.wrapping_mul(0x01000193).wrapping_add(b)));
    }
}
