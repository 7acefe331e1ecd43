//! The bits of a sum: whichever way it goes, wherever it begins, whoever is late, and however often it is replayed.
//!
//! Every two choices of two lists stand side by side in some launch. With `FUSEWIRE_TEST_MATRIX=whole` every combination of what decides how a launch is
//! cut does, and graphs are replayed a thousand times.

use super::folds::{All, What};
use super::support::POISON;
use crate::check::same;
use crate::data::Data;
use crate::kernels::folds::{summed, totals};
use crate::run::Ground;
use crate::{
    AllReduceOf, Outcome, Rank, ReduceOf, ReduceScatterOf, Subject, pairs,
    reference::{self, small_float, to_small_float},
};
use fusewire::device::prelude::*;
use fusewire::kernel::HookSet;
use fusewire::{LaunchOptions, Protocol, View, ViewMut};
use std::time::Duration;

/// Worlds of the whole matrix.
pub const WORLDS: [usize; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 16];

/// Whether all combinations are asked for.
///
/// # Panics
/// If `FUSEWIRE_TEST_MATRIX` says something else.
pub fn whole() -> bool {
    match std::env::var("FUSEWIRE_TEST_MATRIX").as_deref() {
        Ok("whole") => true,
        Ok("pairs") | Err(_) => false,
        Ok(other) => panic!("FUSEWIRE_TEST_MATRIX=`{other}`: it is `whole`, or `pairs` as by default"),
    }
}

/// Element types, as the reference knows them.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Format {
    F32,
    F16,
    Bf16,
    E4m3,
    I32,
}

impl Format {
    /// A value of a middling magnitude, whose sums round and do not overflow. Of e4m3 they saturate.
    fn code(self, bits: u64) -> u64 {
        let (more, sign) = (bits >> 40, bits & 1);
        match self {
            Format::F32 => bits & 0x7f_ffff | (117 + more % 20) << 23 | sign << 31,
            Format::Bf16 => bits & 0x7f | (117 + more % 20) << 7 | sign << 15,
            Format::F16 => bits & 0x3ff | (more % 20) << 10 | sign << 15,
            Format::E4m3 => bits & 7 | (more % 15) << 3 | sign << 7,
            Format::I32 => bits & 0xffff_ffff,
        }
    }

    fn value(self, code: u64) -> f32 {
        let signed = |bits: u32, magnitude: f64| {
            if code >> (bits - 1) & 1 == 1 { -magnitude as f32 } else { magnitude as f32 }
        };
        match self {
            Format::F32 => f32::from_bits(code as u32),
            Format::Bf16 => f32::from_bits((code as u32) << 16),
            Format::F16 => signed(16, small_float::<5, 10>(code as u32 & 0x7fff)),
            Format::E4m3 => signed(8, small_float::<4, 3>(code as u32 & 0x7f)),
            Format::I32 => unreachable!("integers are no floats"),
        }
    }

    /// What the ranks' codes sum up to.
    fn sum(self, ranks: usize, code: &impl Fn(usize) -> u64) -> u64 {
        if self == Format::I32 {
            return u64::from((0..ranks).fold(0u32, |sum, rank| sum.wrapping_add(code(rank) as u32)));
        }
        let sum = reference::tree(0, ranks, &|rank| self.value(code(rank)), &|a, b| a + b);
        u64::from(match self {
            Format::F32 | Format::I32 => sum.to_bits(),
            Format::Bf16 => u32::from(reference::to_bf16(sum)),
            Format::F16 => to_small_float::<5, 10>(sum, 0x7bff),
            Format::E4m3 => to_small_float::<4, 3>(sum, 0x7e),
        })
    }
}

/// What is launched once more for each of its calls.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Calls {
    Once,
    Eager,
    Replayed,
}

/// Who comes late to a call.
#[derive(Clone, Copy, Debug)]
enum Late {
    Nobody,
    OneRank,
    Everybody,
}

