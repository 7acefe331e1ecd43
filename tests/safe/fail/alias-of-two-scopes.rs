//! One name for two types: one where the function stands, another in its module. A launch and the kernel would differ.
use fusewire::prelude::*;

#[allow(dead_code)]
type Real = u8;

fn main() -> fusewire::Result<()> {
    type Real = u64;
    #[comm_kernel(transports(Shm))]
    fn add<O: Ops>(kernel: &Kernel<O>, output: Accumulate<Real>) -> Flow {
        let _ = kernel;
        for i in 0..output.len() {
            output.add(i, 0x4141_4141_4141_4141);
        }
        Ok(())
    }
    let shm = Shm::rendezvous(&World::single()?, 1 << 16)?;
    let _ = add::on(&shm)?;
    Ok(())
}
