//! Rows in one buffer: a row is stored to when all of it has been read, whoever is late, by every schedule that has that.

use super::in_place::{Launches, What, added, chain, launchers};
use super::results::{again, cuts, scales, steps, summed as sums, through};
use super::rows::{half, roomy};
use super::support::{misuse, works};
use crate::check::{same, says};
use crate::data::make;
use crate::kernels::in_place::{linked_rows, moved_rows, normed_in_place, quantised_in_place, summed_rows};
use crate::reference::RowTree;
use crate::{AllReduceOf, Outcome, Rank, ReduceScatterOf, Subject, reference};
use fusewire::device::prelude::*;
use fusewire::kernel::HookSet;
use fusewire::{LaunchOptions, Options, Protocol};

launchers!(All of moved_rows and linked_rows);

/// How rows of `together` bytes are launched in place: an all-reduce in two steps, or by LL.
fn ways<X: Subject>(what: What, together: usize, wire_bytes: usize) -> Vec<LaunchOptions> {
    if what != What::AllReduce {
        return cuts::<X>(together, wire_bytes);
    }
    let mut all = steps::<X>(together, wire_bytes);
    // One step is refused, and each of two has half of the channels.
    let ll = |options: &LaunchOptions| options.protocol == Some(Protocol::Ll);
    all.retain(|options| {
        options.protocol != Some(Protocol::Simple) && (ll(options) || options.channels.is_none_or(|n| n < 3))
    });
    all
}

/// What one call makes of all ranks' buffers of `rows` rows to a chunk.
fn step(what: What, rows: usize, before: &[Vec<u32>]) -> Vec<Vec<u32>> {
    const COLS: usize = 80;
    let (ranks, mut after) = (before.len(), before.to_vec());
    let sum = |row: &[u32]| row.iter().fold(0, |sum: u32, x| sum.wrapping_add(*x));
    let row = |rank: usize, part: usize, row: usize| &before[rank][(part * rows + row) * COLS..][..COLS];
    for (rank, buffer) in after.iter_mut().enumerate() {
        for (to, from) in what.stored(rank, ranks) {
            for number in 0..rows {
                let sent: Vec<Vec<u32>> = from
                    .iter()
                    .map(|(rank, part)| {
                        let row = row(*rank, *part, number);
                        let sum = sum(row);
                        (0..COLS)
                            .map(|col| row[col].wrapping_add(added(*rank, col)).wrapping_add(sum))
                            .collect()
                    })
                    .collect();
                let old = row(rank, to, number);
                let sum = sum(old);
                for col in 0..COLS {
                    let value = reference::tree(0, from.len(), &|k| sent[k][col], &reference::linked);
                    buffer[(to * rows + number) * COLS + col] =
                        old[col].wrapping_mul(5).wrapping_add(value) ^ sum;
                }
            }
        }
    }
    after
}

/// By every schedule, with work on both sides that goes through whole rows.
pub fn chained<X: Subject>(rank: &Rank<X>) -> Outcome {
    const COLS: usize = 80;
    let ground = roomy(rank)?;
    let all = All::new(&ground.transport)?;
    let by: Vec<u32> = (0..COLS).map(|col| added(rank.me(), col)).collect();
    for rows in [0, 1, 7, rank.scale.pick(19, 999)] {
        for what in What::every(rank.size()) {
            for (number, options) in ways::<X>(what, 2 * 4 * COLS, 4 * rows * COLS).into_iter().enumerate() {
                let cut = (number, &options);
                chain(rank, &ground, &all, (what, rows * COLS, &by), cut, |before| step(what, rows, before))?;
            }
        }
    }
    works(rank, &ground)
}

/// A sum, a residual and a norm, by rows that warps share.
pub fn normed<X: Subject>(rank: &Rank<X>) -> Outcome {
    normed_of::<X, f32>(rank)?;
    normed_of::<X, Bf16>(rank)
}

