//! Hooks of whole rows: each row once, and what goes through all of it as the reference has it, bit by bit.

use super::results::{cuts, steps};
use super::support::{POISON, fault, misuse, roots, works};
use crate::check::{same, says};
use crate::data::{Data, make};
use crate::kernels::rows::wide::{self, Particle};
use crate::kernels::rows::{centred, greatest_scaled, long, longer, longest, powers, scaled, short};
use crate::reference::{RowTree, through_e4m3};
use crate::run::Ground;
use crate::{
    AllGatherOf, AllReduceOf, AllToAllOf, BroadcastOf, Outcome, Rank, ReduceOf, ReduceScatterOf, SendRecvOf,
    Subject, reference,
};
use fusewire::device::prelude::*;
use fusewire::{LaunchOptions, Options, Protocol};
use std::time::Duration;

/// A transport whose channels hold long rows.
pub(super) fn roomy<X: Subject>(rank: &Rank<X>) -> fusewire::Result<Ground<X>> {
    rank.meet(Options::per_peer(1 << 20).channels(4).ll128_channels(1).ll_channels(4))
}

/// Numbers of many magnitudes, so that sums round.
fn value(data: Data, rank: usize, i: usize) -> f32 {
    data.small(rank, i) * reference::power_of_two(data.below(rank, i + (1 << 40), 24) as i32 - 12)
}

pub(super) fn half(data: Data, rank: usize, i: usize) -> Bf16 {
    Bf16::from_f32(value(data, rank, i))
}

/// Rows of less than a warp, eager and replayed.
pub fn of_every_number<X: Subject>(rank: &Rank<X>) -> Outcome {
    const COLS: usize = 80;
    let ground = rank.small()?;
    let (me, ranks, stream) = (rank.me(), rank.size(), &ground.stream);
    let exchange = AllToAllOf::<short::Hooks>::all_to_all(&ground.transport)?;
    let gather = AllGatherOf::<short::Hooks>::all_gather(&ground.transport)?;
    let weights: Vec<f32> = (0..COLS).map(|k| k as f32 - 17.5).collect();
    let weights_buffer = ground.device.buffer_from(&weights)?;
    for rows in [0, 1, 2, 9, rank.scale.pick(130, 3001)] {
        let (chunk, all) = (rows * COLS, ranks * rows * COLS);
        for gathers in [false, true] {
            for options in cuts::<X>(640, 2 * chunk) {
                let inputs = if gathers { chunk } else { all }.max(COLS);
                let mut input = ground.device.buffer::<Bf16>(inputs)?;
                let mut output = ground.device.buffer::<f32>(all.max(COLS))?;
                let mut most = ground.device.buffer::<f32>((ranks * rows).max(1))?;
                let mut places = ground.device.buffer::<u64>((ranks * rows).max(1))?;
                let options = options.elements(chunk);
                let mut graph = None;
                for call in 0..3 {
                    let data = rank.data(10 * rows + call);
                    input.fill_from(&make(inputs, |i| half(data, me, i)))?;
                    for bytes in [&mut output, &mut most] {
                        bytes.fill_bytes(stream, POISON)?;
                    }
                    places.fill_bytes(stream, POISON)?;
                    let mut launch = || {
                        let args = short::Launch {
                            input: input.view(),
                            weights: weights_buffer.view(),
                            output: output.view_mut(),
                            most: most.view_mut(),
                            places: places.view_mut(),
                        };
                        match gathers {
                            true => gather.launch_with(stream, args, &options),
                            false => exchange.launch_with(stream, args, &options),
                        }
                    };
                    // Two replays behind an eager call.
                    match call {
                        0 => launch()?,
                        _ => {
                            if graph.is_none() {
                                graph = Some(stream.capture(&mut launch)?);
                            }
                            graph.iter().try_for_each(|graph| graph.launch(stream))?;
                        }
                    }
                    let sent = make(all, |i| {
                        let (row, col) = (i / COLS, i % COLS);
                        let (peer, within) = (row / rows, row % rows);
                        let index = if gathers { within } else { me * rows + within };
                        let x = half(data, peer, index * COLS + col).to_f32();
                        Bf16::from_f32(x + ((index + col) % 3) as f32).to_f32()
                    });
                    let tree = |row: usize, f: fn(f32, f32) -> f32, nothing: f32| {
                        RowTree { cols: COLS, nothing, f }.of(|col| sent[row * COLS + col])
                    };
                    let sums: Vec<f32> = (0..ranks * rows).map(|row| tree(row, |a, b| a + b, -0.0)).collect();
                    let what =
                        format!("{rows} rows, gathered: {gathers}, call {call}, {options:?}, rank {me}");
                    let scan = RowTree { cols: COLS, nothing: -0.0, f: |a, b| a + b };
                    let before: Vec<f32> =
                        sent.chunks(COLS).flat_map(|row| scan.before(|col| row[col])).collect();
                    same(format_args!("{what}: output"), &output.read(stream)?[..all], |i| {
                        sent[i] * weights[i % COLS] + sums[i / COLS] + before[i]
                    });
                    same(format_args!("{what}: range"), &most.read(stream)?[..ranks * rows], |row| {
                        tree(row, f32::max, f32::NEG_INFINITY) - tree(row, f32::min, f32::INFINITY)
                    });
                    same(format_args!("{what}: places"), &places.read(stream)?[..ranks * rows], |row| {
                        (row << 48 | (row % rows) << 32 | rows << 16 | (row / rows)) as u64
                    });
                }
            }
        }
    }
    Ok(())
}

