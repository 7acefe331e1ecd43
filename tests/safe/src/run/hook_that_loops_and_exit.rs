//! A hook without an end in several blocks, and `exit` while it runs.
//! Ends: well

use fusewire::prelude::*;
use std::time::Duration;

#[comm_kernel(transports(Shm))]
fn endless<O: Ops>(kernel: &Kernel<O>, flags: &[u32]) -> Flow {
    let _ = kernel;
    while core::hint::black_box(flags[0]) == 0 {}
    Ok(())
}

pub fn run() -> crate::Ended {
    let shm = Shm::rendezvous(&World::single()?, 1 << 16)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let flags = device.buffer_from(&[0u32; 4])?;
    endless::on(&shm)?.launch(&stream, 3, endless::Launch { flags: flags.view() })?;
    crate::ensure(stream.synchronize_within(Duration::from_millis(100)).is_err(), || "it ended".into())?;
    println!("ended well");
    std::process::exit(0)
}
