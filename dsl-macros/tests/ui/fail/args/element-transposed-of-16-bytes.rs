use fusewire::prelude::*;

#[comm_kernel(transports(Shm), layout(transposed))]
mod transpose {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
    #[repr(C)]
    pub struct Complex {
        pub re: f64,
        pub im: f64,
    }

    pub struct Args<'a> {
        pub input: &'a [Complex],
        pub output: Out<'a, Complex>,
    }

    pub fn produce(ctx: &Produce, args: &Args) -> Complex {
        args.input.transposed(ctx)
    }
}

fn main() {}
