//! The hooks of the demo: one module each, as a user would write them.

use fusewire::prelude::*;

/// Copies: both hooks are left out, so what is sent is `input` and what arrives goes to `output`.
#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all, sendrecv))]
pub mod copy {
    /// Arguments.
    pub struct Args<'a> {
        /// What to send: one chunk for each rank.
        pub input: &'a [f32],
        /// What was received: one chunk from each rank.
        pub output: Out<'a, f32>,
    }
}

/// Transposes each chunk on the way: `rows` x `cols` becomes `cols` x `rows`.
#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all))]
pub mod transpose {
    /// Arguments.
    pub struct Args<'a> {
        /// One row-major matrix for each rank.
        pub input: &'a [f32],
        /// One transposed matrix from each rank.
        pub output: Out<'a, f32>,
        /// Rows of an input matrix.
        pub rows: usize,
        /// Columns of an input matrix.
        pub cols: usize,
    }

    /// The element that stands at `ctx.pos` of the transposed chunk.
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        let (row, col) = (ctx.pos % args.rows, ctx.pos / args.rows);
        args.input[ctx.chunk_start + row * args.cols + col]
    }
}

/// Scales what is sent and adds what arrives, 16 bytes at a time.
#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all))]
pub mod scale_add {
    /// Arguments.
    pub struct Args<'a> {
        /// What to send.
        pub input: &'a [f32],
        /// What to add to.
        pub output: Out<'a, f32>,
        /// Factor on what is sent.
        pub scale: f32,
    }

    /// Four elements, scaled.
    pub fn produce(ctx: &Produce, args: &Args) -> Pack<f32> {
        args.input.pack(ctx).map(|v| v * args.scale)
    }

    /// Four elements, added.
    pub fn consume(ctx: &Consume, args: &Args, value: Pack<f32>) {
        args.output.at(ctx).update_pack(|old| old.zip(value, |a, b| a + b));
    }
}

/// Sends the elements that an index list names: a permutation, or any selection.
#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all))]
pub mod gather {
    /// Arguments.
    pub struct Args<'a> {
        /// Where elements are taken from.
        pub input: &'a [f32],
        /// Which element stands at each place of what is sent.
        pub index: &'a [u32],
        /// What was received.
        pub output: Out<'a, f32>,
    }

    /// The element that the list names.
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        args.input[args.index[ctx.index()] as usize]
    }
}
