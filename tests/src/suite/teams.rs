//! What the threads of a block work out together.

use super::support::POISON;
use crate::check::{same, says};
use crate::kernels::teams::{
    FACTS, KINDS, bad_team, changed_by_all, folded_by_teams, spread_by_teams, turned_round,
};
use crate::windows::windowed;
use crate::{CustomOf, Outcome, Rank, Subject, reference};
use fusewire::prelude::*;
use fusewire::{Error, LaunchOptions, WindowConfig};
use std::time::{Duration, Instant};

/// Warps of a team of each kind.
const WARPS: [usize; KINDS] = [16, 1, 2, 3, 8, 16];

fn link(a: u64, b: u64) -> u64 {
    a.wrapping_mul(0x0100_0000_01b3).wrapping_add(b)
}

/// Folds of every length and kind, by blocks of every size: the same on all machines.
pub fn folds_and_votes<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = CustomOf::<folded_by_teams::Hooks>::custom(&ground.transport)?;
    let lens: Vec<u32> = vec![0, 1, 2, 31, 32, 33, 63, 95, 96, 97, 511, 512, 513, 700, 1100];
    let (n, stream) = (1100, &ground.stream);
    // No odd ones, some, and nothing else.
    for (round, odd) in [0, 1, 7].into_iter().enumerate() {
        let data = rank.data(round);
        let values: Vec<u64> = (0..n)
            .map(|i| {
                let value = u64::from(data.any::<u32>(rank.me(), i)) << 24;
                let one = [0, u64::from(data.below(rank.me(), i, 40) == 0), 1][odd.min(2)];
                value | u64::from(data.any::<u32>(rank.me(), i + n)) & 0xffff_fffe | one
            })
            .collect();
        let on_device = ground.device.buffer_from(&values)?;
        let lens_there = ground.device.buffer_from(&lens)?;
        let mut facts = ground.device.buffer::<u64>(FACTS * KINDS * lens.len())?;
        let mut before = ground.device.buffer::<u64>(n * KINDS * lens.len())?;
        let scans = scanned(&values, &link);
        for threads in [32, 64, 96, 256, 512] {
            facts.fill_bytes(stream, POISON)?;
            before.fill_bytes(stream, 0)?;
            let args = folded_by_teams::Launch {
                values: on_device.view(),
                lens: lens_there.view(),
                facts: facts.view_mut(),
                before: before.view_mut(),
            };
            launcher.launch_with(stream, 3, args, &LaunchOptions::default().threads(threads))?;
            let about = format!("{threads} threads, round {round}");
            same(format_args!("folds by {about}"), &facts.read(stream)?, |i| {
                let (row, fact) = (i / FACTS, i % FACTS);
                fact_of(&values[..lens[row / KINDS] as usize], WARPS[row % KINDS], fact)
            });
            same(format_args!("scans by {about}"), &before.read(stream)?, |i| {
                let (row, i) = (i / n, i % n);
                if i < lens[row / KINDS] as usize { scans[i].unwrap_or(7) } else { 0 }
            });
        }
    }
    Ok(())
}

/// What `folded_by_teams` leaves in place `fact` for these values.
fn fact_of(values: &[u64], warps: usize, fact: usize) -> u64 {
    let n = values.len();
    let real = |i: usize| (values[i] & 0xffff) as f32 * 1.7e-3;
    let odd: Vec<usize> = (0..n).filter(|i| values[*i] & 1 == 1).collect();
    match fact {
        0 => folded(n, warps, &|i| values[i], &link).unwrap_or(7),
        1 => u64::from(folded(n, warps, &real, &|a, b| a + b).unwrap_or(-0.0).to_bits()),
        2 => values.iter().map(|v| *v as i32).max().unwrap_or(i32::MIN) as u64,
        3 => values.iter().map(|v| (*v as i32).wrapping_mul(77)).min().unwrap_or(i32::MAX) as u64,
        4 => match n {
            0 => 7,
            _ => scanned(values, &link)[n].unwrap_or(7),
        },
        5 => odd.len() as u64,
        6 => u64::from(!odd.is_empty()),
        7 => u64::from(odd.len() == n),
        8 => odd.first().map_or(0, |i| *i as u64 + 1),
        _ => values.last().copied().unwrap_or(0),
    }
}

