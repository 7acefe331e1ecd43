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

/// `Bf16` travels as `F8E4M3`, by packs: two and four of the outputs' for one of the wire.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub mod spread {
    /// One chunk a peer, in and out.
    pub struct Args<'a> {
        /// What is rounded.
        pub input: &'a [Bf16],
        /// What is left of it.
        pub output: Out<'a, Bf16>,
        /// What `output` holds when it has been set.
        pub seen: Out<'a, Bf16>,
        /// The same, wider, but for every third pack.
        pub wide: Out<'a, f32>,
    }

    pub(crate) fn produce(ctx: &Produce, args: &Args) -> Pack<F8E4M3> {
        let [low, high] = args.input.packs(ctx).map(|pack: Pack<Bf16>| pack.to_f32s());
        Pack::from_f32s(|k| if k < 8 { low[k] } else { high[k - 8] })
    }

    pub(crate) fn consume(ctx: &Consume, args: &Args, value: Pack<F8E4M3>) {
        let values = value.to_f32s();
        let place = args.output.at(ctx);
        place.set_packs([0, 8].map(|first| Pack::from_f32s(|k| values[first + k])));
        // A neighbour may have stored it.
        args.seen.at(ctx).set_packs(place.get_packs::<2>());
        // Not with all neighbours.
        if !(ctx.pos / 16).is_multiple_of(3) {
            args.wide.at(ctx).set_packs([0, 4, 8, 12].map(|first| Pack::from_f32s(|k| values[first + k])));
        }
    }
}
