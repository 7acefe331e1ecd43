//! Values of groups of a row's elements, and what is scaled by them.

use super::{AtRow, OCTET, PerSlot, Row, each_slot, filled, octet, octet_in, team};
use crate::element::{Element, Float};
use crate::fold::Number;
#[cfg(target_arch = "nvptx64")]
use crate::pack::unroll;

/// Elements of the smallest group.
pub(super) const LEAST: usize = 32;

/// Whether a row of `N` elements can be cut into groups of `G`.
pub(super) const fn check<const G: usize, const N: usize>() {
    assert!(
        G.is_power_of_two() && G >= LEAST && G <= 256 && N.is_multiple_of(G),
        "a row's groups are of 32, 64, 128 or 256 elements, and the row is whole groups"
    );
}

/// One value for each `G` elements of a row, `G` being 32, 64, 128 or 256.
#[derive(Clone, Debug)]
pub struct Groups<T, const G: usize, const N: usize, const S: usize> {
    /// That of each octet's group.
    pub(super) values: PerSlot<T, S>,
}

impl<T: Copy + Default, const G: usize, const N: usize, const S: usize> Groups<T, G, N, S> {
    /// Those that `f` gives for each group, by number.
    #[inline(always)]
    pub(super) fn of(f: impl Fn(usize) -> T) -> Self {
        const { check::<G, N>() };
        let mut values = filled::<_, S>(T::default());
        each_slot!(S, |K| if let Some(octet) = octet_in::<N>(K) {
            values[K] = f(octet / (G / OCTET));
        });
        Groups { values }
    }

    /// Those that `f` gives for each group, on the thread that has its first octet.
    #[inline(always)]
    pub(super) fn of_first(f: impl Fn(usize) -> T) -> Self
    where
        T: Element,
    {
        const { check::<G, N>() };
        const { team::small::<T>() };
        let mut values = filled::<_, S>(T::default());
        each_slot!(S, |K| if let Some(octet) = octet_in::<N>(K)
            && octet.is_multiple_of(G / OCTET)
        {
            values[K] = f(octet / (G / OCTET));
        });
        team::reduce_groups::<T, G, S>(&mut values, &|first, _| first);
        Groups { values }
    }

    /// Group by group.
    #[inline(always)]
    pub fn map<U: Copy + Default>(&self, f: impl Fn(T) -> U + Sync) -> Groups<U, G, N, S> {
        let mut values = filled::<_, S>(U::default());
        each_slot!(S, |K| values[K] = f(self.values[K]));
        Groups { values }
    }

    /// Hands each group's value to `f`, with its number, on the thread that has its first octet.
    #[inline(always)]
    pub(super) fn each_first(&self, f: impl Fn(usize, T)) {
        each_slot!(S, |K| if let Some(octet) = octet_in::<N>(K)
            && octet.is_multiple_of(G / OCTET)
        {
            f(octet / (G / OCTET), self.values[K]);
        });
    }
}

impl<T: Element, const N: usize, const S: usize> Row<T, N, S> {
    /// The elements of each group by `f`, as [`Row::reduce`] does it for all.
    #[inline(always)]
    pub fn reduce_groups<const G: usize>(
        &self,
        _ctx: &impl AtRow<N, S>,
        f: impl Fn(T, T) -> T + Sync,
    ) -> Groups<T, G, N, S> {
        const { check::<G, N>() };
        const { team::small::<T>() };
        let mut values = filled::<_, S>(T::default());
        each_slot!(S, |K| values[K] = octet::folded(&self.octets[K], &f));
        team::reduce_groups::<T, G, S>(&mut values, &f);
        Groups { values }
    }

    /// The greatest element of each group; NaN if any is.
    #[inline(always)]
    pub fn max_of_groups<const G: usize>(&self, ctx: &impl AtRow<N, S>) -> Groups<T, G, N, S>
    where
        T: Number,
    {
        self.reduce_groups(ctx, T::greater)
    }

    /// The sum of each group.
    #[inline(always)]
    pub fn sum_of_groups<const G: usize>(&self, ctx: &impl AtRow<N, S>) -> Groups<T, G, N, S>
    where
        T: Number,
    {
        self.reduce_groups(ctx, T::plus)
    }
}

