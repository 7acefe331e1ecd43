//! Structs as elements.

use super::Element;
use core::mem::MaybeUninit;

/// What the field of an element may be: an element, or an array of them.
///
/// # Safety
/// Every bit pattern is a value, and there is no padding.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a field of an element",
    label = "some of its bit patterns are no values, or it is no plain data",
    note = "fields of an element are numbers, `F16`, `Bf16`, `F8E4M3`, `F8E5M2`, other elements, and arrays of these; in place of `bool` stands `u8`"
)]
pub unsafe trait FieldBits {}

// SAFETY: an element's contract.
unsafe impl<T: Element> FieldBits for T {}
// SAFETY: nothing is between the elements of an array.
unsafe impl<T: FieldBits, const N: usize> FieldBits for [T; N] {}

/// [`Element::to_bits64`] of a struct.
#[inline(always)]
pub fn bits<T: Element>(value: T) -> u64 {
    let mut bits = [0u8; 8];
    // A constant: no element of more bytes is taken apart so.
    assert!(T::SIZE <= 8);
    // SAFETY: so many bytes on both sides, none of them padding.
    unsafe { core::ptr::copy_nonoverlapping((&raw const value).cast(), bits.as_mut_ptr(), T::SIZE) };
    u64::from_le_bytes(bits)
}

/// [`Element::from_bits64`] of a struct.
#[inline(always)]
pub fn value<T: Element>(bits: u64) -> T {
    let mut value = MaybeUninit::<T>::zeroed();
    assert!(T::SIZE <= 8);
    // SAFETY: so many bytes on both sides.
    unsafe {
        core::ptr::copy_nonoverlapping(bits.to_le_bytes().as_ptr(), value.as_mut_ptr().cast(), T::SIZE)
    };
    // SAFETY: every bit pattern is a value.
    unsafe { value.assume_init() }
}

/// Refuses, where it is called, a type that is no part of a pack, or where hooks work by tiles, not of up to 8 bytes.
pub const fn on_the_wire<T: Element>(by_tiles: bool) {
    assert!(
        matches!(T::SIZE, 1 | 2 | 4 | 8 | 16),
        "what crosses the wire has 1, 2, 4, 8 or 16 bytes, so that 16 bytes are a number of them: send 16 or more at a time, by `grain = row(16)`, or pad this struct to one of these"
    );
    assert!(
        !by_tiles || T::SIZE <= 8,
        "what crosses the wire by `layout(transposed)` has 8 bytes at most: send a part at a time"
    );
}

/// The same where hooks work by rows.
pub const fn in_rows<T: Element>() {
    assert!(
        crate::row::fits_element(T::SIZE),
        "what crosses the wire by rows has one byte, or an even number of them up to 64: pad this struct by a byte, or send a part at a time"
    );
}

/// Makes a struct of a *device crate* an element: it stands in slices and outputs, crosses the wire, and is plain data.
///
/// ```
/// fusewire_device::element! {
///     /// A complex number.
///     pub struct Complex {
///         pub re: f32,
///         pub im: f32,
///     }
/// }
/// assert_eq!(Complex::default(), Complex { re: 0.0, im: 0.0 });
/// ```
///
/// The macro adds `Clone`, `Copy`, `Debug`, `Default`, `PartialEq` and `repr(C)` to what is written. Fields are named; they are elements or arrays of these,
/// and leave no gaps. In a hook module `#[derive(Clone, Copy, Debug, Default, PartialEq, Element)] #[repr(C)]` does the same.
#[macro_export]
macro_rules! element {
    ($(#[$attr:meta])* $vis:vis struct $name:ident { $($(#[$of:meta])* $public:vis $field:ident: $ty:ty),* $(,)? }) => {
        $(#[$attr])*
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        #[repr(C)]
        $vis struct $name { $($(#[$of])* $public $field: $ty,)* }
        $crate::__element! { struct $name { $($field: $ty,)* } }
    };
    ($($other:tt)*) => {
        ::core::compile_error!(
            "`element!` takes one struct with named fields, which is not generic: `element! { pub struct Complex { pub re: f32, pub im: f32 } }`"
        );
    };
}

/// That a struct is an element, if its fields are and leave no gaps: all of them stand here, or it does not compile.
#[doc(hidden)]
#[macro_export]
macro_rules! __element {
    (struct $name:ident { $($fields:tt)* }) => {
        $crate::__element! { struct $name { $($fields)* } ::core::stringify!($name) }
    };
    (struct $name:ident { $($field:tt: $ty:ty,)* } $text:expr) => {
        $crate::__plain! { struct $name { $($field: $ty,)* } }
        const _: () = {
            const fn field<T: $crate::element::FieldBits>() -> ::core::primitive::usize {
                ::core::mem::size_of::<T>()
            }
            let fields = 0 $(+ field::<$ty>())*;
            let all = ::core::mem::size_of::<$name>();
            ::core::assert!(all > 0, "an element has a byte at least");
            ::core::assert!(
                fields == all,
                "an element has no gaps, whose bytes nobody writes: order the fields from the widest to the narrowest, or fill gaps with fields"
            );
        };
        // SAFETY: `repr(C)` of types of which every bit pattern is a value; their sizes add up, so that nothing is between or behind them.
        unsafe impl $crate::element::Element for $name {
            const NAME: &'static ::core::primitive::str = $text;
            #[inline(always)]
            fn to_bits64(self) -> ::core::primitive::u64 {
                $crate::element::bits(self)
            }
            #[inline(always)]
            fn from_bits64(bits: ::core::primitive::u64) -> Self {
                $crate::element::value(bits)
            }
        }
        impl $crate::fold::Lift<$name> for $name {
            #[inline(always)]
            fn lift(self) -> $name {
                self
            }
        }
        impl $crate::fold::Settle<$name> for $name {
            #[inline(always)]
            fn settle(folded: $name) -> $name {
                folded
            }
        }
    };
}