/// Structs that no pack has a whole number of.
pub fn of_wide_elements<X: Subject>(rank: &Rank<X>) -> Outcome {
    const COLS: usize = 48;
    let ground = roomy(rank)?;
    let (me, ranks, stream) = (rank.me(), rank.size(), &ground.stream);
    let exchange = AllToAllOf::<wide::Hooks>::all_to_all(&ground.transport)?;
    for rows in [0, 1, 5, rank.scale.pick(40, 1001)] {
        let (chunk, data) = (rows * COLS, rank.data(rows));
        let n = ranks * chunk;
        let of = |rank: usize, i: usize| Particle {
            at: [0, 1, 2].map(|k| value(data, rank, 3 * i + k)),
            charge: [0, 1, 2, 3].map(|k| data.below(rank, 4 * i + k, 1 << 16) as u16 as i16),
            id: data.any::<u32>(rank, i),
        };
        let input = ground.device.buffer_from(&make(n.max(COLS), |i| of(me, i)))?;
        let mut output = ground.device.buffer::<Particle>(n.max(COLS))?;
        let mut sums = ground.device.buffer::<u32>((ranks * rows).max(1))?;
        for options in cuts::<X>(8 * 24 * COLS, 24 * chunk) {
            output.fill_bytes(stream, POISON)?;
            sums.fill_bytes(stream, POISON)?;
            let args = wide::Launch { input: input.view(), output: output.view_mut(), sums: sums.view_mut() };
            exchange.launch_with(stream, args, &options.clone().elements(chunk))?;
            let what = format!("{rows} rows of structs, {options:?}, rank {me}");
            let sent = |i: usize| (i / chunk, me * chunk + i % chunk);
            same(format_args!("{what}"), &output.read(stream)?[..n], |i| {
                let (rank, at) = sent(i);
                let mut particle = of(rank, at);
                particle.charge[1] = (i % COLS) as i16;
                particle.id ^= rank as u32;
                particle
            });
            same(format_args!("{what}: sums"), &sums.read(stream)?[..ranks * rows], |row| {
                (COLS * row..COLS * row + COLS)
                    .map(|i| of(sent(i).0, sent(i).1).id)
                    .fold(0, u32::wrapping_add)
            });
        }
    }
    Ok(())
}

