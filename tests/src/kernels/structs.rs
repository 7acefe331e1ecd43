//! Hooks whose elements are structs.

use fusewire::prelude::*;

/// The greatest value of all ranks, and where it was.
#[comm_kernel(
    transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb),
    schedules(all_reduce, reduce_scatter),
    reduce(Greatest)
)]
pub mod found {
    use fusewire::device::fold::Fold;

    /// A value, and the place that it has.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
    #[repr(C)]
    pub struct Found {
        /// The value.
        pub value: f32,
        /// Where it was.
        pub place: u32,
    }

    /// The greatest value, of equal ones that of the lowest rank.
    pub struct Greatest;

    impl Fold<Found> for Greatest {
        type Acc = Found;
        fn lift(one: Found) -> Found {
            one
        }
        fn fold(left: Found, right: Found) -> Found {
            if right.value > left.value { right } else { left }
        }
    }

    /// What a rank has, and the greatest.
    pub struct Args<'a> {
        /// What this rank has.
        pub input: &'a [Found],
        /// The greatest of all ranks.
        pub output: Out<'a, Found>,
    }
}

/// Points of 12 bytes cross in 16, and become 24.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb), schedules(all_to_all, sendrecv))]
pub mod points {
    /// A point as it lies in memory.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
    #[repr(transparent)]
    pub struct Point(pub [f32; 3]);

    /// A point on the way.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
    #[repr(C)]
    pub struct Moved {
        to: Point,
        weight: Weight,
    }

    #[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
    #[repr(C)]
    struct Weight {
        of: u16,
        parts: [u8; 2],
    }

    /// A point that arrived.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
    #[repr(C)]
    pub struct Arrived {
        /// Of which rank, and its place there.
        pub from: [u32; 2],
        /// Where it is.
        pub to: Point,
        /// What it weighs.
        pub weight: u32,
    }

    /// One chunk a peer, in and out.
    pub struct Args<'a> {
        /// Points for each peer.
        pub points: &'a [Point],
        /// Points of each peer.
        pub output: Out<'a, Arrived>,
        /// By how much all are moved.
        pub by: Point,
    }

    pub(crate) fn produce(ctx: &Produce, args: &Args) -> Moved {
        let Point([x, y, z]) = args.points[ctx.index()];
        let Point([i, j, k]) = args.by;
        let weight = Weight { of: ctx.peer as u16, parts: [ctx.pos as u8, 7] };
        Moved { to: Point([x + i, y + j, z + k]), weight }
    }

    pub(crate) fn consume(ctx: &Consume, args: &Args, value: Moved) {
        let Moved { to, weight: Weight { of, parts: [pos, seven] } } = value;
        let weight = u32::from(of) << 16 | u32::from(pos) << 8 | u32::from(seven);
        args.output.at(ctx).set(Arrived { from: [ctx.peer as u32, ctx.pos as u32], to, weight });
    }
}

/// Two bytes of a struct, sixteen of another: by the pack, as they are.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb), schedules(all_to_all))]
pub mod pixels {
    /// Light and colour.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
    #[repr(C)]
    pub struct Pixel {
        /// Light.
        pub light: u8,
        /// Colour.
        pub colour: i8,
    }

    /// One chunk a peer, in and out.
    pub struct Args<'a> {
        /// Pixels for each peer.
        pub input: &'a [Pixel],
        /// Pixels of each peer.
        pub output: Out<'a, Pixel>,
    }

    pub(crate) fn produce(ctx: &Produce, args: &Args) -> Pack<Pixel> {
        args.input.pack(ctx).map(|Pixel { light, colour }| Pixel { light: !light, colour })
    }
}

/// A value, its place and a few bytes, in a tuple.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb), schedules(all_to_all))]
pub mod paired {
    /// What is sent, and its parts as they arrive.
    pub struct Args<'a> {
        /// What is sent.
        pub input: &'a [f32],
        /// What arrived.
        pub values: Out<'a, f32>,
        /// Where it was, and by whom it was sent.
        pub places: Out<'a, u32>,
    }

    pub(crate) fn produce(ctx: &Produce, args: &Args) -> (f32, [u16; 2]) {
        (args.input[ctx.index()], [ctx.pos as u16, ctx.rank as u16])
    }

    pub(crate) fn consume(ctx: &Consume, args: &Args, (value, [place, rank]): (f32, [u16; 2])) {
        args.values.at(ctx).set(value);
        args.places.at(ctx).set(u32::from(place) << 16 | u32::from(rank));
    }
}

/// Neighbours, in an array.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb), schedules(all_gather))]
pub mod neighbours {
    /// What is sent, and sums of what arrived.
    pub struct Args<'a> {
        /// What is sent.
        pub input: &'a [u32],
        /// Mixed of what arrived.
        pub output: Out<'a, u32>,
    }

    pub(crate) fn produce(ctx: &Produce, args: &Args) -> [u32; 4] {
        let at = |k: usize| args.input[(ctx.pos + k) % ctx.chunk_len];
        [at(0), at(1), at(2), at(3)]
    }

    pub(crate) fn consume(ctx: &Consume, args: &Args, near: [u32; 4]) {
        args.output.at(ctx).set(near.iter().fold(0, |all: u32, one| all.rotate_left(5) ^ one));
    }
}
