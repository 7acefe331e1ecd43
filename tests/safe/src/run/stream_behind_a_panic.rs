//! A thread that panics with launches under way, and drops its stream so: what runs keeps what it uses, and others go on.
//! Ends: well

use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
fn slow<O: Ops>(kernel: &Kernel<O>, input: &[u64], sum: Accumulate<u64>) -> Flow {
    let _ = kernel;
    for value in input {
        sum.add(0, *value);
    }
    Ok(())
}

pub fn run() -> crate::Ended {
    let shm = Shm::rendezvous(&World::single()?, 1 << 16)?;
    let device = Device::of(&shm);
    let kernel = slow::on(&shm)?;
    let ended = std::thread::scope(|threads| {
        let panicking = threads.spawn(|| -> fusewire::Result<()> {
            let stream = device.stream()?;
            let input = device.buffer_from(&[1u64; 1_000_000])?;
            let mut sum = device.buffer::<u64>(1)?;
            kernel.launch(&stream, 1, slow::Launch { input: input.view(), sum: sum.view_mut() })?;
            panic!("on purpose")
        });
        panicking.join().is_err()
    });
    crate::ensure(ended, || "it did not panic".into())?;
    let (stream, input) = (device.stream()?, device.buffer_from(&[2u64; 100])?);
    let mut sum = device.buffer::<u64>(1)?;
    kernel.launch(&stream, 1, slow::Launch { input: input.view(), sum: sum.view_mut() })?;
    stream.synchronize()?;
    let got = sum.read(&stream)?;
    crate::ensure(got == [200], || format!("{got:?}"))
}
