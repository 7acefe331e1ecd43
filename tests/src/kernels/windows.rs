//! Schedules over windows.

use fusewire::prelude::*;

/// Words of one step of a [`script()`].
pub const STEP: usize = 10;

/// The same schedule over two kinds of links: what a GPU is to load is a quarter as long where there is no adapter in it.
macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident over $links:ident;)*) => {
        $(
            $(#[$doc])*
            #[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
            #[allow(clippy::too_many_arguments)] // what a script needs
            pub fn $name<O: Ops>(
                kernel: &Kernel<O>,
                window: DeviceWindow<$links>,
                script: &[u64],
                input: &[u64],
                seen: Out<'_, u64>,
                taken: Out<'_, u64>,
                steps: usize,
                rounds: usize,
            ) -> Flow {
                /// One operation. A function for each of them, not inlined: what a compiler takes for a function grows faster than the
                /// function, and a GPU's driver compiles this script when it loads it.
                #[inline(never)]
                fn act<const OP: u64, O: Ops, G: Group>(
                    group: &G,
                    window: &Window<'_, O, $links>,
                    words: &[u64],
                    input: &[u64],
                    seen: &Out<'_, u64>,
                    place: usize,
                ) -> Flow {
                    let (peer, id, value) = (words[2] as usize, words[3] as usize, words[5]);
                    let (to, from, count) = (words[6] as usize, words[7] as usize, words[8] as usize);
                    let set = if words[4] == 0 { SignalOp::Add } else { SignalOp::Set };
                    let cmp = match words[4] {
                        0 => Cmp::Eq,
                        1 => Cmp::Ne,
                        2 => Cmp::Lt,
                        3 => Cmp::Le,
                        4 => Cmp::Gt,
                        _ => Cmp::Ge,
                    };
                    let source = || {
                        if words[4] != 0 {
                            return &input[from..from + count];
                        }
                        // SAFETY: the scripts order every put and every look at the data by signals or barriers.
                        unsafe { window.slice(from, count) }
                    };
                    // SAFETY: one thread writes the place of this step, or all write the same.
                    let note = |value: u64| unsafe { seen.write(place, value) };
                    match OP {
                        1 => window.signal_peer(group, peer, id, set, value),
                        2 => window.signal_all(group, id, set, value),
                        3 => window.wait_signal_from(group, peer, id, cmp, value),
                        4 => window.wait_signal(group, id, cmp, value),
                        5 => window.wait_next_from(group, peer, id, value),
                        6 => window.wait_next(group, id, value),
                        7 => window.read_signal_from(peer, id).map(note),
                        8 => window.read_signal(id).map(note),
                        9 => window.barrier(group, id),
                        10 => window.barrier_peer(group, peer, id),
                        11 => window.barrier_arrive(group, id),
                        12 => window.barrier_arrive_peer(group, peer, id),
                        13 => window.barrier_wait(group, id),
                        14 => window.barrier_wait_peer(group, peer, id),
                        15 => window.wait_counter(group, peer, id, cmp, value),
                        16 => window.read_counter(peer, id).map(note),
                        17 => window.reset_counter(group, peer, id),
                        // SAFETY: as above.
                        18 => unsafe { window.put(group, peer, to, source()) },
                        // SAFETY: as above.
                        19 => unsafe { window.put_signal(group, peer, to, source(), id, value) },
                        // SAFETY: as above.
                        20 => unsafe {
                            window.put_signal_counter(group, peer, to, source(), id, value, words[9] as usize)
                        },
                        _ => Ok(()),
                    }
                }
                /// `ALL` operations for the block, the others for parts of it: each more is code that a GPU's driver has to compile.
                #[inline(always)]
                fn step<O: Ops, G: Group, const ALL: bool>(
                    group: &G,
                    window: &Window<'_, O, $links>,
                    words: &[u64],
                    input: &[u64],
                    seen: &Out<'_, u64>,
                    place: usize,
                ) -> Flow {
                    match words[0] {
                        1 => act::<1, O, G>(group, window, words, input, seen, place),
                        3 => act::<3, O, G>(group, window, words, input, seen, place),
                        9 => act::<9, O, G>(group, window, words, input, seen, place),
                        10 => act::<10, O, G>(group, window, words, input, seen, place),
                        18 => act::<18, O, G>(group, window, words, input, seen, place),
                        19 => act::<19, O, G>(group, window, words, input, seen, place),
                        _ if !ALL => panic!("this operation is for the whole block"),
                        2 => act::<2, O, G>(group, window, words, input, seen, place),
                        4 => act::<4, O, G>(group, window, words, input, seen, place),
                        5 => act::<5, O, G>(group, window, words, input, seen, place),
                        6 => act::<6, O, G>(group, window, words, input, seen, place),
                        7 => act::<7, O, G>(group, window, words, input, seen, place),
                        8 => act::<8, O, G>(group, window, words, input, seen, place),
                        11 => act::<11, O, G>(group, window, words, input, seen, place),
                        12 => act::<12, O, G>(group, window, words, input, seen, place),
                        13 => act::<13, O, G>(group, window, words, input, seen, place),
                        14 => act::<14, O, G>(group, window, words, input, seen, place),
                        15 => act::<15, O, G>(group, window, words, input, seen, place),
                        16 => act::<16, O, G>(group, window, words, input, seen, place),
                        17 => act::<17, O, G>(group, window, words, input, seen, place),
                        20 => act::<20, O, G>(group, window, words, input, seen, place),
                        _ => Ok(()),
                    }
                }
                let window = kernel.window(&window);
                let mut round = 0;
                while round < rounds {
                    let mut k = 0;
                    while k < steps {
                        let place = kernel.block() * steps + k;
                        let words = &script[place * 10..place * 10 + 10];
                        if words[0] == 21 {
                            window.barrier_grid(words[3] as usize)?;
                        } else if words[0] == 22 {
                            let (to, from, count) = (words[6] as usize, words[7] as usize, words[8] as usize);
                            // SAFETY: each block takes its own part, after the signal that says that it is there.
                            unsafe {
                                kernel.local_tile(Tile { start: 0, len: count }, |ctx| {
                                    taken.write(to + ctx.pos, window.get::<u64>(from + ctx.pos))
                                });
                            }
                            kernel.sync();
                        } else if words[1] == 0 {
                            step::<_, _, true>(&Block, &window, words, input, &seen, place)?;
                        } else {
                            let (lane, warp) = (Block.lane(), Block.lane() / 32);
                            let mine = match words[1] {
                                1 => warp == 0,
                                2 => lane == 0,
                                _ => true,
                            };
                            let mut flow = Ok(());
                            if mine && words[1] & 1 == 1 {
                                flow = step::<_, _, false>(&Warp, &window, words, input, &seen, place);
                            } else if mine {
                                flow = step::<_, _, false>(&Thread, &window, words, input, &seen, place);
                            }
                            if Block.any(flow.is_err()) {
                                return Err(Stopped);
                            }
                        }
                        k += 1;
                    }
                    round += 1;
                }
                Ok(())
            }
        )*
    };
}

