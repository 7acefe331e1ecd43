//! Hooks that index past their slices and outputs: a fault that names file and line, for each way of asking.
//! Ends: well

use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod past {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
        pub sum: Accumulate<'a, u32>,
        pub short: Out<'a, u64>,
        pub way: u32,
        pub far: usize,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> u32 {
        match args.way {
            0 => args.input[ctx.index().wrapping_add(args.far)],
            1 => args.input.pack_at(ctx.index().wrapping_add(args.far)).get(0),
            2 => {
                args.sum.add(args.far, 1);
                1
            }
            3 => args.input[args.far..][0],
            _ => args.input[ctx.index()],
        }
    }
    pub fn consume(ctx: &Consume, args: &Args, value: u32) {
        match args.way {
            4 => args.short.at(ctx).set(1),
            _ => args.output.at(ctx).set(value),
        }
    }
}

pub fn run() -> crate::Ended {
    let shm = Shm::rendezvous(&World::single()?, 1 << 16)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let input = device.buffer_from(&[1u32; 64])?;
    let (mut output, mut sum, mut short) =
        (device.buffer::<u32>(64)?, device.buffer::<u32>(4)?, device.buffer::<u64>(4)?);
    let kernel = past::all_to_all(&shm)?;
    for way in 0..5 {
        for far in [64, 1 << 40, usize::MAX - 2, usize::MAX] {
            if way == 0 && far == usize::MAX {
                // Wraps to an index that there is, for all elements but the first.
                continue;
            }
            let args = past::Launch {
                input: input.view(),
                output: output.view_mut(),
                sum: sum.view_mut(),
                short: short.view_mut(),
                way,
                far,
            };
            kernel.launch(&stream, args)?;
            let text = stream.synchronize().map_or_else(|e| e.to_string(), |()| "nothing".into());
            crate::ensure(text.contains("indices_past_the_end.rs") || text.contains("panic"), || {
                format!("way {way}, {far} too far: {text}")
            })?;
            shm.renew()?;
        }
    }
    Ok(())
}
