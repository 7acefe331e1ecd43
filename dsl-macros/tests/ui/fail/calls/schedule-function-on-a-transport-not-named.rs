use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
fn nothing<O: Ops>(kernel: &Kernel<O>) -> Flow {
    kernel.sync();
    Ok(())
}

fn run(nvl: &Nvl) -> fusewire::Result<()> {
    nothing::on(nvl)?;
    Ok(())
}

fn main() {}
