//! The references, against values worked out by hand; and rows of choices.

use fusewire::device::element::{Bf16, Element, F8E4M3, F16, Float};
use fusewire_tests::data::{Rng, seed};
use fusewire_tests::pairs::{Row, all, pairs, pairwise};
use fusewire_tests::reference::{small_float, through_e4m3, to_bf16, to_small_float, transposed};
use std::collections::HashSet;

#[test]
fn small_floats_are_those_of_the_standard() {
    assert_eq!(small_float::<4, 3>(0x7e), 448.0);
    assert_eq!(small_float::<4, 3>(0x01), 2f64.powi(-9));
    assert_eq!((through_e4m3(1.0625), through_e4m3(-500.0), through_e4m3(0.3)), (1.0, -448.0, 0.3125));
    assert_eq!((to_bf16(1.0), to_bf16(1.0 + 2f32.powi(-8)), to_bf16(-3.0)), (0x3f80, 0x3f80, 0xc040));
}

#[test]
fn transposing_twice_is_nothing() {
    let matrix: Vec<usize> = (0..15).collect();
    let once: Vec<usize> = (0..15).map(|pos| transposed(3, 5, pos, |i| matrix[i])).collect();
    assert_eq!(&once[..4], [0, 5, 10, 1]);
    assert!((0..15).all(|pos| transposed(5, 3, pos, |i| once[i]) == pos));
}

#[test]
fn it_rounds_as_the_element_types_do() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    for _ in 0..20_000 {
        let bits = rng.bits();
        // From halves of what e4m3 has to what it saturates at.
        let value = f32::from_bits(bits as u32 & 0x807f_ffff | (115 + (bits >> 40) as u32 % 25) << 23);
        let same = |ours: u32, theirs: u64| assert_eq!(u64::from(ours), theirs, "{value:e}, seed {seed}");
        same(to_small_float::<5, 10>(value, 0x7bff), F16::from_f32(value).to_bits64());
        same(to_small_float::<4, 3>(value, 0x7e), F8E4M3::from_f32(value).to_bits64());
        same(to_bf16(value).into(), Bf16::from_f32(value).to_bits64());
    }
}

#[test]
fn few_rows_have_every_pair_that_may_be() {
    let (lists, may) = ([5, 4, 3, 3, 2, 2], |row: &[usize]| row[0] != 2 || row[1] == 1);
    for seed in 0..20 {
        let (all, few) = (all(&lists, may), pairwise(&lists, may, &mut Rng::new(seed)));
        assert!(few.iter().all(|row| all.contains(row)), "seed {seed}");
        let of = |rows: &[Row]| rows.iter().flat_map(|row| pairs(row)).collect::<HashSet<_>>();
        assert_eq!(of(&few), of(&all), "seed {seed}");
        assert!(few.len() < 40 && all.len() > 500, "{} of {}", few.len(), all.len());
    }
}
