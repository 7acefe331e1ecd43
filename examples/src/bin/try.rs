use fusewire::prelude::*;

/// Sends each chunk transposed; the receiver adds it to what it has.
#[comm_kernel(transports(Shm, Nvl))]
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

fn main() {
    let t = std::time::Instant::now();
    let r = World::threads(4, |world| -> fusewire::Result<()> {
        let shm = Shm::rendezvous(&world, 1 << 20)?;
        let a2a = transpose_add::all_to_all(&shm)?;
        let device = Device::of(&shm);
        let stream = device.stream()?;
        let (rows, cols) = (64, 48);
        let n = rows * cols;
        let input: Vec<f32> = (0..n * 4).map(|i| (i + world.rank() * 100000) as f32).collect();
        let input = device.buffer_from(&input)?;
        let mut output = device.buffer::<f32>(n * 4)?;
        for _ in 0..3 {
            a2a.launch(&stream, transpose_add::Launch { input: input.view(), output: output.view_mut(), rows, cols })?;
        }
        let out = output.read(&stream)?;
        for peer in 0..4 {
            for pos in 0..n {
                let want = 3.0 * (world.rank() * n + (pos % rows) * cols + pos / rows + peer * 100000) as f32;
                assert_eq!(out[peer * n + pos], want, "rank {} peer {peer} pos {pos}", world.rank());
            }
        }
        Ok(())
    });
    println!("{r:?} {:?}", t.elapsed());
}
