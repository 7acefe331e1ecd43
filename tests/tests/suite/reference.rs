//! The references, against values worked out by hand.

use fusewire_tests::reference::{small_float, through_e4m3, to_bf16, transposed};

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
