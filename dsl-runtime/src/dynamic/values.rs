//! What a launch is given, and how it becomes the arguments of a kernel.

use super::{Access, Field};
use crate::buffer::Memory;
use crate::{Buffer, Device, Error, Result, Stream, View, ViewMut, foreign};
use fusewire_device::args::{Crosses, Plain};
use fusewire_device::element::Element;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Elements in memory, of a type that has a number.
#[derive(Clone)]
pub struct Region {
    memory: Arc<Memory>,
    /// Bytes from the memory's first.
    start: usize,
    /// Elements.
    len: usize,
    /// Bytes of an element.
    size: usize,
    code: u64,
}

impl Region {
    /// All of a buffer. Launches keep it alive.
    pub fn of<T: Element>(buffer: &Buffer<T>) -> Self {
        let (memory, len) = (Arc::clone(buffer.memory()), buffer.len());
        Region { memory, start: 0, len, size: T::SIZE, code: T::CODE }
    }

    /// The bytes `bytes` of it as elements of the type with the number `code`, each of `size` bytes.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the range is not within it, or is not made of such elements.
    pub fn slice(&self, bytes: Range<usize>, code: u64, size: usize) -> Result<Self> {
        let own = self.bytes();
        let Range { start, end } = bytes;
        if start > end || end > own {
            return Err(Error::misuse(format!("bytes {start}..{end} of a region of {own} bytes")));
        }
        let (from, size) = (self.start + start, size.max(1));
        if element_size(code) != Some(size)
            || !from.is_multiple_of(size)
            || !(end - start).is_multiple_of(size)
        {
            return Err(Error::misuse(format!(
                "bytes {start}..{end} of a region are not elements of {size} bytes of a known type"
            )));
        }
        Ok(Region { memory: Arc::clone(&self.memory), start: from, len: (end - start) / size, size, code })
    }

    /// `len` elements at `address`, of the type with the number `code`, in memory of `device` that somebody else has. Nobody is told when it is
    /// not used any more: it is for memory that is given back in the order of the stream that is launched on, as caching allocators do.
    ///
    /// # Errors
    /// [`Error::Misuse`] for an address that is null, not aligned or not in the memory of `device`.
    ///
    /// # Safety
    /// The elements can be read and written until the work has run that was queued with this. Nobody else uses them at the same time as that
    /// work, unless both only read; work on other streams is ordered by the caller.
    pub unsafe fn borrowed(device: &Device, address: u64, len: usize, code: u64) -> Result<Self> {
        let Some(size) = element_size(code) else {
            return Err(Error::misuse(format!("there are no elements of a type with the number {code}")));
        };
        let memory = foreign::memory(device, address, len, size, None)?;
        Ok(Region { memory: Arc::new(memory), start: 0, len, size, code })
    }

    /// As [`Buffer::hand_to`], of the whole memory that it is in.
    ///
    /// # Errors
    /// As there.
    pub fn hand_to(&self, stream: &Stream) -> Result<()> {
        foreign::hand_to(&self.memory, stream)
    }

    /// Address of the first element.
    pub fn address(&self) -> u64 {
        self.memory.address() + self.start as u64
    }

    /// Bytes.
    pub fn bytes(&self) -> usize {
        self.len * self.size
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = Named(self.code);
        write!(f, "{} elements of {of} in {:?}", self.len, self.memory)
    }
}

/// One argument of a launch.
#[derive(Clone, Copy, Debug)]
pub enum Value<'v> {
    /// Elements: for what hooks read, write or add to.
    Region(&'v Region),
    /// A value, by [`Value::plain`] or [`Value::from_bytes`].
    Scalar(Bytes<'v>),
    /// Nothing: for an `Option`.
    Absent,
}

/// The bytes of a value, and the number of its type.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'v> {
    code: u64,
    bytes: &'v [u8],
}

impl<'v> Value<'v> {
    /// A value.
    pub fn plain<T: Plain>(value: &'v T) -> Self {
        // SAFETY: plain data; bytes between fields, if any, are read as whatever they are by `read_unaligned` of the same type alone.
        let bytes = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) };
        Value::Scalar(Bytes { code: T::CODE, bytes })
    }

    /// The bytes of a value of the type with the number `code`.
    ///
    /// # Safety
    /// They are those of such a value: a `bool` is 0 or 1, say.
    pub unsafe fn from_bytes(code: u64, bytes: &'v [u8]) -> Self {
        Value::Scalar(Bytes { code, bytes })
    }
}

/// A launch's arguments that can be made from values. Generated.
///
/// `FIELDS` are the fields in order, and `from_values` takes as many values.
#[doc(hidden)]
pub trait FromValues<'v>: Sized {
    const FIELDS: &'static [Field];
    /// # Errors
    /// [`Error::Misuse`] naming the field.
    fn from_values(values: Values<'_, 'v>) -> Result<Self>;
}

/// Values that are taken one after the other.
#[doc(hidden)]
pub struct Values<'s, 'v> {
    fields: &'static [Field],
    values: &'s [Value<'v>],
}

