//! Hook modules that have schedules of their own, generic ones among them.
use fusewire::prelude::*;

#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all, round, twice, first), elements(f32, u8))]
pub mod moved {
    pub struct Args<'a, T> {
        pub input: &'a [T],
        pub output: Out<'a, T>,
    }

    pub fn produce<T: Element>(ctx: &Produce, args: &Args<T>) -> Pack<T> {
        args.input.pack(ctx)
    }

    /// To the next rank.
    pub fn round<O: Ops, T: Element>(kernel: &Kernel<O>, args: &Args<T>) -> Flow {
        around(kernel, args)
    }

    /// Twice.
    pub fn twice<O: Ops, T: Element>(kernel: &Kernel<O>, args: &Args<'_, T>) -> Flow {
        around(kernel, args)?;
        kernel.sync();
        around(kernel, args)
    }

    /// By the first blocks.
    pub fn first<O: Ops, T: Element>(kernel: &Kernel<O>, args: &Args<T>) -> Flow {
        if kernel.block() < Kernel::channels(kernel) { around(kernel, args) } else { Ok(()) }
    }

    fn around<O: Ops, T: Element>(kernel: &Kernel<O>, args: &Args<T>) -> Flow {
        let (hooks, tile) = (kernel.hooks(args), kernel.share(args.input.len()));
        hooks.send_tile(kernel.next(1), tile)?;
        // SAFETY: each block has its own share, and tiles of one index are a sync apart.
        unsafe { hooks.recv_tile(kernel.previous(1), tile) }
    }
}

/// Without a slice or a lifetime, and with a bound.
#[comm_kernel(transports(Shm), schedules(ring))]
mod numbers {
    pub struct Args {
        pub number: u32,
    }
    pub fn produce(_: &Produce, args: &Args) -> u32 {
        args.number
    }
    pub fn consume(_: &Consume, args: &Args, value: u32) {
        assert_eq!(value, args.number);
    }
    fn ring<O: Put + Get>(kernel: &Kernel<O>, args: &Args) -> Flow {
        let (lines, tile) = (kernel.hooks(args).ll128(), Tile { start: 0, len: 9 });
        lines.send_tile(kernel.next(1), tile)?;
        // SAFETY: nothing is written.
        unsafe { lines.recv_tile(kernel.previous(1), tile) }
    }
}

fn main() -> fusewire::Result<()> {
    let done = World::threads(3, |world| -> fusewire::Result<()> {
        let shm = Shm::rendezvous(&world, 1 << 16)?;
        let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
        let input = device.buffer_from(&[world.rank() as u8; 101])?;
        let mut output = device.buffer::<u8>(101)?;
        let (round, twice) = (moved::round::on::<u8, _>(&shm)?, moved::twice::on::<u8, _>(&shm)?);
        round.launch(&stream, 2, moved::Launch { input: input.view(), output: output.view_mut() })?;
        assert_eq!(output.read(&stream)?, [(world.rank() as u8 + 2) % 3; 101]);
        // One block too many for a schedule that does not say who has which channel.
        let (channels, all) = (Options::per_peer(1 << 16).channels, LaunchOptions::default());
        let said = round.explain(channels + 1, &all).unwrap_err().to_string();
        assert!(said.contains("each of which has its tiles on the channel of its index"), "{said}");
        moved::first::on::<u8, _>(&shm)?.explain(channels + 1, &all)?;
        twice.launch(&stream, 1, moved::Launch { input: input.view(), output: output.view_mut() })?;
        stream.synchronize()?;
        numbers::ring::on(&shm)?.launch(&stream, 1, numbers::Launch { number: 7 })?;
        stream.synchronize()
    })?;
    done.into_iter().collect()
}
