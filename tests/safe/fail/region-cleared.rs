//! Control words cleared under a kernel.
#![forbid(unsafe_code)]

use fusewire::prelude::*;

fn main() -> fusewire::Result<()> {
    let shm = Shm::rendezvous(&World::single()?, 1 << 16)?;
    let _ = shm.link().region().clear();
    Ok(())
}
