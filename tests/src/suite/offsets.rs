//! Views that begin anywhere: hooks get what stands there, and nothing beside an output is changed.

use super::support::POISON;
use crate::check::same;
use crate::kernels::copying::copy;
use crate::kernels::folds::summed;
use crate::kernels::hooks::{scale_add, tiles};
use crate::kernels::in_place::linked_in_place;
use crate::{AllReduceOf, AllToAllOf, Outcome, Rank, ReduceScatterOf, Subject, reference};
use fusewire::device::prelude::*;
use fusewire::kernel::HookSet;
use fusewire::{Buffer, LaunchOptions, Options, Protocol};

/// Elements before a view, and behind it.
const BEFORE: [usize; 3] = [1, 3, 8];
const BEHIND: usize = 5;

/// Poison, and at `from` the values.
fn amid<T: Element>(poison: T, from: usize, values: &[T]) -> Vec<T> {
    let all = vec![poison; from].into_iter().chain(values.iter().copied());
    all.chain(vec![poison; BEHIND]).collect()
}

/// The ways that a transport has for every schedule, of chunks that lines carry.
fn ways<X: Subject>() -> Vec<LaunchOptions> {
    let by = |protocol| LaunchOptions::default().protocol(protocol);
    let mut ways =
        vec![LaunchOptions::default(), by(Protocol::Simple), by(Protocol::Simple).channels(1).chunk(256)];
    if X::MAPS {
        ways.extend([by(Protocol::Ll), by(Protocol::Ll128)]);
    }
    ways
}

/// Copies of narrow and of wide elements, by every way, into symmetric memory as well.
pub fn copies<X: Subject>(rank: &Rank<X>) -> Outcome {
    bytes_and_words::<X, u8>(rank)?;
    bytes_and_words::<X, u64>(rank)
}

fn bytes_and_words<X: Subject + AllToAllOf<copy::Hooks<T>>, T: Element>(rank: &Rank<X>) -> Outcome
where
    for<'a> copy::Hooks<T>: HookSet<Args<'a> = copy::Launch<'a, T>>,
{
    let ground = rank.meet(Options::per_peer(64 << 10).channels(8))?;
    let launcher = AllToAllOf::<copy::Hooks<T>>::all_to_all(&ground.transport)?;
    let (me, ranks, stream) = (rank.me(), rank.size(), &ground.stream);
    for (k, chunk) in [1, 16, 33, 1000].into_iter().enumerate() {
        let (n, data) = (chunk * ranks, rank.data(chunk));
        // Inputs may begin elsewhere on each rank, where nobody copies in bulk.
        let (from, own) = (BEFORE[k % 3], BEFORE[(k + me) % 3]);
        let inputs = [own, from]
            .map(|from| ground.device.buffer_from(&amid(T::default(), from, &data.all::<T>(me, n))));
        let [apart, alike] = inputs;
        let (apart, alike) = (apart?, alike?);
        let mut ordinary = ground.device.buffer::<T>(from + n + BEHIND)?;
        let mut symmetric = match X::MAPS {
            true => Buffer::<T>::symmetric(&ground.transport, from + n + BEHIND)?,
            false => ground.device.buffer::<T>(from + n + BEHIND)?,
        };
        let launch =
            |(input, at): (&Buffer<T>, usize), output: &mut Buffer<T>, options: &LaunchOptions| -> Outcome {
                output.fill_bytes(stream, POISON)?;
                let poison = output.read(stream)?[0];
                let view = output.view_mut().slice(from..from + n)?;
                let args = copy::Launch { input: input.view().slice(at..at + n)?, output: view };
                launcher.launch_with(stream, args, options)?;
                let about =
                    format!("{chunk} elements of {} from {from} on, {options:?}, at rank {me}", T::NAME);
                same(format_args!("{about}"), &output.read(stream)?, |i| match i.checked_sub(from) {
                    Some(i) if i < n => reference::all_to_all(me, chunk, i, |peer, at| data.any(peer, at)),
                    _ => poison,
                });
                Ok(())
            };
        for options in ways::<X>() {
            launch((&apart, own), &mut ordinary, &options)?;
        }
        let mut into = vec![LaunchOptions::default()];
        if X::MAPS {
            into.push(LaunchOptions::default().protocol(Protocol::Direct));
        }
        for options in into {
            launch((&alike, from), &mut symmetric, &options)?;
        }
    }
    Ok(())
}

