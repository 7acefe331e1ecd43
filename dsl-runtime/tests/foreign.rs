//! Memory of others as symmetric outputs and as data of windows, on ranks of one process; and graphs in captures.

use fusewire::foreign::NotExportable;
use fusewire::prelude::*;
use fusewire::world::World;
use fusewire::{Error, Graph};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Elements as they are.
#[comm_kernel(transports(Shm), schedules(all_to_all))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
    }
}

/// A vector, and whether it was dropped.
struct Owner {
    _values: Vec<u32>,
    dropped: Arc<AtomicBool>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::Release);
    }
}

/// Memory of others with these elements, and whether its owner was dropped.
fn of_others(device: &Device, values: Vec<u32>) -> fusewire::Result<(Buffer<u32>, Arc<AtomicBool>)> {
    let told = Arc::new(AtomicBool::new(false));
    let (address, len) = (values.as_ptr().addr() as u64, values.len());
    let owner = Owner { _values: values, dropped: Arc::clone(&told) };
    // SAFETY: the owner's elements, which nobody else uses.
    Ok((unsafe { Buffer::from_raw(device, address, len, owner)? }, told))
}

fn ranks(count: usize, body: impl Fn(&World) -> fusewire::Result<()> + Send + Sync) {
    for result in World::threads(count, |world| body(&world)).unwrap() {
        result.unwrap();
    }
}

fn waits_for(told: &AtomicBool) {
    let start = Instant::now();
    while !told.load(Ordering::Acquire) {
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn memory_of_others_is_symmetric_until_no_rank_has_it() {
    for count in [1, 2, 3] {
        ranks(count, |world| {
            let (shm, me) = (Shm::rendezvous(world, 1 << 16)?, world.rank());
            let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
            let (buffer, told) = of_others(&device, vec![0; 5 * count])?;
            let address = buffer.address();
            let mut output = buffer.into_symmetric(&shm)?;
            assert_eq!(output.address(), address);
            let sent: Vec<u32> = (0..5 * count).map(|i| (100 * me + i) as u32).collect();
            let (input, direct) =
                (device.buffer_from(&sent)?, LaunchOptions::default().protocol(Protocol::Direct));
            let launcher = copy::all_to_all(&shm)?;
            let args = copy::Launch { input: input.view(), output: output.view_mut() };
            launcher.launch_with(&stream, args, &direct)?;
            let from = |peer: usize| (0..5).map(move |i| (100 * peer + 5 * me + i) as u32);
            assert_eq!(output.read(&stream)?, (0..count).flat_map(from).collect::<Vec<_>>());
            // One rank lets go; the others' kernels may still store there.
            let mut output = Some(output);
            if me == 0 {
                output = None;
            }
            world.barrier()?;
            std::thread::sleep(Duration::from_millis(20));
            assert!(count == 1 || !told.load(Ordering::Acquire));
            world.barrier()?;
            drop(output);
            waits_for(&told);
            Ok(())
        });
    }
}

/// Ranks let go in opposite orders, and of their transports meanwhile: no owner is kept, and no end is given up.
#[test]
fn owners_go_in_any_order() {
    ranks(2, |world| {
        let (shm, other) = (Shm::rendezvous(world, 1 << 16)?, Shm::rendezvous(world, 1 << 16)?);
        let adopted = || {
            let (buffer, told) = of_others(&Device::of(&shm), vec![0; 8])?;
            Ok::<_, Error>((buffer.into_symmetric(&shm)?, told))
        };
        let [(first, of_first), (second, of_second)] = [adopted()?, adopted()?];
        let (now, later) = if world.rank() == 0 { (first, second) } else { (second, first) };
        drop(now);
        // Long enough for both to wait for the other.
        std::thread::sleep(Duration::from_millis(50));
        other.close()?;
        drop(later);
        waits_for(&of_first);
        waits_for(&of_second);
        Ok(())
    });
}

#[test]
fn what_a_graph_uses_is_refused_on_all_ranks() {
    ranks(2, |world| {
        let shm = Shm::rendezvous(world, 1 << 16)?;
        let stream = Device::of(&shm).stream()?;
        let mut buffer = Buffer::from_vec(vec![1u32; 8]);
        let graph = match world.rank() {
            1 => Some(stream.capture(|| buffer.fill_bytes(&stream, 2))?),
            _ => None,
        };
        let refused = buffer.into_symmetric(&shm).expect_err("a graph uses it");
        assert!(matches!(refused, Error::NotExportable { rank: 1, why: NotExportable::InUse }), "{refused}");
        drop(graph);
        // As good as new.
        Buffer::from_vec(vec![1u32; 8]).into_symmetric(&shm).map(drop)
    });
}

/// Puts `message` into the next rank's buffer and waits for the previous rank's.
#[comm_kernel(transports(Shm))]
fn pass_on<O: Ops>(kernel: &Kernel<O>, window: DeviceWindow, message: &[u32]) -> Flow {
    let window = kernel.window(&window);
    // SAFETY: the next rank reads its buffer after the kernel alone.
    unsafe { window.put_signal(&Block, kernel.next(1), 0, message, 0, 1)? };
    window.wait_next_from(&Block, kernel.previous(1), 0, 1)
}

#[test]
fn a_window_has_memory_of_others_until_no_rank_has_it() {
    ranks(3, |world| {
        let (shm, me) = (Shm::rendezvous(world, 1 << 16)?, world.rank());
        let peers = MultiPeerTransport::new(&shm, &PeersConfig::default())?;
        peers.exchange()?;
        let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
        let (inbox, told) = of_others(&device, vec![7; 4])?;
        let window = HostWindow::new(&peers, WindowConfig::default(), Some(&inbox))?;
        window.exchange()?;
        let message = device.buffer_from(&[me as u32; 3])?;
        let args = pass_on::Launch { window: &window, message: message.view() };
        pass_on::on(&shm)?.launch(&stream, 1, args)?;
        let previous = (me + 2) as u32 % 3;
        assert_eq!(inbox.read(&stream)?, [previous, previous, previous, 7]);
        drop(inbox);
        let mut window = Some(window);
        if me == 0 {
            window = None;
        }
        world.barrier()?;
        std::thread::sleep(Duration::from_millis(20));
        assert!(!told.load(Ordering::Acquire));
        world.barrier()?;
        drop(window);
        waits_for(&told);
        Ok(())
    });
}

/// A graph that was recorded into another goes with that one, not before.
#[test]
fn a_graph_is_part_of_another() {
    let (device, stream) = (Device::host(), Device::host().stream().unwrap());
    let mut from = device.buffer_from(&[1u8; 8]).unwrap();
    let mut to = device.buffer::<u8>(8).unwrap();
    let copy: Graph = stream.capture(|| to.copy_from(&stream, &from)).unwrap();
    assert!(copy.as_raw().is_null());
    let both = stream
        .capture(|| {
            from.fill_bytes(&stream, 5)?;
            copy.launch(&stream)?;
            from.fill_bytes(&stream, 6)
        })
        .unwrap();
    drop(copy);
    assert_eq!(both.node_count(), 3);
    both.launch(&stream).unwrap();
    assert_eq!(to.read(&stream).unwrap(), [5; 8]);
    assert_eq!(from.read(&stream).unwrap(), [6; 8]);
    // Work between replays on another stream keeps its order with what the inner graph uses.
    let other = device.stream().unwrap();
    to.fill_bytes(&other, 9).unwrap();
    both.launch(&stream).unwrap();
    assert_eq!(to.read(&stream).unwrap(), [5; 8]);
}
