//! Hooks and schedules that go wrong on purpose.

use fusewire::prelude::*;

/// `produce` reads past the input's end at one element on one rank.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub mod bad_produce {
    /// The line that panics.
    pub const LINE: u32 = line!() + 14;

    /// One chunk a peer, in and out.
    pub struct Args<'a> {
        /// What is sent.
        pub input: &'a [u32],
        /// What arrived.
        pub output: Out<'a, u32>,
        /// The rank that panics.
        pub culprit: usize,
    }

    pub(crate) fn produce(ctx: &Produce, args: &Args) -> u32 {
        let far = if ctx.rank == args.culprit && ctx.pos == 77 { args.input.len() } else { 0 };
        args.input[ctx.index() + far]
    }
}

/// `consume` panics at one element on one rank.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub mod bad_consume {
    /// The line that panics.
    pub const LINE: u32 = line!() + 14;

    /// One chunk a peer, in and out.
    pub struct Args<'a> {
        /// What is sent.
        pub input: &'a [u32],
        /// What arrived.
        pub output: Out<'a, u32>,
        /// The rank that panics.
        pub culprit: usize,
    }

    pub(crate) fn consume(ctx: &Consume, args: &Args, value: u32) {
        if ctx.rank == args.culprit && ctx.pos == 77 {
            panic!("element 77 of the chunk is not wanted");
        }
        args.output.at(ctx).set(value);
    }
}

/// `consume` panics at element 77 in one of several ways, with values in what it says.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub mod says_values {
    /// The line of the last panic.
    pub const LINE: u32 = line!() + 25;

    /// One chunk a peer, in and out.
    pub struct Args<'a> {
        /// What is sent.
        pub input: &'a [u32],
        /// What arrived.
        pub output: Out<'a, u32>,
        /// How it panics.
        pub way: u32,
        /// Minus one and a half.
        pub real: f32,
    }

    pub(crate) fn consume(ctx: &Consume, args: &Args, value: u32) {
        let (pos, real) = (ctx.pos, args.real);
        if pos == 77 {
            match args.way {
                0 => panic!(
                    "{pos} of {} and {real:?}, which is a text of more than eighty characters, 100% {{}}",
                    args.input.len()
                ),
                1 => assert!(pos < 70, "{0} is {}", pos - 100 * (pos / 77 - 1)),
                2 => assert_eq!(pos, 76),
                3 => assert_ne!(-i64::from(args.way), -3, "as {pos} is"),
                _ => unreachable!("{:.3} by {way}", args.way, way = real),
            }
        }
        args.output.at(ctx).set(value);
    }
}

/// Names something that does not exist, as `what` says.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub fn misdirected<O: Put + Get>(kernel: &Kernel<O>, what: u32, data: &[u32], output: Out<'_, u32>) -> Flow {
    let (next, past) = (kernel.next(1), kernel.heap_len::<u32>());
    let tile = Tile { start: 0, len: data.len() };
    match what {
        0 => kernel.signal(kernel.world(), 0),
        1 => kernel.signal(next, 4096),
        2 => kernel.wait(next, 4096),
        // SAFETY: refused before anything is written.
        3 => unsafe { kernel.put(next, past - data.len() + 1, data) },
        // SAFETY: as above.
        4 => unsafe { kernel.put(kernel.world() + 7, 0, data) },
        // SAFETY: as above.
        5 => unsafe { kernel.get::<u32>(next, 0, past, 1) },
        // SAFETY: as above.
        6 => unsafe { kernel.put(next, usize::MAX - 4, data) },
        // SAFETY: as above.
        7 => unsafe { kernel.get::<u32>(next, usize::MAX - 4, 0, 10) },
        8 => kernel.send_tile(kernel.world(), tile, |ctx| data[ctx.index()]),
        // SAFETY: as above.
        _ => unsafe { kernel.recv_tile::<u32>(kernel.world(), tile, |ctx, value| output.at(ctx).set(value)) },
    }
}
