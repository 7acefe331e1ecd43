//! An all-to-all with hooks between processes, over InfiniBand by proxy: real adapters, or the emulation where there is none.
//!
//! `infiniband --ranks 4` starts its ranks itself; under torchrun, mpirun or srun it is one rank. `--emulated` asks for no adapter.

use clap::Parser;
use fusewire::host_ib::HostIbOptions;
use fusewire::prelude::*;
use fusewire::rdma::Fabric;
use fusewire_examples::ranks::Ranks;
use std::process::ExitCode;

/// Transposes each chunk on the way, and adds it to what is there.
#[comm_kernel(transports(HostIb), schedules(all_to_all))]
mod transpose_add {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
        pub rows: usize,
        pub cols: usize,
    }

    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        let (row, col) = (ctx.pos % args.rows, ctx.pos / args.rows);
        args.input[ctx.chunk_start + row * args.cols + col]
    }

    pub fn consume(ctx: &Consume, args: &Args, value: f32) {
        args.output.at(ctx).add(value);
    }
}

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    ranks: Ranks,
    /// Needs no adapter.
    #[arg(long)]
    emulated: bool,
}

const ROWS: usize = 96;
const COLS: usize = 160;

fn rank(world: &World, arguments: &Arguments) -> fusewire::Result<()> {
    let fabric = if arguments.emulated { Fabric::Emulated } else { Fabric::Verbs };
    let ib = HostIb::rendezvous_with(world, 256 << 10, &HostIbOptions::default().fabric(fabric))?;
    let all_to_all = transpose_add::all_to_all(&ib)?;
    let (device, stream) = (Device::of(&ib), Device::of(&ib).stream()?);
    let (me, chunk) = (world.rank(), ROWS * COLS);
    let value = |rank: usize, i: usize| (rank * 1000 + i % 997) as f32;
    let input: Vec<f32> = (0..chunk * world.size()).map(|i| value(me, i)).collect();
    let input = device.buffer_from(&input)?;
    let mut output = device.buffer_from(&vec![0.5f32; chunk * world.size()])?;
    for _ in 0..2 {
        let (input, output) = (input.view(), output.view_mut());
        all_to_all.launch(&stream, transpose_add::Launch { input, output, rows: ROWS, cols: COLS })?;
    }
    for (i, got) in output.read(&stream)?.into_iter().enumerate() {
        let (peer, pos) = (i / chunk, i % chunk);
        let (row, col) = (pos % ROWS, pos / ROWS);
        let want = 0.5 + 2.0 * value(peer, me * chunk + row * COLS + col);
        assert_eq!(got, want, "element {pos} from rank {peer} at rank {me}");
    }
    println!("rank {me}: {} elements from {} ranks, all right", chunk * world.size(), world.size());
    Ok(())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    arguments.ranks.run(false, 2, |world| rank(world, &arguments))
}