fn normed_of<X, T: Float>(rank: &Rank<X>) -> Outcome
where
    X: Subject + AllReduceOf<normed_in_place::Hooks<T>>,
    for<'a> normed_in_place::Hooks<T>: HookSet<Args<'a> = normed_in_place::Launch<'a, T>>,
{
    const COLS: usize = 2304;
    let ground = roomy(rank)?;
    let (me, ranks, stream) = (rank.me(), rank.size(), &ground.stream);
    let norms = AllReduceOf::<normed_in_place::Hooks<T>>::all_reduce(&ground.transport)?;
    let rounded = |x: f32| T::from_f32(x).to_f32();
    for rows in [1, 5, rank.scale.pick(21, 999)] {
        let n = rows * COLS;
        let data = rank.data(rows);
        let sent: Vec<Vec<f32>> = (0..ranks).map(|rank| make(n, |i| half(data, rank, i).to_f32())).collect();
        let start = make(n, |i| half(data, ranks, i).to_f32());
        let gamma = make(COLS, |i| half(data, ranks + 1, i).to_f32());
        let gamma_buffer = ground.device.buffer_from(&make(COLS, |i| T::from_f32(gamma[i])))?;
        // What a call makes of what ranks have, and of the residual.
        let call = |hidden: &[Vec<f32>], residual: &[f32]| {
            let folded = sums(hidden);
            let x = make(n, |i| folded[i] + residual[i]);
            let tree = RowTree { cols: COLS, nothing: -0.0, f: |a, b| a + b };
            let scale: Vec<f32> =
                x.chunks(COLS).map(|row| 1.0 / (tree.of(|k| row[k] * row[k]) / COLS as f32 + 1e-5)).collect();
            let norm = make(n, |i| rounded(x[i] * scale[i / COLS] * gamma[i % COLS]));
            (norm, x.into_iter().map(rounded).collect::<Vec<_>>())
        };
        let first = call(&sent, &start);
        let second = call(&vec![first.0.clone(); ranks], &first.1);
        for options in ways::<X>(What::AllReduce, T::SIZE * COLS, T::SIZE * n) {
            let options = options.elements(n);
            let mut hidden = ground.device.buffer_from(&make(n, |i| T::from_f32(sent[me][i])))?;
            let mut residual = ground.device.buffer_from(&make(n, |i| T::from_f32(start[i])))?;
            let mut graph = None;
            for (number, (norm, sum)) in [&first, &second].into_iter().enumerate() {
                again(stream, &mut graph, number, || {
                    let (hidden, residual) = (hidden.view_mut(), residual.view_mut());
                    let args = normed_in_place::Launch { hidden, residual, gamma: gamma_buffer.view() };
                    norms.launch_with(stream, args, &options)
                })?;
                let what = format!("{rows} rows of {}, call {number}, {options:?}, rank {me}", T::NAME);
                same(format_args!("{what}: norms"), &hidden.read(stream)?, |i| T::from_f32(norm[i]));
                same(format_args!("{what}: residuals"), &residual.read(stream)?, |i| T::from_f32(sum[i]));
            }
        }
    }
    works(rank, &ground)
}

/// 8-bit floats with scales in both directions.
pub fn quantised<X: Subject>(rank: &Rank<X>) -> Outcome {
    const COLS: usize = 384;
    let ground = roomy(rank)?;
    let (me, ranks, stream) = (rank.me(), rank.size(), &ground.stream);
    let all_reduce = AllReduceOf::<quantised_in_place::Hooks>::all_reduce(&ground.transport)?;
    for rows in [1, 8, rank.scale.pick(35, 1999)] {
        let n = rows * COLS;
        let data = rank.data(rows);
        let value = |rank: usize, i: usize| F16::from_f32(half(data, rank, i).to_f32() / 1024.0);
        let call = |before: &[Vec<f32>]| {
            let sent = |values: &Vec<f32>| through(values, &scales(values));
            let folded = sums(&before.iter().map(sent).collect::<Vec<_>>());
            let taken = through(&folded, &scales(&folded));
            make(n, |i| F16::from_f32(taken[i]).to_f32())
        };
        let first = call(&(0..ranks).map(|rank| make(n, |i| value(rank, i).to_f32())).collect::<Vec<_>>());
        let second = call(&vec![first.clone(); ranks]);
        for options in ways::<X>(What::AllReduce, 8 * 400, rows * 400) {
            let options = options.elements(n);
            let mut values = ground.device.buffer_from(&make(n, |i| value(me, i)))?;
            let mut graph = None;
            for (number, wanted) in [&first, &second].into_iter().enumerate() {
                again(stream, &mut graph, number, || {
                    let args = quantised_in_place::Launch { values: values.view_mut() };
                    all_reduce.launch_with(stream, args, &options)
                })?;
                let what = format!("{rows} rows, call {number}, {options:?}, rank {me}");
                same(format_args!("{what}"), &values.read(stream)?, |i| F16::from_f32(wanted[i]));
            }
        }
    }
    works(rank, &ground)
}