scripts! {
    /// Runs a script: `steps` steps for each block, `rounds` times; each step is [`STEP`] words:
    /// operation, group, peer, id, how, value, to, from, count, counter. What a step reads goes to `seen`, one word a step.
    ///
    /// Operations are those of [`op`]. Groups: 0 the block; for some operations 1 its first warp, 2 its first thread, 3 each warp, 4 each
    /// thread.
    script over AllMapped;
    /// [`script()`] for any mix of links.
    script_mixed over Mixed;
}

/// Numbers of a script's operations.
#[allow(missing_docs)] // each is the window's operation of the same name
pub mod op {
    pub const SIGNAL_PEER: u64 = 1;
    pub const SIGNAL_ALL: u64 = 2;
    pub const WAIT_SIGNAL_FROM: u64 = 3;
    pub const WAIT_SIGNAL: u64 = 4;
    pub const WAIT_NEXT_FROM: u64 = 5;
    pub const WAIT_NEXT: u64 = 6;
    pub const READ_SIGNAL_FROM: u64 = 7;
    pub const READ_SIGNAL: u64 = 8;
    pub const BARRIER: u64 = 9;
    pub const BARRIER_PEER: u64 = 10;
    pub const BARRIER_ARRIVE: u64 = 11;
    pub const BARRIER_ARRIVE_PEER: u64 = 12;
    pub const BARRIER_WAIT: u64 = 13;
    pub const BARRIER_WAIT_PEER: u64 = 14;
    pub const WAIT_COUNTER: u64 = 15;
    pub const READ_COUNTER: u64 = 16;
    pub const RESET_COUNTER: u64 = 17;
    pub const PUT: u64 = 18;
    pub const PUT_SIGNAL: u64 = 19;
    pub const PUT_SIGNAL_COUNTER: u64 = 20;
    pub const BARRIER_GRID: u64 = 21;
    /// Copies the window's own data out.
    pub const TAKE: u64 = 22;
}