impl<'s, 'v> Values<'s, 'v> {
    pub(super) fn new(name: &str, fields: &'static [Field], values: &'s [Value<'v>]) -> Result<Self> {
        if fields.len() != values.len() {
            let all: Vec<_> = fields.iter().map(|field| format!("`{}`", field.name)).collect();
            return Err(Error::misuse(format!(
                "{} arguments for `{name}`, which has {}: {}",
                values.len(),
                fields.len(),
                all.join(", ")
            )));
        }
        Ok(Values { fields, values })
    }

    fn next(&mut self) -> Result<(&'static Field, Value<'v>)> {
        let (Some((field, fields)), Some((value, values))) =
            (self.fields.split_first(), self.values.split_first())
        else {
            return Err(Error::misuse("fewer arguments than fields"));
        };
        (self.fields, self.values) = (fields, values);
        Ok((field, *value))
    }

    /// The next as so many elements from a first one on.
    fn region<T: Element>(&mut self) -> Result<(&'v Region, usize, usize)> {
        let (field, value) = self.next()?;
        match value {
            Value::Region(region) if region.code == T::CODE => {
                Ok((region, region.start / T::SIZE, region.len))
            }
            // Structs have no number that others know: their bytes stand for them.
            Value::Region(region) if region.code == u8::CODE && element(T::CODE).is_none() => {
                let whole = region.start.is_multiple_of(T::SIZE) && region.len.is_multiple_of(T::SIZE);
                let aligned = region.address().is_multiple_of(align_of::<T>() as u64);
                match whole && aligned {
                    true => Ok((region, region.start / T::SIZE, region.len / T::SIZE)),
                    false => Err(Error::misuse(format!(
                        "argument `{}` has elements of {}, of {} bytes and aligned to {}, but these are {} bytes at {:#x}",
                        field.name,
                        T::NAME,
                        T::SIZE,
                        align_of::<T>(),
                        region.len,
                        region.address()
                    ))),
                }
            }
            Value::Region(region) => Err(Error::misuse(format!(
                "argument `{}` has elements of {}, but these are of {}",
                field.name,
                T::NAME,
                Named(region.code)
            ))),
            Value::Scalar(_) | Value::Absent => Err(Error::misuse(format!(
                "argument `{}` has elements of {}, but this is a single value",
                field.name,
                T::NAME
            ))),
        }
    }

    /// The next, to be read.
    ///
    /// # Errors
    /// [`Error::Misuse`] if it is no such thing.
    pub fn read<T: Element>(&mut self) -> Result<View<'v, T>> {
        let (region, start, len) = self.region::<T>()?;
        Ok(View::over(&region.memory, start, len))
    }

    /// The next, to be written.
    ///
    /// # Errors
    /// As for [`Values::read`].
    pub fn write<T: Element>(&mut self) -> Result<ViewMut<'v, T>> {
        let (region, start, len) = self.region::<T>()?;
        Ok(ViewMut::over(&region.memory, start, len))
    }

    /// The next, by value.
    ///
    /// # Errors
    /// As for [`Values::read`].
    pub fn value<T: Plain>(&mut self) -> Result<T> {
        let (field, value) = self.next()?;
        debug_assert_eq!(field.access, Access::Value);
        match value {
            Value::Scalar(Bytes { code, bytes }) if code == T::CODE && bytes.len() == size_of::<T>() => {
                // SAFETY: the bytes of a value of the same type, by `Value::plain` or the contract of `Value::from_bytes`.
                Ok(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
            }
            Value::Scalar(Bytes { code, bytes }) => Err(Error::misuse(format!(
                "argument `{}` is {} of {} bytes, but this is {} of {}",
                field.name,
                Named(T::CODE),
                size_of::<T>(),
                Named(code),
                bytes.len()
            ))),
            Value::Region(_) => Err(Error::misuse(format!(
                "argument `{}` is a single value, but these are elements in memory",
                field.name
            ))),
            Value::Absent => Err(Error::misuse(format!("argument `{}` is not an `Option`", field.name))),
        }
    }

    /// The next, by value or left out.
    ///
    /// # Errors
    /// As for [`Values::read`].
    pub fn option<T: Plain>(&mut self) -> Result<Option<T>> {
        match self.values.first() {
            Some(Value::Absent) => self.next().map(|_| None),
            _ => self.value().map(Some),
        }
    }
}

macro_rules! elements {
    ($($t:ident)*) => {
        /// Bytes and name of the element type with that number.
        fn element(code: u64) -> Option<(usize, &'static str)> {
            use fusewire_device::element::{Bf16, F16, F8E4M3, F8E5M2};
            $(if code == <$t as Crosses>::CODE {
                return Some((<$t as Element>::SIZE, <$t as Element>::NAME));
            })*
            None
        }
    };
}
elements! { u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 F16 Bf16 F8E4M3 F8E5M2 }

fn element_size(code: u64) -> Option<usize> {
    element(code).map(|(size, _)| size)
}

/// A type by its number.
struct Named(u64);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            code if code == <bool as Crosses>::CODE => f.write_str("bool"),
            code if code == <usize as Crosses>::CODE => f.write_str("usize"),
            code if code == <isize as Crosses>::CODE => f.write_str("isize"),
            code => match element(code) {
                Some((_, name)) => f.write_str(name),
                None => write!(f, "type {code:#x}"),
            },
        }
    }
}
