//! Hooks that compute, against plain Rust.

use super::support::{POISON, filled, misuse};
use crate::check::{same, says};
use crate::data::{Data, make};
use crate::kernels::hooks::{gather, histogram, places, scale_add, tiles, transpose_add};
use crate::kernels::wires::{by_f8, spread, to_bf16, widened};
use crate::{AllToAllOf, Outcome, Rank, SendRecvOf, Subject, reference};
use fusewire::device::element::{Bf16, Float};
use fusewire::kernel::HookSet;
use fusewire::{Buffer, LaunchOptions};

pub fn transpose<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = AllToAllOf::<transpose_add::Hooks>::all_to_all(&ground.transport)?;
    let me = rank.me();
    let shapes = [
        (1, 1),
        (3, 5),
        (7, 1),
        rank.scale.pick(if rank.size() > 5 { (6, 9) } else { (31, 45) }, (511, 257)),
    ];
    for (k, (rows, cols)) in shapes.into_iter().enumerate() {
        let (data, chunk) = (rank.data(k), rows * cols);
        let n = chunk * rank.size();
        let input = ground.device.buffer_from(&make(n, |i| data.small(me, i)))?;
        let mut output = ground.device.buffer_from(&make(n, |i| i as f32))?;
        for _ in 0..3 {
            let args = transpose_add::Launch { input: input.view(), output: output.view_mut(), rows, cols };
            launcher.launch(&ground.stream, args)?;
        }
        let got = output.read(&ground.stream)?;
        same(format_args!("{rows} x {cols} transposed and added three times"), &got, |i| {
            let (peer, pos) = (i / chunk, i % chunk);
            i as f32 + 3.0 * reference::transposed(rows, cols, pos, |at| data.small(peer, me * chunk + at))
        });
    }
    Ok(())
}

/// `layout(transposed)`, by every protocol there is: whole tiles, edges on each side, rows that are no whole packs, one row, one column.
pub fn transpose_by_tiles<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = AllToAllOf::<tiles::Hooks>::all_to_all(&ground.transport)?;
    let me = rank.me();
    let large = rank.scale.pick(if rank.size() > 5 { (9, 130) } else { (67, 130) }, (1030, 2055));
    // So many bytes that lines carry them by tiles, some of which are not whole.
    let whole = rank.scale.pick(if rank.size() > 5 { (40, 72) } else { (160, 136) }, (520, 1032));
    let shapes = [(1, 1), (1, 9), (13, 1), (32, 64), (64, 128), (33, 65), large, whole];
    let args_of = |n: usize, data: Data| ground.device.buffer_from(&make(n, |i| data.any::<Bf16>(me, i)));
    for (k, (rows, cols)) in shapes.into_iter().enumerate() {
        let (data, chunk) = (rank.data(k), rows * cols);
        let n = chunk * rank.size();
        let input = args_of(n, data)?;
        let open = LaunchOptions::default().shape(rows, cols);
        for symmetric in if X::MAPS { &[false, true][..] } else { &[false] } {
            let mut output = match *symmetric {
                true => Buffer::<Bf16>::symmetric(&ground.transport, n)?,
                false => ground.device.buffer::<Bf16>(n)?,
            };
            let args = tiles::Launch { input: input.view(), output: output.view_mut() };
            for space in launcher.spaces(&args, &open)? {
                output.fill_bytes(&ground.stream, POISON)?;
                let options = LaunchOptions { protocol: Some(space.start.protocol), ..open.clone() };
                let args = tiles::Launch { input: input.view(), output: output.view_mut() };
                launcher.launch_with(&ground.stream, args, &options)?;
                let got = output.read(&ground.stream)?;
                let about = format_args!("{rows} x {cols}, {:?}", space.start.protocol);
                same(about, &got, |i| {
                    let (peer, pos) = (i / chunk, i % chunk);
                    reference::transposed(cols, rows, pos, |at| data.any(peer, me * chunk + at))
                });
            }
        }
    }
    // To the next rank, each with a chunk that has tiles at its edges.
    if let Some(sender) = (rank.size() > 1).then(|| SendRecvOf::<tiles::Hooks>::sendrecv(&ground.transport)) {
        let (sender, (rows, cols)) = (sender?, (160, 136));
        let (next, previous) = ((me + 1) % rank.size(), (me + rank.size() - 1) % rank.size());
        let (input, mut output) =
            (args_of(rows * cols, rank.data(90))?, ground.device.buffer::<Bf16>(rows * cols)?);
        let open = LaunchOptions::default().shape(rows, cols);
        for space in
            sender.spaces(&tiles::Launch { input: input.view(), output: output.view_mut() }, &open)?
        {
            output.fill_bytes(&ground.stream, POISON)?;
            let options = LaunchOptions { protocol: Some(space.start.protocol), ..open.clone() };
            for _ in 0..3 {
                let args = tiles::Launch { input: input.view(), output: output.view_mut() };
                sender.launch_with(&ground.stream, Some(next), Some(previous), args, &options)?;
            }
            let about = format_args!("{rows} x {cols} to the next rank, {:?}", space.start.protocol);
            same(about, &output.read(&ground.stream)?, |i| {
                reference::transposed(cols, rows, i, |at| rank.data(90).any(previous, at))
            });
        }
    }
    // Without a shape there is nothing to transpose.
    let (input, mut output) =
        (args_of(rank.size(), rank.data(0))?, ground.device.buffer::<Bf16>(rank.size())?);
    let args = tiles::Launch { input: input.view(), output: output.view_mut() };
    says(misuse(launcher.launch(&ground.stream, args)), &["layout(transposed)", ".shape(rows, cols)"]);
    Ok(())
}