/// Without `consume`: sums that are rounded where they are stored.
pub fn summed<X: Subject>(rank: &Rank<X>) -> Outcome {
    summed_of::<X, f32>(rank)?;
    summed_of::<X, F16>(rank)?;
    summed_of::<X, F8E4M3>(rank)
}

fn summed_of<X, T: Float>(rank: &Rank<X>) -> Outcome
where
    X: Subject + AllReduceOf<summed_rows::Hooks<T>> + ReduceScatterOf<summed_rows::Hooks<T>>,
    for<'a> summed_rows::Hooks<T>: HookSet<Args<'a> = summed_rows::Launch<'a, T>>,
{
    const COLS: usize = 64;
    let ground = roomy(rank)?;
    let (me, ranks, stream) = (rank.me(), rank.size(), &ground.stream);
    let whole = AllReduceOf::<summed_rows::Hooks<T>>::all_reduce(&ground.transport)?;
    let parts = ReduceScatterOf::<summed_rows::Hooks<T>>::reduce_scatter(&ground.transport)?;
    // Rows that are whole lines.
    let together = (T::SIZE * COLS).max(128);
    for rows in [1, 9, rank.scale.pick(75, 2001)] {
        let (chunk, data) = (rows * COLS, rank.data(rows));
        let value = |rank: usize, i: usize| T::from_f32(data.small(rank, i));
        let sum =
            |i: usize| T::from_f32(reference::tree(0, ranks, &|rank| value(rank, i).to_f32(), &|a, b| a + b));
        for what in [What::AllReduce, What::ReduceScatter] {
            let (n, folds) = (chunk * what.chunks(me, ranks), what == What::AllReduce);
            for options in ways::<X>(what, together, T::SIZE * chunk) {
                let mut values = ground.device.buffer_from(&make(n, |i| value(me, i)))?;
                let args = summed_rows::Launch { values: values.view_mut() };
                match folds {
                    true => whole.launch_with(stream, args, &options)?,
                    false => parts.launch_with(stream, args, &options)?,
                }
                let about = format!("{what:?} of {rows} rows of {}, {options:?}, at rank {me}", T::NAME);
                same(format_args!("{about}"), &values.read(stream)?, |i| {
                    if folds || i / chunk == me { sum(i) } else { value(me, i) }
                });
            }
        }
    }
    works(rank, &ground)
}

/// A protocol that would store to a row that it has not read, and buffers that are no whole rows.
pub fn refused<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = roomy(rank)?;
    let (ranks, stream) = (rank.size(), &ground.stream);
    let whole = AllReduceOf::<summed_rows::Hooks<f32>>::all_reduce(&ground.transport)?;
    let parts = ReduceScatterOf::<summed_rows::Hooks<f32>>::reduce_scatter(&ground.transport)?;
    let mut values = ground.device.buffer::<f32>(64 * ranks + 64)?;
    let open = LaunchOptions::default();
    let simple = open.clone().protocol(Protocol::Simple);
    let args = summed_rows::Launch { values: values.view_mut() };
    let in_one_step = misuse(whole.launch_with(stream, args, &simple));
    says(in_one_step, &["in place (`InOut`)", "name one of `", "`TwoShot`"]);
    let args = summed_rows::Launch { values: values.view_mut().slice(1..65)? };
    let off = misuse(whole.launch(stream, args));
    says(off, &["buffer `values` begins 4 bytes past a multiple of 16", "works by rows"]);
    let args = summed_rows::Launch { values: values.view_mut().slice(..80)? };
    says(misuse(whole.launch(stream, args)), &["a chunk of 80 elements is no whole number of rows of 64"]);
    let args = summed_rows::Launch { values: values.view_mut().slice(..64 * ranks + 1)? };
    says(misuse(parts.launch(stream, args)), &[&format!("cut into {ranks} equal chunks")]);
    if X::MAPS {
        // What LL does not carry goes in two steps.
        let few = rank.meet(Options::per_peer(1 << 20).channels(4).ll_channels(1))?;
        let whole = AllReduceOf::<summed_rows::Hooks<f32>>::all_reduce(&few.transport)?;
        let mut values = few.device.buffer::<f32>(1 << 17)?;
        let args = summed_rows::Launch { values: values.view_mut() };
        let long = misuse(whole.launch_with(&few.stream, args, &open.protocol(Protocol::Ll)));
        says(long, &["LL carries at most", "use `Protocol::TwoShot`, or more `Options::ll_channels`"]);
    }
    works(rank, &ground)
}
