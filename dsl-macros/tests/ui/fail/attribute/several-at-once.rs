use fusewire::prelude::*;

#[comm_kernel(transports(Shm, Nvlink), archs(sm_75))]
mod add {
    pub struct Args<'a> {
        pub input: &'a [bool],
        pub scale: &'a mut f32,
        pub output: Out<'a, f32>,
    }
    pub async fn produce(ctx: &Ctx, args: &Args) -> f32 {
        args.input[ctx.index()]
    }
    pub fn consume(ctx: &Consume, args: &Args, value: f32) -> f32 {
        args.output.at(ctx).add(value);
    }
}

// What the macro would have made is not complained of.
fn main() {
    let world = World::from_env().unwrap();
    let shm = Shm::rendezvous(&world, 1 << 20).unwrap();
    let all_to_all = add::all_to_all(&shm).unwrap();
    all_to_all.nonsense(add::Launch { input: 1, scale: 2.0, output: 3 });
}