/// Every block puts its share of `input` into the next rank's buffer, waits for the previous rank's, links it to what `output` has, and
/// meets the other ranks before anything is put again. Specialised on mapped peers.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub fn linked_ring<O: Ops>(
    kernel: &Kernel<O>,
    window: DeviceWindow,
    input: &[u32],
    output: Out<'_, u32>,
) -> Flow {
    let (window, share, block) = (kernel.window(&window), kernel.share(input.len()), kernel.block());
    let (next, previous) = (kernel.next(1), kernel.previous(1));
    let own = &input[share.start..share.start + share.len];
    // SAFETY: the next rank has read the last ones before the barrier that ended the last launch.
    unsafe { window.put_signal(&Block, next, share.start, own, block, 1)? };
    window.wait_next_from(&Block, previous, block, 1)?;
    // SAFETY: blocks work disjoint shares, which are not written again before the barrier.
    unsafe {
        kernel.local_tile(share, |ctx| {
            let came = window.get::<u32>(ctx.index());
            output.at(ctx).update(|old| old.wrapping_mul(0x0100_0193).wrapping_add(came));
        });
    }
    window.barrier(&Block, block)
}

/// [`linked_ring()`] for any mix of links.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub fn linked_ring_mixed<O: Ops>(
    kernel: &Kernel<O>,
    window: DeviceWindow<Mixed>,
    input: &[u32],
    output: Out<'_, u32>,
) -> Flow {
    let (window, share, block) = (kernel.window(&window), kernel.share(input.len()), kernel.block());
    let (next, previous) = (kernel.next(1), kernel.previous(1));
    let own = &input[share.start..share.start + share.len];
    // SAFETY: as above; and the last put has read the input before its counter says so.
    unsafe { window.put_signal_counter(&Block, next, share.start, own, block, 1, block)? };
    window.wait_next_from(&Block, previous, block, 1)?;
    // SAFETY: as above.
    unsafe {
        kernel.local_tile(share, |ctx| {
            let came = window.get::<u32>(ctx.index());
            output.at(ctx).update(|old| old.wrapping_mul(0x0100_0193).wrapping_add(came));
        });
    }
    window.barrier(&Block, block)?;
    window.wait_counter(&Block, next, block, Cmp::Ge, 1)?;
    window.reset_counter(&Block, next, block)
}

/// Sends `input` around a ring by `send` and `recv`, one hop, block by block.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub fn sent_ring<O: Ops>(
    kernel: &Kernel<O>,
    window: DeviceWindow<Mixed>,
    input: &[f32],
    output: Out<'_, f32>,
) -> Flow {
    let (window, share) = (kernel.window(&window), kernel.share(input.len()));
    window.send(kernel.next(1), &input[share.start..share.start + share.len])?;
    // SAFETY: blocks work disjoint shares.
    unsafe { window.recv(kernel.previous(1), &output, share.start, share.len) }
}

/// Writes what kernels know of the peers: for each rank its kind, its two numbers and its peer index, then the inverse of each, then
/// the counts.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub fn peers_seen<O: Ops>(kernel: &Kernel<O>, peers: DevicePeers, seen: Out<'_, u64>) -> Flow {
    let world = kernel.world();
    let number = |n: Option<usize>| n.map_or(u64::MAX, |n| n as u64);
    if Block.leads() {
        // SAFETY: one thread of one block writes.
        unsafe {
            // One past the last, too: it does not exist.
            for rank in 0..world + 1 {
                let kind = peers.kind(rank).map_or(u64::MAX, |k| k as u64);
                let all = [
                    kind,
                    number(peers.mapped_index(rank)),
                    number(peers.rdma_index(rank)),
                    number(peers.peer_index(rank)),
                    number(peers.mapped_rank(rank)),
                    number(peers.rdma_rank(rank)),
                    number(peers.peer_rank(rank)),
                ];
                let mut k = 0;
                while k < 7 {
                    seen.write(7 * rank + k, all[k]);
                    k += 1;
                }
            }
            let end = 7 * (world + 1);
            seen.write(end, (peers.rank() << 32 | peers.world()) as u64);
            seen.write(end + 1, (peers.mapped() << 32 | peers.rdma()) as u64);
            seen.write(end + 2, peers.peers() as u64);
        }
    }
    Ok(())
}

/// The line of call 0 of [`misdirected_window()`]; call `n` is `n` lines below.
pub const FIRST_CALL: u32 = line!() + 21;

