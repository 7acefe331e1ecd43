//! Schedules of one's own.

use fusewire::prelude::*;

/// All-gather in world - 1 steps by tiles: at step `s` a rank sends its part `s` steps up the ring.
///
/// A block sends before it receives, so a tile must fit in a channel's staging: parts go in tiles of at most `most` elements.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub fn ring_all_gather<O: Ops>(kernel: &Kernel<O>, own: &[f32], all: Out<'_, f32>, most: usize) -> Flow {
    let n = own.len();
    let share = kernel.share(n);
    let part = |rank: usize, at: usize, len: usize| Tile { start: rank * n + share.start + at, len };
    // SAFETY: each rank's part is written once, and blocks' shares are disjoint.
    unsafe {
        kernel.local_tile(part(kernel.rank(), 0, share.len), |ctx| {
            all.at(ctx).set(own[ctx.index() - kernel.rank() * n])
        });
    }
    let mut step = 1;
    while step < kernel.world() {
        let (to, from) = (kernel.next(step), kernel.previous(step));
        let mut at = 0;
        while at < share.len {
            let len = most.min(share.len - at);
            kernel.send_tile(to, Tile { start: share.start + at, len }, |ctx| own[ctx.index()])?;
            // SAFETY: as above.
            unsafe { kernel.recv_tile(from, part(from, at, len), |ctx, value: f32| all.at(ctx).set(value))? };
            at += len;
        }
        step += 1;
    }
    Ok(())
}

/// Sends this rank's elements to the next one, `tiles` tiles of `most` by each block in a row, then receives as many from the previous one.
/// A block's tiles fit in a channel's staging together.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub fn bursts<O: Ops>(kernel: &Kernel<O>, own: &[u32], got: Out<'_, u32>, tiles: usize, most: usize) -> Flow {
    let tile = |number: usize| Tile { start: (kernel.block() * tiles + number) * most, len: most };
    let mut sent = 0;
    while sent < tiles {
        kernel.send_tile(kernel.next(1), tile(sent), |ctx| own[ctx.index()])?;
        sent += 1;
    }
    let mut received = 0;
    while received < tiles {
        let set = |ctx: &Consume, value: u32| got.at(ctx).set(value);
        // SAFETY: tiles are disjoint.
        unsafe { kernel.recv_tile(kernel.previous(1), tile(received), set)? };
        received += 1;
    }
    Ok(())
}

/// As `bursts` by LL128, of which two are on their way at a time.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub fn pairs_by_ll128<O: Ops>(
    kernel: &Kernel<O>,
    own: &[u32],
    got: Out<'_, u32>,
    tiles: usize,
    most: usize,
) -> Flow {
    let lines = kernel.ll128();
    let tile = |number: usize| Tile { start: (kernel.block() * tiles + number) * most, len: most };
    let mut number = 0;
    while number < tiles {
        lines.send_tile(kernel.next(1), tile(number), |ctx| own[ctx.index()])?;
        lines.send_tile(kernel.next(1), tile(number + 1), |ctx| own[ctx.index()])?;
        let set = |ctx: &Consume, value: u32| got.at(ctx).set(value);
        // SAFETY: tiles are disjoint.
        unsafe { lines.recv_tile(kernel.previous(1), tile(number), set)? };
        // SAFETY: as above.
        unsafe { lines.recv_tile(kernel.previous(1), tile(number + 1), set)? };
        number += 2;
    }
    Ok(())
}

/// Rank 0's elements go from rank to rank, each of which keeps them and passes them on with one added.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub fn relayed<O: Ops>(
    kernel: &Kernel<O>,
    own: &[u32],
    got: Out<'_, u32>,
    most: usize,
    by_ll128: u32,
) -> Flow {
    let (me, last, lines, share) =
        (kernel.rank(), kernel.world() - 1, kernel.ll128(), kernel.share(own.len()));
    let (next, previous) = (kernel.next(1), kernel.previous(1));
    let most = if by_ll128 > 0 { most.min(lines.most::<u32>()) } else { most };
    let mut at = 0;
    while at < share.len {
        let tile = Tile { start: share.start + at, len: most.min(share.len - at) };
        let first = |ctx: &Produce| own[ctx.index()];
        let keep = |ctx: &Consume, value: u32| got.at(ctx).set(value);
        let pass = |ctx: &Consume, value: u32| {
            got.at(ctx).set(value);
            value.wrapping_add(1)
        };
        // SAFETY: tiles are disjoint.
        unsafe {
            match (me, by_ll128 > 0) {
                (0, false) => kernel.send_tile(next, tile, first)?,
                (0, true) => lines.send_tile(next, tile, first)?,
                (_, false) if me == last => kernel.recv_tile(previous, tile, keep)?,
                (_, true) if me == last => lines.recv_tile(previous, tile, keep)?,
                (_, false) => kernel.forward_tile(previous, next, tile, pass)?,
                (_, true) => lines.forward_tile(previous, next, tile, pass)?,
            }
        }
        at += tile.len;
    }
    Ok(())
}