pub fn scale_and_accumulate<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = AllToAllOf::<scale_add::Hooks>::all_to_all(&ground.transport)?;
    for (k, chunk) in [1, 4, 5, 63, rank.scale.pick(2500, 400_001)].into_iter().enumerate() {
        let (data, n) = (rank.data(k), chunk * rank.size());
        let input = ground.device.buffer_from(&make(n, |i| data.small(rank.me(), i)))?;
        let mut output = ground.device.buffer_from(&filled(n, 0.5f32))?;
        for factor in [2.0, -0.5] {
            let args = scale_add::Launch { input: input.view(), output: output.view_mut(), factor };
            launcher.launch(&ground.stream, args)?;
        }
        let got = output.read(&ground.stream)?;
        same(format_args!("chunks of {chunk} scaled and added"), &got, |i| {
            0.5 + 1.5 * reference::all_to_all(rank.me(), chunk, i, |peer, index| data.small(peer, index))
        });
    }
    Ok(())
}

pub fn gather_by_index<X: Subject>(rank: &Rank<X>) -> Outcome {
    gather_after::<X, 0>(rank)?;
    gather_after::<X, 7>(rank)
}

fn gather_after<X: Subject + AllToAllOf<gather::Hooks<AFTER>>, const AFTER: usize>(rank: &Rank<X>) -> Outcome
where
    for<'a> gather::Hooks<AFTER>: HookSet<Args<'a> = gather::Launch<'a, AFTER>>,
{
    let ground = rank.small()?;
    let launcher = AllToAllOf::<gather::Hooks<AFTER>>::all_to_all(&ground.transport)?;
    for (k, chunk) in [1, 30, rank.scale.pick(1111, 100_003)].into_iter().enumerate() {
        let (values, picks) = (rank.data(k), rank.data(k + 10));
        let (n, table) = (chunk * rank.size(), 257 + 13 * k);
        let input = ground.device.buffer_from(&values.all::<i32>(rank.me(), table + AFTER))?;
        let index = ground.device.buffer_from(&make(n, |i| picks.below(rank.me(), i, table) as u32))?;
        let mut output = ground.device.buffer::<i32>(n)?;
        output.fill_bytes(&ground.stream, POISON)?;
        let args = gather::Launch { input: input.view(), index: index.view(), output: output.view_mut() };
        launcher.launch(&ground.stream, args)?;
        let got = output.read(&ground.stream)?;
        same(format_args!("{chunk} gathered from {table}, {AFTER} further on"), &got, |i| {
            reference::all_to_all(rank.me(), chunk, i, |peer, at| {
                values.any(peer, picks.below(peer, at, table) + AFTER)
            })
        });
    }
    Ok(())
}

