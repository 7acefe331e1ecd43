//! Kernels without their types: for callers that know names and addresses alone, such as other languages.
//!
//! `#[comm_kernel]` leaves a table of [`Kernel`]s in each module: one for each element type, schedule and transport of the attribute. A kernel
//! says what it takes ([`Field`]), is prepared on a transport, and is launched with [`Value`]s, which are checked when they come:
//!
//! ```
//! use fusewire::dynamic::{Call, Region, Value, kernels};
//! use fusewire::prelude::*;
//!
//! #[comm_kernel(transports(Shm), schedules(all_to_all))]
//! mod scaled {
//!     pub struct Args<'a> {
//!         pub input: &'a [f32],
//!         pub factor: f32,
//!         pub output: Out<'a, f32>,
//!     }
//!     pub fn produce(ctx: &Produce, args: &Args) -> f32 {
//!         args.factor * args.input[ctx.index()]
//!     }
//! }
//!
//! # fn main() -> fusewire::Result<()> {
//! let shm = Shm::rendezvous(&World::single()?, 1 << 16)?;
//! let kernel = &kernels!(scaled)[0];
//! let fields: Vec<_> = kernel.fields.iter().map(|field| field.name).collect();
//! assert_eq!((kernel.name, kernel.schedule, fields), ("scaled", "all_to_all", vec!["input", "factor", "output"]));
//!
//! let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
//! let (input, output) = (device.buffer_from(&[1.0f32; 64])?, device.buffer::<f32>(64)?);
//! let [from, to] = [&input, &output].map(|buffer| Region::of(buffer));
//! let values = [Value::Region(&from), Value::plain(&3.0f32), Value::Region(&to)];
//! kernel.prepare(&shm)?.launch(&stream, &values, &Call::default())?;
//! assert_eq!(output.read(&stream)?, vec![3.0; 64]);
//! # Ok(())
//! # }
//! ```

mod launch;
mod values;

pub use launch::{Call, DynLauncher};
#[doc(hidden)]
pub use values::{FromValues, Values};
pub use values::{Region, Value};

use crate::kernel::{HookSet, Supports};
use crate::schedule::{Custom, CustomLauncher, Launcher};
use crate::{Error, Result, Transport};
use fusewire_device::args::{Crosses, Plain};
use fusewire_device::element::{Element, FieldBits};
use launch::{Named, Shipped};
use std::any::Any;
use std::marker::PhantomData;

/// A kernel for one element type, schedule and transport.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// The module or the function, without its path.
    pub name: &'static str,
    /// What a generic module was compiled for, `f32`, `8` or `f32, 8`; else empty.
    pub element: &'static str,
    /// The schedule; `custom` for a function.
    pub schedule: &'static str,
    /// The transport.
    pub transport: &'static str,
    /// What a launch takes, in order.
    pub fields: &'static [Field],
    prepare: fn(&'static str, &dyn Any) -> Result<Box<dyn DynLauncher>>,
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// What becomes of it.
    pub access: Access,
    /// What it is of: [`Crosses::CODE`] of an element or of a value.
    pub code: u64,
    /// Bytes of an element, or of a value.
    pub size: usize,
    /// A value that may be left out.
    pub optional: bool,
    /// Whether any bytes of its size are known to be one: of elements, and of values that are elements (structs with `#[derive(Element)]` among
    /// them) or arrays of these. Of a `bool`, say, some bytes are no value.
    pub any_bytes: bool,
}

/// What becomes of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Elements that hooks read.
    Read,
    /// Elements that hooks write, each in its place.
    Write,
    /// Elements that hooks read, and write when they have been sent.
    ReadWrite,
    /// Elements that hooks add to.
    AddTo,
    /// A value.
    Value,
}

/// The kernels of modules and schedule functions that `#[comm_kernel]` is on, as a slice: `kernels!(my::hooks, another)`. None of them may have
/// an argument that is a window, peers, or a handle of a device crate.
#[macro_export]
#[doc(hidden)]
macro_rules! __kernels {
    ($($($path:ident)::+),+ $(,)?) => {
        [$($($path)::+::__KERNELS),+].concat()
    };
}
pub use __kernels as kernels;

/// [`Field::any_bytes`] of a type: `AnyBytes::<T>::HOLDS` is the constant of the type where it has one, else that of the trait.
#[doc(hidden)]
#[derive(Debug)]
pub struct AnyBytes<T>(PhantomData<T>);

#[doc(hidden)]
pub trait SomeBytes {
    const HOLDS: bool = false;
}

impl<T> SomeBytes for AnyBytes<T> {}

