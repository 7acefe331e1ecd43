use fusewire::prelude::*;

#[comm_kernel(transports(Nvl), schedules(sendrecv))]
mod kernel {
    const LANES: usize = size_of::<core::arch::x86_64::__m128>() / 4;
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        args.input[ctx.index() / LANES * LANES]
    }
}

fn main() {}
