//! Sweep.
#![allow(missing_docs)]
use fusewire::prelude::*;
#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}
fn main() {
    let n: usize = std::env::args().nth(1).and_then(|v| v.parse().ok()).unwrap_or(2);
    let r = World::threads(n, |world| -> fusewire::Result<()> {
        for (pp, ch) in [(16 << 20, 16u32), (32 << 20, 32), (64 << 20, 32)] {
            let t = Nvl::rendezvous(&world, Options::per_peer(pp).channels(ch))?;
            let copy = copy::all_to_all(&t)?;
            let device = Device::of(&t);
            let stream = device.stream()?;
            for bytes in [1usize << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 30] {
                let input = device.buffer_from(&vec![1.5f32; bytes / 4])?;
                let mut output = device.buffer::<f32>(bytes / 4)?;
                for channels in [1u32, 2, 4, 8, 12, 16, 18] {
                    if channels > ch || (bytes < 1 << 22 && pp > 16 << 20) || (bytes >= 1 << 24 && channels < 4) {
                        continue;
                    }
                    let win = pp / ch as usize;
                    for chunk in [win / 32, win / 16, win / 8, win / 4, win / 2] {
                        if chunk > bytes / n / channels as usize * 2 && chunk != win / 4 {
                            continue;
                        }
                        let o = LaunchOptions::default().channels(channels).chunk(chunk);
                        let per = if bytes >= 1 << 26 { 2 } else { 10 };
                        let g = match stream.capture(|| {
                            for _ in 0..per {
                                copy.launch_with(&stream, copy::Launch { input: input.view(), output: output.view_mut() }, &o)?;
                            }
                            Ok(())
                        }) {
                            Ok(g) => g,
                            Err(_) => continue,
                        };
                        g.launch(&stream)?;
                        stream.synchronize()?;
                        let mut best = f64::MAX;
                        for _ in 0..3 {
                            world.barrier()?;
                            g.launch(&stream)?;
                            let a = stream.record()?;
                            for _ in 0..3 {
                                g.launch(&stream)?;
                            }
                            let b = stream.record()?;
                            stream.synchronize()?;
                            best = best.min(b.since(&a)?.as_secs_f64() / 3.0 / per as f64);
                        }
                        if world.rank() == 0 {
                            println!("win {:>5}K {bytes:>11} ch {channels:>2} chunk {:>7} {:9.2} us {:6.1} GB/s", win >> 10, chunk, best * 1e6, (bytes * (n - 1) / n) as f64 / best / 1e9);
                        }
                    }
                }
            }
        }
        Ok(())
    });
    println!("{r:?}");
}
