//! Functions and arguments may have the names that generated code could have.
use fusewire::prelude::*;

#[comm_kernel(transports(Shm, Nvl))]
fn raw<O: Ops>(kernel: &Kernel<O>, output: Out<u32>) -> Flow {
    let _ = (kernel, output);
    Ok(())
}

#[comm_kernel(transports(Shm, Nvl))]
fn entry<O: Ops>(grid: &Kernel<O>, raw: Out<u32>, params: usize) -> Flow {
    let _ = (grid, raw, params);
    Ok(())
}

#[comm_kernel(transports(Shm, Nvl))]
fn kernel<O: Ops>(entry: &Kernel<O>, grid: &[u32]) -> Flow {
    let _ = (entry, grid);
    Ok(())
}

#[comm_kernel(transports(Shm, Nvl))]
fn params<O: Ops>(params: &Kernel<O>, kernel: u32) -> Flow {
    let _ = (params, kernel);
    Ok(())
}

#[comm_kernel(transports(Shm, Nvl))]
fn grid<O: Ops>(kernel: &Kernel<O>) -> Flow {
    let _ = kernel;
    Ok(())
}

fn main() -> fusewire::Result<()> {
    let shm = Shm::rendezvous(&World::single()?, 1 << 16)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let mut output = device.buffer::<u32>(1)?;
    raw::on(&shm)?.launch(&stream, 1, raw::Launch { output: output.view_mut() })?;
    entry::on(&shm)?.launch(&stream, 1, entry::Launch { raw: output.view_mut(), params: 3 })?;
    kernel::on(&shm)?.launch(&stream, 1, kernel::Launch { grid: output.view() })?;
    params::on(&shm)?.launch(&stream, 1, params::Launch { kernel: 4 })?;
    grid::on(&shm)?.launch(&stream, 1, grid::Launch {})?;
    stream.synchronize()
}
