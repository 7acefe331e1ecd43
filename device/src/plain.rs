//! What crosses from a launch to a kernel: numbers, plain data of the user's own, and `Option`s of plain data.

use core::mem::MaybeUninit;

/// What may cross from a launch to a kernel: the host's compiler and the device's compare it, field by field.
///
/// # Safety
/// Same layout on host and device. Types that are not the same have different codes.
pub unsafe trait Crosses: Copy + Send + Sync + 'static {
    /// Number of this type.
    const CODE: u64;
}

/// The code of a field of the arguments' raw struct, as the struct declares it.
#[doc(hidden)]
pub const fn code_of<R, T: Crosses>(_: fn(&R) -> &T) -> u64 {
    T::CODE
}

/// The code of a type that is made of another: FNV-1a over words.
#[doc(hidden)]
pub const fn made_of(what: u64, of: u64) -> u64 {
    const PRIME: u64 = 0x100_0000_01b3;
    let mut hash = 0xcbf2_9ce4_8422_2325;
    let words = [what, of];
    let mut k = 0;
    while k < 16 {
        hash = (hash ^ (words[k / 8] >> (8 * (k % 8)) & 0xff)).wrapping_mul(PRIME);
        k += 1;
    }
    hash
}

/// Plain data that may be a by-value argument.
///
/// Types of a hook module get it by `#[derive(Clone, Copy, Plain)]`, those of a device crate by [`plain!`](crate::plain).
///
/// # Safety
/// Same layout on host and device, no pointers, and every value of the host's is one of the device's. Padding does not matter: a value is
/// moved whole, and nobody reads, compares or sends its bytes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a kernel argument",
    label = "not plain device data",
    note = "accepted: `&'a [T]`, `Out<'a, T>`, `Accumulate<'a, T>`; numbers, `bool`, types with `#[derive(Plain)]` (in a device crate: of \
            `plain!`) and arrays of these; and `Option`s of them, written as a field of `Args`"
)]
pub unsafe trait Plain: Crosses {}

/// An `Option` as it crosses: of `Option` itself the layout is not promised.
#[derive(Debug)]
#[repr(C)]
pub struct RawOption<T> {
    is_some: bool,
    value: MaybeUninit<T>,
}

impl<T: Copy> Clone for RawOption<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Copy> Copy for RawOption<T> {}

impl<T: Copy> RawOption<T> {
    /// What crosses for `option`.
    #[inline(always)]
    pub const fn new(option: Option<T>) -> Self {
        match option {
            Some(value) => RawOption { is_some: true, value: MaybeUninit::new(value) },
            None => RawOption { is_some: false, value: MaybeUninit::uninit() },
        }
    }

    /// What a hook sees.
    #[inline(always)]
    pub const fn get(self) -> Option<T> {
        // SAFETY: `new` alone makes one, with a value where it says so.
        if self.is_some { Some(unsafe { self.value.assume_init() }) } else { None }
    }
}

// SAFETY: `repr(C)` of a `bool` and plain data; the code is of options and the data.
unsafe impl<T: Plain> Crosses for RawOption<T> {
    const CODE: u64 = made_of(3, T::CODE);
}

macro_rules! numbers { ($($t:ty, $code:expr;)*) => {$(
    // SAFETY: a primitive, or a transparent wrapper of one, with the same layout on both targets; no two codes are the same.
    unsafe impl $crate::plain::Crosses for $t {
        const CODE: u64 = $code;
    }
    // SAFETY: as above.
    unsafe impl $crate::plain::Plain for $t {}
)*} }
pub(crate) use numbers;
numbers! {
    u8, 1; u16, 2; u32, 3; u64, 4; i8, 5; i16, 6; i32, 7; i64, 8; f32, 9; f64, 10;
    usize, 256; isize, 257; bool, 258;
}
// SAFETY: an array has the same layout on both targets; the code is of its length and elements.
unsafe impl<T: Plain, const N: usize> Crosses for [T; N] {
    const CODE: u64 = made_of(made_of(2, N as u64), T::CODE);
}
// SAFETY: an array of plain data has the same layout on both targets.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// The code of a plain type that is made of others: of each part, its name, where it is and what it is.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Parts(u64);

impl Parts {
    /// Of a type with no part yet.
    pub const fn of<T>(name: &str) -> Self {
        // A kernel's parameters are aligned to 16 bytes.
        assert!(align_of::<T>() <= 16, "plain data is aligned to 16 bytes at most");
        Parts(made_of(4, text(name))).and(size_of::<T>() as u64).and(align_of::<T>() as u64)
    }

    /// With a field, of the type that it has.
    pub const fn field<R, T: Plain>(self, name: &str, offset: usize, _: fn(&R) -> &T) -> Self {
        self.and(text(name)).and(offset as u64).and(T::CODE)
    }

    /// With a value of an enum.
    pub const fn value(self, name: &str, value: i128) -> Self {
        self.and(text(name)).and(value as u64).and((value >> 64) as u64)
    }

    const fn and(self, word: u64) -> Self {
        Parts(made_of(self.0, word))
    }

    /// The code.
    pub const fn code(self) -> u64 {
        self.0
    }
}

const fn text(text: &str) -> u64 {
    let (bytes, mut hash, mut k) = (text.as_bytes(), text.len() as u64, 0);
    while k < bytes.len() {
        hash = made_of(hash, bytes[k] as u64);
        k += 1;
    }
    hash
}

