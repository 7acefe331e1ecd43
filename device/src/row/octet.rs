//! Octets: eight elements of a row side by side, in one thread.

use crate::element::{Element, Float};
use crate::pack::{Pack, unroll};

/// Elements that lie in one lane side by side.
pub const OCTET: usize = 8;

/// The octet whose element `k` is `f(k)`.
#[inline(always)]
pub(super) fn of<T: Copy + Default>(f: impl Fn(usize) -> T) -> [T; OCTET] {
    let mut out = [T::default(); OCTET];
    unroll!(OCTET, |K| out[K] = f(K));
    out
}

/// Packs of an octet of elements of more than one byte; of bytes two octets are one.
pub(super) const fn packs<T: Element>() -> usize {
    const { assert!(matches!(T::SIZE, 1 | 2 | 4 | 8), "rows are of elements of 1, 2, 4 or 8 bytes") };
    OCTET * T::SIZE / 16
}

/// The octet that lies in these packs.
#[inline(always)]
pub(super) fn of_packs<T: Element>(pack: impl Fn(usize) -> Pack<T>) -> [T; OCTET] {
    let (mut out, lanes) = ([T::default(); OCTET], Pack::<T>::LANES);
    unroll!(4, |P| if P < packs::<T>() {
        let pack = pack(P);
        unroll!(OCTET, |K| if K < lanes {
            out[(P * lanes + K) % OCTET] = pack.get(K % lanes);
        });
    });
    out
}

/// Hands each of those packs to `put`, with its number.
#[inline(always)]
pub(super) fn each_pack<T: Element>(octet: &[T; OCTET], put: impl Fn(usize, Pack<T>)) {
    unroll!(4, |P| if P < packs::<T>() {
        put(P, Pack::from_fn(|k| octet[(P * Pack::<T>::LANES + k) % OCTET]));
    });
}

/// The octet of these bytes.
#[inline(always)]
pub(super) fn of_bytes<T: Element>(bytes: u64) -> [T; OCTET] {
    of(|k| T::from_bits64(bytes >> (8 * k) & 0xff))
}

/// Its bytes, of elements of one.
#[inline(always)]
pub(super) fn bytes<T: Element>(octet: &[T; OCTET]) -> u64 {
    let mut bytes = 0;
    unroll!(OCTET, |K| bytes |= octet[K].to_bits64() << (8 * K));
    bytes
}

/// `((0 1) (2 3)) ((4 5) (6 7))`.
#[inline(always)]
pub(super) fn folded<T: Copy>(x: &[T; OCTET], f: &impl Fn(T, T) -> T) -> T {
    f(f(f(x[0], x[1]), f(x[2], x[3])), f(f(x[4], x[5]), f(x[6], x[7])))
}

/// By packs, whose elements are converted two at a time.
#[inline(always)]
pub(super) fn widened<T: Float>(x: &[T; OCTET]) -> [f32; OCTET] {
    if Pack::<T>::LANES < OCTET {
        return x.map(T::to_f32);
    }
    let values = Pack::<T>::from_fn(|k| if k < OCTET { x[k] } else { T::default() }).to_f32s();
    of(|k| values[k])
}

/// The same the other way, rounded.
#[inline(always)]
pub(super) fn narrowed<T: Float>(x: &[f32; OCTET]) -> [T; OCTET] {
    if Pack::<T>::LANES < OCTET {
        return x.map(T::from_f32);
    }
    let pack = Pack::<T>::from_f32s(|k| if k < OCTET { x[k] } else { 0.0 });
    of(|k| pack.get(k))
}