/// Rows of a block, sent around and broadcast.
pub fn long_ones<X: Subject>(rank: &Rank<X>) -> Outcome {
    const COLS: usize = 4112;
    let ground = roomy(rank)?;
    let (me, ranks, stream) = (rank.me(), rank.size(), &ground.stream);
    let ring = SendRecvOf::<long::Hooks>::sendrecv(&ground.transport)?;
    let broadcast = BroadcastOf::<long::Hooks>::broadcast(&ground.transport)?;
    for rows in [1, 3, rank.scale.pick(11, 300)] {
        let n = rows * COLS;
        for (k, options) in cuts::<X>(2 * 4 * COLS, 4 * n).into_iter().enumerate() {
            for root in roots(ranks).into_iter().map(Some).chain((ranks > 1).then_some(None)) {
                let data = rank.data(100 * rows + 10 * k + root.unwrap_or(9));
                let input = ground.device.buffer_from(&make(n, |i| value(data, me, i)))?;
                let mut output = ground.device.buffer_from(&make(n, |i| (i % 1000) as f32))?;
                let args = long::Launch { input: input.view(), output: output.view_mut() };
                let options = options.clone().elements(n);
                let from = match root {
                    Some(root) => {
                        broadcast.launch_with(stream, root, args, &options)?;
                        root
                    }
                    None => {
                        let (to, from) = ((me + 1) % ranks, (me + ranks - 1) % ranks);
                        ring.launch_with(stream, Some(to), Some(from), args, &options)?;
                        from
                    }
                };
                let tree = RowTree { cols: COLS, nothing: -0.0, f: |a, b| a + b };
                let sent = make(n, |i| value(data, from, i));
                let sums: Vec<f32> = sent.chunks(COLS).map(|row| tree.of(|col| row[col])).collect();
                let before: Vec<f32> =
                    sent.chunks(COLS).flat_map(|row| tree.before(|col| row[col])).collect();
                same(format_args!("{rows} long rows from {from}, {options:?}"), &output.read(stream)?, |i| {
                    let (sum, first) = (sums[i / COLS], sent[i / COLS * COLS]);
                    sent[i] + (i % 1000) as f32 - sum / 1024.0 + first + before[i]
                });
            }
        }
    }
    Ok(())
}

/// 8-bit floats with scales, of warps and of blocks.
pub fn with_scales<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = roomy(rank)?;
    let (me, ranks, stream) = (rank.me(), rank.size(), &ground.stream);
    let exchange = AllToAllOf::<scaled::Hooks>::all_to_all(&ground.transport)?;
    let broadcast = BroadcastOf::<scaled::Hooks>::broadcast(&ground.transport)?;
    let by_powers = AllToAllOf::<powers::Hooks>::all_to_all(&ground.transport)?;
    let group = |data: Data, rank: usize, i: usize, cols: usize| {
        (i / cols * cols..).take(cols).map(|i| half(data, rank, i).to_f32().abs()).fold(0.0, f32::max)
    };
    for rows in [1, 8, rank.scale.pick(21, 999)] {
        for (k, options) in cuts::<X>(8 * 208, rows * 208).into_iter().enumerate() {
            const COLS: usize = 192;
            let (data, chunk) = (rank.data(10 * rows + k), rows * COLS);
            let n = ranks * chunk;
            let options = options.elements(chunk);
            let input = ground.device.buffer_from(&make(n, |i| half(data, me, i).to_f32()))?;
            let mut output = ground.device.buffer::<f32>(n)?;
            let mut scales = ground.device.buffer::<f32>(n / 64)?;
            for root in [None, Some(ranks - 1)] {
                output.fill_bytes(stream, POISON)?;
                scales.fill_bytes(stream, POISON)?;
                let (output_view, scales_view) = (output.view_mut(), scales.view_mut());
                let args = scaled::Launch { input: input.view(), output: output_view, scales: scales_view };
                match root {
                    None => exchange.launch_with(stream, args, &options)?,
                    Some(root) => broadcast.launch_with(stream, root, args, &options)?,
                }
                let all = if root.is_some() { chunk } else { n };
                let from =
                    |i: usize| root.map_or_else(|| (i / chunk, me * chunk + i % chunk), |root| (root, i));
                let scale = make(all / 64, |g| {
                    let (rank, i) = from(64 * g);
                    (group(data, rank, i, 64) * (1.0 / 448.0)).max(f32::MIN_POSITIVE)
                });
                let what = format!("{rows} rows from {root:?}, {options:?}");
                same(format_args!("{what}: scales"), &scales.read(stream)?[..all / 64], |g| scale[g]);
                same(format_args!("{what}: numbers"), &output.read(stream)?[..all], |i| {
                    let (rank, at) = from(i);
                    through_e4m3(half(data, rank, at).to_f32() * (1.0 / scale[i / 64])) * scale[i / 64]
                });
            }
        }
        const COLS: usize = 2112;
        let (data, chunk) = (rank.data(rows), rows * COLS);
        let n = ranks * chunk;
        let input = ground.device.buffer_from(&make(n, |i| half(data, me, i)))?;
        let mut output = ground.device.buffer::<F8E5M2>(n)?;
        let mut scales = ground.device.buffer::<u8>(n / 32)?;
        let mut sums = ground.device.buffer::<i32>(n / 32)?;
        output.fill_bytes(stream, POISON)?;
        scales.fill_bytes(stream, POISON)?;
        sums.fill_bytes(stream, POISON)?;
        let (output_view, scales_view, sums_view) = (output.view_mut(), scales.view_mut(), sums.view_mut());
        let args =
            powers::Launch { input: input.view(), output: output_view, scales: scales_view, sums: sums_view };
        by_powers.launch(stream, args)?;
        let exponent = make(n / 32, |g| {
            let i = 32 * g;
            let least = f64::from(group(data, i / chunk, me * chunk + i % chunk, 32) * (1.0 / 57344.0));
            if least == 0.0 { 1 } else { (least.log2().ceil() as i32).max(-126) + 127 }
        });
        let sent = |i: usize| half(data, i / chunk, me * chunk + i % chunk).to_f32();
        // Products with powers of two are exact.
        let code = make(n, |i| F8E5M2::from_f32(sent(i) * reference::power_of_two(127 - exponent[i / 32])));
        same("powers of two", &scales.read(stream)?, |g| exponent[g] as u8);
        let bits: Vec<u8> = output.read(stream)?.iter().map(|x| x.to_bits()).collect();
        same("values", &bits, |i| code[i].to_bits());
        same("sums of groups", &sums.read(stream)?, |g| {
            (32 * g..32 * g + 32).fold(0i32, |sum, i| sum.wrapping_add((code[i].to_f32() * 16.0) as i32))
        });
    }
    Ok(())
}

