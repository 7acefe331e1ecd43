//! The longest and the shortest waits that there are.
//! Ends: well

use fusewire::prelude::*;
use std::time::Duration;

#[comm_kernel(transports(Shm))]
fn nothing<O: Ops>(kernel: &Kernel<O>, n: u32) -> Flow {
    let _ = (kernel, n);
    Ok(())
}

pub fn run() -> crate::Ended {
    let refused = Shm::rendezvous(&World::single()?, Options::from(1 << 16).deadline(Duration::MAX));
    crate::ensure(refused.is_err(), || "a deadline that is no time".into())?;
    let shm = Shm::rendezvous(&World::single()?, 1 << 16)?;
    let stream = Device::of(&shm).stream()?;
    let kernel = nothing::on(&shm)?;
    for limit in [Duration::MAX, Duration::from_nanos(1), Duration::ZERO, Duration::MAX] {
        kernel.launch(&stream, 1, nothing::Launch { n: 0 })?;
        stream.synchronize_within(limit).or_else(|_| stream.synchronize())?;
    }
    Ok(())
}
