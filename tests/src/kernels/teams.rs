//! Schedules whose threads work together.

use fusewire::prelude::*;

/// Kinds of teams: a block, then 1, 2, 3, 8 and 16 warps.
pub const KINDS: usize = 6;

/// Words that [`folded_by_teams()`] leaves for an item and a kind.
pub const FACTS: usize = 10;

/// Folds the first `lens[item]` values for each item by each kind of team, and leaves what came out. What was before value `i` in a scan goes to
/// `before`, whose rows are as long as `values`.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub fn folded_by_teams<O: Ops>(
    kernel: &Kernel<O>,
    values: &[u64],
    lens: &[u32],
    facts: Out<'_, u64>,
    before: Out<'_, u64>,
) -> Flow {
    use fusewire::device::team::Wide;

    #[inline(never)]
    fn item<G: Wide>(
        team: &Team<'_, G>,
        values: &[u64],
        n: usize,
        row: usize,
        facts: &Out<'_, u64>,
        before: &Out<'_, u64>,
    ) {
        let link = |a: u64, b: u64| a.wrapping_mul(0x0100_0000_01b3).wrapping_add(b);
        let odd = |i: usize| values[i] & 1 == 1;
        let real = |i: usize| (values[i] & 0xffff) as f32 * 1.7e-3;
        let linked = team.reduce(n, 7, |i| values[i], link);
        let sum = team.sum(n, real);
        let greatest = team.max(n, |i| values[i] as i32);
        let least = team.min(n, |i| (values[i] as i32).wrapping_mul(77));
        // SAFETY: each row is one call's.
        let note = |i: usize, seen: u64| unsafe { before.write(row * values.len() + i, seen) };
        let total = team.scan(n, 7, |i| values[i], link, note);
        let count = team.count(n, odd) as u64;
        let (any, all) = (team.any(n, odd), team.all(n, odd));
        let found = team.find(n, odd).map_or(0, |i| i as u64 + 1);
        let last = team.once(|| if n == 0 { 0 } else { values[n - 1] });
        let words = [
            linked,
            u64::from(sum.to_bits()),
            greatest as u64,
            least as u64,
            total,
            count,
            u64::from(any),
            u64::from(all),
            found,
            last,
        ];
        let mut k = 0;
        while k < 10 {
            let word = words[k];
            // SAFETY: as above.
            team.each(1, |_| unsafe { facts.write(10 * row + k, word) });
            k += 1;
        }
    }

    macro_rules! by_teams {
        ($($kind:literal: $warps:literal,)*) => {
            $(kernel.teams::<$warps>(lens.len(), |team, k| {
                item(team, values, lens[k] as usize, 6 * k + $kind, &facts, &before);
                Ok(())
            })?;)*
        };
    }
    if kernel.block() == 0 {
        let mut k = 0;
        while k < lens.len() {
            item(&kernel.team(), values, lens[k] as usize, 6 * k, &facts, &before);
            k += 1;
        }
    } else if kernel.block() == 1 {
        by_teams! { 1: 1, 2: 2, 3: 3, }
    } else {
        by_teams! { 4: 8, 5: 16, }
    }
    Ok(())
}

/// Counts values in shared memory, and sends them to the next rank turned round, out of the heap.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub fn turned_round<O: Put>(
    kernel: &Kernel<O>,
    values: &[u32],
    bins: Accumulate<'_, u32>,
    turned: Out<'_, u32>,
) -> Flow {
    let (team, n) = (kernel.team(), values.len());
    kernel.shared::<u32, 64, _>(|count| {
        team.each(n, |i| {
            count.fetch_add(values[i] as usize % 64, 1);
        });
        // Beside the first: of two bytes, and an odd number of them.
        kernel.shared::<Bf16, 63, _>(|halves| {
            team.each(630, |i| {
                halves.fetch_add(i % 63, Bf16::from_f32(1.0));
            });
            team.each(64, |k| {
                if k == 63 || halves.get(k).to_f32() == 10.0 {
                    bins.add(k, count.get(k))
                }
            });
        });
    });
    let mut first = 0;
    while first < n {
        let len = (n - first).min(512);
        kernel.shared::<u16, 512, _>(|low| {
            kernel.shared::<u64, 512, _>(|high| {
                team.each(len, |i| {
                    low.set(len - 1 - i, values[first + i] as u16);
                    high.set(len - 1 - i, u64::from(values[first + i] >> 16) << 40);
                });
                // SAFETY: the peer has answered for what was put from there before.
                team.each(len, |i| unsafe {
                    turned.write(first + i, u32::from(low.get(i)) | ((high.get(i) >> 40) as u32) << 16)
                });
            });
        });
        first += len;
    }
    // SAFETY: this rank's own half, which it puts from.
    let own = unsafe { kernel.heap_out::<u32>(0, n) };
    // SAFETY: a part of this block's output, behind a sync.
    team.each(n, |i| unsafe { own.write(i, turned.read(i)) });
    let last = Tile { start: n - 1, len: 1 };
    // SAFETY: the same value once more.
    unsafe { kernel.local_tile(last, |ctx| kernel.heap_set(ctx.index(), turned.read(ctx.index()))) };
    kernel.sync();
    let (to, from) = (kernel.next(1), kernel.previous(1));
    // SAFETY: the second half of the next rank's heap, which it has read when it answers.
    unsafe { kernel.put(to, n, kernel.heap_slice::<u32>(0, n))? };
    kernel.signal(to, 0)?;
    kernel.wait(from, 0)?;
    // SAFETY: signalled, and not put again before the answer.
    let arrived = unsafe { kernel.heap_slice::<u32>(n, n) };
    // SAFETY: each element is one call's.
    team.each(n, |i| unsafe { turned.write(i, arrived[i]) });
    kernel.signal(from, 1)?;
    kernel.wait(to, 1)
}

