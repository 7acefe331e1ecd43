//! Schedules of one's own: tiles, and raw operations.
use fusewire::prelude::*;

/// Passes blocks round the ring.
#[comm_kernel(transports(Shm, Nvl))]
pub fn ring<O: Ops>(kernel: &Kernel<O>, input: &[f32], output: Out<f32>, distance: u32) -> Flow {
    let tile = kernel.share(input.len());
    kernel.send_tile(kernel.next(distance as usize), tile, |ctx| input[ctx.index()])?;
    // SAFETY: each block has its own share of the indices.
    unsafe { kernel.recv_tile(kernel.previous(distance as usize), tile, |ctx, value| output.at(ctx).set(value)) }
}

/// Puts, signals and waits.
#[comm_kernel(transports(Shm, Nvl), archs(sm_90))]
fn exchange<O>(kernel: &Kernel<O>, input: &[u32], output: Out<u32>) -> Flow
where
    O: Put,
{
    let (to, from) = (kernel.next(1), kernel.previous(1));
    // SAFETY: the one block writes the one place of its peer, once.
    unsafe { kernel.put(to, 0, input)? };
    kernel.signal(to, 0)?;
    kernel.wait(from, 0)?;
    let all = Tile { start: 0, len: input.len() };
    // SAFETY: the peer has signalled; one tile.
    unsafe { kernel.local_tile(all, |ctx| output.at(ctx).set(kernel.heap_get::<u32>(ctx.index()))) };
    Ok(())
}

fn main() -> fusewire::Result<()> {
    #[comm_kernel(transports(Shm))]
    fn nothing<O: Ops>(kernel: &Kernel<O>) -> Flow {
        kernel.sync();
        Ok(())
    }

    let done = World::threads(2, |world| -> fusewire::Result<()> {
        let shm = Shm::rendezvous(&world, 1 << 16)?;
        let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
        nothing::on(&shm)?.launch(&stream, 1, nothing::Launch {})?;
        let ring = ring::on(&shm)?;
        let input = device.buffer_from(&[world.rank() as f32; 100])?;
        let mut output = device.buffer::<f32>(100)?;
        ring.launch(&stream, 1, ring::Launch { input: input.view(), output: output.view_mut(), distance: 1 })?;
        assert_eq!(output.read(&stream)?, [1.0 - world.rank() as f32; 100]);
        let exchange = exchange::on(&shm)?;
        let _ = exchange;
        Ok(())
    })?;
    done.into_iter().collect()
}
