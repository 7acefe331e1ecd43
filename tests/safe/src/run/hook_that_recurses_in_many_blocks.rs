//! The same in threads of a crew, with frames that are larger than a guard page.
//! Ends: signal 6
//! Says: a hook of `fusewire_safe::run::hook_that_recurses_in_many_blocks::deep`

use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
fn deep<O: Ops>(kernel: &Kernel<O>, depth: u64) -> Flow {
    #[inline(never)]
    fn down(depth: u64) -> u64 {
        let large = core::hint::black_box([depth; 1024]);
        if depth == 0 { large[0] } else { down(depth - 1).wrapping_add(core::hint::black_box(large)[7]) }
    }
    let _ = kernel;
    core::hint::black_box(down(depth));
    Ok(())
}

pub fn run() -> crate::Ended {
    let shm = Shm::rendezvous(&World::single()?, 1 << 16)?;
    let stream = Device::of(&shm).stream()?;
    deep::on(&shm)?.launch(&stream, 4, deep::Launch { depth: u64::MAX })?;
    stream.synchronize()?;
    Ok(())
}
