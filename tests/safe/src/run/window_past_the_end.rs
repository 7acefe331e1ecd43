//! Ranks, signals, counters and barriers that a window has not: a fault that names the line of the call.
//! Ends: well

use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
fn past<O: Ops>(kernel: &Kernel<O>, window: DeviceWindow, way: u32, peer: usize, id: usize) -> Flow {
    let window = kernel.window(&window);
    match way {
        0 => window.signal_peer(&Block, peer, id, SignalOp::Add, 1),
        1 => window.wait_signal_from(&Block, peer, id, Cmp::Ge, 0),
        2 => window.wait_next_from(&Block, peer, id, 1),
        3 => window.barrier_peer(&Block, peer, id),
        4 => window.signal_all(&Block, id, SignalOp::Set, 1),
        _ => window.barrier(&Block, id),
    }
}

fn rank(world: World) -> Result<(), String> {
    let text = |error: fusewire::Error| error.to_string();
    let shm = Shm::rendezvous(&world, 1 << 16).map_err(|e| e.to_string())?;
    let peers = MultiPeerTransport::new(&shm, &PeersConfig::default()).map_err(|e| e.to_string())?;
    peers.exchange().map_err(|e| e.to_string())?;
    let window = HostWindow::without_data(&peers, WindowConfig::default()).map_err(text)?;
    window.exchange().map_err(text)?;
    let stream = Device::of(&shm).stream().map_err(text)?;
    let kernel = past::on(&shm).map_err(text)?;
    let bad = [(2, 0), (usize::MAX, 0), (1 << 32, 0), (0, 8), (1, 1 << 32), (0, usize::MAX), (1, usize::MAX)];
    for way in 0..6 {
        for (peer, id) in bad {
            if way >= 4 && id == 0 {
                continue;
            }
            kernel.launch(&stream, 1, past::Launch { window: &window, way, peer, id }).map_err(text)?;
            let said = stream.synchronize().map_or_else(|e| e.to_string(), |()| String::new());
            if said.is_empty() {
                return Err(format!("way {way}, peer {peer}, id {id}: nothing"));
            }
            shm.renew().map_err(|e| e.to_string())?;
        }
    }
    Ok(())
}

pub fn run() -> crate::Ended {
    for outcome in World::threads(2, rank)? {
        outcome?;
    }
    Ok(())
}
