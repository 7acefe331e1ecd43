use fusewire::prelude::*;

#[comm_kernel(transports(Shm), schedules(all_to_all))]
mod with_gaps {
    pub struct Args<'a> {
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &Produce, _: &Args) -> (u8, u32) {
        (1, ctx.pos as u32)
    }
    pub fn consume(ctx: &Consume, args: &Args, value: (u8, u32)) {
        args.output.at(ctx).set(value.1 as f32);
    }
}

#[comm_kernel(transports(Shm), schedules(all_to_all))]
mod too_long {
    pub struct Args<'a> {
        pub output: Out<'a, f32>,
    }
    pub fn produce(_: &Produce, _: &Args) -> [f32; 3] {
        [0.0; 3]
    }
    pub fn consume(ctx: &Consume, args: &Args, value: [f32; 3]) {
        args.output.at(ctx).set(value[0]);
    }
}

fn main() {}