/// Calls something that cannot be, as `what` says.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
#[allow(clippy::undocumented_unsafe_blocks)] // one comment is for all of them
pub fn misdirected_window<O: Ops>(
    kernel: &Kernel<O>,
    window: DeviceWindow<Mixed>,
    input: &[u64],
    what: u32,
) -> Flow {
    /// A function for each call, as in [`script()`].
    #[inline(never)]
    fn call<const WHAT: u32, O: Ops>(
        kernel: &Kernel<O>,
        window: &DeviceWindow<Mixed>,
        input: &[u64],
    ) -> Flow {
        let (w, me, next, far) = (kernel.window(window), kernel.rank(), kernel.next(1), kernel.world());
        // SAFETY: refused before anything is written; so all below. One line each: the test counts them.
        match WHAT {
            0 => w.signal_peer(&Block, far, 0, SignalOp::Add, 1),
            1 => w.signal_peer(&Block, me, 0, SignalOp::Add, 1),
            2 => w.signal_peer(&Thread, next, 3, SignalOp::Add, 1),
            3 => w.signal_all(&Block, 77, SignalOp::Set, 1),
            4 => w.wait_signal_from(&Block, usize::MAX, 0, Cmp::Ge, 1),
            5 => w.wait_signal_from(&Warp, me, 0, Cmp::Ge, 1),
            6 => w.wait_signal(&Block, 3, Cmp::Ge, 1),
            7 => w.wait_next_from(&Block, next, usize::MAX, 1),
            8 => w.wait_next(&Block, 3, 1),
            9 => w.read_signal(3).map(|_| ()),
            10 => w.read_signal_from(me, 0).map(|_| ()),
            11 => w.barrier(&Block, 2),
            12 => w.barrier_peer(&Block, me, 0),
            13 => w.barrier_arrive_peer(&Block, far, 0),
            14 => w.barrier_wait(&Thread, 1 << 40),
            15 => w.barrier_grid(2),
            16 => w.wait_counter(&Block, next, 1, Cmp::Ge, 1),
            17 => w.read_counter(far, 0).map(|_| ()),
            18 => w.reset_counter(&Block, me, 0),
            19 => unsafe { w.put(&Block, next, 61, &input[..4]) },
            20 => unsafe { w.put(&Block, me, 0, &input[..4]) },
            21 => unsafe { w.put_signal(&Block, next, usize::MAX - 1, &input[..4], 0, 1) },
            22 => unsafe { w.put_signal(&Block, next, 0, &input[..4], 3, 1) },
            23 => unsafe { w.put_signal_counter(&Block, next, 0, &input[..4], 0, 1, 1) },
            24 => w.wait_next_from(&Block, next, 0, 1),
            25 => w.barrier(&Block, 0),
            26 => w.wait_counter(&Block, next, 0, Cmp::Eq, 5),
            27 => w.signal_peer(&Block, next, 0, SignalOp::Set, 1),
            28 => unsafe { w.put(&Block, next, 0, &input[..4]) },
            // A hook must not use a window: its block would wait in the middle of a tile.
            _ => kernel.send_tile(next, Tile { start: 0, len: 1 }, |_| w.read_signal(0).unwrap_or(0)),
        }
    }
    match what {
        0 => call::<0, O>(kernel, &window, input),
        1 => call::<1, O>(kernel, &window, input),
        2 => call::<2, O>(kernel, &window, input),
        3 => call::<3, O>(kernel, &window, input),
        4 => call::<4, O>(kernel, &window, input),
        5 => call::<5, O>(kernel, &window, input),
        6 => call::<6, O>(kernel, &window, input),
        7 => call::<7, O>(kernel, &window, input),
        8 => call::<8, O>(kernel, &window, input),
        9 => call::<9, O>(kernel, &window, input),
        10 => call::<10, O>(kernel, &window, input),
        11 => call::<11, O>(kernel, &window, input),
        12 => call::<12, O>(kernel, &window, input),
        13 => call::<13, O>(kernel, &window, input),
        14 => call::<14, O>(kernel, &window, input),
        15 => call::<15, O>(kernel, &window, input),
        16 => call::<16, O>(kernel, &window, input),
        17 => call::<17, O>(kernel, &window, input),
        18 => call::<18, O>(kernel, &window, input),
        19 => call::<19, O>(kernel, &window, input),
        20 => call::<20, O>(kernel, &window, input),
        21 => call::<21, O>(kernel, &window, input),
        22 => call::<22, O>(kernel, &window, input),
        23 => call::<23, O>(kernel, &window, input),
        24 => call::<24, O>(kernel, &window, input),
        25 => call::<25, O>(kernel, &window, input),
        26 => call::<26, O>(kernel, &window, input),
        27 => call::<27, O>(kernel, &window, input),
        28 => call::<28, O>(kernel, &window, input),
        _ => call::<29, O>(kernel, &window, input),
    }
}
