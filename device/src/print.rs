//! Lines that hooks print, to see a few values while a hook is being written: [`print_at!`](crate::print_at).
//!
//! On CPU threads a line goes to standard output at once. On GPUs the driver's `vprintf` keeps lines in a buffer, one mebibyte unless the program sets
//! another limit, and the host prints them when it waits for a stream; if there are more, the oldest are lost.

pub(crate) mod printed;

#[cfg(target_arch = "nvptx64")]
use crate::arch;
use crate::ctx::{Consume, Ctx, Produce};
use crate::group::{Block, Group};
use crate::kernel::Kernel;
use crate::ops::Ops;
use crate::row::{ConsumeRow, ProduceRow, leads_row};
use core::marker::PhantomData;
pub use printed::Printed;
#[cfg(not(target_arch = "nvptx64"))]
use std::{string::String, vec::Vec};

/// Prints a line from a hook: the rank and the place that the context names, then the text, with a value for each `{}` in it.
///
/// ```
/// use fusewire_device::prelude::*;
///
/// struct Args<'a> { input: &'a [f32] }
///
/// fn produce(ctx: &Produce, args: &Args) -> f32 {
///     let value = args.input[ctx.index()];
///     if value.is_nan() {
///         print_at!(ctx, "NaN for rank {}, bits {}", ctx.peer, value.to_bits());
///     }
///     value
/// }
/// // [rank 1, element 4097] NaN for rank 0, bits 2143289344
/// ```
///
/// Values are numbers of any element type, `usize` and `isize`, up to eight. A schedule's block prints once, `print_at!(kernel, ..)`, with its number; a row once, and not once for each of its
/// threads. A hook that may print is slower on GPUs even where it does not: take the line out when the hook is right.
#[macro_export]
macro_rules! print_at {
    ($ctx:expr, $text:literal $(, $value:expr)* $(,)?) => {{
        const _: () = $crate::print::check($text, &[$(::core::stringify!($value)),*]);
        struct __Text;
        impl $crate::print::Text for __Text {
            const TEXT: &'static ::core::primitive::str = $text;
        }
        $crate::print::line::<__Text, _, _>(&*$ctx, ($($value,)*))
    }};
}

/// The text of a line.
#[doc(hidden)]
pub trait Text {
    const TEXT: &'static str;
}

/// A context that a line is printed at.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no context",
    label = "no rank and place to print",
    note = "`print_at!(ctx, \"text {{}}\", value)`: first the context of the hook, or the kernel of a schedule"
)]
pub trait Place {
    /// What `number` counts.
    #[doc(hidden)]
    const WHAT: &'static str;
    /// The rank, and the number of the element, row or block.
    #[doc(hidden)]
    fn place(&self) -> [usize; 2];
    /// Whether this thread prints, of those that come here together.
    #[doc(hidden)]
    fn prints(&self) -> bool {
        true
    }
}

impl Place for Ctx {
    const WHAT: &'static str = "element";
    #[inline(always)]
    fn place(&self) -> [usize; 2] {
        [self.rank, self.index()]
    }
}

macro_rules! of_ctx {
    ($($name:ident)*) => {$(
        impl Place for $name {
            const WHAT: &'static str = Ctx::WHAT;
            #[inline(always)]
            fn place(&self) -> [usize; 2] {
                Ctx::place(self)
            }
        }
    )*};
}
of_ctx! { Produce Consume }

macro_rules! of_rows {
    ($($name:ident)*) => {$(
        impl<const N: usize, const S: usize> Place for $name<N, S> {
            const WHAT: &'static str = "row";
            #[inline(always)]
            fn place(&self) -> [usize; 2] {
                [self.rank, self.index]
            }
            #[inline(always)]
            fn prints(&self) -> bool {
                leads_row::<N>()
            }
        }
    )*};
}
of_rows! { ProduceRow ConsumeRow }

impl<O: Ops> Place for Kernel<O> {
    const WHAT: &'static str = "block";
    #[inline(always)]
    fn place(&self) -> [usize; 2] {
        [self.rank(), self.block()]
    }
    #[inline(always)]
    fn prints(&self) -> bool {
        Block.leads()
    }
}

/// Values of a line at most.
pub(crate) const MOST: usize = 8;

/// What a line is printed with: a tuple.
#[doc(hidden)]
pub trait Values {
    const CONVERSIONS: &'static [&'static str];
    fn bits(self) -> [u64; MOST];
    #[cfg(not(target_arch = "nvptx64"))]
    fn texts(self) -> Vec<String>;
}

