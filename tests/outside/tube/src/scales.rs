//! A table of factors, one for each rank, as an argument of kernels.

use core::marker::PhantomData;
use fusewire::device::args::{Crosses, Lent, RawSlice};

/// The factors as hooks see them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DeviceScales<'a> {
    raw: RawSlice<f32>,
    life: PhantomData<&'a [f32]>,
}

// SAFETY: the words of a slice, the same on both sides, under a code of their own.
unsafe impl Crosses for DeviceScales<'static> {
    const CODE: u64 = 0x5ca1e5 << 32;
}

impl<'a> DeviceScales<'a> {
    /// The same for a shorter time.
    #[inline(always)]
    pub const fn lend<'b>(self, _: Lent<'b>) -> DeviceScales<'b>
    where
        'a: 'b,
    {
        DeviceScales { raw: self.raw, life: PhantomData }
    }

    /// The factor of a rank.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline(always)]
    pub fn of(&self, rank: usize) -> f32 {
        let lent = Lent::while_borrowed(self);
        // SAFETY: a launch made the slice of a buffer that it keeps.
        unsafe { self.raw.slice(lent)[rank] }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use host::Scales;

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use super::DeviceScales;
    use core::marker::PhantomData;
    use fusewire::kernel::{Binder, Handle};
    use fusewire::{Buffer, Device, Result};

    /// The factors on the host.
    #[derive(Debug)]
    pub struct Scales(Buffer<f32>);

    impl Scales {
        /// Copies the factors to a device.
        pub fn new(device: &Device, factors: &[f32]) -> Result<Self> {
            Ok(Scales(device.buffer_from(factors)?))
        }
    }

    // SAFETY: the binder keeps the buffer and knows that it is read.
    unsafe impl Handle for DeviceScales<'static> {
        type Owner<'a> = &'a Scales;

        fn bind(owner: &Scales, name: &'static str, binder: &mut Binder) -> Result<Self> {
            Ok(DeviceScales { raw: binder.read(name, &owner.0.view())?, life: PhantomData })
        }
    }
}