/// Folded by ranks first, then by the row.
pub fn folded<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = roomy(rank)?;
    let (me, ranks, stream) = (rank.me(), rank.size(), &ground.stream);
    let all_reduce = AllReduceOf::<centred::Hooks>::all_reduce(&ground.transport)?;
    let reduce_scatter = ReduceScatterOf::<centred::Hooks>::reduce_scatter(&ground.transport)?;
    let reduce = ReduceOf::<centred::Hooks>::reduce(&ground.transport)?;
    let greatest = AllReduceOf::<greatest_scaled::Hooks>::all_reduce(&ground.transport)?;
    // A row comes to 576 packs, of 147 on the wire.
    let wide = rank.meet(Options::per_peer(2 << 20).channels(4).ll128_channels(1).ll_channels(4))?;
    let greatest_twice = AllReduceOf::<greatest_scaled::Hooks>::all_reduce(&wide.transport)?;
    for rows in [1, 7, rank.scale.pick(90, 2000)] {
        for (k, options) in steps::<X>(1280, 2 * rows * 80).into_iter().enumerate() {
            const COLS: usize = 80;
            let (data, chunk) = (rank.data(10 * rows + k), rows * COLS);
            let options = options.elements(chunk);
            // All-reduces alone have two steps.
            let schedules = if options.protocol == Some(Protocol::TwoShot) { 1 } else { 3 };
            for what in 0..schedules {
                let inputs = if what == 1 { ranks * chunk } else { chunk };
                let input = ground.device.buffer_from(&make(inputs, |i| half(data, me, i)))?;
                let mut output = ground.device.buffer::<f32>(chunk)?;
                let mut sums = ground.device.buffer::<f32>(rows)?;
                output.fill_bytes(stream, POISON)?;
                sums.fill_bytes(stream, POISON)?;
                let (output_view, sums_view) = (output.view_mut(), sums.view_mut());
                let args = centred::Launch { input: input.view(), output: output_view, sums: sums_view };
                match what {
                    0 => all_reduce.launch_with(stream, args, &options)?,
                    1 => reduce_scatter.launch_with(stream, args, &options)?,
                    _ => reduce.launch_with(stream, ranks / 2, args, &options)?,
                }
                let (values, sums) = (output.read(stream)?, sums.read(stream)?);
                if what == 2 && me != ranks / 2 {
                    continue;
                }
                let first = if what == 1 { me * chunk } else { 0 };
                let of_ranks = |i: usize| {
                    let of = |rank: usize| half(data, rank, first + i).to_f32();
                    reference::tree(0, ranks, &of, &|a, b| a + b)
                };
                let tree = RowTree { cols: COLS, nothing: -0.0, f: |a, b| a + b };
                let of_rows: Vec<f32> =
                    (0..rows).map(|row| tree.of(|col| of_ranks(row * COLS + col))).collect();
                same(format_args!("{rows} rows by {what}, {options:?}: sums"), &sums, |row| of_rows[row]);
                same(format_args!("{rows} rows by {what}, {options:?}"), &values, |i| {
                    of_ranks(i) - of_rows[i / COLS] / 80.0
                });
            }
        }
        const COLS: usize = 2304;
        let (data, chunk) = (rank.data(rows), rows.min(rank.scale.pick(12, 2000)) * COLS);
        let number = |rank: usize, i: usize| half(data, rank, i).to_f32();
        let input = ground.device.buffer_from(&make(chunk, |i| number(me, i)))?;
        let mut output = ground.device.buffer::<f32>(chunk)?;
        let scales: Vec<Vec<f32>> = (0..ranks)
            .map(|rank| {
                let most =
                    |g: usize| (256 * g..256 * g + 256).map(|i| number(rank, i).abs()).fold(0.0, f32::max);
                (0..chunk / 256).map(|g| (most(g) * (1.0 / 448.0)).max(f32::MIN_POSITIVE)).collect()
            })
            .collect();
        for twice in [false, true] {
            output.fill_bytes(stream, POISON)?;
            let args = greatest_scaled::Launch { input: input.view(), output: output.view_mut() };
            match twice {
                false => greatest.launch(stream, args)?,
                true => greatest_twice.launch_with(
                    stream,
                    args,
                    &LaunchOptions::default().protocol(Protocol::TwoShot),
                )?,
            }
            same(
                format_args!("the greatest of scaled numbers, in two steps: {twice}"),
                &output.read(stream)?,
                |i| {
                    let numbers = (0..ranks).map(|rank| {
                        let scale = scales[rank][i / 256];
                        through_e4m3(number(rank, i) * (1.0 / scale)) * scale
                    });
                    // -0 is less than +0.
                    numbers
                        .reduce(|a, b| if a > b || a == b && a.is_sign_positive() { a } else { b })
                        .unwrap_or(0.0)
                },
            );
        }
    }
    Ok(())
}