macro_rules! values {
    ($(($($t:ident)*))*) => {$(
        impl<$($t: Printed),*> Values for ($($t,)*) {
            const CONVERSIONS: &'static [&'static str] = &[$($t::CONVERSION),*];
            #[inline(always)]
            #[allow(non_snake_case, unused_mut, unused_assignments, unused_variables)]
            fn bits(self) -> [u64; MOST] {
                let ($($t,)*) = self;
                let (mut bits, mut at) = ([0; MOST], 0);
                $(bits[at] = $t.bits(); at += 1;)*
                bits
            }
            #[cfg(not(target_arch = "nvptx64"))]
            #[allow(non_snake_case)]
            fn texts(self) -> Vec<String> {
                let ($($t,)*) = self;
                std::vec![$($t.text()),*]
            }
        }
    )*};
}
values! { () (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H) }

/// A line's format, as C has it.
struct Format<T, P: ?Sized, V>(PhantomData<(T, V)>, PhantomData<P>);

/// Bytes of a format, with the zero at its end, at most.
pub(crate) const LENGTH: usize = 512;

impl<T: Text, P: Place + ?Sized, V: Values> Format<T, P, V> {
    const BYTES: [u8; LENGTH] = format(T::TEXT, P::WHAT, V::CONVERSIONS);
}

/// Refuses, where the macro stands, a text that has not one `{}` for each value, or that is too long.
#[doc(hidden)]
pub const fn check(text: &str, values: &[&str]) {
    assert!(values.len() <= MOST, "`print_at!` takes up to eight values");
    // As long as any.
    format(text, "element", ["%.17g"; MOST].split_at(values.len()).0);
}

const fn format(text: &str, what: &str, conversions: &[&str]) -> [u8; LENGTH] {
    // Conversions and doubled per cents take more: place has 30 bytes, and 2 * 200 + 8 are left.
    assert!(text.len() <= 200, "the text of `print_at!` is longer than 200 bytes: use two lines");
    let mut bytes = [0; LENGTH];
    let mut at = add(&mut bytes, 0, "[rank %llu, ");
    at = add(&mut bytes, at, what);
    at = add(&mut bytes, at, " %llu] ");
    at = convert(&mut bytes, at, text, conversions);
    add(&mut bytes, at, "\n");
    bytes
}

const fn add(bytes: &mut [u8; LENGTH], at: usize, text: &str) -> usize {
    let (mut k, text) = (0, text.as_bytes());
    while k < text.len() {
        bytes[at + k] = text[k];
        k += 1;
    }
    at + text.len()
}

/// Writes `text` with C's conversions to `bytes`, from `at` on; where it ends.
pub(crate) const fn convert(
    bytes: &mut [u8; LENGTH],
    mut at: usize,
    text: &str,
    conversions: &[&str],
) -> usize {
    let (text, mut k, mut value) = (text.as_bytes(), 0, 0);
    while k < text.len() {
        match (text[k], if k + 1 < text.len() { text[k + 1] } else { 0 }) {
            (b'{', b'}') => {
                assert!(value < conversions.len(), "`print_at!` has more `{{}}` than values");
                at = add(bytes, at, conversions[value]);
                (k, value) = (k + 2, value + 1);
                continue;
            }
            (b'{', b'{') | (b'}', b'}') => k += 1,
            (b'{' | b'}', _) => panic!(
                "`print_at!` takes `{{}}` for a value, and these doubled for braces; values stand behind the text"
            ),
            (b'%', _) => at = add(bytes, at, "%"),
            _ => {}
        }
        bytes[at] = text[k];
        (k, at) = (k + 1, at + 1);
    }
    assert!(value == conversions.len(), "`print_at!` has more values than `{{}}`");
    at
}

/// Prints a line.
#[doc(hidden)]
#[inline(always)]
pub fn line<T: Text, P: Place + ?Sized, V: Values>(place: &P, values: V) {
    let format = const { &Format::<T, P, V>::BYTES };
    if !place.prints() {
        return;
    }
    let [rank, number] = place.place();
    #[cfg(target_arch = "nvptx64")]
    {
        let mut all = [0; 2 + MOST];
        (all[0], all[1]) = (rank as u64, number as u64);
        all[2..].copy_from_slice(&values.bits());
        // SAFETY: a format that ends in a zero, and a value of 64 bits for each of its conversions.
        unsafe { arch::print(format, &all) };
    }
    #[cfg(not(target_arch = "nvptx64"))]
    std::print!("{}", written(format, [rank, number], &values.texts()));
}

