//! Element types: what a slice, a wire or an output is made of.
//!
//! Integers and floats are Rust's own; the narrow floats are transparent wrappers of their bits. Conversions round to nearest even
//! and give the same bits on host and device, NaN included. Structs of these are elements by `#[derive(Element)]`, or [`element!`](crate::element!).

mod narrow;
#[doc(hidden)]
pub mod soft;
mod structs;

pub use narrow::{Bf16, F8E4M3, F8E5M2, F16};
#[doc(hidden)]
pub use structs::{FieldBits, bits, in_rows, on_the_wire, value};

use crate::plain::Plain;
use crate::print::printed::{Printed, printed};

crate::plain::numbers! { F16, 11; Bf16, 12; F8E4M3, 13; F8E5M2, 14; }
printed! {
    F16, "%.6g", |v| v.to_f32(), |v: f32| f64::to_bits(v.into());
    Bf16, "%.6g", |v| v.to_f32(), |v: f32| f64::to_bits(v.into());
    F8E4M3, "%.6g", |v| v.to_f32(), |v: f32| f64::to_bits(v.into());
    F8E5M2, "%.6g", |v| v.to_f32(), |v: f32| f64::to_bits(v.into());
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// What slices and outputs are made of, and what crosses the wire: a number, or a struct of numbers.
///
/// Structs of a hook module get it by `#[derive(Clone, Copy, Debug, Default, PartialEq, Element)] #[repr(C)]`, those of a device crate by
/// [`element!`](crate::element!). In memory they may have any size; what crosses the wire has 1, 2, 4, 8 or 16 bytes, or in
/// [rows](crate::row) an even number of them up to 64.
///
/// # Safety
/// Every bit pattern is a value, and there is no padding.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot cross the wire or stand in a device slice",
    label = "not an element type",
    note = "element types are u8 to u64, i8 to i64, f32, f64, F16, Bf16, F8E4M3 and F8E5M2, and structs of these with `#[derive(Element)]` (in a \
            device crate: of `element!`)"
)]
pub unsafe trait Element: Plain + Default + PartialEq + core::fmt::Debug {
    /// Name as users write it.
    const NAME: &'static str;
    /// Bytes.
    const SIZE: usize = size_of::<Self>();
    /// The bits, zero-extended, of an element of up to 8 bytes.
    #[doc(hidden)]
    fn to_bits64(self) -> u64;
    /// The value of the low bits, of an element of up to 8 bytes.
    #[doc(hidden)]
    fn from_bits64(bits: u64) -> Self;
}

/// An element that converts from and to `f32` (rounding to nearest even; 8-bit types saturate, as `cvt.satfinite` does).
///
/// Sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a floating-point element",
    label = "needs f32, f64, F16, Bf16, F8E4M3 or F8E5M2"
)]
pub trait Float: Element + Printed + sealed::Sealed {
    /// Nearest value of this type.
    fn from_f32(value: f32) -> Self;
    /// Exact, except from `f64`, which rounds.
    fn to_f32(self) -> f32;
}

macro_rules! plain {
    ($($t:ty, $to:expr, $from:expr;)*) => {$(
        impl sealed::Sealed for $t {}
        // SAFETY: a number.
        unsafe impl Element for $t {
            const NAME: &'static str = stringify!($t);
            #[inline(always)]
            fn to_bits64(self) -> u64 {
                ($to)(self)
            }
            #[inline(always)]
            fn from_bits64(bits: u64) -> Self {
                ($from)(bits)
            }
        }
    )*};
}
plain! {
    u8, |v| v as u64, |b| b as u8;
    u16, |v| v as u64, |b| b as u16;
    u32, |v| v as u64, |b| b as u32;
    u64, |v| v, |b| b;
    i8, |v| v as u8 as u64, |b| b as i8;
    i16, |v| v as u16 as u64, |b| b as i16;
    i32, |v| v as u32 as u64, |b| b as i32;
    i64, |v| v as u64, |b| b as i64;
    f32, |v: f32| v.to_bits() as u64, |b| f32::from_bits(b as u32);
    f64, |v: f64| v.to_bits(), f64::from_bits;
    F16, |v: F16| v.to_bits() as u64, |b| F16::from_bits(b as u16);
    Bf16, |v: Bf16| v.to_bits() as u64, |b| Bf16::from_bits(b as u16);
    F8E4M3, |v: F8E4M3| v.to_bits() as u64, |b| F8E4M3::from_bits(b as u8);
    F8E5M2, |v: F8E5M2| v.to_bits() as u64, |b| F8E5M2::from_bits(b as u8);
}

impl Float for f32 {
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        value
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
}

impl Float for f64 {
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        // A conversion's NaN differs between processors.
        if value.is_nan() { f64::from_bits(0x7fff_ffff_ffff_ffff) } else { value as f64 }
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        if self.is_nan() { soft::NAN } else { self as f32 }
    }
}
