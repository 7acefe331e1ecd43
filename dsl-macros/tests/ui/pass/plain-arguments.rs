//! Structs, enums and options by value: what the launch was given is what the hooks have.
#![forbid(unsafe_code)]

use fusewire::prelude::*;

#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all))]
mod scaled {
    /// How values are rounded.
    #[derive(Plain, Clone, Copy, Debug, PartialEq)]
    #[repr(u8)]
    pub enum Rounding {
        Nearest,
        Down = 7,
    }

    #[derive(Clone, Copy, Plain)]
    #[repr(transparent)]
    pub struct Factor(pub f32);

    #[derive(Clone, Copy)]
    #[derive(Debug)]
    pub struct NotAnArgument<T>(T);

    #[derive(Clone, Plain, Copy)]
    #[repr(C)]
    pub struct Params {
        pub rounding: Rounding,
        pub factor: Factor,
        pub taps: [Tap; 2],
        pub r#last: u8,
    }

    fusewire::device::plain! {
        pub struct Tap {
            pub weight: f64,
            pub on: bool,
        }
    }

    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
        pub params: Params,
        pub clip: Option<f32>,
        pub rounding: core::option::Option<Rounding>,
        pub tap: Option<Tap>,
        pub pair: [Rounding; 2],
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        let mut value = args.input[ctx.index()] * args.params.factor.0;
        for tap in args.params.taps {
            if tap.on {
                value += tap.weight as f32;
            }
        }
        if let Some(most) = args.clip {
            value = math::min(value, most);
        }
        if args.params.rounding == Rounding::Down { math::floor(value) } else { value }
    }
    pub fn consume(ctx: &Consume, args: &Args, value: f32) {
        let all = args.rounding.is_none() && args.pair == [Rounding::Down, Rounding::Nearest];
        let tap = args.tap.map_or(0.0, |tap| if tap.on { tap.weight as f32 } else { -1.0 });
        args.output.at(ctx).set(if all { value + tap + args.params.last as f32 } else { f32::NAN });
    }
}

#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all), elements(f32, u32))]
mod any {
    /// A plain type in a generic module is not generic itself.
    #[derive(Clone, Copy, PartialEq, Plain)]
    #[repr(i16)]
    pub enum Instead {
        Never = -1,
        OfAll,
    }

    pub struct Args<'a, T> {
        pub input: &'a [T],
        pub output: Out<'a, T>,
        pub instead: Option<T>,
        pub when: Instead,
    }
    pub fn produce<T: Element>(ctx: &Produce, args: &Args<T>) -> T {
        match args.instead {
            Some(value) if args.when == Instead::OfAll => value,
            _ => args.input[ctx.index()],
        }
    }
}

#[comm_kernel(transports(Shm, Nvl))]
pub fn count<O: Ops>(kernel: &Kernel<O>, by: Option<u64>, sums: Accumulate<'_, u64>) -> Flow {
    sums.add(kernel.block(), by.unwrap_or(1000));
    Ok(())
}

use scaled::{Factor, Params, Rounding, Tap};

fn rank(world: &World) -> fusewire::Result<()> {
    let shm = Shm::rendezvous(world, 1 << 16)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let input = device.buffer_from(&[1.25f32, 2.0, 3.0, 100.0])?;
    let mut output = device.buffer::<f32>(4)?;
    let tap = |weight, on| Tap { weight, on };
    let kernel = scaled::all_to_all(&shm)?;
    let args = scaled::Launch {
        input: input.view(),
        output: output.view_mut(),
        params: Params {
            rounding: Rounding::Down,
            factor: Factor(2.0),
            taps: [tap(0.25, true), tap(8.0, false)],
            last: 200,
        },
        clip: Some(50.5),
        rounding: None,
        tap: Some(tap(0.5, true)),
        pair: [Rounding::Down, Rounding::Nearest],
    };
    kernel.launch(&stream, args)?;
    assert_eq!(output.read(&stream)?, [202.5, 204.5, 206.5, 250.5]);

    let any = any::all_to_all::<f32, _>(&shm)?;
    use any::Instead;
    let cases = [(None, Instead::OfAll, 100.0), (Some(7.0), Instead::OfAll, 7.0), (Some(7.0), Instead::Never, 100.0)];
    for (instead, when, want) in cases {
        any.launch(&stream, any::Launch { input: input.view(), output: output.view_mut(), instead, when })?;
        assert_eq!(output.read(&stream)?[3], want);
    }

    let count = count::on(&shm)?;
    let mut sums = device.buffer::<u64>(1)?;
    for by in [None, Some(1)] {
        count.launch(&stream, 1, count::Launch { by, sums: sums.view_mut() })?;
    }
    assert_eq!(sums.read(&stream)?, [1001]);
    Ok(())
}

fn main() -> fusewire::Result<()> {
    World::threads(1, |world| rank(&world))?.into_iter().collect()
}