impl<T: Copy + Default, const N: usize, const S: usize> Row<T, N, S> {
    /// Element by element, with the value of its group.
    #[inline(always)]
    pub fn zip_groups<U, V, const G: usize>(
        &self,
        groups: &Groups<U, G, N, S>,
        f: impl Fn(T, U) -> V + Sync,
    ) -> Row<V, N, S>
    where
        U: Copy + Default,
        V: Copy + Default,
    {
        Row::of_slots(|slot, _| octet::of(|k| f(self.octets[slot][k], groups.values[slot])))
    }
}

/// What a group of 8-bit floats is scaled by.
///
/// Sealed: its bytes are part of the wire.
pub trait Scale: Copy + Default + sealed::Sealed {
    /// Bytes.
    const SIZE: usize;
    /// A scale, no less than `least`, that is not zero.
    fn at_least(least: f32) -> Self;
    /// The same as a number.
    fn to_f32(self) -> f32;
    /// The bits.
    fn to_bits(self) -> u32;
    /// The scale of these.
    fn from_bits(bits: u32) -> Self;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for super::Ue8m0 {}
}

impl Scale for f32 {
    const SIZE: usize = 4;
    #[inline(always)]
    fn at_least(least: f32) -> Self {
        least.greater(f32::MIN_POSITIVE)
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
    #[inline(always)]
    fn to_bits(self) -> u32 {
        f32::to_bits(self)
    }
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        f32::from_bits(bits)
    }
}

/// A power of two, 2<sup>e - 127</sup>, as its exponent `e`; 255 is NaN. What OCP's microscaling formats call E8M0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Ue8m0(pub u8);

impl Scale for Ue8m0 {
    const SIZE: usize = 1;
    #[inline(always)]
    fn at_least(least: f32) -> Self {
        let bits = least.to_bits();
        // The exponent, or the next one where anything stands behind the point. Of what is less than 2^-126 that one's.
        let up = (bits >> 23) + u32::from(bits & 0x7f_ffff != 0);
        Ue8m0(if !least.is_finite() { 255 } else { up.clamp(1, 254) as u8 })
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        match self.0 {
            0 => f32::from_bits(1 << 22),
            255 => crate::element::soft::NAN,
            e => f32::from_bits(u32::from(e) << 23),
        }
    }
    #[inline(always)]
    fn to_bits(self) -> u32 {
        u32::from(self.0)
    }
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Ue8m0(bits as u8)
    }
}

/// A row of 8-bit floats with a scale for each `G` of them: what `produce` may put on the wire, and `consume` gets.
#[derive(Clone, Debug)]
pub struct Scaled<T, F, const G: usize, const N: usize, const S: usize> {
    /// The values, each of which stands for itself times its group's scale.
    pub values: Row<T, N, S>,
    /// The scales.
    pub scales: Groups<F, G, N, S>,
}

/// An 8-bit float, as far as scales ask.
pub trait Narrow: Float {
    /// The greatest finite value.
    const MOST: f32;
}

impl Narrow for crate::element::F8E4M3 {
    const MOST: f32 = 448.0;
}

impl Narrow for crate::element::F8E5M2 {
    const MOST: f32 = 57344.0;
}

impl<const N: usize, const S: usize> Row<f32, N, S> {
    /// The row as 8-bit floats, each group scaled so that its greatest magnitude is the greatest that `T` holds, or with a scale that is a power of two
    /// no more. The scale of a group of zeros is the least; NaN and infinity make their whole group NaN.
    #[inline(always)]
    pub fn quantise<T: Narrow, F: Scale, const G: usize>(
        &self,
        ctx: &impl AtRow<N, S>,
    ) -> Scaled<T, F, G, N, S> {
        // Magnitudes are in the order of their bits, with NaN above all.
        let most = self.map(|x| x.abs().to_bits()).max_of_groups::<G>(ctx).map(f32::from_bits);
        let scales = most.map(|most| F::at_least(most * (1.0 / T::MOST)));
        let values = self.zip_groups(&scales.map(|scale| 1.0 / scale.to_f32()), |x, inverse| x * inverse);
        Scaled { values: values.to(), scales }
    }
}

impl<T: Narrow, F: Scale, const G: usize, const N: usize, const S: usize> Scaled<T, F, G, N, S> {
    /// The numbers that it stands for.
    #[inline(always)]
    pub fn dequantise(&self) -> Row<f32, N, S> {
        let scales = self.scales.map(F::to_f32);
        self.values.to_f32().zip_groups(&scales, |x, scale| x * scale)
    }
}
