//! Memory that somebody else allocated, as symmetric outputs and as data of windows.

use super::support::misuse;
use crate::check::{same, says};
use crate::kernels::copying::copy;
use crate::kernels::windows::op;
use crate::run::Ground;
use crate::windows::{Player, step, windowed_over};
use crate::{AllToAllOf, Outcome, Rank, Stop, Subject, reference};
use fusewire::device::element::Element;
use fusewire::driver::Context;
use fusewire::foreign::NotExportable;
use fusewire::peers::Machine;
use fusewire::{Buffer, Device, Error, LaunchOptions, Protocol, WindowConfig};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Memory, and whether it was dropped.
struct Owner {
    memory: Memory,
    dropped: Arc<AtomicBool>,
}

enum Memory {
    Ours {
        _buffer: Buffer<u8>,
    },
    /// Of `cuMemAlloc`.
    Plain(u64, Context),
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Memory::Plain(address, context) = &self.memory {
            context.bind().expect("the context of memory that is there");
            // SAFETY: allocated in `of_others`, and freed once.
            unsafe { cudarc::driver::result::free_sync(*address).expect("memory that is there") };
        }
        self.dropped.store(true, Ordering::Release);
    }
}

/// Where the memory of others begins in its allocation.
const OFFSET: usize = 4096;

/// `len` elements of memory that belongs to an owner, from a place within an allocation of this kind on: 0 is what the machine's own call gives, 1 and 2
/// are shared and ordinary buffers.
fn of_others<T: Element>(
    device: &Device,
    machine: &Machine,
    len: usize,
    kind: usize,
) -> fusewire::Result<(Buffer<T>, Arc<AtomicBool>)> {
    let bytes = len * T::SIZE + 2 * OFFSET;
    let (start, memory) = match (kind, machine) {
        (0, Machine::Cuda(context)) => {
            context.bind()?;
            // SAFETY: the context is current; freed by `Owner`.
            let start = unsafe { cudarc::driver::result::malloc_sync(bytes) }.expect("device memory");
            (start, Memory::Plain(start, context.clone()))
        }
        (1, _) => {
            let buffer = device.shared_buffer::<u8>(bytes)?;
            (buffer.address(), Memory::Ours { _buffer: buffer })
        }
        _ => {
            let buffer = device.buffer::<u8>(bytes)?;
            (buffer.address(), Memory::Ours { _buffer: buffer })
        }
    };
    let (address, dropped) = (start + OFFSET as u64, Arc::new(AtomicBool::new(false)));
    let owner = Owner { memory, dropped: Arc::clone(&dropped) };
    // SAFETY: the owner's, which nobody else uses.
    Ok((unsafe { Buffer::from_raw(device, address, len, owner)? }, dropped))
}

/// The ground where memory of others can be symmetric: a transport whose ranks map each other's memory, on GPUs or in one process.
fn ground<X: Subject>(rank: &Rank<X>) -> Result<Ground<X>, Stop> {
    let ground = rank.small()?;
    if !X::MAPS {
        let refused =
            of_others::<u32>(&ground.device, machine(&ground), 4, 0)?.0.into_symmetric(&ground.transport);
        says(misuse(refused), &["no symmetric buffers"]);
        return Err(Stop::LeftOut(format!("{} does not map peers' memory, and says so", X::NAME)));
    }
    if !is_near(rank)? && matches!(machine(&ground), Machine::Host) {
        let refused =
            of_others::<u32>(&ground.device, machine(&ground), 4, 0)?.0.into_symmetric(&ground.transport);
        let refused = refused.expect_err("memory of one process was mapped by another");
        assert!(matches!(refused, Error::NotExportable { why: NotExportable::Private, .. }), "{refused}");
        return Err(Stop::LeftOut("memory of one process is refused to ranks in others".into()));
    }
    Ok(ground)
}

fn machine<X: Subject>(ground: &Ground<X>) -> &Machine {
    ground.transport.link().machine()
}

/// Whether all ranks are in one process.
fn is_near<X: Subject>(rank: &Rank<X>) -> Result<bool, Stop> {
    let all = rank.world.all_gather_as(&std::process::id())?;
    Ok(all.iter().all(|process| *process == all[0]))
}

