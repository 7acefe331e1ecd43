//! Buffers, transport and stream dropped in every order while their launch runs: each stays as long as it is used.
//! Ends: well

use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
fn slow<O: Ops>(kernel: &Kernel<O>, input: &[u64], sum: Accumulate<u64>) -> Flow {
    let _ = kernel;
    for _ in 0..200 {
        for value in input {
            sum.add(0, *value);
        }
    }
    Ok(())
}

pub fn run() -> crate::Ended {
    for order in 0..24 {
        let shm = Shm::rendezvous(&World::single()?, 1 << 16)?;
        let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
        let input = device.buffer_from(&[1u64; 10_000])?;
        let mut sum = device.buffer::<u64>(1)?;
        let kernel = slow::on(&shm)?;
        kernel.launch(&stream, 1, slow::Launch { input: input.view(), sum: sum.view_mut() })?;
        let mut left: Vec<Box<dyn std::any::Any>> =
            vec![Box::new(shm), Box::new(stream), Box::new(input), Box::new(sum), Box::new(kernel)];
        let mut rest = order;
        while !left.is_empty() {
            drop(left.remove(rest % left.len()));
            rest /= 2;
        }
    }
    Ok(())
}
