//! Hooks by pack, a wire type that is not the element type, helper functions and constants in the module.
use fusewire::prelude::*;

#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all))]
mod scale_add {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
        pub scale: f32,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> Pack<f32> {
        args.input.pack(ctx).map(|v| v * args.scale)
    }
    pub fn consume(ctx: &Consume, args: &Args, value: Pack<f32>) {
        args.output.at(ctx).update_pack(|old| old.zip(value, |a, b| a + b));
    }
}

#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all))]
mod quantise {
    const LARGEST: f32 = 448.0;
    type Wire = F8E4M3;

    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    fn clamp(value: f32) -> f32 {
        value.clamp(-LARGEST, LARGEST)
    }
    fn produce(ctx: &Produce, args: &Args) -> Wire {
        Wire::from_f32(clamp(args.input[ctx.index()]))
    }
    fn consume(ctx: &Consume, args: &Args, value: Wire) {
        args.output.at(ctx).set(value.to_f32());
    }
}

fn main() {}
