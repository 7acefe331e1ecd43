use super::*;
use crate::ctx::Ctx;
use crate::element::{Bf16, F8E4M3, F8E5M2};
use crate::pack::Pack;
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The context of row `row` of a buffer of rows.
fn at<const N: usize, const S: usize>(row: usize, rows: usize) -> ConsumeRow<N, S> {
    let place = Ctx::of_chunk(0, N * rows, 1, N * rows);
    // SAFETY: one thread is the team.
    unsafe { ConsumeRow::new(RowAt::of(&place, row, N)) }
}

/// The tree as the module's documentation has it, over whatever is told of each element.
fn tree<T: Clone>(elements: &[T], nothing: &T, f: &dyn Fn(&T, &T) -> T) -> T {
    fn balanced<T: Clone>(all: &[T], f: &dyn Fn(&T, &T) -> T) -> T {
        match all {
            [one] => one.clone(),
            _ => {
                let (left, right) = all.split_at(all.len() / 2);
                f(&balanced(left, f), &balanced(right, f))
            }
        }
    }
    let lanes = lanes(elements.len()) as usize;
    let of_lane = |lane: usize| {
        let octets = elements.chunks(8).enumerate().filter(|(k, _)| k % lanes == lane);
        octets
            .map(|(_, octet)| balanced(octet, f))
            .reduce(|a, b| f(&a, &b))
            .unwrap_or_else(|| nothing.clone())
    };
    balanced(&(0..lanes).map(of_lane).collect::<Vec<_>>(), f)
}

macro_rules! each_length {
    ($f:ident($arg:expr): $($n:literal)*) => { $( $f::<$n, { slots($n) }>($arg); )* };
}