/// Changes elements of every kind by all threads of all blocks.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
#[allow(clippy::too_many_arguments)] // one of each kind
pub fn changed_by_all<O: Ops>(
    kernel: &Kernel<O>,
    values: &[i32],
    unsigned: Accumulate<'_, u32>,
    signed: Accumulate<'_, i32>,
    long: Accumulate<'_, i64>,
    real: Accumulate<'_, f32>,
    double: Accumulate<'_, f64>,
    brief: Accumulate<'_, Bf16>,
    half: Accumulate<'_, F16>,
    tickets: Out<'_, u32>,
) -> Flow {
    let Tile { start, len } = kernel.share(values.len());
    kernel.team().each(len, |k| {
        let i = start + k;
        let v = values[i];
        let ticket = unsigned.fetch_add(0, 1);
        // SAFETY: nobody else has this ticket.
        unsafe { tickets.write(i, ticket) };
        unsigned.fetch_max(1, v.unsigned_abs());
        unsigned.fetch_min(2, v.unsigned_abs());
        // A lock-free sum: by hand, as one would without `fetch_add`.
        let mut seen = unsigned.load(3);
        loop {
            let found = unsigned.compare_exchange(3, seen, seen.wrapping_add(v as u32));
            if found == seen {
                break;
            }
            seen = found;
        }
        signed.add(0, v);
        signed.fetch_max(1, v);
        signed.fetch_min(2, v);
        long.fetch_add(0, i64::from(v) << 20);
        long.fetch_max(1, i64::from(v));
        long.fetch_min(2, i64::from(v));
        real.fetch_add(0, v as f32);
        real.fetch_max(1, v as f32);
        real.fetch_min(2, v as f32);
        double.fetch_add(0, f64::from(v));
        double.fetch_update(1, |old| if old < f64::from(v) { f64::from(v) } else { old });
        double.fetch_min(2, f64::from(v));
        // Neighbours share words, but for the last of them.
        if i % 4 == 0 {
            brief.fetch_add(i / 4 % 5, Bf16::from_f32(1.0));
            half.add(i / 4 % 5, F16::from_f32(1.0));
        }
        brief.fetch_max(5, Bf16::from_f32((v % 100) as f32));
        half.fetch_min(6, F16::from_f32((v % 100) as f32));
    });
    Ok(())
}

/// Each rank's words go to all others, a team of two warps for each.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub fn spread_by_teams<O: Ops>(
    kernel: &Kernel<O>,
    window: DeviceWindow<Mixed>,
    n: usize,
    seen: Out<'_, u64>,
) -> Flow {
    let (window, rank, world) = (kernel.window(&window), kernel.rank(), kernel.world());
    // SAFETY: a rank writes its own part of each window, which it reads from its own.
    let own = unsafe { window.slice::<u64>(rank * n, n) };
    window.barrier(&Block, 0)?;
    kernel.teams::<2>(world, |team, peer| {
        if peer == rank {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { window.put_signal(&team.group(), peer, rank * n, own, 0, 1) }
    })?;
    window.wait_next(&Block, 0, world as u64 - 1)?;
    // SAFETY: all have signalled, and put again behind the next barrier.
    let all = unsafe { window.slice::<u64>(0, world * n) };
    // SAFETY: each element is one call's.
    kernel.team().each(world * n, |i| unsafe { seen.write(i, all[i]) });
    window.barrier(&Block, 0)
}

/// Panics at index `at`, in the closure that `how` says.
#[comm_kernel(transports(Shm, Nvl, Ibgda, ShmMesh, NvlMesh, HostIb))]
pub fn bad_team<O: Ops>(kernel: &Kernel<O>, n: usize, at: usize, how: u32) -> Flow {
    let team = kernel.team();
    let one = |i: usize| {
        assert!(i != at, "this index is bad");
        1u32
    };
    match how {
        0 => {
            team.sum(n, one);
        }
        1 => {
            team.scan(n, 0, one, |a, b| a + b, |_, _| ());
        }
        2 => team.each(n, |i| {
            one(i);
        }),
        3 => {
            team.once(|| one(at.min(n) % n));
        }
        4 => {
            team.any(n, |i| one(i) == 0);
        }
        5 => kernel.shared::<u32, 64, _>(|memory| team.each(n, |i| memory.set(i % 64, one(i)))),
        6 => kernel.teams::<1>(7, |team, item| {
            team.count(n, |i| item != 2 || one(i) == 1);
            Ok(())
        })?,
        _ => kernel.teams::<2>(7, |team, item| {
            team.max(n, |i| if item == 3 { one(i) } else { 0 });
            Ok(())
        })?,
    }
    // The others are here, and are told.
    kernel.barrier(0)
}
