use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod kernel {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn consume(ctx: &Consume, args: &Args, value: f32) {
        let place = args.output.at(ctx);
        place.set(value);
        keep(place);
    }
    fn keep<T: 'static>(_: T) {}
}

fn main() {}