/// Waits until an owner was dropped, as whoever synchronizes sees to.
fn goes<X: Subject>(rank: &Rank<X>, ground: &Ground<X>, dropped: &AtomicBool) -> Outcome {
    let start = Instant::now();
    while !dropped.load(Ordering::Acquire) {
        assert!(start.elapsed() < Duration::from_secs(20), "rank {}'s owner was kept", rank.me());
        ground.stream.synchronize()?;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Eager and replayed, each protocol, from allocations of both kinds; beside an output of this library.
pub fn symmetric_outputs<X: Subject>(rank: &Rank<X>) -> Outcome {
    let (ground, chunk) = (ground(rank)?, rank.scale.pick(3000, 50_000));
    let (me, n, stream) = (rank.me(), chunk * rank.size(), &ground.stream);
    let launcher = AllToAllOf::<copy::Hooks<u32>>::all_to_all(&ground.transport)?;
    for kind in [0, 1, 2, 3] {
        let mut output = match kind {
            // Of this library, made symmetric.
            3 => ground.device.buffer::<u32>(n)?.into_symmetric(&ground.transport)?,
            kind => {
                of_others(&ground.device, machine(&ground), n, kind)?.0.into_symmetric(&ground.transport)?
            }
        };
        // The copy engine is a GPU's.
        let ways = rank.scale.pick(
            &[Protocol::Direct, Protocol::Bulk][..],
            &[Protocol::Direct, Protocol::Bulk, Protocol::Copy],
        );
        for (k, &protocol) in ways.iter().enumerate() {
            let data = rank.data(10 * kind + k);
            let input = ground.device.buffer_from(&data.all::<u32>(me, n))?;
            let options = LaunchOptions::default().protocol(protocol);
            let mut launch = || {
                let args = copy::Launch { input: input.view(), output: output.view_mut() };
                launcher.launch_with(stream, args, &options)
            };
            let eager = launch();
            // GPUs may be too old for bulk copies.
            if protocol == Protocol::Bulk && eager.is_err() {
                says(misuse(eager), &["Bulk"]);
                continue;
            }
            eager?;
            let graph = stream.capture(|| (0..2).try_for_each(|_| launch()))?;
            let seen = |output: &Buffer<u32>, how: &str| -> Outcome {
                same(format_args!("memory {kind} by {protocol:?}, {how}"), &output.read(stream)?, |i| {
                    reference::all_to_all(me, chunk, i, |peer, at| data.any(peer, at))
                });
                Ok(())
            };
            seen(&output, "eager")?;
            output.fill_bytes(stream, super::support::POISON)?;
            graph.launch(stream)?;
            seen(&output, "replayed")?;
        }
    }
    Ok(())
}

/// The owner of a rank that has dropped its buffer waits for those that have not.
pub fn kept_until_no_rank_has_it<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = ground(rank)?;
    let n = 100 * rank.size();
    let launcher = AllToAllOf::<copy::Hooks<u32>>::all_to_all(&ground.transport)?;
    let input = ground.device.buffer::<u32>(n)?;
    let (buffer, dropped) = of_others::<u32>(&ground.device, machine(&ground), n, 0)?;
    let mut output = Some(buffer.into_symmetric(&ground.transport)?);
    if let Some(output) = &mut output {
        launcher.launch(&ground.stream, copy::Launch { input: input.view(), output: output.view_mut() })?;
    }
    if rank.me() == 0 {
        output = None;
    }
    rank.world.barrier()?;
    ground.stream.synchronize()?;
    std::thread::sleep(Duration::from_millis(30));
    assert!(!dropped.load(Ordering::Acquire), "rank {} lost memory that peers have mapped", rank.me());
    rank.world.barrier()?;
    drop(output);
    goes(rank, &ground, &dropped)?;
    rank.world.barrier()?;
    Ok(())
}

/// What one rank cannot give is refused on all, and the next attempt is as good as new.
pub fn refused<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = ground(rank)?;
    let (transport, stream) = (&ground.transport, &ground.stream);
    let last = rank.size() - 1;
    let mut used = ground.device.buffer::<u32>(8)?;
    let graph = stream.capture(|| used.fill_bytes(stream, 1))?;
    let memory = if rank.me() == last { used } else { ground.device.buffer::<u32>(8)? };
    let refused = memory.into_symmetric(transport).expect_err("a graph uses the memory of a rank");
    match refused {
        Error::NotExportable { rank, why: NotExportable::InUse } if rank == last => {}
        other => panic!("{other}"),
    }
    says(refused, &[&format!("rank {last}"), "a graph", "drop that first"]);
    drop(graph);
    if rank.scale == crate::Scale::Gpu {
        let elsewhere = if rank.me() == 0 { Device::host() } else { ground.device.clone() };
        let refused = elsewhere.buffer::<u32>(8)?.into_symmetric(transport);
        says(refused.expect_err("memory of the host was mapped"), &["rank 0", "another device"]);
        of_a_pool(rank, &ground)?;
    }
    let none = ground.device.buffer::<u32>(0)?.into_symmetric(transport);
    says(misuse(none), &["no elements"]);
    let sizes = ground.device.buffer::<u32>(8 + rank.me())?.into_symmetric(transport);
    says(sizes.expect_err("sizes differ"), &["bytes of others"]);
    drop(ground.device.buffer::<u32>(8)?.into_symmetric(transport)?);
    Ok(())
}