/// `rows`, `cols`, `row_col`, `rank`, `peer`, `chunk_len` and `valid` as both hooks see them.
pub fn rows_and_columns<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = AllToAllOf::<places::Hooks>::all_to_all(&ground.transport)?;
    for (rows, cols) in [(1, 1), (5, 3), (1, 200), rank.scale.pick((40, 33), (301, 407))] {
        let chunk = rows * cols;
        let mut output = ground.device.buffer::<u64>(chunk * rank.size())?;
        output.fill_bytes(&ground.stream, POISON)?;
        let options = LaunchOptions::default().shape(rows, cols).channels(2);
        launcher.launch_with(&ground.stream, places::Launch { output: output.view_mut() }, &options)?;
        let got = output.read(&ground.stream)?;
        same(format_args!("places in {rows} x {cols}"), &got, |i| {
            let (peer, pos) = ((i / chunk) as u64, i % chunk);
            peer << 56 | (rank.me() as u64) << 48 | ((pos / cols) as u64) << 24 | (pos % cols) as u64
        });
    }
    Ok(())
}

pub fn histogram<X: Subject>(rank: &Rank<X>) -> Outcome {
    const BUCKETS: usize = 37;
    let ground = rank.small()?;
    let launcher = AllToAllOf::<histogram::Hooks>::all_to_all(&ground.transport)?;
    let (data, chunk) = (rank.data(0), rank.scale.pick(1203, 200_001));
    let n = chunk * rank.size();
    let input = ground.device.buffer_from(&make(n, |i| data.below(rank.me(), i, BUCKETS) as u32))?;
    let mut counts = ground.device.buffer::<u32>(BUCKETS)?;
    let mut weights = ground.device.buffer::<f64>(BUCKETS)?;
    for _ in 0..2 {
        let args =
            histogram::Launch { input: input.view(), counts: counts.view_mut(), weights: weights.view_mut() };
        launcher.launch_with(&ground.stream, args, &LaunchOptions::default().channels(3))?;
    }
    let mut want = [0u32; BUCKETS];
    for peer in 0..rank.size() {
        (0..chunk).for_each(|pos| want[data.below(peer, rank.me() * chunk + pos, BUCKETS)] += 2);
    }
    same("counts", &counts.read(&ground.stream)?, |i| want[i]);
    same("weights", &weights.read(&ground.stream)?, |i| 0.5 * f64::from(want[i]));
    Ok(())
}

pub fn wire_of_f8<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = AllToAllOf::<by_f8::Hooks>::all_to_all(&ground.transport)?;
    for (k, chunk) in [1, 15, 17, rank.scale.pick(900, 30_001)].into_iter().enumerate() {
        let (data, n, scale) = (rank.data(k), chunk * rank.size(), 0.25);
        // From subnormal to beyond the largest.
        let value = |from: usize, i: usize| data.small(from, i) * reference::power_of_two(i as i32 % 13 - 9);
        let input = ground.device.buffer_from(&make(n, |i| value(rank.me(), i)))?;
        let mut output = ground.device.buffer::<f32>(n)?;
        output.fill_bytes(&ground.stream, POISON)?;
        let args = by_f8::Launch { input: input.view(), output: output.view_mut(), scale };
        launcher.launch(&ground.stream, args)?;
        let got = output.read(&ground.stream)?;
        same(format_args!("chunks of {chunk} through e4m3"), &got, |i| {
            let sent = reference::all_to_all(rank.me(), chunk, i, value);
            reference::through_e4m3(sent * scale) / scale
        });
    }
    Ok(())
}

