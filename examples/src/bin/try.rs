#![allow(missing_docs)]
//! Smoke.
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

#[comm_kernel(transports(Shm, Nvl))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

#[comm_kernel(transports(Shm, Nvl))]
mod panics {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        args.input[ctx.index() + 5]
    }
}

fn run<X: Transport>(world: &World, t: &X) -> fusewire::Result<()>
where
    transpose_add::Hooks: fusewire::kernel::Supports<fusewire::schedule::AllToAll, X>,
    copy::Hooks: fusewire::kernel::Supports<fusewire::schedule::AllToAll, X>,
    panics::Hooks: fusewire::kernel::Supports<fusewire::schedule::AllToAll, X>,
{
    let w = world.size();
    let a2a = transpose_add::all_to_all(t)?;
    let device = Device::of(t);
    let stream = device.stream()?;
    let (rows, cols) = (64, 48);
    let n = rows * cols;
    let input: Vec<f32> = (0..n * w).map(|i| (i + world.rank() * 100000) as f32).collect();
    let input = device.buffer_from(&input)?;
    let mut output = device.buffer::<f32>(n * w)?;
    for _ in 0..3 {
        a2a.launch(&stream, transpose_add::Launch { input: input.view(), output: output.view_mut(), rows, cols })?;
    }
    let out = output.read(&stream)?;
    for peer in 0..w {
        for pos in 0..n {
            let want = 3.0 * (world.rank() * n + (pos % rows) * cols + pos / rows + peer * 100000) as f32;
            assert_eq!(out[peer * n + pos], want, "rank {} peer {peer} pos {pos}", world.rank());
        }
    }
    let copy = copy::all_to_all(t)?;
    let sizes: &[usize] = if t.link().name() == "Shm" { &[1 << 10, 1 << 16] } else { &[1 << 10, 1 << 14, 1 << 16, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28, 1 << 30] };
    for &bytes in sizes {
        let n = bytes / 4;
        let src: Vec<f32> = (0..n).map(|i| (i * 7 + world.rank() * 13) as f32).collect();
        let input = device.buffer_from(&src)?;
        let mut output = device.buffer::<f32>(n)?;
        output.fill_bytes(&stream, 0xff)?;
        copy.launch(&stream, copy::Launch { input: input.view(), output: output.view_mut() })?;
        let out = output.read(&stream)?;
        let c = n / w;
        for peer in 0..w {
            for pos in 0..c {
                assert_eq!(out[peer * c + pos], ((world.rank() * c + pos) * 7 + peer * 13) as f32);
            }
        }
        let plan = copy.explain(&copy::Launch { input: input.view(), output: output.view_mut() }, &LaunchOptions::default())?;
        let graph = stream.capture(|| {
            for _ in 0..10 {
                copy.launch(&stream, copy::Launch { input: input.view(), output: output.view_mut() })?;
            }
            Ok(())
        })?;
        graph.launch(&stream)?;
        stream.synchronize()?;
        let mut best = f64::MAX;
        for _ in 0..5 {
            world.barrier()?;
            let s = std::time::Instant::now();
            let k = 5;
            for _ in 0..k {
                graph.launch(&stream)?;
            }
            stream.synchronize()?;
            best = best.min(s.elapsed().as_secs_f64() / k as f64 / 10.0);
        }
        if world.rank() == 0 {
            let wire = (bytes * (w - 1) / w) as f64;
            println!("{} w{w} {bytes:>11} B {:9.2} us {:7.1} GB/s  {plan}", t.link().name(), best * 1e6, wire / best / 1e9);
        }
    }
    let bad = panics::all_to_all(t)?;
    let mut output = device.buffer::<f32>(n * w)?;
    bad.launch(&stream, panics::Launch { input: input.view(), output: output.view_mut() })?;
    println!("rank {}: {:?}", world.rank(), stream.synchronize().map_err(|e| e.to_string()));
    t.renew()?;
    let mut output = device.buffer::<f32>(n * w)?;
    a2a.launch(&stream, transpose_add::Launch { input: input.view(), output: output.view_mut(), rows, cols })?;
    println!("rank {}: after renew {:?}", world.rank(), stream.synchronize().map_err(|e| e.to_string()));
    // One rank never launches.
    if world.rank() != 0 {
        let o = LaunchOptions::default().deadline(std::time::Duration::from_millis(300));
        a2a.launch_with(&stream, transpose_add::Launch { input: input.view(), output: output.view_mut(), rows, cols }, &o)?;
        println!("rank {}: {:?}", world.rank(), stream.synchronize().map_err(|e| e.to_string()));
    }
    world.barrier()?;
    Ok(())
}

fn main() {
    let n: usize = std::env::args().nth(1).and_then(|v| v.parse().ok()).unwrap_or(2);
    let cuda = std::env::args().nth(2).is_some();
    let r = World::threads(n, |world| -> fusewire::Result<()> {
        if cuda {
            let r = Nvl::rendezvous(&world, Options::default()).map_err(Into::into).and_then(|t| run(&world, &t));
            println!("rank {} {r:?}", world.rank());
            r
        } else {
            run(&world, &Shm::rendezvous(&world, 1 << 20)?)
        }
    });
    println!("{r:?}");
}
