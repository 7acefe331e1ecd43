//! Windows and what uses them may go in any order.

use fusewire::prelude::*;
use fusewire::schedule::CustomLauncher;
use fusewire::world::World;
use std::time::{Duration, Instant};

/// Puts `message` into the next rank's buffer and waits for the previous rank's.
#[comm_kernel(transports(Shm))]
fn pass_on<O: Ops>(kernel: &Kernel<O>, window: DeviceWindow, message: &[u32]) -> Flow {
    let window = kernel.window(&window);
    if kernel.world() == 1 {
        return Ok(());
    }
    // SAFETY: the next rank reads its buffer after the kernel alone.
    unsafe { window.put_signal(&Block, kernel.next(1), 0, message, 0, 1)? };
    window.wait_next_from(&Block, kernel.previous(1), 0, 1)
}

/// Waits for a signal that no peer sends.
#[comm_kernel(transports(Shm))]
fn wait<O: Ops>(kernel: &Kernel<O>, window: DeviceWindow) -> Flow {
    kernel.window(&window).wait_next(&Block, 3, 1)
}

/// How long waiting for peers lasts where nobody is missing.
const SOON: Duration = Duration::from_secs(20);

/// This rank's window, the buffer that peers put to, and what it puts.
fn window(world: &World, shm: &Shm) -> fusewire::Result<(HostWindow, Buffer<u32>, Buffer<u32>)> {
    let peers = MultiPeerTransport::new(shm, &PeersConfig::default())?;
    peers.exchange()?;
    let device = Device::of(shm);
    let inbox = device.shared_buffer::<u32>(4)?;
    let window = HostWindow::new(&peers, WindowConfig::default(), Some(&inbox))?;
    window.exchange()?;
    let message = device.buffer_from(&[world.rank() as u32; 4])?;
    Ok((window, inbox, message))
}

/// Lets `body` launch `pass_on` and drop its window, five times; then its inbox must have the previous rank's message, and soon.
fn passed_on(
    ranks: usize,
    body: impl Fn(&Stream, &CustomLauncher<Shm, pass_on::Hooks>, HostWindow, &Buffer<u32>) -> fusewire::Result<()>
    + Send
    + Sync,
) {
    let start = Instant::now();
    let run = |world: World| -> fusewire::Result<()> {
        let shm = Shm::rendezvous(&world, 1 << 16)?;
        let stream = Device::of(&shm).stream()?;
        let launcher = pass_on::on(&shm)?;
        for _ in 0..5 {
            let (window, inbox, message) = window(&world, &shm)?;
            body(&stream, &launcher, window, &message)?;
            let previous = (world.rank() + ranks - 1) % ranks;
            assert_eq!(inbox.read(&stream)?, [previous as u32; 4]);
        }
        Ok(())
    };
    World::threads(ranks, run).unwrap().into_iter().for_each(Result::unwrap);
    assert!(start.elapsed() < SOON, "it took {:?}", start.elapsed());
}

/// Windows that no peer has mapped, those that a peer has still, and transports in opposite orders.
#[test]
fn ends_wait_for_nobody() {
    let start = Instant::now();
    let run = |world: World| -> fusewire::Result<()> {
        let pair = [Shm::rendezvous(&world, 1 << 16)?, Shm::rendezvous(&world, 1 << 16)?];
        let peers = MultiPeerTransport::new(&pair[0], &PeersConfig::default())?;
        peers.exchange()?;
        if world.rank() == 1 {
            // Never exchanged.
            for _ in 0..3 {
                drop(HostWindow::without_data(&peers, WindowConfig::default())?);
            }
        }
        let (window, ..) = window(&world, &pair[0])?;
        // One rank lets go while the other has not come to that.
        if world.rank() == 0 {
            drop(window);
            world.barrier()?;
        } else {
            world.barrier()?;
            drop(window);
        }
        drop(peers);
        let [one, other] = pair;
        match world.rank() {
            0 => drop((one, other)),
            _ => drop((other, one)),
        }
        world.barrier()?;
        Ok(())
    };
    for result in World::threads(2, run).unwrap() {
        result.unwrap();
    }
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}

#[test]
fn windows_go_while_a_launch_uses_them() {
    for ranks in [1, 2, 3] {
        passed_on(ranks, |stream, launcher, window, message| {
            launcher.launch(stream, 1, pass_on::Launch { window: &window, message: message.view() })?;
            drop(window);
            stream.synchronize()
        });
    }
}

#[test]
fn graphs_go_while_they_run() {
    passed_on(2, |stream, launcher, window, message| {
        let graph = stream.capture(|| {
            let args = pass_on::Launch { window: &window, message: message.view() };
            launcher.launch(stream, 1, args)
        })?;
        drop(window);
        graph.launch(stream)?;
        graph.launch(stream)
    });
}

#[test]
fn a_wait_for_all_peers_names_none() {
    let run = |world: World| -> fusewire::Result<()> {
        let options = Options { deadline: Duration::from_millis(200), ..Options::from(1 << 16) };
        let shm = Shm::rendezvous(&world, options)?;
        let stream = Device::of(&shm).stream()?;
        let launcher = wait::on(&shm)?;
        let (window, _inbox, _message) = window(&world, &shm)?;
        launcher.launch(&stream, 1, wait::Launch { window: &window })?;
        let text = stream.synchronize().unwrap_err().to_string();
        assert!(
            text.contains("for a signal (") && text.contains("not every peer") && text.contains("windows.rs"),
            "{text}"
        );
        assert!(!text.contains("launched"), "{text}");
        world.barrier()?;
        Ok(())
    };
    World::threads(2, run).unwrap().into_iter().for_each(Result::unwrap);
}

#[test]
fn more_blocks_than_threads_are_refused() {
    let run = |world: World| -> fusewire::Result<String> {
        let shm = Shm::rendezvous(&world, 1 << 16)?;
        let stream = Device::of(&shm).stream()?;
        let (window, ..) = window(&world, &shm)?;
        let many = wait::on(&shm)?.launch(&stream, 100_000, wait::Launch { window: &window });
        Ok(many.unwrap_err().to_string())
    };
    for text in World::threads(1, run).unwrap() {
        assert!(text.unwrap().contains("100000 blocks wait for each other"));
    }
}