/// Hooks by pack, by tiles, in place, and folds.
pub fn hooks<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let adds = AllToAllOf::<scale_add::Hooks>::all_to_all(&ground.transport)?;
    let turns = AllToAllOf::<tiles::Hooks>::all_to_all(&ground.transport)?;
    let sums = ReduceScatterOf::<summed::Hooks<Bf16>>::reduce_scatter(&ground.transport)?;
    let links = AllReduceOf::<linked_in_place::Hooks>::all_reduce(&ground.transport)?;
    let (me, ranks, stream) = (rank.me(), rank.size(), &ground.stream);
    for (k, (rows, cols)) in [(1, 9), (16, 8), (33, 65)].into_iter().enumerate() {
        let (from, chunk) = (BEFORE[k], rows * cols);
        let (n, data) = (ranks * chunk, rank.data(chunk));
        let floats: Vec<f32> = (0..n).map(|i| data.small(me, i)).collect();
        let floats = ground.device.buffer_from(&amid(f32::MAX, from, &floats))?;
        let half = |rank: usize, i: usize| Bf16::from_f32(data.small(rank, i));
        let halves: Vec<Bf16> = (0..n).map(|i| half(me, i)).collect();
        let halves = ground.device.buffer_from(&amid(Bf16::from_f32(1e9), from, &halves))?;
        let at = |i: usize, n: usize| i.checked_sub(from).filter(|i| *i < n);
        for options in ways::<X>() {
            let about = format!("{rows} x {cols} from {from} on, {options:?}, at rank {me}");
            let mut output = ground.device.buffer_from(&vec![1.0f32; from + n + BEHIND])?;
            let view = output.view_mut().slice(from..from + n)?;
            let args =
                scale_add::Launch { input: floats.view().slice(from..from + n)?, output: view, factor: 2.0 };
            adds.launch_with(stream, args, &options)?;
            same(format_args!("sums by pack, {about}"), &output.read(stream)?, |i| match at(i, n) {
                Some(i) => 1.0 + 2.0 * reference::all_to_all(me, chunk, i, |rank, i| data.small(rank, i)),
                None => 1.0,
            });

            let mut output = ground.device.buffer_from(&vec![half(0, 0); from + n + BEHIND])?;
            let view = output.view_mut().slice(from..from + n)?;
            let args = tiles::Launch { input: halves.view().slice(from..from + n)?, output: view };
            turns.launch_with(stream, args, &options.clone().shape(rows, cols))?;
            same(format_args!("tiles, {about}"), &output.read(stream)?, |i| match at(i, n) {
                // A chunk lies there as `cols` rows of `rows` elements.
                Some(i) => reference::all_to_all(me, chunk, i, |rank, i| {
                    let (start, pos) = (i / chunk * chunk, i % chunk);
                    reference::transposed(cols, rows, pos, |at| half(rank, start + at))
                }),
                None => half(0, 0),
            });

            let mut output = ground.device.buffer_from(&vec![half(0, 0); from + chunk + BEHIND])?;
            let view = output.view_mut().slice(from..from + chunk)?;
            let args = summed::Launch { input: halves.view().slice(from..from + n)?, output: view };
            sums.launch_with(stream, args, &options)?;
            let bits: Vec<u16> = output.read(stream)?.iter().map(|v| v.to_bits()).collect();
            same(format_args!("folds, {about}"), &bits, |i| match at(i, chunk) {
                Some(i) => reference::rounded_sum(ranks, &|rank| half(rank, me * chunk + i).to_f32()),
                None => half(0, 0).to_bits(),
            });

            if options.protocol == Some(Protocol::Simple) {
                continue;
            }
            let own = amid(7, from, &data.all::<u32>(me, chunk));
            let mut values = ground.device.buffer_from(&own)?;
            let by = ground.device.buffer_from(&vec![3u32; chunk + 1])?;
            let view = values.view_mut().slice(from..from + chunk)?;
            let args = linked_in_place::Launch { values: view, by: by.view().slice(1..)? };
            links.launch_with(stream, args, &options)?;
            same(format_args!("in place, {about}"), &values.read(stream)?, |i| match at(i, chunk) {
                Some(i) => {
                    let of = |rank| data.any::<u32>(rank, i).wrapping_add(3);
                    own[from + i].wrapping_mul(5).wrapping_add(reference::tree(
                        0,
                        ranks,
                        &of,
                        &reference::linked,
                    ))
                }
                None => 7,
            });
        }
    }
    Ok(())
}
