//! Structs as elements: in slices and outputs, on the wire, in folds, and as arguments.
#![forbid(unsafe_code)]

use fusewire::prelude::*;

#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all))]
mod moved {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
    #[repr(transparent)]
    pub struct Vector([f32; 3]);

    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    #[derive(Plain, Element)]
    #[repr(C)]
    pub struct Sent {
        pub to: Vector,
        pub r#type: u32,
    }

    pub struct Args<'a> {
        pub points: &'a [Vector],
        pub output: Out<'a, Sent>,
        pub by: Vector,
        pub or: Option<Sent>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> Sent {
        let (Vector(a), Vector(b)) = (args.points[ctx.index()], args.by);
        args.or.unwrap_or(Sent { to: Vector([a[0] + b[0], a[1] + b[1], a[2] + b[2]]), r#type: ctx.peer as u32 })
    }

    impl Vector {
        pub fn of(x: f32) -> Self {
            Vector([x; 3])
        }
    }
}

#[comm_kernel(transports(Shm, Nvl), schedules(all_reduce), reduce(Least))]
mod least {
    use fusewire::device::fold::Fold;

    fusewire::device::element! {
        /// A value, and whose it is.
        pub struct Found {
            pub value: f64,
            pub rank: u64,
        }
    }

    pub struct Least;
    impl Fold<Found> for Least {
        type Acc = Found;
        fn lift(one: Found) -> Found {
            one
        }
        fn fold(left: Found, right: Found) -> Found {
            if right.value < left.value { right } else { left }
        }
    }

    pub struct Args<'a> {
        pub input: &'a [f64],
        pub output: Out<'a, Found>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> Found {
        Found { value: args.input[ctx.index()], rank: ctx.rank as u64 }
    }
}

fn rank(world: &World) -> fusewire::Result<()> {
    use least::Found;
    use moved::{Sent, Vector};

    let shm = Shm::rendezvous(world, 1 << 16)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let points = device.buffer_from(&[Vector::of(1.0), Vector::of(2.0)])?;
    let mut output = device.buffer::<Sent>(2)?;
    let kernel = moved::all_to_all(&shm)?;
    let sent = |x, r#type| Sent { to: Vector::of(x), r#type };
    for (or, expected) in [(None, [sent(4.0, 0), sent(5.0, 0)]), (Some(sent(0.0, 9)), [sent(0.0, 9); 2])] {
        let args = moved::Launch { points: points.view(), output: output.view_mut(), by: Vector::of(3.0), or };
        kernel.launch(&stream, args)?;
        assert_eq!(output.read(&stream)?, expected);
    }

    let input = device.buffer_from(&[1.5, -2.5])?;
    let mut output = device.buffer::<Found>(2)?;
    least::all_reduce(&shm)?.launch(&stream, least::Launch { input: input.view(), output: output.view_mut() })?;
    assert_eq!(output.read(&stream)?, [Found { value: 1.5, rank: 0 }, Found { value: -2.5, rank: 0 }]);
    Ok(())
}

fn main() -> fusewire::Result<()> {
    World::threads(1, |world| rank(&world))?.into_iter().collect()
}