/// All-gather by packs: each rank keeps its part and sends it round the ring, in tiles of at most `most` elements, of which staging holds two.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub fn ring_by_packs<O: Ops>(
    kernel: &Kernel<O>,
    own: &[u16],
    all: Out<'_, u16>,
    most: usize,
    by_ll128: u32,
) -> Flow {
    let (n, lines, share) = (own.len(), kernel.ll128(), kernel.share(own.len()));
    let (next, previous) = (kernel.next(1), kernel.previous(1));
    let most = if by_ll128 > 0 { most.min(lines.most::<u16>()) } else { most };
    let give = |ctx: &Produce| own.pack(ctx);
    let take = |ctx: &Consume, value: Pack<u16>| all.at(ctx).set_pack(value);
    let pass = |ctx: &Consume, value: Pack<u16>| {
        all.at(ctx).set_pack(value);
        value
    };
    // SAFETY: each rank's part is written once, and blocks' shares are disjoint.
    unsafe { kernel.keep_tile(share, kernel.rank() * n + share.start, give, take) };
    let mut at = 0;
    while at < share.len && kernel.world() > 1 {
        let tile = Tile { start: share.start + at, len: most.min(share.len - at) };
        match by_ll128 > 0 {
            true => lines.send_tile(next, tile, give)?,
            false => kernel.send_tile(next, tile, give)?,
        }
        let mut step = 1;
        while step < kernel.world() {
            let tile = Tile { start: kernel.previous(step) * n + tile.start, ..tile };
            // SAFETY: as above.
            unsafe {
                match (step + 1 < kernel.world(), by_ll128 > 0) {
                    (true, false) => kernel.forward_tile(previous, next, tile, pass)?,
                    (true, true) => lines.forward_tile(previous, next, tile, pass)?,
                    (false, false) => kernel.recv_tile(previous, tile, take)?,
                    (false, true) => lines.recv_tile(previous, tile, take)?,
                }
            }
            step += 1;
        }
        at += tile.len;
    }
    Ok(())
}

/// An all-to-all as a schedule of the module's own, beside the shipped one.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb), schedules(all_to_all, exchange))]
#[allow(missing_docs)]
pub mod traded {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
        pub most: usize,
        pub by_ll128: u32,
    }

    pub fn produce(ctx: &Produce, args: &Args) -> Pack<u32> {
        args.input.pack(ctx).map(|value| value.wrapping_mul(3).wrapping_add(ctx.peer as u32))
    }

    pub fn consume(ctx: &Consume, args: &Args, value: u32) {
        args.output.at(ctx).set(value.rotate_left(ctx.peer as u32 % 32));
    }

    /// Two peers a step, in tiles of at most `most` elements.
    pub fn exchange<O: Ops>(kernel: &Kernel<O>, args: &Args) -> Flow {
        let (hooks, n) = (kernel.hooks(args), args.input.len() / kernel.world());
        let share = kernel.share(n);
        let tile = |rank: usize, at: usize, len: usize| Tile { start: rank * n + share.start + at, len };
        let own = tile(kernel.rank(), 0, share.len);
        // SAFETY: each chunk is written once, and blocks' shares are disjoint.
        unsafe { hooks.keep_tile(own, own.start) };
        let (hooks, most) = match args.by_ll128 > 0 {
            true => (hooks.ll128(), args.most.min(kernel.ll128().most::<u32>())),
            false => (hooks, args.most),
        };
        let mut step = 1;
        while step < kernel.world() {
            let (to, from, mut at) = (kernel.next(step), kernel.previous(step), 0);
            while at < share.len {
                let len = most.min(share.len - at);
                hooks.send_tile(to, tile(to, at, len))?;
                // SAFETY: as above.
                unsafe { hooks.recv_tile(from, tile(from, at, len))? };
                at += len;
            }
            step += 1;
        }
        Ok(())
    }
}

