//! Signals and waits by numbers that there are not: a fault in words.
//! Ends: well

use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
fn raise<O: Ops>(kernel: &Kernel<O>, peer: usize, id: usize, wait: u32) -> Flow {
    if wait == 1 { kernel.wait(peer, id) } else { kernel.signal(peer, id) }
}

pub fn run() -> crate::Ended {
    let shm = Shm::rendezvous(&World::single()?, Options::from(1 << 16).signals(2))?;
    let stream = Device::of(&shm).stream()?;
    let kernel = raise::on(&shm)?;
    for wait in [0, 1] {
        for (peer, id) in [(0, 2), (0, 1 << 32), (0, usize::MAX), (1, 0), (usize::MAX, 0)] {
            kernel.launch(&stream, 1, raise::Launch { peer, id, wait })?;
            let text = stream.synchronize().map_or_else(|e| e.to_string(), |()| String::new());
            crate::ensure(text.contains("must be below"), || format!("{peer} {id}: {text}"))?;
            shm.renew()?;
        }
    }
    Ok(())
}
