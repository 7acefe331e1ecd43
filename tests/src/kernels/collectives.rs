//! Hooks of schedules in which ranks send, or receive, the same chunk.

use fusewire::prelude::*;

/// A chain over calls, as [`chain`](super::hooks::chain), which counts how often each element was produced.
#[comm_kernel(
    transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb),
    schedules(all_gather, broadcast, scatter, gather)
)]
pub mod counted {
    /// The next link, and the chain so far.
    pub struct Args<'a> {
        /// The next link.
        pub input: &'a [u32],
        /// The chain so far.
        pub output: Out<'a, u32>,
        /// Calls of `produce`, by element of the input.
        pub calls: Accumulate<'a, u32>,
    }

    pub(crate) fn produce(ctx: &Produce, args: &Args) -> u32 {
        args.calls.add(ctx.index(), 1);
        args.input[ctx.index()]
    }

    pub(crate) fn consume(ctx: &Consume, args: &Args, value: u32) {
        args.output.at(ctx).update(|old| old.wrapping_mul(0x0100_0193).wrapping_add(value));
    }
}

/// By pack: scaled on the way out.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb), schedules(all_gather))]
pub mod scaled {
    /// One chunk in, one of every rank out.
    pub struct Args<'a> {
        /// What is scaled.
        pub input: &'a [f32],
        /// Every rank's.
        pub output: Out<'a, f32>,
        /// The factor.
        pub factor: f32,
    }

    pub(crate) fn produce(ctx: &Produce, args: &Args) -> Pack<f32> {
        args.input.pack(ctx).map(|x| x * args.factor)
    }
}

/// As it is.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb), schedules(all_gather))]
pub mod gathered {
    /// One chunk in, one of every rank out.
    pub struct Args<'a> {
        /// This rank's.
        pub input: &'a [u32],
        /// Every rank's.
        pub output: Out<'a, u32>,
    }
}
