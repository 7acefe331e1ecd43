//! Hooks that only move bits.

use fusewire::prelude::*;

/// No hooks at all: whole packs wherever they are aligned.
#[comm_kernel(
    transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb),
    elements(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64, F16, Bf16, F8E4M3, F8E5M2)
)]
pub mod copy {
    /// One chunk a peer, in and out.
    pub struct Args<'a, T> {
        /// What is sent.
        pub input: &'a [T],
        /// What arrived.
        pub output: Out<'a, T>,
    }
}

/// Each chunk backwards, element by element.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb), elements(u8, u16, u32, u64))]
pub mod reverse {
    /// One chunk a peer, in and out.
    pub struct Args<'a, T> {
        /// What is sent.
        pub input: &'a [T],
        /// What arrived.
        pub output: Out<'a, T>,
    }

    pub(crate) fn produce<T: Element>(ctx: &Produce, args: &Args<T>) -> T {
        args.input[ctx.chunk_start + ctx.chunk_len - 1 - ctx.pos]
    }

    pub(crate) fn consume<T: Element>(ctx: &Consume, args: &Args<T>, value: T) {
        args.output.at(ctx).set(value);
    }
}

/// By element, in all variants.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb), unroll(2, 1, 4, 8))]
pub mod reverse_unrolled {
    /// One chunk a peer, in and out.
    pub struct Args<'a> {
        /// What is sent.
        pub input: &'a [u32],
        /// What arrived.
        pub output: Out<'a, u32>,
    }

    pub(crate) fn produce(ctx: &Produce, args: &Args) -> u32 {
        args.input[ctx.chunk_start + ctx.chunk_len - 1 - ctx.pos]
    }

    pub(crate) fn consume(ctx: &Consume, args: &Args, value: u32) {
        args.output.at(ctx).set(value);
    }
}

/// By pack, in all variants.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb), unroll(8, 4, 2, 1))]
pub mod unrolled {
    /// One chunk a peer, in and out.
    pub struct Args<'a> {
        /// What is sent.
        pub input: &'a [u16],
        /// What arrived.
        pub output: Out<'a, u16>,
    }
}
