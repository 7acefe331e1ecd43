//! A window and peers that a schedule would have for ever.
use fusewire::prelude::*;
use std::sync::Mutex;

static KEPT: Mutex<Option<DeviceWindow<'static>>> = Mutex::new(None);

#[comm_kernel(transports(Shm))]
fn window_kept<O: Ops>(kernel: &Kernel<O>, window: DeviceWindow<'static>) -> Flow {
    let _ = kernel;
    *KEPT.lock().unwrap() = Some(window);
    Ok(())
}

#[comm_kernel(transports(Shm))]
fn window_copied<O: Ops>(kernel: &Kernel<O>, window: DeviceWindow) -> Flow {
    let _ = kernel;
    *KEPT.lock().unwrap() = Some(window);
    Ok(())
}

#[comm_kernel(transports(Shm))]
fn peers_kept<O: Ops>(kernel: &Kernel<O>, peers: DevicePeers<'static>) -> Flow {
    let _ = (kernel, peers);
    Ok(())
}

fn main() {}
