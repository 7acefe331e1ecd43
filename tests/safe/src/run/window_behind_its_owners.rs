//! Kernels on a window, and a graph of them, after window, peers, buffer and transport were dropped: they keep what they use.
//! Ends: well

use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
fn ring<O: Ops>(kernel: &Kernel<O>, window: DeviceWindow, input: &[u32]) -> Flow {
    let window = kernel.window(&window);
    window.signal_peer(&Block, kernel.next(1), 0, SignalOp::Add, u64::from(input[0]))?;
    window.wait_next_from(&Block, kernel.previous(1), 0, 1)?;
    window.barrier(&Block, 0)
}

fn rank(world: World) -> fusewire::Result<()> {
    let shm = Shm::rendezvous(&world, 1 << 16)?;
    let peers = MultiPeerTransport::new(&shm, &PeersConfig::default())?;
    peers.exchange()?;
    let device = Device::of(&shm);
    let buffer = device.shared_buffer::<u32>(64)?;
    let window = HostWindow::new(&peers, WindowConfig::default(), &buffer)?;
    window.exchange()?;
    let (stream, kernel) = (device.stream()?, ring::on(&shm)?);
    let input = device.buffer_from(&[1u32; 4])?;
    let graph = stream.capture(|| kernel.launch(&stream, 1, ring::Launch { window: &window, input: input.view() }))?;
    for _ in 0..10 {
        kernel.launch(&stream, 1, ring::Launch { window: &window, input: input.view() })?;
        graph.launch(&stream)?;
    }
    drop((input, buffer, kernel));
    drop(window);
    drop((peers, shm));
    stream.synchronize()?;
    graph.launch(&stream)?;
    stream.synchronize()
}

pub fn run() -> crate::Ended {
    for outcome in World::threads(2, rank)? {
        outcome?;
    }
    Ok(())
}
