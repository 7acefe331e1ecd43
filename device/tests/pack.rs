//! Packs of all element types, against arrays of bytes.

use fusewire_device::{
    args::{Lent, RawSlice},
    element::{Bf16, Element, F8E4M3, F8E5M2, F16, Float},
    pack::Pack,
};
use proptest::prelude::*;

fn bytes_of<T: Element>(pack: Pack<T>) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (at, word) in bytes.chunks_exact_mut(4).zip(pack.words()) {
        at.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn pack_of<T: Element>(bytes: [u8; 16]) -> Pack<T> {
    let word = |k: usize| u32::from_le_bytes(bytes[4 * k..4 * k + 4].try_into().unwrap());
    Pack::from_words([word(0), word(1), word(2), word(3)])
}

/// Element `k` out of bytes, by hand.
fn element<T: Element>(bytes: &[u8; 16], k: usize) -> u64 {
    bytes[k * T::SIZE..(k + 1) * T::SIZE].iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte))
}

fn put(bytes: &mut [u8; 16], size: usize, k: usize, bits: u64) {
    bytes[k * size..(k + 1) * size].copy_from_slice(&bits.to_le_bytes()[..size]);
}

fn check<T: Element>(a: [u8; 16], b: [u8; 16]) {
    let lanes = Pack::<T>::LANES;
    assert_eq!(lanes * T::SIZE, 16);
    let (p, q) = (pack_of::<T>(a), pack_of::<T>(b));
    assert_eq!(bytes_of(p), a);
    for k in 0..lanes {
        assert_eq!(p.get(k).to_bits64(), element::<T>(&a, k), "{} get {k}", T::NAME);
    }
    let copy = Pack::<T>::from_fn(|k| T::from_bits64(element::<T>(&a, k)));
    assert_eq!(bytes_of(copy), a, "{} from_fn", T::NAME);

    // `with` replaces one element and no other.
    macro_rules! with {
        ($($k:literal)*) => {$( if $k < lanes {
            let mut want = a;
            put(&mut want, T::SIZE, $k, element::<T>(&b, $k));
            assert_eq!(bytes_of(p.with::<$k>(q.get($k))), want, "{} with {}", T::NAME, $k);
        } )*};
    }
    with!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);

    let flip = |v: T| T::from_bits64(!v.to_bits64());
    assert_eq!(bytes_of(p.map(flip)), a.map(|byte| !byte), "{} map", T::NAME);
    let xor = |x: T, y: T| T::from_bits64(x.to_bits64() ^ y.to_bits64());
    let want: Vec<u8> = a.iter().zip(b).map(|(x, y)| x ^ y).collect();
    assert_eq!(bytes_of(p.zip(q, xor)).to_vec(), want, "{} zip", T::NAME);

    let mut seen = Vec::new();
    p.for_each(|k, v| seen.push((k, v.to_bits64())));
    let want: Vec<_> = (0..lanes).map(|k| (k, element::<T>(&a, k))).collect();
    assert_eq!(seen, want, "{} for_each", T::NAME);

    let mut splat = a;
    (0..lanes).for_each(|k| put(&mut splat, T::SIZE, k, element::<T>(&a, 0)));
    assert_eq!(bytes_of(Pack::splat(p.get(0))), splat, "{} splat", T::NAME);
    assert_eq!(p == q, a == b);
    assert!(Pack::<T>::ZERO.words() == [0; 4]);
}

proptest! {
    #[test]
    fn packs_are_their_bytes(a in any::<[u8; 16]>(), b in any::<[u8; 16]>()) {
        check::<u8>(a, b);
        check::<u16>(a, b);
        check::<u32>(a, b);
        check::<u64>(a, b);
        check::<i8>(a, b);
        check::<i16>(a, b);
        check::<i32>(a, b);
        check::<i64>(a, b);
        check::<f32>(a, b);
        check::<f64>(a, b);
        check::<F16>(a, b);
        check::<Bf16>(a, b);
        check::<F8E4M3>(a, b);
        check::<F8E5M2>(a, b);
    }
}

