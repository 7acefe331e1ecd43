//! Lines from hooks: where something odd is sent, and what came of it.

use clap::Parser;
use fusewire::kernel::Supports;
use fusewire::prelude::*;
use fusewire::schedule::AllToAll;
use fusewire_examples::ranks::Ranks;
use std::process::ExitCode;

#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all))]
mod watched {
    pub struct Args<'a> {
        pub input: &'a [Bf16],
        pub output: Out<'a, f32>,
        pub scale: f32,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> Bf16 {
        let value = args.input[ctx.index()];
        if value.to_f32() < 0.0 {
            print_at!(ctx, "{} goes to rank {}", value, ctx.peer);
        }
        value
    }
    pub fn consume(ctx: &Consume, args: &Args, value: Bf16) {
        let scaled = value.to_f32() * args.scale;
        if scaled < 0.0 {
            print_at!(ctx, "{} came from rank {}: {}% of that is kept", value, ctx.peer, 100.0 * args.scale);
        }
        args.output.at(ctx).set(scaled);
    }
}

/// A value that each rank looks for.
#[derive(Parser)]
struct Options {
    /// `host` or `cuda`.
    #[arg(long, default_value = "host", value_parser = ["host", "cuda"])]
    device: String,
    #[command(flatten)]
    ranks: Ranks,
}

fn rank<X: Transport>(transport: &X) -> fusewire::Result<()>
where
    watched::Hooks: Supports<AllToAll, X>,
{
    let (me, ranks) = (transport.link().world().rank(), transport.link().world().size());
    let (device, chunk) = (Device::of(transport), 100);
    let stream = device.stream()?;
    let mut values = vec![Bf16::from_f32(1.0); ranks * chunk];
    // To the next rank.
    values[(me + 1) % ranks * chunk + 7] = Bf16::from_f32(-1.5);
    let input = device.buffer_from(&values)?;
    let mut output = device.buffer::<f32>(ranks * chunk)?;
    let launch = watched::Launch { input: input.view(), output: output.view_mut(), scale: 0.25 };
    watched::all_to_all(transport)?.launch(&stream, launch)?;
    // On GPUs, lines are printed here.
    stream.synchronize()
}

fn main() -> ExitCode {
    let options = Options::parse();
    let cuda = options.device == "cuda";
    options.ranks.run(cuda, 2, |world| match cuda {
        true => rank(&Nvl::rendezvous(world, fusewire::Options::default())?),
        false => rank(&Shm::rendezvous(world, fusewire::Options::default())?),
    })
}
