//! Modules in modules, in functions, and made by another macro, whose text is in no file.
use fusewire::prelude::*;

pub mod outer {
    pub mod inner {
        #[fusewire::comm_kernel(transports(Shm, Nvl), schedules(sendrecv))]
        pub(in crate::outer) mod copy {
            pub struct Args<'a> {
                pub input: &'a [i8],
                pub output: Out<'a, i8>,
            }
        }
    }
    pub type Copy = inner::copy::Hooks;
}

macro_rules! scaled {
    ($name:ident, $element:ty, $scale:expr) => {
        #[comm_kernel(transports(Shm, Nvl), schedules(sendrecv))]
        mod $name {
            pub struct Args<'a> {
                pub input: &'a [$element],
                pub output: Out<'a, $element>,
            }
            /// Scales.
            pub fn produce(ctx: &Produce, args: &Args) -> $element {
                times(args.input[ctx.index()])
            }
            fn times(value: $element) -> $element {
                $scale * value
            }
        }
    };
}
scaled!(twice, f32, 2.0);
scaled!(thrice, i64, 1 + 2);

fn main() -> fusewire::Result<()> {
    #[comm_kernel(transports(Shm, Nvl), schedules(sendrecv))]
    mod local {
        pub struct Args<'a> {
            pub input: &'a [f64],
            pub output: Out<'a, f64>,
        }
    }
    let done = World::threads(2, |world| -> fusewire::Result<()> {
        let shm = Shm::rendezvous(&world, 1 << 16)?;
        local::sendrecv(&shm)?;
        let thrice = thrice::sendrecv(&shm)?;
        let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
        let input = device.buffer_from(&[7i64; 10])?;
        let mut output = device.buffer::<i64>(10)?;
        let peer = 1 - world.rank();
        thrice.sendrecv(&stream, peer, peer, thrice::Launch { input: input.view(), output: output.view_mut() })?;
        assert_eq!(output.read(&stream)?, [21; 10]);
        Ok(())
    })?;
    done.into_iter().collect()
}
