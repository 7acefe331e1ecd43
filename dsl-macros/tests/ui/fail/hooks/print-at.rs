//! What a hook prints: numbers, at a context.

use fusewire::prelude::*;

#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all))]
mod packs {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> Pack<f32> {
        let pack = args.input.pack(ctx);
        print_at!(ctx, "sends {}", pack);
        pack
    }
}

#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all))]
mod place {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        print_at!(args.input, "sends {}", ctx.peer);
        args.input[ctx.index()]
    }
}

fn main() {}
