use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy {
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        ctx.pos as f32
    }
}

fn main() {}
