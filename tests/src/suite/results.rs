//! Folds with a `result`: rounded once, by whatever protocol, and so the same bits on every rank and by every way.

use super::folds::{What, ways};
use super::rows::{half, roomy};
use super::support::POISON;
use crate::check::same;
use crate::data::{Data, make};
use crate::kernels::folds::rounded;
use crate::kernels::rows::{quantised_sums, rounded_rows};
use crate::reference::{self, through_e4m3};
use crate::{AllReduceOf, Outcome, Rank, Subject};
use fusewire::device::prelude::*;
use fusewire::device::protocol::ll;
use fusewire::{Graph, LaunchOptions, Protocol, Stream};

/// Options that cut a chunk of so many wire bytes in different ways.
pub(super) fn cuts<X: Subject>(together: usize, wire_bytes: usize) -> Vec<LaunchOptions> {
    let open = LaunchOptions::default();
    let staged = open.clone().protocol(Protocol::Simple);
    let mut all = vec![open.clone(), staged.channels(1), open.clone().channels(3).chunk(together)];
    // Whole rows of a channel.
    let room = 16 * ll::PACKS as usize / together * together;
    if X::MAPS && room > 0 && wire_bytes <= 4 * room {
        all.push(open.clone().protocol(Protocol::Ll));
        all.push(open.protocol(Protocol::Ll).channels(wire_bytes.div_ceil(room).max(1) as u32));
    }
    all
}

/// As rows travel in one step, and in two: by one channel and by more, in turns of few rows.
pub(super) fn steps<X: Subject>(together: usize, wire_bytes: usize) -> Vec<LaunchOptions> {
    let twice = LaunchOptions::default().protocol(Protocol::TwoShot);
    let mut all = cuts::<X>(together, wire_bytes);
    all.extend([twice.clone(), twice.clone().channels(1).chunk(together), twice.channels(2)]);
    all
}

/// Launches once, and behind that by replays of a graph.
pub(super) fn again(
    stream: &Stream,
    graph: &mut Option<Graph>,
    call: usize,
    mut launch: impl FnMut() -> fusewire::Result<()>,
) -> fusewire::Result<()> {
    if call == 0 {
        return launch();
    }
    if graph.is_none() {
        *graph = Some(stream.capture(&mut launch)?);
    }
    graph.iter().try_for_each(|graph| graph.launch(stream))
}

/// The scale of each 128 elements.
pub(super) fn scales(values: &[f32]) -> Vec<f32> {
    let most = |group: &[f32]| group.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
    values.chunks(128).map(|group| (most(group) * (1.0 / 448.0)).max(f32::MIN_POSITIVE)).collect()
}

/// Values that went through 8-bit floats.
pub(super) fn through(values: &[f32], scales: &[f32]) -> Vec<f32> {
    make(values.len(), |i| through_e4m3(values[i] * (1.0 / scales[i / 128])) * scales[i / 128])
}

/// The sums of what each rank has.
pub(super) fn summed(of_ranks: &[Vec<f32>]) -> Vec<f32> {
    make(of_ranks[0].len(), |i| reference::tree(0, of_ranks.len(), &|rank| of_ranks[rank][i], &|a, b| a + b))
}

/// 8-bit floats with scales in both directions.
pub fn quantised<X: Subject>(rank: &Rank<X>) -> Outcome {
    const COLS: usize = 384;
    let ground = roomy(rank)?;
    let (me, ranks, stream) = (rank.me(), rank.size(), &ground.stream);
    let sums = AllReduceOf::<quantised_sums::Hooks>::all_reduce(&ground.transport)?;
    for rows in [1, 8, rank.scale.pick(75, 1999)] {
        let n = rows * COLS;
        // What an eager launch sends and what a replay sends, and what comes of it.
        let cases = [0, 1].map(|call| {
            let data = rank.data(10 * rows + call);
            let of_rank = |rank: usize| {
                let sent: Vec<f32> = make(n, |i| half(data, rank, i).to_f32());
                through(&sent, &scales(&sent))
            };
            let folded = summed(&(0..ranks).map(of_rank).collect::<Vec<_>>());
            let scale = scales(&folded);
            (make(n, |i| half(data, me, i)), through(&folded, &scale), scale)
        });
        for options in steps::<X>(8 * 400, rows * 400) {
            let options = options.elements(n);
            let mut input = ground.device.buffer::<Bf16>(n)?;
            let mut output = ground.device.buffer::<f32>(n)?;
            let mut scale = ground.device.buffer::<f32>(n / 128)?;
            let mut graph = None;
            for (call, (sent, want, wanted_scale)) in cases.iter().enumerate() {
                input.fill_from(sent)?;
                output.fill_bytes(stream, POISON)?;
                scale.fill_bytes(stream, POISON)?;
                again(stream, &mut graph, call, || {
                    let (output, scales) = (output.view_mut(), scale.view_mut());
                    let args = quantised_sums::Launch { input: input.view(), output, scales };
                    sums.launch_with(stream, args, &options)
                })?;
                let what = format!("{rows} rows, call {call}, {options:?}, rank {me}");
                same(format_args!("{what}: scales"), &scale.read(stream)?, |g| wanted_scale[g]);
                same(format_args!("{what}: sums"), &output.read(stream)?, |i| want[i]);
            }
        }
    }
    Ok(())
}

