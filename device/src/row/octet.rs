//! Octets: eight elements of a row side by side, in one thread.

use crate::arch;
use crate::args::Crosses;
use crate::element::{Bf16, Element, F8E4M3, Float};
use crate::pack::{Pack, unroll};

/// Elements that lie in one lane side by side.
pub const OCTET: usize = 8;

/// The octet whose element `k` is `f(k)`.
#[inline(always)]
pub(super) fn of<T: Copy + Default>(f: impl Fn(usize) -> T) -> [T; OCTET] {
    [f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7)]
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

/// Repeats `$body` for the packs of the largest octet. No constants, which rustc would work out anew for each closure that this is in.
macro_rules! each_of_many {
    (|$p:ident| $body:expr) => {
        each_of_many!(@all $p, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)
    };
    (@all $p:ident, $body:expr, $($i:literal)*) => {{
        $( { let $p: usize = $i; $body } )*
    }};
}

/// The octet that lies in these packs.
#[inline(always)]
pub(super) fn of_packs<T: Element>(pack: impl Fn(usize) -> Pack<T>) -> [T; OCTET] {
    if const { !is_number::<T>() } {
        let (mut words, packs) = ([[0; 4]; MOST_PACKS], const { packs::<T>() });
        each_of_many!(|p| if p < packs {
            words[p] = pack(p).words();
        });
        // SAFETY: no more bytes than there are words; any bits are elements.
        return unsafe { core::mem::transmute_copy(&words) };
    }
    let mut out = [T::default(); OCTET];
    unroll!(4, |P| if const { P < packs::<T>() } {
        split::<T, P>(&mut out, pack(P));
    });
    out
}

/// Puts the elements of pack `P` in their places.
#[inline(always)]
fn split<T: Element, const P: usize>(octet: &mut [T; OCTET], pack: Pack<T>) {
    unroll!(OCTET = 8, |K| if const { K < Pack::<T>::LANES } {
        octet[const { (P * Pack::<T>::LANES + K) % OCTET }] = pack.lane::<K>();
    });
}

/// Hands each of those packs to `put`, with its number.
#[inline(always)]
pub(super) fn each_pack<T: Element>(octet: &[T; OCTET], put: impl Fn(usize, Pack<T>)) {
    if const { !is_number::<T>() } {
        let (mut words, packs) = ([[0u32; 4]; MOST_PACKS], const { packs::<T>() });
        // SAFETY: no more bytes than there are words; an element has no padding.
        unsafe { words.as_mut_ptr().cast::<[T; OCTET]>().write_unaligned(*octet) };
        each_of_many!(|p| if p < packs {
            put(p, Pack::from_words(words[p]));
        });
        return;
    }
    unroll!(4, |P| if const { P < packs::<T>() } {
        put(P, joined::<T, P>(octet));
    });
}

/// Pack `P` of these elements.
#[inline(always)]
fn joined<T: Element, const P: usize>(octet: &[T; OCTET]) -> Pack<T> {
    let mut pack = Pack::ZERO;
    unroll!(OCTET = 8, |K| if const { K < Pack::<T>::LANES } {
        pack.put::<K>(octet[const { (P * Pack::<T>::LANES + K) % OCTET }]);
    });
    pack
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

/// Each as an `f32`; of types with an instruction for several, so many at a time.
#[inline(always)]
pub(super) fn widened<T: Float>(x: &[T; OCTET]) -> [f32; OCTET] {
    if const { T::CODE == F8E4M3::CODE } {
        let bytes = bytes(x);
        let [a, b, c, d] = arch::e4m3x4_to_f32(bytes as u32);
        let [e, f, g, h] = arch::e4m3x4_to_f32((bytes >> 32) as u32);
        return [a, b, c, d, e, f, g, h];
    }
    of(|k| x[k].to_f32())
}

/// The same the other way, rounded.
#[inline(always)]
pub(super) fn narrowed<T: Float>(x: &[f32; OCTET]) -> [T; OCTET] {
    if const { T::CODE == F8E4M3::CODE } {
        let [a, b, c, d, e, f, g, h] = *x;
        let [low, high] = [arch::e4m3x4_from_f32([a, b, c, d]), arch::e4m3x4_from_f32([e, f, g, h])];
        return of_bytes(u64::from(low) | u64::from(high) << 32);
    }
    // The host's compiler vectorises one at a time.
    if const { cfg!(target_arch = "nvptx64") && T::CODE == Bf16::CODE } {
        let mut out = [T::default(); OCTET];
        unroll!(4, |K| {
            let two = arch::bf16x2_from_f32(x[2 * K], x[2 * K + 1]);
            out[2 * K] = T::from_bits64(u64::from(two & 0xffff));
            out[2 * K + 1] = T::from_bits64(u64::from(two >> 16));
        });
        return out;
    }
    of(|k| T::from_f32(x[k]))
}