/// Sums of rows that a block has, nearly full.
pub fn longer_folded<X: Subject>(rank: &Rank<X>) -> Outcome {
    const COLS: usize = 7168;
    let ground = roomy(rank)?;
    let (me, ranks, stream) = (rank.me(), rank.size(), &ground.stream);
    let all_reduce = AllReduceOf::<longer::Hooks>::all_reduce(&ground.transport)?;
    for rows in [1, rank.scale.pick(3, 40)] {
        let n = rows * COLS;
        for (k, options) in steps::<X>(2 * COLS, 2 * n).into_iter().enumerate() {
            let data = rank.data(10 * rows + k);
            let input = ground.device.buffer_from(&make(n, |i| half(data, me, i)))?;
            let (mut output, mut sums) =
                (ground.device.buffer::<f32>(n)?, ground.device.buffer::<f32>(rows)?);
            output.fill_bytes(stream, POISON)?;
            sums.fill_bytes(stream, POISON)?;
            let (output_view, sums_view) = (output.view_mut(), sums.view_mut());
            let args = longer::Launch { input: input.view(), output: output_view, sums: sums_view };
            all_reduce.launch_with(stream, args, &options.clone().elements(n))?;
            let of_ranks =
                make(n, |i| reference::tree(0, ranks, &|rank| half(data, rank, i).to_f32(), &|a, b| a + b));
            let tree = RowTree { cols: COLS, nothing: -0.0, f: |a, b| a + b };
            let most: Vec<f32> =
                of_ranks.chunks(COLS).map(|row| row.iter().copied().fold(f32::MIN, f32::max)).collect();
            same(format_args!("{rows} rows, {options:?}: sums"), &sums.read(stream)?, |row| {
                tree.of(|col| of_ranks[row * COLS + col])
            });
            same(format_args!("{rows} rows, {options:?}"), &output.read(stream)?, |i| {
                of_ranks[i] * most[i / COLS] + (i % COLS) as f32
            });
        }
    }
    Ok(())
}

