use super::*;
use crate::ctx::Ctx;
use core::cell::RefCell;
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

/// Numbers of folds: each is told what it was made of.
fn told() -> &'static std::sync::Mutex<Vec<String>> {
    static TOLD: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());
    &TOLD
}

fn name(text: String) -> u64 {
    let mut told = told().lock().unwrap();
    told.push(text);
    told.len() as u64 - 1
}

fn text(number: u64) -> String {
    told().lock().unwrap()[number as usize].clone()
}

struct Written;

impl Fold<u64> for Written {
    type Acc = u64;
    fn lift(value: u64) -> u64 {
        name(value.to_string())
    }
    fn fold(left: u64, right: u64) -> u64 {
        let (left, right) = (text(left), text(right));
        name(format!("({left} {right})"))
    }
}

/// The tree, by its definition.
fn reference(from: u32, to: u32) -> String {
    if to - from == 1 {
        return from.to_string();
    }
    let left = 1 << (to - from - 1).ilog2();
    format!("({} {})", reference(from, from + left), reference(from + left, to))
}

fn folded<F: Fold<u64, Acc = u64>>(ranks: u32) -> Vec<u64> {
    let taken = RefCell::new(Vec::new());
    let ctx = Consume(Ctx::of_chunk(0, 2, 1, 2).at(0, 2, true));
    let of = |first: u32, some: u32| {
        assert!(some >= 1 && some <= AHEAD as u32 && first + some <= ranks);
        Some(std::array::from_fn(|k| Pack::from_fn(|_| u64::from(first) + k as u64)))
    };
    assert!(each::<F, u64>(&ctx, ranks, &of, |_, value| taken.borrow_mut().push(value)));
    taken.into_inner()
}

#[test]
fn a_tree_is_the_one_of_its_definition() {
    for ranks in (1..=70).chain([MOST_RANKS, 128, 1000]) {
        for value in folded::<Written>(ranks) {
            assert_eq!(text(value), reference(0, ranks), "{ranks} ranks");
        }
    }
    assert_eq!(text(folded::<FromRankZero<Written>>(4)[0]), "(((0 1) 2) 3)");
}

/// What `run` gives of `len` elements, of which rank `r` contributes `value(r, i)`.
fn folded_run<F: Fold<W>, W: Element>(
    ranks: usize,
    len: usize,
    value: impl Fn(usize, usize) -> W,
) -> Vec<F::Acc> {
    let all: Vec<Vec<W>> = (0..ranks).map(|rank| (0..len + 1).map(|i| value(rank, i)).collect()).collect();
    let from: Vec<&[W]> = all.iter().map(Vec::as_slice).collect();
    let mut to = std::vec![F::Acc::default(); len];
    run::<F, W, F::Acc>(&from, &mut to, |folded| folded);
    to
}

#[test]
fn runs_are_folded_as_packs_are() {
    for ranks in (1..=70).chain([128, 1000]) {
        for value in folded_run::<Written, u64>(ranks, 2, |rank, _| rank as u64) {
            assert_eq!(text(value), reference(0, ranks as u32), "{ranks} ranks");
        }
    }
    for ranks in [4, 5] {
        let runs = folded_run::<FromRankZero<Written>, u64>(ranks, 1, |rank, _| rank as u64);
        assert_eq!(text(runs[0]), text(folded::<FromRankZero<Written>>(ranks as u32)[0]));
    }
    // Every element is of its own place, however many are folded together; and `finish` knows how many ranks there are.
    for (ranks, len) in [(2, 0), (3, 1), (2, 1000), (5, 255), (6, 256), (9, 1025)] {
        let of = |rank: usize, i: usize| (rank * i) as f32;
        let expected = (0..len).map(|i| (0..ranks).map(|rank| of(rank, i)).sum::<f32>() / ranks as f32);
        let runs = folded_run::<Average<f32>, f32>(ranks, len, of);
        assert!(runs.into_iter().eq(expected), "{len} elements of {ranks} ranks");
    }
}

