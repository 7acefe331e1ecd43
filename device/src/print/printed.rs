//! What can be printed.

#[cfg(not(target_arch = "nvptx64"))]
use std::string::String;

/// A value that can be printed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be printed from a hook",
    label = "no number",
    note = "printed are numbers of the element types, `usize` and `isize`; of a pack its elements, `pack.get(0)`"
)]
pub trait Printed: Copy {
    /// C's conversion of what [`Printed::bits`] gives.
    #[doc(hidden)]
    const CONVERSION: &'static str;
    #[doc(hidden)]
    fn bits(self) -> u64;
    #[cfg(not(target_arch = "nvptx64"))]
    #[doc(hidden)]
    fn text(self) -> String;
}

macro_rules! printed {
    ($($t:ty, $conversion:literal, |$v:ident| $wide:expr, $bits:expr;)*) => {$(
        impl $crate::print::printed::Printed for $t {
            const CONVERSION: &'static str = $conversion;
            #[inline(always)]
            fn bits(self) -> u64 {
                let $v = self;
                #[allow(clippy::unnecessary_cast, clippy::cast_lossless)]
                let wide = $wide;
                $bits(wide)
            }
            #[cfg(not(target_arch = "nvptx64"))]
            fn text(self) -> std::string::String {
                let $v = self;
                #[allow(clippy::unnecessary_cast, clippy::cast_lossless)]
                let wide = $wide;
                std::format!("{wide}")
            }
        }
    )*};
}
pub(crate) use printed;

macro_rules! integers {
    ($($t:ident as $wide:ident $conversion:literal)*) => {
        printed! { $($t, $conversion, |v| v as $wide, |wide| wide as u64;)* }
    };
}
integers! {
    u8 as u64 "%llu" u16 as u64 "%llu" u32 as u64 "%llu" u64 as u64 "%llu" usize as u64 "%llu"
    i8 as i64 "%lld" i16 as i64 "%lld" i32 as i64 "%lld" i64 as i64 "%lld" isize as i64 "%lld"
}
printed! {
    f64, "%.17g", |v| v, f64::to_bits;
    f32, "%.9g", |v| v, |v: f32| f64::to_bits(v.into());
}

impl<T: Printed> Printed for &T {
    const CONVERSION: &'static str = T::CONVERSION;
    #[inline(always)]
    fn bits(self) -> u64 {
        T::bits(*self)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn text(self) -> String {
        T::text(*self)
    }
}
