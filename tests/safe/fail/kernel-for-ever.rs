//! A running kernel that a schedule would have for ever, or on another thread.
use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
fn kept<O: Ops>(kernel: &'static Kernel<O>, n: u32) -> Flow {
    let _ = (kernel, n);
    Ok(())
}

#[comm_kernel(transports(Shm))]
fn elsewhere<O: Ops>(kernel: &Kernel<O>, n: u32) -> Flow {
    std::thread::scope(|threads| {
        threads.spawn(|| kernel.signal(0, n as usize));
    });
    Ok(())
}

fn main() {}