#[test]
fn the_shipped_folds_are_what_their_names_say() {
    fn of<F: Fold<u64, Acc = u64>>() -> u64 {
        folded::<F>(6)[1]
    }
    assert_eq!([of::<Sum<u64>>(), of::<Product<u64>>()], [15, 0]);
    assert_eq!([of::<Min<u64>>(), of::<Max<u64>>()], [0, 5]);
    assert_eq!([of::<And<u64>>(), of::<Or<u64>>(), of::<Xor<u64>>()], [0, 7, 1]);
    assert_eq!(<Average<f32> as Fold<Bf16>>::finish(9.0, 4), 2.25);
    let nan = |x: f32| x.is_nan();
    assert!(nan(f32::NAN.lesser(1.0)) && nan(1f32.lesser(f32::NAN)));
    assert!(nan(f32::NAN.greater(1.0)) && nan(1f32.greater(f32::NAN)));
    for [a, b] in [[-0.0f32, 0.0], [0.0, -0.0]] {
        assert!(a.lesser(b).is_sign_negative() && a.greater(b).is_sign_positive());
    }
}

/// What `relay` gives of 3 ranks, of which each contributes `value(rank, k)`.
fn relayed<F: Fold<W>, W: Element, L: Element>(
    value: impl Fn(usize, usize) -> W,
    as_sent: impl Fn(F::Acc) -> L,
) -> Vec<L> {
    let packs = RefCell::new(Vec::new());
    let of = |_, _| Some(std::array::from_fn(|rank| Pack::from_fn(|k| value(rank, k))));
    assert!(relay::<F, W, L>(3, &of, as_sent, &|number, pack| {
        packs.borrow_mut().push(pack);
        assert_eq!(number + 1, packs.borrow().len());
    }));
    let packs = packs.into_inner();
    packs.iter().flat_map(|pack| (0..Pack::<L>::LANES).map(|k| pack.get(k))).collect()
}

#[test]
fn what_is_passed_on_is_every_element_in_its_place() {
    let bytes = |rank: usize, k: usize| (10 * rank + k) as u8;
    let sums = |lanes: usize| (0..lanes).map(|k| 30 + 3 * k as u32);
    assert_eq!(relays::<u8, u8>(), 1);
    assert!(relayed::<Sum<u32>, u8, u8>(bytes, |sum| sum as u8).into_iter().map(u32::from).eq(sums(16)));
    assert_eq!(relays::<u8, u64>(), 8);
    assert!(relayed::<Sum<u64>, u8, u64>(bytes, |sum| sum).into_iter().map(|sum| sum as u32).eq(sums(16)));
    let floats = |rank: usize, k: usize| Bf16::from_f32((10 * rank + k) as f32);
    let wide = relayed::<Sum<f32>, Bf16, f32>(floats, |sum| sum);
    assert!(wide.into_iter().map(|sum| sum as u32).eq(sums(8)));
    let narrow = relayed::<Sum<f32>, Bf16, Bf16>(floats, Settle::settle);
    assert!(narrow.into_iter().map(|sum| sum.to_f32() as u32).eq(sums(8)));
    assert_eq!((relays::<f64, f32>(), relays::<f32, f64>()), (0, 2));
    assert!(!relay::<Sum<u32>, u8, u8>(3, &|_, _| None, |sum| sum as u8, &|_, _| unreachable!()));
}

#[test]
fn bytes_are_folded_eight_at_a_time() {
    let taken = RefCell::new(Vec::new());
    let ctx = Consume(Ctx::of_chunk(0, 13, 1, 13).at(0, 13, false));
    let pack = |rank: usize| Pack::<u8>::from_fn(|k| (10 * rank + k) as u8);
    let of = |_, _| Some(std::array::from_fn(pack));
    let take = |ctx: &Consume, value| taken.borrow_mut().push((ctx.index(), value));
    assert!(each::<Sum<u32>, u8>(&ctx, 3, &of, take));
    let expected: Vec<_> = (0..13).map(|k| (k, 30 + 3 * k as u32)).collect();
    assert_eq!(*taken.borrow(), expected);
    // Of what does not come nothing is taken.
    assert!(!each::<Sum<u32>, u8>(&ctx, 3, &|_, _| None, take));
    assert_eq!(taken.into_inner(), expected);
}