const FORMATS: [Format; 5] = [Format::F32, Format::F16, Format::Bf16, Format::E4m3, Format::I32];
const PROTOCOLS: [Option<Protocol>; 7] = [
    None,
    Some(Protocol::Simple),
    Some(Protocol::Ll),
    Some(Protocol::Ll128),
    Some(Protocol::TwoShot),
    Some(Protocol::Ll128TwoShot),
    Some(Protocol::Hierarchical),
];
/// Elements of a chunk: none, around packs and lines, and many times the staging of a channel.
const ELEMENTS: [usize; 9] = [0, 1, 7, 16, 33, 120, 1001, 4097, 30_011];
/// More of the whole matrix; the last ones on GPUs alone.
const LARGE: [usize; 3] = [300_001, 1 << 20, 16 << 20];
/// Elements before a view.
const OFFSETS: [usize; 4] = [0, 1, 5, 8];
const CHANNELS: [Option<u32>; 3] = [None, Some(1), Some(2)];
const CALLS: [Calls; 3] = [Calls::Once, Calls::Eager, Calls::Replayed];
const LATE: [Late; 3] = [Late::Nobody, Late::OneRank, Late::Everybody];
/// Elements behind a view.
const BEHIND: usize = 3;

/// One launch and its calls.
#[derive(Clone, Copy, Debug)]
struct Choice {
    format: Format,
    what: What,
    protocol: Option<Protocol>,
    elements: usize,
    offsets: [usize; 2],
    channels: Option<u32>,
    calls: Calls,
    late: Late,
}

/// Whether a transport has that way of that schedule, for so many elements by so many channels.
fn fits<X: Subject>(
    ground: &Ground<X>,
    schedule: usize,
    protocol: Option<Protocol>,
    elements: usize,
    channels: Option<u32>,
) -> bool {
    let carried = X::MAPS && (elements <= 4097 || elements <= 30_011 && channels.is_none());
    match protocol {
        Some(Protocol::Ll) => carried,
        Some(Protocol::Ll128) => carried && schedule < 2,
        Some(Protocol::TwoShot) => schedule > 0,
        Some(Protocol::Ll128TwoShot) => carried && schedule == 1,
        Some(Protocol::Hierarchical) => ground.in_domains(),
        _ => true,
    }
}

/// Sums of every type, by reduce-scatter, all-reduce and reduce.
pub fn sums<X: Subject>(rank: &Rank<X>) -> Outcome {
    sums_by(rank, &rank.small()?, &PROTOCOLS)
}

/// The same on a transport that is there, by some protocols.
pub(super) fn sums_by<X: Subject>(
    rank: &Rank<X>,
    ground: &Ground<X>,
    protocols: &[Option<Protocol>],
) -> Outcome {
    let mut rng = rank.rng();
    let floats = All::<X, summed::Hooks<f32>>::new(&ground.transport)?;
    let halves = All::<X, summed::Hooks<F16>>::new(&ground.transport)?;
    let brains = All::<X, summed::Hooks<Bf16>>::new(&ground.transport)?;
    let bytes = All::<X, summed::Hooks<F8E4M3>>::new(&ground.transport)?;
    let integers = All::<X, totals::Hooks>::new(&ground.transport)?;
    let mut elements = ELEMENTS.to_vec();
    elements.extend_from_slice(if whole() { &LARGE[..rank.scale.pick(1, 3)] } else { &[] });
    let decide = [FORMATS.len(), 3, protocols.len(), elements.len()];
    let fits = |row: &[usize]| {
        let channels = row.get(6).and_then(|choice| CHANNELS[*choice]);
        fits(ground, row[1], protocols[row[2]], elements[row[3]], channels)
    };
    let others = [OFFSETS.len(), OFFSETS.len(), CHANNELS.len(), CALLS.len(), LATE.len()];
    let rows: Vec<pairs::Row> = if whole() {
        // With those of the other lists in turn.
        let with = |(k, row): (usize, &pairs::Row)| {
            let others = others.iter().enumerate().map(|(list, choices)| (k + k / (7 + list)) % choices);
            let mut row: pairs::Row = row.iter().copied().chain(others).collect();
            row[6] = if fits(&row) { row[6] } else { 0 };
            row
        };
        pairs::all(&decide, fits).iter().enumerate().map(with).collect()
    } else {
        pairs::pairwise(&[&decide[..], &others].concat(), fits, &mut rng)
    };
    for (number, row) in rows.iter().enumerate() {
        let root = rng.within(0, rank.size() - 1);
        let choice = Choice {
            format: FORMATS[row[0]],
            what: [What::ReduceScatter, What::AllReduce, What::Reduce(root)][row[1]],
            protocol: protocols[row[2]],
            elements: elements[row[3]],
            offsets: [OFFSETS[row[4]], OFFSETS[row[5]]],
            channels: CHANNELS[row[6]],
            calls: CALLS[row[7]],
            late: LATE[row[8]],
        };
        let launch = Launch { rank, ground, choice, number };
        match choice.format {
            Format::F32 => launch.of::<_, f32>(&floats, |input, output| summed::Launch { input, output }),
            Format::F16 => launch.of::<_, F16>(&halves, |input, output| summed::Launch { input, output }),
            Format::Bf16 => launch.of::<_, Bf16>(&brains, |input, output| summed::Launch { input, output }),
            Format::E4m3 => launch.of::<_, F8E4M3>(&bytes, |input, output| summed::Launch { input, output }),
            Format::I32 => launch.of::<_, i32>(&integers, |input, output| totals::Launch { input, output }),
        }?;
    }
    Ok(())
}

