use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod scaled {
    pub struct Args<'a> {
        pub input: &'a [f32],
        #[cfg(unix)]
        pub factor: f32,
        pub output: Out<'a, f32>,
    }
    #[cfg(unix)]
    fn helper(value: f32) -> f32 {
        value
    }
    #[cfg(unix)]
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        helper(args.input[ctx.index()] * args.factor)
    }
    #[cfg(not(unix))]
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        args.input[ctx.index()]
    }
}

#[comm_kernel(transports(Shm))]
fn sends<O: Ops>(kernel: &Kernel<O>, #[cfg(unix)] data: &[f32]) -> Flow {
    kernel.send_tile(kernel.next(1), Tile { start: 0, len: 1 }, |ctx| data[ctx.index()])
}

#[comm_kernel(transports(Shm))]
#[cfg(unix)]
mod below {
    #[cfg_attr(unix, derive(Clone, Copy))]
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

// Decided before the macro reads anything.
#[cfg(not(unix))]
#[comm_kernel(transports(Shm))]
mod copy {}

#[cfg(unix)]
#[comm_kernel(transports(Shm))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        let factor = if cfg!(feature = "unix") { 2.0 } else { 1.0 };
        #[cfg(any(feature = "two", not(target_os = "linux")))]
        let factor = 2.0 * factor;
        if cfg!(all(not(target_arch = "nvptx64"), debug_assertions)) {
            debug_assert!(ctx.valid == 1);
        }
        factor * args.input[ctx.index()]
    }
}

fn main() {}
