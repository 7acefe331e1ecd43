//! The hooks of `bench_fused`: what people put around an all-to-all of bfloat16, fused into it.

use fusewire::prelude::*;

/// Copies.
#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all, sendrecv))]
pub mod copy {
    /// Arguments.
    pub struct Args<'a> {
        /// What to send.
        pub input: &'a [Bf16],
        /// What was received.
        pub output: Out<'a, Bf16>,
    }
}

/// Transposes each chunk on the way. `ctx.rows` and `ctx.cols` are those of the chunk as it arrives.
#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all), layout(transposed))]
pub mod transpose {
    /// Arguments.
    pub struct Args<'a> {
        /// One matrix of `ctx.cols` rows for each rank.
        pub input: &'a [Bf16],
        /// One matrix of `ctx.rows` rows from each rank.
        pub output: Out<'a, Bf16>,
    }

    /// The element that the transpose has here.
    pub fn produce(ctx: &Produce, args: &Args) -> Bf16 {
        args.input.transposed(ctx)
    }
}

/// The same without tiles: each element is fetched from where it stands.
#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all))]
pub mod transpose_gather {
    /// Arguments.
    pub struct Args<'a> {
        /// As for [`transpose`](super::transpose).
        pub input: &'a [Bf16],
        /// As for [`transpose`](super::transpose).
        pub output: Out<'a, Bf16>,
    }

    /// The element that the transpose has here.
    pub fn produce(ctx: &Produce, args: &Args) -> Bf16 {
        args.input[ctx.transposed_index()]
    }
}

/// Sends rows of the input in the order of a list, as an expert-parallel layer sends tokens.
#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all))]
pub mod permute {
    /// Arguments.
    pub struct Args<'a> {
        /// Rows of `width` elements.
        pub input: &'a [Bf16],
        /// Which row of the input is sent as each row.
        pub order: &'a [u32],
        /// The rows that were received.
        pub output: Out<'a, Bf16>,
        /// Elements of a row, a multiple of 8.
        pub width: u32,
    }

    /// Eight elements of the row that the list names.
    pub fn produce(ctx: &Produce, args: &Args) -> Pack<Bf16> {
        let at = ctx.index() as u32;
        let (row, col) = (at / args.width, at % args.width);
        args.input.pack_at(args.order[row as usize] as usize * args.width as usize + col as usize)
    }
}

/// Adds what arrives to what is there.
#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all))]
pub mod add {
    /// Arguments.
    pub struct Args<'a> {
        /// What to send.
        pub input: &'a [Bf16],
        /// What to add to.
        pub output: Out<'a, Bf16>,
    }

    /// Eight sums, each rounded once.
    pub fn consume(ctx: &Consume, args: &Args, value: Pack<Bf16>) {
        args.output.at(ctx).update_pack(|old| old.zip_f32(value, |a, b| a + b));
    }
}

/// Scales what is sent: a hook that costs an instruction.
#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all))]
pub mod scale {
    /// Arguments.
    pub struct Args<'a> {
        /// What to send.
        pub input: &'a [Bf16],
        /// What was received.
        pub output: Out<'a, Bf16>,
        /// The factor.
        pub factor: f32,
    }

    /// Eight products.
    pub fn produce(ctx: &Produce, args: &Args) -> Pack<Bf16> {
        args.input.pack(ctx).map_f32(|v| v * args.factor)
    }
}

/// bfloat16 in memory, 8-bit floats on the wire, by one scale for the whole tensor that the caller knows. GPUs convert from sm_89 on:
/// the image for older ones does it in software.
#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all), archs(sm_80, sm_90))]
pub mod fp8 {
    /// Arguments.
    pub struct Args<'a> {
        /// What to send.
        pub input: &'a [Bf16],
        /// What was received, widened.
        pub output: Out<'a, Bf16>,
        /// What an 8-bit one stands for.
        pub scale: f32,
        /// 1 / `scale`.
        pub inverse: f32,
    }

    /// Sixteen elements, narrowed.
    pub fn produce(ctx: &Produce, args: &Args) -> Pack<F8E4M3> {
        let [low, high] = args.input.packs(ctx).map(|pack: Pack<Bf16>| pack.to_f32s());
        Pack::from_f32s(|k| args.inverse * if k < 8 { low[k] } else { high[k - 8] })
    }

    /// Sixteen elements, widened.
    pub fn consume(ctx: &Consume, args: &Args, value: Pack<F8E4M3>) {
        let values = value.to_f32s();
        let half = |first: usize| Pack::from_f32s(|k| args.scale * values[first + k]);
        args.output.at(ctx).set_packs([half(0), half(8)]);
    }
}
