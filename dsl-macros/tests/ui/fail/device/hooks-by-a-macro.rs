use fusewire::prelude::*;

macro_rules! kernel {
    ($name:ident, $by:expr) => {
        #[comm_kernel(transports(Nvl), schedules(sendrecv))]
        mod $name {
            pub struct Args<'a> {
                pub input: &'a [f32],
                pub output: Out<'a, f32>,
            }
            pub fn produce(ctx: &Produce, args: &Args) -> f32 {
                println!("sent");
                $by * args.input[ctx.index()]
            }
        }
    };
}

kernel!(double, 2.0);

fn main() {}