impl<T: FieldBits> AnyBytes<T> {
    #[doc(hidden)]
    pub const HOLDS: bool = true;
}

/// Asks [`AnyBytes`] of a type that is not generic where this stands.
#[macro_export]
#[doc(hidden)]
macro_rules! __any_bytes {
    ($t:ty) => {{
        #[allow(unused_imports)]
        use $crate::dynamic::SomeBytes as _;
        $crate::dynamic::AnyBytes::<$t>::HOLDS
    }};
}
#[doc(hidden)]
pub use __any_bytes as any_bytes;

impl Kernel {
    #[doc(hidden)]
    pub const fn new<S: Shipped, X: Transport, H: Supports<S, X>>(name: &'static str) -> Self
    where
        for<'v> H::Args<'v>: FromValues<'v>,
    {
        let prepare = |name, transport: &dyn Any| {
            let launcher = Launcher::<S, X, H>::new(on::<X>(name, transport)?)?;
            Ok(Box::new(Named { name, launcher }) as Box<dyn DynLauncher>)
        };
        Self::with::<X, H>(name, S::NAME, prepare)
    }

    #[doc(hidden)]
    pub const fn custom<X: Transport, H: Supports<Custom, X>>(name: &'static str) -> Self
    where
        for<'v> H::Args<'v>: FromValues<'v>,
    {
        let prepare = |name, transport: &dyn Any| {
            let launcher = CustomLauncher::<X, H>::new(on::<X>(name, transport)?)?;
            Ok(Box::new(Named { name, launcher }) as Box<dyn DynLauncher>)
        };
        Self::with::<X, H>(name, "custom", prepare)
    }

    const fn with<X: Transport, H: HookSet>(
        name: &'static str,
        schedule: &'static str,
        prepare: fn(&'static str, &dyn Any) -> Result<Box<dyn DynLauncher>>,
    ) -> Self
    where
        for<'v> H::Args<'v>: FromValues<'v>,
    {
        let fields = <H::Args<'static> as FromValues<'static>>::FIELDS;
        Kernel { name, element: H::ELEMENT, schedule, transport: X::NAME, fields, prepare }
    }

    /// Prepares it on a transport. Collective: all ranks call it, in the same order.
    ///
    /// # Errors
    /// [`Error::Misuse`] for another transport than the kernel's; what preparing it by its type gives.
    pub fn prepare<X: Transport>(&self, transport: &X) -> Result<Box<dyn DynLauncher>> {
        self.prepare_on(transport)
    }

    /// As [`Kernel::prepare`], on a transport whose type is known to the caller's caller alone.
    ///
    /// # Errors
    /// As for [`Kernel::prepare`].
    pub fn prepare_on(&self, transport: &dyn Any) -> Result<Box<dyn DynLauncher>> {
        (self.prepare)(self.name, transport)
    }
}

fn on<'t, X: Transport>(name: &str, transport: &'t dyn Any) -> Result<&'t X> {
    transport.downcast_ref().ok_or_else(|| {
        Error::misuse(format!(
            "this kernel of `{name}` is for the transport `{}`: prepare it on one, or take the kernel of the transport at hand",
            X::NAME
        ))
    })
}

impl Field {
    const fn elements<T: Element>(name: &'static str, access: Access) -> Self {
        Field { name, access, code: T::CODE, size: T::SIZE, optional: false, any_bytes: true }
    }

    #[doc(hidden)]
    pub const fn read<T: Element>(name: &'static str) -> Self {
        Self::elements::<T>(name, Access::Read)
    }

    #[doc(hidden)]
    pub const fn write<T: Element>(name: &'static str) -> Self {
        Self::elements::<T>(name, Access::Write)
    }

    #[doc(hidden)]
    pub const fn read_write<T: Element>(name: &'static str) -> Self {
        Self::elements::<T>(name, Access::ReadWrite)
    }

    #[doc(hidden)]
    pub const fn accumulate<T: Element>(name: &'static str) -> Self {
        Self::elements::<T>(name, Access::AddTo)
    }

    #[doc(hidden)]
    pub const fn value<T: Plain>(name: &'static str, any_bytes: bool) -> Self {
        let (access, code) = (Access::Value, <T as Crosses>::CODE);
        Field { name, access, code, size: size_of::<T>(), optional: false, any_bytes }
    }

    #[doc(hidden)]
    pub const fn option<T: Plain>(name: &'static str, any_bytes: bool) -> Self {
        Field { optional: true, ..Self::value::<T>(name, any_bytes) }
    }
}

#[cfg(test)]
mod tests;
