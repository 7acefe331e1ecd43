//! A primitive's name for another type, where the host alone sees it.
use fusewire::prelude::*;

#[allow(non_camel_case_types, dead_code)]
type u64 = u8;

#[comm_kernel(transports(Nvl))]
fn fill<O: Ops>(kernel: &Kernel<O>, output: Out<u64>) -> Flow {
    // SAFETY: one block.
    unsafe { kernel.local_tile(Tile { start: 0, len: output.len() }, |ctx| output.at(ctx).set(7)) };
    Ok(())
}

fn main() {}
