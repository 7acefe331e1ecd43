//! `renew` from one thread while another launches on the same transport: positions are never cleared under a kernel.
//! Ends: well

use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
fn around<O: Ops>(kernel: &Kernel<O>, input: &[u32], sum: Accumulate<u32>) -> Flow {
    kernel.signal(0, 0)?;
    kernel.wait(0, 0)?;
    sum.add(0, input[0]);
    Ok(())
}

pub fn run() -> crate::Ended {
    let shm = Shm::rendezvous(&World::single()?, Options::from(1 << 16).signals(1))?;
    let device = Device::of(&shm);
    let kernel = around::on(&shm)?;
    let outcome: crate::Ended = std::thread::scope(|threads| {
        let renewing = threads.spawn(|| (0..300).try_for_each(|_| shm.renew()));
        let stream = device.stream()?;
        let input = device.buffer_from(&[1u32; 4])?;
        let mut sum = device.buffer::<u32>(4)?;
        for _ in 0..300 {
            kernel.launch(&stream, 1, around::Launch { input: input.view(), sum: sum.view_mut() })?;
        }
        stream.synchronize()?;
        let got = sum.read(&stream)?;
        renewing.join().map_err(|_| "the other thread panicked")??;
        crate::ensure(got[0] == 300, || format!("{got:?}"))
    });
    outcome
}