/// A fold as `fusewire::device::team` documents it: places take their own in order, and a tree takes the places.
fn folded<T: Copy>(
    n: usize,
    warps: usize,
    value: &impl Fn(usize) -> T,
    fold: &impl Fn(T, T) -> T,
) -> Option<T> {
    let places = n.min(32 * warps);
    let of_place =
        |place: usize| (place..n).step_by(32 * warps).map(value).reduce(fold).unwrap_or_else(|| value(place));
    (n > 0).then(|| reference::tree(0, places, &of_place, fold))
}

/// Of each value, and behind the last: the fold of what stands before it. Whole groups of 32 in their order, then those of its own group.
fn scanned(values: &[u64], fold: &impl Fn(u64, u64) -> u64) -> Vec<Option<u64>> {
    let (mut before, mut groups) = (vec![None], None);
    let both = |a: Option<u64>, b: u64| Some(a.map_or(b, |a| fold(a, b)));
    for group in values.chunks(32) {
        // By the steps of Kogge and Stone.
        let mut after = group.to_vec();
        for step in [1, 2, 4, 8, 16] {
            let old = after.clone();
            (step..old.len()).for_each(|k| after[k] = fold(old[k - step], old[k]));
        }
        before.extend(after.iter().map(|own| both(groups, *own)));
        groups = before[before.len() - 1];
    }
    before
}

/// Shared memory, and what is put out of the heap.
pub fn shared_memory_and_heap<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = CustomOf::<turned_round::Hooks>::custom(&ground.transport)?;
    let (stream, previous) = (&ground.stream, (rank.me() + rank.size() - 1) % rank.size());
    for (round, n) in [1, 31, 512, 513, 1500].into_iter().enumerate() {
        let data = rank.data(round);
        let values = ground.device.buffer_from(&data.all::<u32>(rank.me(), n))?;
        let mut turned = ground.device.buffer::<u32>(n)?;
        for threads in [32, 96, 512] {
            let mut bins = ground.device.buffer::<u32>(64)?;
            turned.fill_bytes(stream, POISON)?;
            let args = turned_round::Launch {
                values: values.view(),
                bins: bins.view_mut(),
                turned: turned.view_mut(),
            };
            launcher.launch_with(stream, 1, args, &LaunchOptions::default().threads(threads))?;
            let about = format!("{n} values by {threads} threads");
            same(format_args!("{about}, turned round"), &turned.read(stream)?, |i| {
                let (first, at) = (i / 512 * 512, i % 512);
                data.any(previous, first + (n - first).min(512) - 1 - at)
            });
            same(format_args!("{about}, counted"), &bins.read(stream)?, |bin| {
                (0..n).filter(|i| data.any::<u32>(rank.me(), *i) as usize % 64 == bin).count() as u32
            });
        }
    }
    Ok(())
}

