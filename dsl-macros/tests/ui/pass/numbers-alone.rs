//! No slices: by-value arguments alone, private items, and no arguments at all.
use fusewire::prelude::*;

#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all))]
mod probe {
    struct Args {
        weights: [f32; 4],
        on: bool,
        limit: u64,
    }
    fn produce(ctx: &Produce, args: &Args) -> f32 {
        if args.on { args.weights[ctx.pos % 4] } else { args.limit as f32 }
    }
    fn consume(_: &Consume, _: &Args, _: f32) {}
}

#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all))]
mod ping {
    pub struct Args {}
    pub fn produce(ctx: &Produce, _: &Args) -> u32 {
        ctx.rank as u32
    }
    pub fn consume(ctx: &Consume, _: &Args, value: u32) {
        assert!(value as usize == ctx.peer);
    }
}

fn main() -> fusewire::Result<()> {
    let done = World::threads(2, |world| -> fusewire::Result<()> {
        let shm = Shm::rendezvous(&world, 1 << 16)?;
        let (ping, stream) = (ping::all_to_all(&shm)?, Device::of(&shm).stream()?);
        let options = LaunchOptions { elements: Some(9), ..Default::default() };
        ping.launch_with(&stream, ping::Launch {}, &options)?;
        stream.synchronize()?;
        let probe = probe::all_to_all(&shm)?;
        probe.launch_with(&stream, probe::Launch { weights: [0.5; 4], on: true, limit: 3 }, &options)?;
        stream.synchronize()
    })?;
    done.into_iter().collect()
}