/// As long as rows may be, with scales.
pub fn longest_scaled<X: Subject>(rank: &Rank<X>) -> Outcome {
    const COLS: usize = 16384;
    let ground = roomy(rank)?;
    let (me, ranks, stream) = (rank.me(), rank.size(), &ground.stream);
    let exchange = AllToAllOf::<longest::Hooks>::all_to_all(&ground.transport)?;
    for rows in [1, rank.scale.pick(2, 9)] {
        let (chunk, wire) = (rows * COLS, COLS + COLS / 128 * 4);
        let n = ranks * chunk;
        for (k, options) in cuts::<X>(wire, rows * wire).into_iter().enumerate() {
            let data = rank.data(10 * rows + k);
            let input = ground.device.buffer_from(&make(n, |i| half(data, me, i)))?;
            let (mut output, mut scales) =
                (ground.device.buffer::<f32>(n)?, ground.device.buffer::<f32>(n / 128)?);
            output.fill_bytes(stream, POISON)?;
            scales.fill_bytes(stream, POISON)?;
            let (output_view, scales_view) = (output.view_mut(), scales.view_mut());
            let args = longest::Launch { input: input.view(), output: output_view, scales: scales_view };
            exchange.launch_with(stream, args, &options.clone().elements(chunk))?;
            let sent = make(n, |i| half(data, i / chunk, me * chunk + i % chunk).to_f32());
            let most = |group: &[f32]| group.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
            let scale: Vec<f32> =
                sent.chunks(128).map(|group| (most(group) * (1.0 / 448.0)).max(f32::MIN_POSITIVE)).collect();
            same(format_args!("{rows} rows, {options:?}: scales"), &scales.read(stream)?, |g| scale[g]);
            same(format_args!("{rows} rows, {options:?}: numbers"), &output.read(stream)?, |i| {
                through_e4m3(sent[i] * (1.0 / scale[i / 128])) * scale[i / 128]
            });
        }
    }
    Ok(())
}

/// What cannot be is refused, on every rank, and an output that ends too soon is found.
pub fn refused<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let (ranks, stream) = (rank.size(), &ground.stream);
    let launcher = AllToAllOf::<scaled::Hooks>::all_to_all(&ground.transport)?;
    let input = ground.device.buffer::<f32>(ranks * 384)?;
    let mut output = ground.device.buffer::<f32>(ranks * 384)?;
    let mut scales = ground.device.buffer::<f32>(ranks * 6)?;
    let mut launch = |options: LaunchOptions| {
        let (output, scales) = (output.view_mut(), scales.view_mut());
        launcher.launch_with(stream, scaled::Launch { input: input.view(), output, scales }, &options)
    };
    let open = LaunchOptions::default();
    let part = misuse(launch(open.clone().elements(200)));
    says(part, &["a chunk of 200 elements is no whole number of rows of 192"]);
    // 8 rows of 13 packs are 13 lines.
    let narrow = misuse(launch(open.clone().elements(384)));
    says(narrow, &["rows of 192 elements travel 1664 bytes at a time", "takes 1024 in one piece"]);
    let ground = roomy(rank)?;
    let stream = &ground.stream;
    let launcher = AllToAllOf::<scaled::Hooks>::all_to_all(&ground.transport)?;
    let input = ground.device.buffer::<f32>(ranks * 384)?;
    let mut output = ground.device.buffer::<f32>(ranks * 384)?;
    let mut scales = ground.device.buffer::<f32>(ranks * 6)?;
    let view = output.view_mut().slice(1..)?;
    let args = scaled::Launch { input: input.view(), output: view, scales: scales.view_mut() };
    let off = misuse(launcher.launch_with(stream, args, &open.clone().elements(192)));
    says(off, &["buffer `output` begins 4 bytes past a multiple of 16", "works by rows"]);
    let mut launch = |options: LaunchOptions| {
        let (output, scales) = (output.view_mut(), scales.view_mut());
        launcher.launch_with(stream, scaled::Launch { input: input.view(), output, scales }, &options)
    };
    let uneven = misuse(launch(open.clone().elements(384).chunk(1024)));
    says(uneven, &["chunks of 1024 bytes; rows of 192 elements travel in multiples of 1664 bytes"]);
    launch(open.clone().elements(384).chunk(3328))?;
    stream.synchronize()?;
    // Before the fault that is to come, nobody is at what came before.
    rank.world.barrier()?;
    // One rank's output has no place for the last chunk's rows.
    let short = if rank.me() == 0 { ranks * 384 - 192 } else { ranks * 384 };
    let (output, scales) = (output.view_mut(), scales.view_mut());
    let output = output.slice(..short)?;
    let args = scaled::Launch { input: input.view(), output, scales };
    let options = open.elements(384).deadline(Duration::from_secs(2));
    // A rank that is late may find the others stopped.
    let launched = launcher.launch_with(stream, args, &options);
    if rank.me() == 0 {
        launched?;
        says(fault(&ground, Duration::from_secs(8)), &["output ends before this row"]);
    } else {
        // Whatever it knows of it.
        let _ = ground.stream.synchronize();
    }
    rank.world.barrier()?;
    ground.transport.renew().map_err(fusewire::Error::from)?;
    works(rank, &ground)
}