/// Rows that warps share, whose result takes half the room of what is sent. Each is taken once.
pub fn rounded_rows<X: Subject>(rank: &Rank<X>) -> Outcome {
    const COLS: usize = 2304;
    let ground = roomy(rank)?;
    let (me, ranks, stream) = (rank.me(), rank.size(), &ground.stream);
    let sums = AllReduceOf::<rounded_rows::Hooks>::all_reduce(&ground.transport)?;
    for rows in [1, 5, rank.scale.pick(29, 999)] {
        let n = rows * COLS;
        let data = rank.data(rows);
        let number = |data: Data, rank: usize, i: usize| half(data, rank, i).to_f32() * 1.125;
        let input = ground.device.buffer_from(&make(n, |i| number(data, me, i)))?;
        let of_ranks: Vec<Vec<f32>> = (0..ranks).map(|rank| make(n, |i| number(data, rank, i))).collect();
        let folded: Vec<f32> = summed(&of_ranks)
            .into_iter()
            .map(|sum| f32::from_bits(u32::from(reference::to_bf16(sum)) << 16))
            .collect();
        let most: Vec<f32> =
            folded.chunks(COLS).map(|row| row.iter().copied().fold(f32::MIN, f32::max)).collect();
        for options in steps::<X>(4 * COLS, 4 * n) {
            let options = options.elements(n);
            let mut output = ground.device.buffer::<f32>(n)?;
            output.fill_bytes(stream, POISON)?;
            let mut taken = ground.device.buffer_from(&vec![0_u32; rows])?;
            let mut graph = None;
            for call in 0..3 {
                again(stream, &mut graph, call, || {
                    let (output, taken) = (output.view_mut(), taken.view_mut());
                    sums.launch_with(
                        stream,
                        rounded_rows::Launch { input: input.view(), output, taken },
                        &options,
                    )
                })?;
            }
            let what = format!("{rows} rows, {options:?}, rank {me}");
            same(format_args!("{what}: sums"), &output.read(stream)?, |i| folded[i] - most[i / COLS]);
            same(format_args!("{what}: taken"), &taken.read(stream)?, |_| 3);
        }
    }
    Ok(())
}

/// Elements, around packs and of many times the staging.
pub fn rounded<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let (me, ranks, stream) = (rank.me(), rank.size(), &ground.stream);
    let means = AllReduceOf::<rounded::Hooks>::all_reduce(&ground.transport)?;
    let long = 2 * ground.window() + 7;
    for chunk in [1, 9, 130, rank.scale.pick(long, 300_001)] {
        let data = rank.data(chunk);
        let input = ground.device.buffer_from(&make(chunk, |i| half(data, me, i)))?;
        let of_ranks: Vec<Vec<f32>> =
            (0..ranks).map(|rank| make(chunk, |i| half(data, rank, i).to_f32())).collect();
        let want: Vec<f32> = summed(&of_ranks)
            .into_iter()
            .map(|sum| f32::from_bits(u32::from(reference::to_bf16(sum / ranks as f32)) << 16) + 1.0)
            .collect();
        for options in ways(&ground, What::AllReduce) {
            let mut output = ground.device.buffer::<f32>(chunk)?;
            output.fill_bytes(stream, POISON)?;
            let args = rounded::Launch { input: input.view(), output: output.view_mut() };
            means.launch_with(stream, args, &options)?;
            same(format_args!("{chunk}, {options:?}, rank {me}"), &output.read(stream)?, |i| want[i]);
        }
    }
    Ok(())
}