/// Every operation that returns what an element was, on every type.
pub fn changes_by_all_threads<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = CustomOf::<changed_by_all::Hooks>::custom(&ground.transport)?;
    let (device, stream, n) = (&ground.device, &ground.stream, 3000);
    for round in 0..rank.scale.pick(2, 20) {
        let data = rank.data(round);
        let values: Vec<i32> = (0..n).map(|i| data.below(rank.me(), i, 8001) as i32 - 4000).collect();
        let on_device = device.buffer_from(&values)?;
        let mut unsigned = device.buffer_from(&[0, 0, u32::MAX, 5])?;
        let mut signed = device.buffer_from(&[0, i32::MIN, i32::MAX])?;
        let mut long = device.buffer_from(&[0, i64::MIN, i64::MAX])?;
        let mut real = device.buffer_from(&[0.0, f32::NEG_INFINITY, f32::INFINITY])?;
        let mut double = device.buffer_from(&[0.0, f64::NEG_INFINITY, f64::INFINITY])?;
        let seven = |last: f32| [0.0, 0.0, 0.0, 0.0, 0.0, -1e3, last];
        let mut brief = device.buffer_from(&seven(2.0).map(Bf16::from_f32))?;
        let mut half = device.buffer_from(&seven(1e3).map(F16::from_f32))?;
        let mut tickets = device.buffer::<u32>(n)?;
        launcher.launch(
            stream,
            3,
            changed_by_all::Launch {
                values: on_device.view(),
                unsigned: unsigned.view_mut(),
                signed: signed.view_mut(),
                long: long.view_mut(),
                real: real.view_mut(),
                double: double.view_mut(),
                brief: brief.view_mut(),
                half: half.view_mut(),
                tickets: tickets.view_mut(),
            },
        )?;
        let (sum, most, least) =
            (values.iter().sum::<i32>(), values.iter().max().copied(), values.iter().min().copied());
        let (most, least) = (most.unwrap_or(0), least.unwrap_or(0));
        let sizes = || values.iter().map(|v| v.unsigned_abs());
        let (largest, smallest) = (sizes().max().unwrap_or(0), sizes().min().unwrap_or(0));
        let mut drawn = tickets.read(stream)?;
        drawn.sort_unstable();
        assert!(drawn.iter().enumerate().all(|(i, ticket)| *ticket == i as u32), "tickets come once each");
        assert_eq!(unsigned.read(stream)?, [n as u32, largest, smallest, 5u32.wrapping_add(sum as u32)]);
        assert_eq!(signed.read(stream)?, [sum, most, least]);
        assert_eq!(long.read(stream)?, [i64::from(sum) << 20, i64::from(most), i64::from(least)]);
        // Whole numbers, whose sums are exact in any order.
        assert_eq!(real.read(stream)?, [sum as f32, most as f32, least as f32]);
        assert_eq!(double.read(stream)?, [f64::from(sum), f64::from(most), f64::from(least)]);
        let ones = |k: usize| (0..n).filter(|i| i % 4 == 0 && i / 4 % 5 == k).count() as f32;
        let rests = || values.iter().map(|v| (v % 100) as f32);
        let (up, down) = (rests().fold(-1e3, f32::max), rests().fold(1e3, f32::min));
        let sums = [0, 1, 2, 3, 4].map(ones);
        let got: Vec<f32> = brief.read(stream)?.iter().map(|v| v.to_f32()).collect();
        assert_eq!(got, [&sums[..], &[up, 2.0]].concat());
        let got: Vec<f32> = half.read(stream)?.iter().map(|v| v.to_f32()).collect();
        assert_eq!(got, [&sums[..], &[-1e3, down]].concat());
    }
    Ok(())
}

/// Teams that work a window each for itself.
pub fn windows_by_teams<X: Subject>(rank: &Rank<X>) -> Outcome {
    let n = 40;
    let mut on = windowed(rank, WindowConfig::default(), n * rank.size())?;
    let launcher = CustomOf::<spread_by_teams::Hooks>::custom(&on.ground.transport)?;
    let (me, stream) = (rank.me(), on.ground.stream.clone());
    let mut seen = on.ground.device.buffer::<u64>(n * rank.size())?;
    for (round, threads) in [32, 64, 224, 512].into_iter().enumerate() {
        let data = rank.data(round);
        let mut own = vec![0; n * rank.size()];
        own[me * n..][..n].copy_from_slice(&data.all::<u64>(me, n));
        rank.world.barrier()?;
        on.data.fill_from(&own)?;
        seen.fill_bytes(&stream, POISON)?;
        let args = spread_by_teams::Launch { window: &on.window, n, seen: seen.view_mut() };
        launcher.launch_with(&stream, 1, args, &LaunchOptions::default().threads(threads))?;
        same(format_args!("{n} words of each rank by {threads} threads"), &seen.read(&stream)?, |i| {
            data.any(i / n, i % n)
        });
    }
    Ok(())
}

/// A closure that panics on one thread ends the kernel on all ranks, whoever waits for that thread.
pub fn panics<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = CustomOf::<bad_team::Hooks>::custom(&ground.transport)?;
    let (me, culprit) = (rank.me(), rank.size() - 1);
    for threads in rank.scale.pick(vec![32], vec![32, 96, 512]) {
        for how in 0..8 {
            let at = if me == culprit { [5, 700, 40, 0, 33, 64, 64, 999][how as usize] } else { usize::MAX };
            let options = LaunchOptions::default().threads(threads);
            launcher.launch_with(&ground.stream, 1, bad_team::Launch { n: 1000, at, how }, &options)?;
            let start = Instant::now();
            match ground.stream.synchronize() {
                Ok(()) | Err(Error::Fault(_)) => rank.world.barrier()?,
                Err(other) => return Err(other.into()),
            }
            let said = loop {
                match ground.transport.check() {
                    Err(error) => break error,
                    Ok(()) => assert!(start.elapsed() < Duration::from_secs(6), "nobody is told of {how}"),
                }
            };
            says(said, &["this index is bad", "kernels/teams.rs", &format!("rank {culprit}")]);
            rank.world.barrier()?;
            ground.transport.renew().map_err(Error::from)?;
        }
    }
    Ok(())
}
