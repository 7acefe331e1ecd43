//! Packs: 16 bytes, the unit of every wire access.

use crate::arch;
use crate::element::{Bf16, Element, F8E4M3, Float};
use crate::plain::Crosses;
use core::marker::PhantomData;

/// 16 bytes of elements: 16 of one byte down to 2 of eight. The words stay in four registers.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub struct Pack<T> {
    words: [u32; 4],
    element: PhantomData<T>,
}

/// Repeats `$body` for `$k` = 0, 1, .. below the constant `$n`, written out so that no array is indexed at run time.
///
/// What is not repeated is not compiled: of `if const { .. }` rustc leaves the other side out. Yet it looks for what each copy names, and where copies
/// are within copies that is most of its time. So as few are written as there can be: `$n` itself of `unroll!(4, ..)` and of `unroll!(AHEAD = 4, ..)`,
/// whose number is checked; four and eight of `unroll!(U <= 8, ..)`, which is for constants that are parameters; else sixteen.
macro_rules! unroll {
    (2, |$k:ident| $body:expr) => { unroll!(@all $k, $body, 0 1) };
    (3, |$k:ident| $body:expr) => { unroll!(@all $k, $body, 0 1 2) };
    (4, |$k:ident| $body:expr) => { unroll!(@all $k, $body, 0 1 2 3) };
    (5, |$k:ident| $body:expr) => { unroll!(@all $k, $body, 0 1 2 3 4) };
    (7, |$k:ident| $body:expr) => { unroll!(@all $k, $body, 0 1 2 3 4 5 6) };
    (8, |$k:ident| $body:expr) => { unroll!(@all $k, $body, 0 1 2 3 4 5 6 7) };
    (16, |$k:ident| $body:expr) => { unroll!(@all $k, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15) };
    ($n:ident = $number:tt, |$k:ident| $body:expr) => {{
        const _: () = assert!($n == $number);
        unroll!($number, |$k| $body)
    }};
    ($n:ident <= 4, |$k:ident| $body:expr) => { unroll!(@each $n, 4, $k, $body, 0 1 2 3) };
    ($n:ident <= 8, |$k:ident| $body:expr) => { unroll!(@each $n, 8, $k, $body, 0 1 2 3 4 5 6 7) };
    ($n:expr, |$k:ident| $body:expr) => {
        unroll!(@each $n, 16, $k, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    (@each $n:expr, $most:literal, $k:ident, $body:expr, $($i:literal)*) => {{
        const { assert!($n <= $most) };
        $( #[allow(clippy::out_of_bounds_indexing, unconditional_panic, arithmetic_overflow)] { if const { $i < $n } { const $k: usize = $i; $body } } )*
    }};
    (@all $k:ident, $body:expr, $($i:literal)*) => {{
        $( #[allow(clippy::out_of_bounds_indexing, unconditional_panic, arithmetic_overflow)] { const $k: usize = $i; $body } )*
    }};
}
pub(crate) use unroll;

impl<T: Element> Pack<T> {
    /// Elements in a pack; 0 of a type that is no part of one, which has no packs.
    pub const LANES: usize = if 16usize.is_multiple_of(T::SIZE) { 16 / T::SIZE } else { 0 };
    /// All bits zero.
    pub const ZERO: Self = Self::from_words([0; 4]);

    /// The pack with these words (little endian).
    #[inline(always)]
    pub const fn from_words(words: [u32; 4]) -> Self {
        Self { words, element: PhantomData }
    }

    /// The words (little endian).
    #[inline(always)]
    pub const fn words(self) -> [u32; 4] {
        self.words
    }

    /// Every element the same.
    #[inline(always)]
    pub fn splat(value: T) -> Self {
        Self::from_fn(|_| value)
    }

    /// Element `k` from `f(k)`.
    #[inline(always)]
    pub fn from_fn(mut f: impl FnMut(usize) -> T) -> Self {
        let mut pack = Self::ZERO;
        unroll!(Self::LANES, |K| pack.put::<K>(f(K)));
        pack
    }

    /// Elements `0 .. valid` from `f`, as far as they are a pack's, then zeros.
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    pub(crate) fn of_first(valid: usize, mut f: impl FnMut(usize) -> T) -> Self {
        let mut pack = Self::ZERO;
        for k in 0..valid.min(Self::LANES) {
            pack.lanes_mut()[k] = f(k);
        }
        pack
    }

    /// Element `k`.
    ///
    /// # Panics
    /// If `k` is not below [`Pack::LANES`].
    #[inline(always)]
    pub fn get(self, k: usize) -> T {
        assert!(k < Self::LANES);
        #[cfg(not(target_arch = "nvptx64"))]
        return self.lanes()[k];
        #[cfg(target_arch = "nvptx64")]
        self.cut(k)
    }

    /// Element `k` by shifts, so that the words stay in registers.
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn cut(self, k: usize) -> T {
        let byte = k * T::SIZE;
        if const { T::SIZE == 16 } {
            // SAFETY: 16 bytes, any of which are a value.
            unsafe { core::mem::transmute_copy(&self.words) }
        } else if const { T::SIZE == 8 } {
            let (low, high) = (self.words[byte / 4] as u64, self.words[byte / 4 + 1] as u64);
            T::from_bits64(low | high << 32)
        } else {
            T::from_bits64((self.words[byte / 4] >> (8 * (byte % 4))) as u64)
        }
    }

    /// Element `K`, which is below [`Pack::LANES`]. As `get`, but with constants from the start: for what is written out often, since LLVM takes its
    /// time for what it has yet to find out of each copy.
    #[inline(always)]
    pub(crate) fn lane<const K: usize>(self) -> T {
        #[cfg(not(target_arch = "nvptx64"))]
        return self.lanes()[K];
        #[cfg(target_arch = "nvptx64")]
        if const { T::SIZE >= 8 } {
            self.cut(K)
        } else {
            let word = self.words[const { K * T::SIZE / 4 % 4 }];
            T::from_bits64((word >> const { 8 * (K * T::SIZE % 4) }) as u64)
        }
    }

    /// The same pack with element `k` replaced.
    #[inline(always)]
    pub fn with<const K: usize>(mut self, value: T) -> Self {
        self.put::<K>(value);
        self
    }

    /// Calls `f(k, element)` for each element in order.
    #[inline(always)]
    pub fn for_each(self, mut f: impl FnMut(usize, T)) {
        unroll!(Self::LANES, |K| f(K, self.lane::<K>()));
    }

    /// Element by element.
    #[inline(always)]
    pub fn map(self, mut f: impl FnMut(T) -> T) -> Self {
        let mut pack = Self::ZERO;
        #[cfg(not(target_arch = "nvptx64"))]
        for k in 0..Self::LANES {
            pack.lanes_mut()[k] = f(self.lanes()[k]);
        }
        #[cfg(target_arch = "nvptx64")]
        unroll!(Self::LANES, |K| pack.put::<K>(f(self.lane::<K>())));
        pack
    }

    /// Element by element with another pack.
    #[inline(always)]
    pub fn zip(self, other: Self, mut f: impl FnMut(T, T) -> T) -> Self {
        let mut pack = Self::ZERO;
        #[cfg(not(target_arch = "nvptx64"))]
        for k in 0..Self::LANES {
            pack.lanes_mut()[k] = f(self.lanes()[k], other.lanes()[k]);
        }
        #[cfg(target_arch = "nvptx64")]
        unroll!(Self::LANES, |K| pack.put::<K>(f(self.lane::<K>(), other.lane::<K>())));
        pack
    }

    /// Elements in memory are what shifts of the words give.
    #[cfg(not(target_arch = "nvptx64"))]
    const LIES_AS_WORDS: () =
        assert!(cfg!(target_endian = "little") && size_of::<T>() == T::SIZE && align_of::<T>() <= 16);

    /// The elements as they lie in memory: the host's compiler vectorises loops over these, and none over shifts of words.
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn lanes(&self) -> &[T] {
        const { Self::LIES_AS_WORDS };
        // SAFETY: the 16 bytes of the words, aligned; any bits are an element.
        unsafe { core::slice::from_raw_parts(self.words.as_ptr().cast(), Self::LANES) }
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn lanes_mut(&mut self) -> &mut [T] {
        const { Self::LIES_AS_WORDS };
        // SAFETY: as for `lanes`; any bits are words.
        unsafe { core::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), Self::LANES) }
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    pub(crate) fn put<const K: usize>(&mut self, value: T) {
        self.lanes_mut()[K] = value;
    }

    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    pub(crate) fn put<const K: usize>(&mut self, value: T) {
        if const { T::SIZE == 16 } {
            // SAFETY: 16 bytes, none of them padding.
            self.words = unsafe { core::mem::transmute_copy(&value) };
            return;
        }
        let bits = value.to_bits64();
        let word = const { K * T::SIZE / 4 % 4 };
        if const { T::SIZE == 8 } {
            self.words[word] = bits as u32;
            self.words[word + 1] = (bits >> 32) as u32;
        } else if const { T::SIZE == 4 } {
            self.words[word] = bits as u32;
        } else {
            let shift = const { 8 * (K * T::SIZE % 4) as u32 };
            let others = const { !((((1u64 << (8 * (T::SIZE % 8))) - 1) as u32) << (8 * (K * T::SIZE % 4))) };
            self.words[word] = (self.words[word] & others) | ((bits as u32) << shift);
        }
    }
}

impl<T: Float> Pack<T> {
    /// The pack of `f(0), f(1), ..`, rounded; narrow elements two at a time, which halves the work.
    #[inline(always)]
    pub fn from_f32s(mut f: impl FnMut(usize) -> f32) -> Self {
        // Loops over elements as they lie in memory are vectorised. Not of bytes, which are many branches each: those go by words.
        #[cfg(not(target_arch = "nvptx64"))]
        if const { T::CODE != F8E4M3::CODE } {
            return Self::of_first(Self::LANES, |k| T::from_f32(f(k)));
        }
        let mut pack = Self::ZERO;
        // Written out: a loop around a large `f` would stay one, with the elements in memory.
        if const { T::CODE == Bf16::CODE } {
            unroll!(4, |K| pack.words[K] = arch::bf16x2_from_f32(f(2 * K), f(2 * K + 1)));
        } else if const { T::CODE == F8E4M3::CODE } {
            unroll!(4, |K| {
                let four = [f(4 * K), f(4 * K + 1), f(4 * K + 2), f(4 * K + 3)];
                pack.words[K] = arch::e4m3x4_from_f32(four);
            });
        } else {
            unroll!(Self::LANES, |K| pack.put::<K>(T::from_f32(f(K))));
        }
        pack
    }

    /// The elements, widened (`f64` rounded), [`Pack::LANES`] of them, then zeros.
    #[inline(always)]
    pub fn to_f32s(self) -> [f32; 16] {
        let mut values = [0.0; 16];
        if const { T::CODE == F8E4M3::CODE } {
            unroll!(4, |W| {
                let four = arch::e4m3x4_to_f32(self.words[W]);
                unroll!(4, |K| values[4 * W + K] = four[K]);
            });
        } else {
            unroll!(Self::LANES, |K| values[K] = self.lane::<K>().to_f32());
        }
        values
    }

    /// Element by element, as `f32`.
    #[inline(always)]
    pub fn map_f32(self, mut f: impl FnMut(f32) -> f32) -> Self {
        let values = self.to_f32s();
        Self::from_f32s(|k| f(values[k]))
    }

    /// Element by element with another pack, as `f32`.
    #[inline(always)]
    pub fn zip_f32(self, other: Self, mut f: impl FnMut(f32, f32) -> f32) -> Self {
        let (a, b) = (self.to_f32s(), other.to_f32s());
        Self::from_f32s(|k| f(a[k], b[k]))
    }
}

impl<T: Element> PartialEq for Pack<T> {
    /// Equality of bits.
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        self.words == other.words
    }
}

/// A pack of as many of the values as it has room for.
#[inline(always)]
pub(crate) fn together<W: Element>(values: [W; 16]) -> Pack<W> {
    let mut pack = Pack::ZERO;
    unroll!(Pack::<W>::LANES, |K| pack = pack.with::<K>(values[K]));
    pack
}
