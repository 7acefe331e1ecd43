//! Device operations kept while their transport is unmapped.
#![forbid(unsafe_code)]

use fusewire::prelude::*;

fn main() -> fusewire::Result<()> {
    let shm = Shm::rendezvous(&World::single()?, 1 << 16)?;
    let ops = shm.ops();
    drop(shm);
    ops.raise_abort(0, 1);
    Ok(())
}