/// A line as `format` has it, of values that are written out.
#[cfg(not(target_arch = "nvptx64"))]
fn written(format: &[u8; LENGTH], place: [usize; 2], values: &[String]) -> String {
    let mut parts = place.map(|n| std::format!("{n}")).into_iter().chain(values.iter().cloned());
    let end = format.iter().position(|b| *b == 0).unwrap_or(LENGTH);
    fill(core::str::from_utf8(&format[..end]).unwrap_or_default(), |_| parts.next().unwrap_or_default())
}

/// The text of a format as C has it, perhaps cut, with the values that a GPU gave as bits.
#[cfg(not(target_arch = "nvptx64"))]
pub fn filled(format: &str, values: &[u64]) -> String {
    let mut values = values.iter();
    fill(format, |conversion| match (conversion, values.next()) {
        ("llu", Some(v)) => std::format!("{v}"),
        ("lld", Some(v)) => std::format!("{}", v.cast_signed()),
        (".17g", Some(v)) => std::format!("{}", f64::from_bits(*v)),
        (".9g" | ".6g", Some(v)) => std::format!("{}", f64::from_bits(*v) as f32),
        _ => "..".into(),
    })
}

#[cfg(not(target_arch = "nvptx64"))]
fn fill(format: &str, mut value: impl FnMut(&str) -> String) -> String {
    let mut out = String::new();
    let mut rest = format;
    while let Some((before, behind)) = rest.split_once('%') {
        out.push_str(before);
        rest = match behind.strip_prefix('%') {
            Some(behind) => {
                out.push('%');
                behind
            }
            // Conversions end in their letter.
            None => {
                let end = behind.find(['u', 'd', 'g', '?']).map_or(behind.len(), |at| at + 1);
                out.push_str(&value(&behind[..end]));
                &behind[end..]
            }
        };
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{Bf16, F8E4M3, Float};
    use std::string::ToString;

    fn text(text: &str, conversions: &[&str]) -> String {
        let bytes = format(text, "element", conversions);
        let end = bytes.iter().position(|b| *b == 0).unwrap();
        core::str::from_utf8(&bytes[..end]).unwrap().to_string()
    }

    #[test]
    fn formats_are_cs() {
        let place = "[rank %llu, element %llu] ";
        assert_eq!(text("", &[]), format!("{place}\n"));
        let conversions = [<u8 as Printed>::CONVERSION, <f32 as Printed>::CONVERSION];
        assert_eq!(text("{}% of {{{}}} ü", &conversions), format!("{place}%llu%% of {{%.9g}} ü\n"));
    }

    #[test]
    fn lines_have_place_and_values() {
        let bytes = format("{} {}% {}", "row", &["%lld", "%.6g", "%llu"]);
        let values = [(-3i8).text(), Bf16::from_f32(0.5).text(), u64::MAX.text()];
        assert_eq!(written(&bytes, [1, 42], &values), "[rank 1, row 42] -3 0.5% 18446744073709551615\n");
    }

    #[test]
    fn values_have_64_bits() {
        assert_eq!((-3i8, 7u16, 1.5f32).bits()[..3], [-3i64 as u64, 7, 1.5f64.to_bits()]);
        assert_eq!(F8E4M3::from_f32(0.25).bits(), 0.25f64.to_bits());
        assert_eq!((1u8, 2u8, 3u8, 4u8, 5u8, 6u8, 7u8, 8usize).bits(), [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn texts_as_long_as_may_be() {
        let text = "%".repeat(200 - 2 * MOST) + &"{}".repeat(MOST);
        check(&text, &["a"; MOST]);
        assert_eq!(format(&text, "element", &["%.17g"; MOST])[LENGTH - 1], 0);
        assert!(std::panic::catch_unwind(|| check(&(text + "!"), &["a"; MOST])).is_err());
    }

    #[test]
    #[should_panic(expected = "more `{}` than values")]
    fn a_value_for_each_pair_of_braces() {
        check("{} {}", &["a"]);
    }

    #[test]
    #[should_panic(expected = "more values than `{}`")]
    fn a_pair_of_braces_for_each_value() {
        check("{}", &["a", "b"]);
    }

    #[test]
    #[should_panic(expected = "takes `{}` for a value")]
    fn names_in_braces_are_refused() {
        check("{x}", &["x"]);
    }
}