/// Makes structs and enums of a *device crate* plain data, which kernels take by value.
///
/// ```
/// fusewire_device::plain! {
///     /// How values are scaled.
///     pub struct Scaling {
///         pub factor: f32,
///         pub rounding: Rounding,
///     }
/// }
/// fusewire_device::plain! {
///     pub enum Rounding {
///         Nearest,
///         Down = 4,
///     }
/// }
/// let scaling = Scaling { factor: 2.0, rounding: Rounding::Down };
/// assert_eq!(scaling.rounding as u32, 4);
/// ```
///
/// The macro adds `Clone`, `Copy` and `repr(C)` (of an enum `repr(u32)`) to what is written. Fields are named and of plain types; values of an
/// enum have no data. In a hook module `#[derive(Clone, Copy, Plain)]` does the same.
#[macro_export]
macro_rules! plain {
    ($(#[$attr:meta])* $vis:vis struct $name:ident { $($(#[$of:meta])* $public:vis $field:ident: $ty:ty),* $(,)? }) => {
        $(#[$attr])*
        #[derive(Clone, Copy)]
        #[repr(C)]
        $vis struct $name { $($(#[$of])* $public $field: $ty,)* }
        $crate::__plain! { struct $name { $($field: $ty,)* } }
    };
    ($(#[$attr:meta])* $vis:vis enum $name:ident { $($(#[$of:meta])* $value:ident $(= $number:expr)?),+ $(,)? }) => {
        $(#[$attr])*
        #[derive(Clone, Copy)]
        #[repr(u32)]
        $vis enum $name { $($(#[$of])* $value $(= $number)?,)* }
        $crate::__plain! { enum $name { $($value,)* } }
    };
    ($($other:tt)*) => {
        ::core::compile_error!(
            "`plain!` takes one struct with named fields, `plain! { pub struct Params { pub scale: f32 } }`, or one enum without data, \
             `plain! { pub enum Mode { Add, Set } }`; neither is generic"
        );
    };
}

/// That a type is plain, if its fields are: all of them stand here, as declared, or it does not compile. Another layout on the device shows in the
/// code.
#[doc(hidden)]
#[macro_export]
macro_rules! __plain {
    (struct $name:ident { $($field:tt: $ty:ty,)* }) => {
        // SAFETY: `repr(C)` of plain data, or transparent around it; the code is of the fields' names, places and types.
        unsafe impl $crate::args::Crosses for $name {
            const CODE: ::core::primitive::u64 = $crate::args::Parts::of::<$name>(::core::stringify!($name))
                $(.field::<$name, $ty>(
                    ::core::stringify!($field),
                    ::core::mem::offset_of!($name, $field),
                    |value| &value.$field,
                ))*
                .code();
        }
        const _: fn(&$name) = |$name { $($field: _,)* }| ();
        // SAFETY: as above; a field with a pointer would be no plain data.
        unsafe impl $crate::args::Plain for $name {}
    };
    (enum $name:ident { $($value:ident,)* }) => {
        // SAFETY: an enum without data and with a `repr` is a number; the code is of the names and numbers of its values.
        unsafe impl $crate::args::Crosses for $name {
            const CODE: ::core::primitive::u64 = $crate::args::Parts::of::<$name>(::core::stringify!($name))
                $(.value(::core::stringify!($value), $name::$value as ::core::primitive::i128))*
                .code();
        }
        const _: fn($name) = |value| match value { $($name::$value => (),)* };
        // SAFETY: as above.
        unsafe impl $crate::args::Plain for $name {}
    };
}

#[cfg(test)]
mod tests {
    use super::{Crosses, RawOption};

    /// The code of a struct or enum called `P`, as its text stands here.
    macro_rules! code {
        ($($item:tt)*) => {{
            crate::plain! { #[allow(dead_code)] $($item)* }
            P::CODE
        }};
    }

    #[test]
    fn codes_differ_where_types_do() {
        let codes = [
            code!(
                struct P {
                    a: f32,
                    b: u32,
                }
            ),
            code!(
                struct P {
                    b: f32,
                    a: u32,
                }
            ),
            code!(
                struct P {
                    a: u32,
                    b: f32,
                }
            ),
            code!(
                struct P {
                    a: f32,
                    b: u32,
                    c: u32,
                }
            ),
            code!(
                struct P {
                    a: f32,
                    b: [u32; 1],
                }
            ),
            code!(
                struct P {
                    a: f32,
                }
            ),
            code!(
                struct P {}
            ),
            code!(
                enum P {
                    A,
                    B,
                }
            ),
            code!(
                enum P {
                    B,
                    A,
                }
            ),
            code!(
                enum P {
                    A = 1,
                    B = 0,
                }
            ),
            code!(
                enum P {
                    A,
                    B,
                    C,
                }
            ),
            f32::CODE,
            RawOption::<f32>::CODE,
            RawOption::<[f32; 1]>::CODE,
            <[f32; 1]>::CODE,
        ];
        for (k, code) in codes.iter().enumerate() {
            assert!(!codes[..k].contains(code), "code {k} is another's");
        }
    }

    #[test]
    fn the_same_text_has_the_same_code() {
        let [a, b] = [
            code!(
                struct P {
                    a: f32,
                    b: u32,
                }
            ),
            code!(
                struct P {
                    a: f32,
                    b: u32,
                }
            ),
        ];
        assert_eq!(a, b);
    }

    #[test]
    fn a_field_of_another_name_of_the_same_type_has_its_type_in_the_code() {
        mod inner {
            crate::plain! { #[allow(dead_code)] pub enum Mode { A, B } }
        }
        mod other {
            crate::plain! { #[allow(dead_code)] pub enum Mode { B, A } }
        }
        let a = code!(
            struct P {
                mode: inner::Mode,
            }
        );
        let b = code!(
            struct P {
                mode: other::Mode,
            }
        );
        assert_ne!(a, b);
    }

    #[test]
    fn options_cross_as_they_are() {
        for option in [None, Some(0u64), Some(u64::MAX)] {
            assert_eq!(RawOption::new(option).get(), option);
        }
    }
}