struct Launch<'r, X> {
    rank: &'r Rank<X>,
    ground: &'r Ground<X>,
    choice: Choice,
    number: usize,
}

impl<X: Subject> Launch<'_, X> {
    /// Element `i` of `rank` in a call.
    fn code(&self, data: Data, rank: usize, i: usize) -> u64 {
        self.choice.format.code(data.bits(rank, i))
    }

    /// Comes as late as it is to.
    fn arrive(&self, data: Data) {
        let (me, ranks) = (self.rank.me(), self.rank.size());
        let late = |rank| Duration::from_micros(100 * data.below(rank, usize::MAX, 10) as u64);
        match self.choice.late {
            Late::OneRank if me == data.below(0, usize::MAX - 1, ranks) => std::thread::sleep(late(me)),
            Late::Everybody => std::thread::sleep(late(me)),
            _ => {}
        }
    }

    fn of<H: HookSet, T: Element>(
        &self,
        all: &All<X, H>,
        args: for<'a> fn(View<'a, T>, ViewMut<'a, T>) -> H::Args<'a>,
    ) -> Outcome
    where
        X: ReduceScatterOf<H> + AllReduceOf<H> + ReduceOf<H>,
    {
        const REPLAYS: usize = 3;
        let Launch { rank, ground, choice, number } = *self;
        let Choice { what, elements, offsets: [from, to], .. } = choice;
        let (me, ranks, stream) = (rank.me(), rank.size(), &ground.stream);
        // What a rank does not use may not be empty.
        let [inputs, outputs] = what.chunks(me, ranks).map(|chunks| (chunks * elements).max(1));
        let mut options = LaunchOptions::default().elements(elements);
        options.protocol = choice.protocol;
        if let Some(channels) = choice.channels {
            options = options.channels(channels);
        }
        let mut input = ground.device.buffer::<T>(from + inputs + BEHIND)?;
        let mut output = ground.device.buffer::<T>(to + outputs + BEHIND)?;
        let poison = T::from_bits64(u64::from_le_bytes([POISON; 8]));
        let calls = match choice.calls {
            Calls::Once => 1,
            Calls::Eager => 2,
            Calls::Replayed if whole() && elements <= 1001 => 1000,
            Calls::Replayed => REPLAYS,
        };
        let mut graph = None;
        for call in 0..calls {
            // Of many replays a hundred have one input.
            let same_input = if calls < 100 { 1 } else { 100 };
            let data = rank.data(1000 * number + call / same_input);
            if call % same_input == 0 {
                let all = crate::data::make(from + inputs + BEHIND, |i| {
                    T::from_bits64(self.code(data, me, i.wrapping_sub(from)))
                });
                input.copy_from(stream, &ground.device.buffer_from(&all)?)?;
            }
            output.fill_bytes(stream, POISON)?;
            self.arrive(rank.data(1000 * number + call));
            if graph.is_none() {
                let mut launch = || {
                    let output = output.view_mut().slice(to..to + outputs)?;
                    all.launch(ground, what, args(input.view().slice(from..from + inputs)?, output), &options)
                };
                match choice.calls {
                    Calls::Replayed => graph = Some(stream.capture(launch)?),
                    Calls::Once | Calls::Eager => launch()?,
                }
            }
            if let Some(graph) = &graph {
                graph.launch(stream)?;
            }
            let (got, part) = (output.read(stream)?, what.source(me) * elements);
            let received = what.chunks(me, ranks)[1] * elements;
            same(format_args!("{choice:?}, call {call}, at rank {me}"), &got, |i| {
                match i.checked_sub(to).filter(|i| *i < received) {
                    Some(i) => {
                        T::from_bits64(choice.format.sum(ranks, &|rank| self.code(data, rank, part + i)))
                    }
                    None => poison,
                }
            });
        }
        Ok(())
    }
}
