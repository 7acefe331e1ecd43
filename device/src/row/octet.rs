//! Octets: eight elements of a row side by side, in one thread.

use crate::element::{Element, Float};
use crate::pack::{Pack, unroll};

/// Elements that lie in one lane side by side.
pub const OCTET: usize = 8;

/// The octet whose element `k` is `f(k)`.
#[inline(always)]
pub(super) fn of<T: Copy + Default>(f: impl Fn(usize) -> T) -> [T; OCTET] {
    let mut out = [T::default(); OCTET];
    unroll!(OCTET = 8, |K| out[K] = f(K));
    out
}

/// Bytes of the largest element of a row.
const MOST_SIZE: usize = 64;

/// Packs of an octet of the largest elements.
const MOST_PACKS: usize = OCTET * MOST_SIZE / 16;

/// Whether eight elements of so many bytes are whole packs, or two octets one.
pub(crate) const fn fits(size: usize) -> bool {
    size == 1 || size.is_multiple_of(2) && size <= MOST_SIZE
}

/// Packs of an octet of elements of more than one byte; of bytes two octets are one.
pub(super) const fn packs<T: Element>() -> usize {
    const { assert!(fits(T::SIZE), "elements of a row have one byte, or an even number of them up to 64") };
    OCTET * T::SIZE / 16
}

/// Whether a pack has whole elements, which shifts take out of its words. Others are taken as they lie in memory.
const fn is_number<T: Element>() -> bool {
    matches!(T::SIZE, 1 | 2 | 4 | 8)
}

/// Repeats `$body` for the packs of the largest octet.
macro_rules! each_of_many {
    (|$p:ident| $body:expr) => {
        unroll!(2, |HALF| {
            unroll!(16, |K| {
                const $p: usize = 16 * HALF + K;
                $body
            });
        });
    };
}

/// The octet that lies in these packs.
#[inline(always)]
pub(super) fn of_packs<T: Element>(pack: impl Fn(usize) -> Pack<T>) -> [T; OCTET] {
    if !is_number::<T>() {
        let mut words = [[0; 4]; MOST_PACKS];
        each_of_many!(|P| if P < packs::<T>() {
            words[P] = pack(P).words();
        });
        // SAFETY: no more bytes than there are words; any bits are elements.
        return unsafe { core::mem::transmute_copy(&words) };
    }
    let (mut out, lanes) = ([T::default(); OCTET], Pack::<T>::LANES);
    unroll!(4, |P| if P < packs::<T>() {
        let pack = pack(P);
        unroll!(OCTET = 8, |K| if K < lanes {
            out[(P * lanes + K) % OCTET] = pack.get(K % lanes);
        });
    });
    out
}

/// Hands each of those packs to `put`, with its number.
#[inline(always)]
pub(super) fn each_pack<T: Element>(octet: &[T; OCTET], put: impl Fn(usize, Pack<T>)) {
    if !is_number::<T>() {
        let mut words = [[0u32; 4]; MOST_PACKS];
        // SAFETY: no more bytes than there are words; an element has no padding.
        unsafe { words.as_mut_ptr().cast::<[T; OCTET]>().write_unaligned(*octet) };
        each_of_many!(|P| if P < packs::<T>() {
            put(P, Pack::from_words(words[P]));
        });
        return;
    }
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
    unroll!(OCTET = 8, |K| bytes |= octet[K].to_bits64() << (8 * K));
    bytes
}

/// `((0 1) (2 3)) ((4 5) (6 7))`.
#[inline(always)]
pub(super) fn folded<T: Copy>(x: &[T; OCTET], f: &impl Fn(T, T) -> T) -> T {
    f(f(f(x[0], x[1]), f(x[2], x[3])), f(f(x[4], x[5]), f(x[6], x[7])))
}

/// Each element becomes the fold of `before` and the elements in front of it.
#[inline(always)]
pub(super) fn scanned<T: Copy>(x: &[T; OCTET], before: T, f: &impl Fn(T, T) -> T) -> [T; OCTET] {
    // Up to each element, first; then what comes before is one further.
    let mut out = *x;
    unroll!(7, |K| out[K + 1] = f(out[K], x[K + 1]));
    unroll!(7, |K| out[7 - K] = f(before, out[6 - K]));
    out[0] = before;
    out
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
