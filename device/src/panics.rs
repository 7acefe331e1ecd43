//! What a panic says on a GPU. To format it there would cost every kernel registers and stack, so its text goes to the host as it is written, and numbers
//! beside it.
//!
//! `core` hands a text over if no value is in it. The macros here have the names of `core`'s, and are those that a kernel's own text finds. Of a text with
//! values `#[comm_kernel]` puts behind the arguments what these take: `panic!("{i} of {}", n; @["{} of {}"; i, n])`.

use crate::arch;
use crate::print::{LENGTH, Printed, Text, Values, convert};
use core::marker::PhantomData;
use core::panic::Location;

/// A value of a message.
#[doc(hidden)]
pub struct Value<'a, T: ?Sized>(pub &'a T);

/// Values that are printed.
#[doc(hidden)]
pub trait Number {
    type Number;
    fn said(&self) -> Self::Number;
}
impl<T: Printed> Number for Value<'_, T> {
    type Number = T;
    #[inline(always)]
    fn said(&self) -> T {
        *self.0
    }
}

/// All others, by a reference more: the compiler looks there second.
#[doc(hidden)]
pub trait Other {
    #[inline(always)]
    fn said(&self) -> Unsaid {
        Unsaid
    }
}
impl<T: ?Sized> Other for &Value<'_, T> {}

/// In place of a value that is no number.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Unsaid;
impl Printed for Unsaid {
    const CONVERSION: &'static str = "%?";
    #[inline(always)]
    fn bits(self) -> u64 {
        0
    }
}

struct Message<T, V>(PhantomData<(T, V)>);

impl<T: Text, V: Values> Message<T, V> {
    const FORMAT: ([u8; LENGTH], usize) = {
        let mut bytes = [0; LENGTH];
        let len = convert(&mut bytes, 0, T::TEXT, V::CONVERSIONS);
        (bytes, len)
    };
}

/// Ends this thread's kernel with a message.
#[doc(hidden)]
#[inline(always)]
#[track_caller]
pub fn with<T: Text, V: Values>(values: V) -> ! {
    let (bytes, len) = const { &Message::<T, V>::FORMAT };
    arch::panic_with(Location::caller(), bytes.split_at(*len).0, &values.bits())
}

/// As `core`'s.
#[macro_export]
#[doc(hidden)]
macro_rules! panic {
    ($($written:expr),* $(,)?; @[$text:expr; $($value:expr),*]) => {{
        #[allow(unused_imports)]
        use $crate::panics::{Number as _, Other as _};
        struct __Text;
        impl $crate::print::Text for __Text {
            const TEXT: &'static ::core::primitive::str = $text;
        }
        $crate::panics::with::<__Text, _>(($((&$crate::panics::Value(&$value)).said(),)*))
    }};
    ($($written:tt)*) => { ::core::panic!($($written)*) };
}

/// As `core`'s.
#[macro_export]
#[doc(hidden)]
macro_rules! unreachable {
    ($($written:expr),* $(,)?; @[$text:expr; $($value:expr),*]) => {
        $crate::panic!(; @[::core::concat!("internal error: entered unreachable code: ", $text); $($value),*])
    };
    ($($written:tt)*) => { ::core::unreachable!($($written)*) };
}

/// As `core`'s.
#[macro_export]
#[doc(hidden)]
macro_rules! assert {
    ($condition:expr $(, $written:expr)* $(,)?; @[$($said:tt)*]) => {
        if !$condition { $crate::panic!(; @[$($said)*]) }
    };
    ($($written:tt)*) => { ::core::assert!($($written)*) };
}

/// As `core`'s.
#[macro_export]
#[doc(hidden)]
macro_rules! assert_eq {
    ($left:expr, $right:expr $(, $written:expr)* $(,)?; @[$text:expr; $($value:expr),*]) => {
        $crate::compare!("assertion `left == right` failed", ": ", $text; ==; $left, $right; $($value),*)
    };
    ($left:expr, $right:expr $(,)?) => {
        $crate::compare!("assertion `left == right` failed"; ==; $left, $right;)
    };
    ($($written:tt)*) => { ::core::assert_eq!($($written)*) };
}

/// As `core`'s.
#[macro_export]
#[doc(hidden)]
macro_rules! assert_ne {
    ($left:expr, $right:expr $(, $written:expr)* $(,)?; @[$text:expr; $($value:expr),*]) => {
        $crate::compare!("assertion `left != right` failed", ": ", $text; !=; $left, $right; $($value),*)
    };
    ($left:expr, $right:expr $(,)?) => {
        $crate::compare!("assertion `left != right` failed"; !=; $left, $right;)
    };
    ($($written:tt)*) => { ::core::assert_ne!($($written)*) };
}

#[macro_export]
#[doc(hidden)]
macro_rules! compare {
    ($($text:expr),+; $how:tt; $left:expr, $right:expr; $($value:expr),*) => {
        match (&$left, &$right) {
            (left, right) => if !(*left $how *right) {
                $crate::panic!(; @[::core::concat!($($text,)+ "\n  left: {}\n right: {}"); $($value,)* *left, *right])
            }
        }
    };
}
