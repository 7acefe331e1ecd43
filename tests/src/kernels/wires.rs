//! Hooks whose wire type is not the element type.

use fusewire::prelude::*;

/// `f32` travels as `F8E4M3`.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub mod by_f8 {
    /// One chunk a peer, in and out.
    pub struct Args<'a> {
        /// What is rounded.
        pub input: &'a [f32],
        /// What is left of it.
        pub output: Out<'a, f32>,
        /// Factor before rounding, and divisor after it.
        pub scale: f32,
    }

    pub(crate) fn produce(ctx: &Produce, args: &Args) -> F8E4M3 {
        F8E4M3::from_f32(args.input[ctx.index()] * args.scale)
    }

    pub(crate) fn consume(ctx: &Consume, args: &Args, value: F8E4M3) {
        args.output.at(ctx).set(value.to_f32() / args.scale);
    }
}

/// `f32` travels as `Bf16`, and stays so.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub mod to_bf16 {
    /// One chunk a peer, in and out.
    pub struct Args<'a> {
        /// What is rounded.
        pub input: &'a [f32],
        /// What is left of it.
        pub output: Out<'a, Bf16>,
    }

    pub(crate) fn produce(ctx: &Produce, args: &Args) -> Bf16 {
        Bf16::from_f32(args.input[ctx.index()])
    }
}

/// Bytes travel as words four times their size: fewer elements to a pack than in the buffers.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub mod widened {
    /// One chunk a peer, in and out.
    pub struct Args<'a> {
        /// What is widened.
        pub input: &'a [u8],
        /// What arrived.
        pub output: Out<'a, u32>,
    }

    pub(crate) fn produce(ctx: &Produce, args: &Args) -> u32 {
        u32::from(args.input[ctx.index()]) * 0x0101_0101
    }
}