fn reduces<const N: usize, const S: usize>(seed: u32) {
    let value = |k: usize| {
        let bits = (k as u32 ^ seed).wrapping_mul(0x9e37_79b9);
        ((bits >> 8) as f32 / (1 << 24) as f32 - 0.5) * (1 << (bits % 20)) as f32
    };
    let (row, ctx) = (Row::<f32, N, S>::from_fn(value), at::<N, S>(0, 1));
    let all: Vec<f32> = (0..N).map(value).collect();
    let sum = tree(&all, &-0.0, &|a, b| a + b);
    assert_eq!(row.sum(&ctx).to_bits(), sum.to_bits(), "{N} elements, seed {seed}");
    assert_eq!(row.max(&ctx), all.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    assert_eq!(row.min(&ctx), all.iter().copied().fold(f32::INFINITY, f32::min));
    // Not commutative: left stays left.
    let left = row.reduce(&ctx, f32::INFINITY, |a, b| if a == f32::INFINITY { b } else { a });
    assert_eq!(left, all[0]);
}

#[test]
fn a_row_is_reduced_by_the_tree_that_is_documented() {
    for seed in [1, 77, 0xdead_beef] {
        each_length!(reduces(seed): 16 48 256 272 1024 2048 2064 4096 7168 16384);
    }
}

/// Through the packs that cross the wire.
fn crossed<R: RowWire>(row: &R) -> R {
    let packs = RefCell::new(BTreeMap::new());
    row.hand(&|pack, value| assert!(packs.borrow_mut().insert(pack, value).is_none(), "pack {pack} twice"));
    let packs = packs.into_inner();
    assert_eq!(packs.keys().copied().collect::<Vec<_>>(), (0..R::PACKS as u32).collect::<Vec<_>>());
    R::take(&|pack| packs[&pack])
}

fn crosses<const N: usize, const S: usize>(seed: u64) {
    fn of<T: Element, const N: usize, const S: usize>(seed: u64) {
        let row = Row::<T, N, S>::from_fn(|k| {
            T::from_bits64((k as u64 + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15))
        });
        let bits =
            |row: &Row<T, N, S>| -> Vec<u64> { row.octets.iter().flatten().map(|x| x.to_bits64()).collect() };
        assert_eq!(bits(&crossed(&row)), bits(&row), "{N} of {}", T::NAME);
        // As elements lie in a flat buffer, so that the other end may take packs.
        row.hand(&|pack, value: Pack<T>| {
            let first = pack as usize * Pack::<T>::LANES;
            value.for_each(|k, x| assert_eq!(x.to_bits64(), bits(&row)[first + k]));
        });
    }
    of::<u8, N, S>(seed);
    of::<Bf16, N, S>(seed);
    of::<u32, N, S>(seed);
    of::<u64, N, S>(seed);
}

crate::element! {
    /// Of 12 bytes.
    pub struct Point {
        pub at: [f32; 3],
    }
}
crate::element! {
    /// Of 22 bytes.
    pub struct Mixed {
        pub half: [u16; 10],
        pub bytes: [u8; 2],
    }
}
crate::element! {
    /// Of 16 bytes.
    pub struct Pair {
        pub both: [u64; 2],
    }
}
crate::element! {
    /// Of 64 bytes.
    pub struct Line {
        pub words: [u32; 16],
    }
}

#[test]
fn structs_that_packs_do_not_hold_cross_as_they_lie() {
    fn of<T: Element, const N: usize, const S: usize>(value: impl Fn(usize) -> T + Sync) {
        let row = Row::<T, N, S>::from_fn(&value);
        let all: Vec<T> = row.octets.iter().flatten().copied().collect();
        assert_eq!(all, (0..N).map(&value).collect::<Vec<_>>(), "{}", T::NAME);
        assert_eq!(crossed(&row).octets, row.octets, "{}", T::NAME);
        // SAFETY: elements have no padding.
        let bytes = unsafe { core::slice::from_raw_parts(all.as_ptr().cast::<u8>(), size_of_val(&all[..])) };
        row.hand(&|pack, value: Pack<T>| {
            let words = value.words().map(u32::to_le_bytes);
            assert_eq!(words.as_flattened(), &bytes[16 * pack as usize..][..16], "{}", T::NAME);
        });
    }
    of::<Point, 48, { slots(48) }>(|k| Point { at: [k as f32, -1.0, 0.5 * k as f32] });
    of::<Mixed, 16, { slots(16) }>(|k| Mixed { half: [k as u16; 10], bytes: [1, k as u8] });
    of::<Pair, 32, { slots(32) }>(|k| Pair { both: [k as u64, !k as u64] });
    of::<Line, 1040, { slots(1040) }>(|k| Line { words: core::array::from_fn(|w| (k << 8 | w) as u32) });
}

#[test]
fn rows_cross_as_their_elements_lie() {
    each_length!(crosses(3): 16 48 512 2064);
}

fn scaled<
    T: Narrow,
    F: Scale + PartialEq + core::fmt::Debug,
    const G: usize,
    const N: usize,
    const S: usize,
>(
    seed: u32,
) {
    let value = |k: usize| {
        let bits = (k as u32 ^ seed).wrapping_mul(0x9e37_79b9);
        // A group of zeros, and groups of very different sizes.
        let size = [0.0, 1e-3, 1.0, 3e4][k / G % 4];
        (bits as f32 / u32::MAX as f32 - 0.5) * size
    };
    let (row, ctx) = (Row::<f32, N, S>::from_fn(value), at::<N, S>(0, 1));
    let scaled = crossed(&row.quantise::<T, F, G>(&ctx));
    let numbers = scaled.dequantise();
    for group in 0..N / G {
        let most = (group * G..(group + 1) * G).map(|k| value(k).abs()).fold(0.0, f32::max);
        let scale = F::at_least(most * (1.0 / T::MOST));
        for k in group * G..(group + 1) * G {
            let expected = T::from_f32(value(k) * (1.0 / scale.to_f32())).to_f32() * scale.to_f32();
            let found = numbers.octets[k / 8][k % 8];
            assert_eq!(found.to_bits(), expected.to_bits(), "element {k} of {N}, groups of {G}");
            // No greater error than half a step of the greatest.
            assert!((found - value(k)).abs() <= most / 8.0, "{found} for {}", value(k));
        }
    }
}

#[test]
fn scales_are_those_of_their_groups() {
    for seed in [5, 1234] {
        scaled::<F8E4M3, f32, 128, 4096, { slots(4096) }>(seed);
        scaled::<F8E4M3, f32, 32, 16384, { slots(16384) }>(seed);
        scaled::<F8E5M2, f32, 64, 192, { slots(192) }>(seed);
        scaled::<F8E4M3, Ue8m0, 32, 2048, { slots(2048) }>(seed);
        scaled::<F8E4M3, Ue8m0, 256, 768, { slots(768) }>(seed);
    }
}

#[test]
fn groups_that_are_no_numbers_come_out_as_none() {
    const S: usize = slots(256);
    for bad in [f32::NAN, f32::INFINITY] {
        let row = Row::<f32, 256, S>::from_fn(|k| if k == 40 { bad } else { k as f32 });
        let numbers = row.quantise::<F8E4M3, f32, 32>(&at(0, 1)).dequantise();
        let powers = row.quantise::<F8E4M3, Ue8m0, 32>(&at(0, 1)).dequantise();
        for (k, (a, b)) in numbers.octets.iter().flatten().zip(powers.octets.iter().flatten()).enumerate() {
            assert_eq!((a.is_nan(), b.is_nan()), (k / 32 == 1, k / 32 == 1), "element {k}: {a}, {b}");
        }
    }
}

proptest! {
    #[test]
    fn a_power_of_two_is_the_next_one(bits in 0u32..0x7f80_0000) {
        let least = f32::from_bits(bits);
        let scale = Ue8m0::at_least(least).to_f32();
        prop_assert!(scale >= least || least > 2f32.powi(127));
        prop_assert!(scale / 2.0 < least || scale == f32::MIN_POSITIVE);
        prop_assert_eq!(scale.to_bits() & 0x7f_ffff, 0);
    }
}

#[repr(align(16))]
struct Aligned<T, const N: usize>([T; N]);

#[test]
fn rows_are_where_their_index_says() {
    const S: usize = slots(32);
    let input: Aligned<u16, 128> = Aligned(core::array::from_fn(|k| k as u16));
    let input = &input.0[..];
    let ctx = at::<32, S>(2, 4);
    let of = |row: Row<u16, 32, S>| row.octets.into_iter().flatten().collect::<Vec<_>>();
    assert_eq!(of(input.row(&ctx)), input[64..96]);
    assert_eq!(of(input.row_at(&ctx, 1)), input[32..64]);
    assert_eq!(of(input.each_row(&ctx)), input[..32]);
    let groups = input.groups::<32, 32, S>(&ctx);
    assert_eq!(groups.values, [input[2]; 4]);
    assert_eq!(Row::<usize, 32, S>::from_fn(|k| k).map_at(|k, x| k + x).octets[1][7], 30);
}

#[test]
#[should_panic(expected = "input ends before this row")]
fn a_row_behind_the_end_is_refused() {
    let _: Row<u64, 16, { slots(16) }> = Aligned([0u64; 31]).0[..].row(&at(1, 2));
}

/// Of integers in any order; of floats in one that lanes and warps would have.
fn scans<const N: usize, const S: usize>() {
    let ctx = at::<N, S>(0, 1);
    let value = |k: usize| (k as u32).wrapping_mul(0x9e37_79b9) >> 7;
    let found = Row::<u32, N, S>::from_fn(value).scan(&ctx, 0, u32::wrapping_add);
    let mut before = 0u32;
    for (k, found) in found.octets.iter().flatten().enumerate() {
        assert_eq!(*found, before, "element {k} of {N}");
        before = before.wrapping_add(value(k));
    }
    // Neither is the order of two to be changed: the last of those before that is not zero.
    let value = |k: usize| if k % 37 == 5 { k as u32 } else { 0 };
    let last = |a, b| if b != 0 { b } else { a };
    let found = Row::<u32, N, S>::from_fn(value).scan(&ctx, 0, last);
    for (k, found) in found.octets.iter().flatten().enumerate() {
        assert_eq!(*found, (0..k).rev().map(value).find(|x| *x != 0).unwrap_or(0), "element {k} of {N}");
    }
}

#[test]
fn each_element_has_what_stands_before_it() {
    scans::<16, { slots(16) }>();
    scans::<80, { slots(80) }>();
    scans::<256, { slots(256) }>();
    scans::<1040, { slots(1040) }>();
    scans::<4112, { slots(4112) }>();
    scans::<16384, { slots(16384) }>();
}