/// An all-to-all by twice as many blocks as take channels: the first half send, the second half receive.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub fn halves<O: Ops>(kernel: &Kernel<O>, own: &[u32], got: Out<'_, u32>, by_ll128: u32) -> Flow {
    assert!(kernel.blocks().is_multiple_of(2), "as many blocks receive as send");
    let (n, half) = (own.len() / kernel.world(), kernel.blocks() / 2);
    let (channel, sends) = (kernel.block() % half, kernel.block() < half);
    // SAFETY: one block sends there, and another one receives.
    unsafe { kernel.take_channel(channel) };
    let (lines, each) = (kernel.ll128(), n.div_ceil(half));
    let (first, last) = ((channel * each).min(n), ((channel + 1) * each).min(n));
    let mut step = 1;
    while step < kernel.world() {
        let peer = if sends { kernel.next(step) } else { kernel.previous(step) };
        let mut at = first;
        while at < last {
            let most = if by_ll128 > 0 { lines.most::<u32>() } else { n };
            let tile = Tile { start: peer * n + at, len: most.min(last - at) };
            let give = |ctx: &Produce| own[ctx.index()];
            let take = |ctx: &Consume, value: u32| got.at(ctx).set(value);
            match (sends, by_ll128 > 0) {
                (true, false) => kernel.send_tile(peer, tile, give)?,
                (true, true) => lines.send_tile(peer, tile, give)?,
                // SAFETY: tiles are disjoint.
                (false, false) => unsafe { kernel.recv_tile(peer, tile, take)? },
                // SAFETY: the same.
                (false, true) => unsafe { lines.recv_tile(peer, tile, take)? },
            }
            at += tile.len;
        }
        step += 1;
    }
    Ok(())
}

/// In each round puts one of `values` into the heap of every rank, and leaves there what all have put.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub fn rounds_between_barriers<O: Put>(kernel: &Kernel<O>, values: &[u32], seen: Out<'_, u32>) -> Flow {
    let (rank, world, team) = (kernel.rank(), kernel.world(), kernel.team());
    let mut round = 0;
    while round < values.len() {
        let own = &values[round..round + 1];
        let mut distance = 1;
        while distance < world {
            // SAFETY: a rank's place in each heap, which was read before the second barrier.
            unsafe { kernel.put(kernel.next(distance), rank, own)? };
            distance += 1;
        }
        kernel.barrier(0)?;
        // SAFETY: nobody puts before the second barrier.
        let all = unsafe { kernel.heap_slice::<u32>(0, world) };
        // SAFETY: each element is one call's.
        team.each(world, |from| unsafe {
            seen.write(round * world + from, if from == rank { own[0] } else { all[from] })
        });
        kernel.barrier(1)?;
        round += 1;
    }
    Ok(())
}

/// Exchanges edges with both neighbours of the ring by raw puts, signals and waits. Block `b` works heap elements from
/// `2 * b * edge.len()` on and signals from `4 * b` on.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub fn halo<O: Put>(kernel: &Kernel<O>, edge: &[u32], output: Out<'_, u32>) -> Flow {
    let (up, down, n) = (kernel.next(1), kernel.previous(1), edge.len());
    let (heap, signal) = (2 * kernel.block() * n, 4 * kernel.block());
    // SAFETY: a neighbour reads its two slots between these signals and its acknowledgements, which are waited for below.
    unsafe {
        kernel.put(up, heap, edge)?;
        kernel.put(down, heap + n, edge)?;
    }
    kernel.signal(up, signal)?;
    kernel.signal(down, signal + 1)?;
    kernel.wait(down, signal)?;
    kernel.wait(up, signal + 1)?;
    // SAFETY: blocks write disjoint parts of the output; both slots were signalled and are not acknowledged yet.
    unsafe {
        kernel.local_tile(Tile { start: heap, len: 2 * n }, |ctx| {
            output.at(ctx).set(kernel.heap_get::<u32>(ctx.index()))
        });
    }
    kernel.signal(down, signal + 2)?;
    kernel.signal(up, signal + 3)?;
    kernel.wait(up, signal + 2)?;
    kernel.wait(down, signal + 3)
}

/// Every rank offers `own` in its heap; all others get it. One block.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub fn pull_all_gather<O: Put + Get>(kernel: &Kernel<O>, own: &[u64], all: Out<'_, u64>) -> Flow {
    let (me, world, n) = (kernel.rank(), kernel.world(), own.len());
    // SAFETY: a rank's own place is written by it alone, before it signals.
    unsafe { kernel.put(me, me * n, own)? };
    let mut step = 1;
    while step < world {
        kernel.signal(kernel.next(step), 0)?;
        step += 1;
    }
    step = 1;
    while step < world {
        let from = kernel.previous(step);
        kernel.wait(from, 0)?;
        // SAFETY: the peer signalled that its place is written; this rank's copy of it is this block's.
        unsafe { kernel.get::<u64>(from, from * n, from * n, n)? };
        step += 1;
    }
    kernel.sync();
    // SAFETY: one block; its gets are complete since the sync.
    unsafe {
        kernel.local_tile(Tile { start: 0, len: world * n }, |ctx| {
            all.at(ctx).set(kernel.heap_get::<u64>(ctx.index()))
        });
    }
    step = 1;
    while step < world {
        kernel.signal(kernel.previous(step), 1)?;
        step += 1;
    }
    step = 1;
    while step < world {
        kernel.wait(kernel.next(step), 1)?;
        step += 1;
    }
    Ok(())
}