/// Memory of `cudaMallocAsync` is mapped by no other process, and by no other GPU.
fn of_a_pool<X: Subject>(rank: &Rank<X>, ground: &Ground<X>) -> Outcome {
    let Machine::Cuda(context) = machine(ground) else { unreachable!("on GPUs") };
    let gpus = rank.world.all_gather_as(&context.device().ordinal())?;
    if is_near(rank)? && gpus.iter().all(|gpu| *gpu == gpus[0]) {
        return Ok(());
    }
    let raw = ground.stream.as_raw().cast();
    context.bind().map_err(Error::from)?;
    // SAFETY: the context is current; freed below, behind all that could use it.
    let start = unsafe { cudarc::driver::result::malloc_async(raw, 4096) }.expect("memory of a pool");
    ground.stream.synchronize()?;
    // SAFETY: freed below, when the buffer is gone.
    let buffer = unsafe { Buffer::<u32>::from_raw(&ground.device, start, 8, ())? };
    let refused = buffer.into_symmetric(&ground.transport).expect_err("memory of a pool was mapped");
    // SAFETY: allocated above; nothing uses it.
    unsafe { cudarc::driver::result::free_async(start, raw) }.expect("memory of a pool");
    assert!(matches!(refused, Error::NotExportable { why: NotExportable::Pool, .. }), "{refused}");
    Ok(())
}

/// Puts into memory of others, which a window has as its data.
pub fn window_data<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = ground(rank)?;
    if rank.peers(&ground)?.has_rdma() {
        return Err(Stop::LeftOut("adapters reach shared buffers alone".into()));
    }
    let (words, size, me) = (500, rank.size(), rank.me());
    let (next, previous) = ((me + 1) % size, (me + size - 1) % size);
    let own_machine = machine(&ground).clone();
    for kind in [0, 1, 2] {
        let mut dropped = None;
        let mut on = windowed_over(rank, WindowConfig::default(), |device| {
            let (data, told) = of_others::<u64>(device, &own_machine, 2 * words, kind)?;
            dropped = Some(told);
            Ok(data)
        })?;
        let data = rank.data(kind);
        let own: Vec<u64> = (0..2 * words).map(|i| if i < words { data.any(me, i) } else { 3 }).collect();
        on.data.fill_from(&own)?;
        rank.world.barrier()?;
        let player = Player::new(&on)?;
        let put = step(op::PUT_SIGNAL).peer(next).from(0).to(words).count(words - 1).id(1).value(1);
        let wait = step(op::WAIT_NEXT_FROM).peer(previous).id(1).value(1);
        let take = step(op::TAKE).from(words).to(0).count(words);
        let seen = player.play(&[put, wait, take])?;
        same(format_args!("{words} words into memory {kind}"), &seen.taken[..words], |i| {
            if i < words - 1 { data.any(previous, i) } else { 3 }
        });
        rank.world.barrier()?;
        drop(player);
        drop(on);
        goes(rank, &ground, &dropped.expect("made above"))?;
        rank.world.barrier()?;
    }
    Ok(())
}