pub fn wire_of_bf16<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = AllToAllOf::<to_bf16::Hooks>::all_to_all(&ground.transport)?;
    for (k, chunk) in [1, 7, 9, rank.scale.pick(1800, 200_003)].into_iter().enumerate() {
        let (data, n) = (rank.data(k), chunk * rank.size());
        let value = |from: usize, i: usize| data.small(from, i) * 1.000_1f32.powi(i as i32 % 500);
        let input = ground.device.buffer_from(&make(n, |i| value(rank.me(), i)))?;
        let mut output = ground.device.buffer::<Bf16>(n)?;
        output.fill_bytes(&ground.stream, POISON)?;
        launcher
            .launch(&ground.stream, to_bf16::Launch { input: input.view(), output: output.view_mut() })?;
        let got = output.read(&ground.stream)?;
        same(format_args!("chunks of {chunk} rounded to bfloat16"), &got, |i| {
            Bf16::from_bits(reference::to_bf16(reference::all_to_all(rank.me(), chunk, i, value)))
        });
    }
    Ok(())
}

pub fn wire_wider_than_the_element<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = AllToAllOf::<widened::Hooks>::all_to_all(&ground.transport)?;
    // The longest goes at full occupancy where a rank is alone on a large GPU.
    let chunks = [1, 5, rank.scale.pick(1234, 99_999), rank.scale.pick(9, 1_500_001)];
    for (k, chunk) in chunks.into_iter().enumerate() {
        let (data, n) = (rank.data(k), chunk * rank.size());
        let input = ground.device.buffer_from(&data.all::<u8>(rank.me(), n))?;
        let mut output = ground.device.buffer::<u32>(n)?;
        output.fill_bytes(&ground.stream, POISON)?;
        launcher
            .launch(&ground.stream, widened::Launch { input: input.view(), output: output.view_mut() })?;
        let got = output.read(&ground.stream)?;
        same(format_args!("chunks of {chunk} bytes as words"), &got, |i| {
            let byte: u8 = reference::all_to_all(rank.me(), chunk, i, |peer, index| data.any(peer, index));
            u32::from_ne_bytes([byte; 4])
        });
    }
    Ok(())
}

/// Of a rank alone on a GPU neighbouring lanes store each other's halves: whole warps, the last one, and some lanes of a warp.
pub fn packs_wider_than_those_of_the_wire<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = AllToAllOf::<spread::Hooks>::all_to_all(&ground.transport)?;
    for (k, chunk) in [1, 16, 512, 1040, rank.scale.pick(2005, 300_005)].into_iter().enumerate() {
        let (data, n) = (rank.data(k), chunk * rank.size());
        let value = |from: usize, i: usize| Bf16::from_f32(data.small(from, i));
        let input = ground.device.buffer_from(&make(n, |i| value(rank.me(), i)))?;
        let [mut output, mut seen] = [ground.device.buffer::<Bf16>(n)?, ground.device.buffer(n)?];
        let mut wide = ground.device.buffer::<f32>(n)?;
        [&mut output, &mut seen].into_iter().try_for_each(|out| out.fill_bytes(&ground.stream, POISON))?;
        wide.fill_bytes(&ground.stream, POISON)?;
        let args = spread::Launch {
            input: input.view(),
            output: output.view_mut(),
            seen: seen.view_mut(),
            wide: wide.view_mut(),
        };
        launcher.launch(&ground.stream, args)?;
        let want = |i| reference::through_e4m3(reference::all_to_all(rank.me(), chunk, i, value).to_f32());
        for (name, out) in [("output", &output), ("seen", &seen)] {
            let got = out.read(&ground.stream)?;
            same(format_args!("{name} of chunks of {chunk}"), &got, |i| Bf16::from_f32(want(i)));
        }
        let got = wide.read(&ground.stream)?;
        same(format_args!("wide ones of chunks of {chunk}"), &got, |i| match i % chunk / 16 % 3 {
            0 => f32::from_bits(u32::from_ne_bytes([POISON; 4])),
            _ => want(i),
        });
    }
    Ok(())
}