#[test]
fn fp8_packs_survive_f32() {
    for base in (0..=255u8).step_by(16) {
        let bytes: [u8; 16] = std::array::from_fn(|k| base + k as u8);
        let pack = pack_of::<F8E4M3>(bytes).map(|v| F8E4M3::from_f32(v.to_f32()));
        // Both NaNs become the one.
        assert_eq!(bytes_of(pack), bytes.map(|byte| if byte == 0xff { 0x7f } else { byte }));
        let pack = pack_of::<F8E5M2>(bytes).map(|v| F8E5M2::from_f32(v.to_f32()));
        // Infinities saturate.
        let canonical = |byte: u8| match byte & 0x7f {
            0x7c => byte - 1,
            0x7d.. => 0x7f,
            _ => byte,
        };
        assert_eq!(bytes_of(pack), bytes.map(canonical));
    }
}

#[test]
#[should_panic]
fn there_is_no_element_past_the_last() {
    Pack::<f32>::ZERO.get(4);
}

/// Converted together as one by one.
fn floats<T: Float>(bytes: [u8; 16], values: [f32; 16]) {
    let (pack, lanes) = (pack_of::<T>(bytes), Pack::<T>::LANES);
    let wide = pack.to_f32s();
    for (k, value) in wide.iter().enumerate() {
        let want = if k < lanes { pack.get(k).to_f32() } else { 0.0 };
        assert_eq!(value.to_bits(), want.to_bits(), "{} to_f32s {k}", T::NAME);
    }
    let rounded = Pack::<T>::from_fn(|k| T::from_f32(values[k]));
    assert_eq!(Pack::<T>::from_f32s(|k| values[k]), rounded, "{} from_f32s of {values:?}", T::NAME);
    let mapped = Pack::<T>::from_fn(|k| T::from_f32(wide[k] * 3.0));
    assert_eq!(pack.map_f32(|v| v * 3.0), mapped, "{} map_f32", T::NAME);
    let sums = Pack::<T>::from_fn(|k| T::from_f32(wide[k] + mapped.get(k).to_f32()));
    assert_eq!(pack.zip_f32(mapped, |a, b| a + b), sums, "{} zip_f32", T::NAME);
}

proptest! {
    #[test]
    fn floats_convert_together_as_alone(bytes: [u8; 16], bits: [u32; 16]) {
        let values = bits.map(f32::from_bits);
        floats::<f32>(bytes, values);
        floats::<f64>(bytes, values);
        floats::<F16>(bytes, values);
        floats::<Bf16>(bytes, values);
        floats::<F8E4M3>(bytes, values);
        floats::<F8E5M2>(bytes, values);
    }
}

#[test]
fn codes_and_sizes_are_part_of_the_protocol() {
    fn row<T: Element>() -> (&'static str, u64, usize) {
        (T::NAME, T::CODE, T::SIZE)
    }
    let rows = [
        row::<u8>(),
        row::<u16>(),
        row::<u32>(),
        row::<u64>(),
        row::<i8>(),
        row::<i16>(),
        row::<i32>(),
        row::<i64>(),
        row::<f32>(),
        row::<f64>(),
        row::<F16>(),
        row::<Bf16>(),
        row::<F8E4M3>(),
        row::<F8E5M2>(),
    ];
    let sizes = [1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 2, 2, 1, 1];
    let names = "u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 F16 Bf16 F8E4M3 F8E5M2";
    for (k, (row, name)) in rows.iter().zip(names.split(' ')).enumerate() {
        assert_eq!(*row, (name, k as u64 + 1, sizes[k]));
    }
}

/// Of no elements there is an address all the same: a slice has one, and packs ask for its alignment.
#[test]
fn no_elements_are_a_slice() {
    let raw = RawSlice::<u64>::new(0, 0);
    assert!(raw.address() != 0 && raw.address().is_multiple_of(16));
    // SAFETY: no elements.
    assert!(unsafe { raw.slice(Lent::named()) }.is_empty());
    assert_eq!(RawSlice::<f32>::new(48, 1).address(), 48);
}
