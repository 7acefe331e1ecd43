use fusewire::prelude::*;

#[comm_kernel(transports(Shm), schedules(all_to_all))]
mod one_hook {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> (f32, u32) {
        (args.input[ctx.index()], 1)
    }
}

#[comm_kernel(transports(Shm), schedules(all_to_all))]
mod no_number {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> (f32, bool) {
        (args.input[ctx.index()], true)
    }
    pub fn consume(ctx: &Consume, args: &Args, value: (f32, bool)) {
        args.output.at(ctx).set(value.0);
    }
}

#[comm_kernel(transports(Shm), schedules(all_to_all), elements(f32, u32))]
mod generic {
    pub struct Args<'a, T> {
        pub input: &'a [T],
        pub output: Out<'a, T>,
    }
    pub fn produce<T: Element>(ctx: &Produce, args: &Args<T>) -> (T, u32) {
        (args.input[ctx.index()], 1)
    }
    pub fn consume<T: Element>(ctx: &Consume, args: &Args<T>, value: (T, u32)) {
        args.output.at(ctx).set(value.0);
    }
}

#[comm_kernel(transports(Shm), schedules(all_reduce), reduce(sum, f32))]
mod folded {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> (f32, f32) {
        (args.input[ctx.index()], 1.0)
    }
}

fn main() {}
