//! Finding the CUDA driver, once, without a panic where there is none.

use std::fmt;
use std::sync::OnceLock;

use cudarc::driver::sys;

use crate::error::{Error, Result, check, is};
use crate::{Device, symbols};

/// A CUDA version, as a driver reports the newest it supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    raw: i32,
}

impl Version {
    /// From the driver's form, 1000 × major + 10 × minor.
    pub const fn from_raw(raw: i32) -> Self {
        Self { raw }
    }

    /// The number before the dot.
    pub const fn major(self) -> i32 {
        self.raw / 1000
    }

    /// The number after the dot.
    pub const fn minor(self) -> i32 {
        self.raw % 1000 / 10
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major(), self.minor())
    }
}

/// Proof that the CUDA driver is loaded, new enough and initialised.
///
/// Everything else in this crate is reached from here, so no driver function is called before it is known to
/// exist. A child made by `fork` alone cannot use the driver; start a new program instead.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    version: Version,
}

impl Driver {
    /// The oldest driver that works: CUDA 12.4 brought `cuFuncLoad` and `cuFuncGetParamInfo`.
    pub const OLDEST: Version = Version::from_raw(12040);

    /// Loads and initialises the driver (`cuInit`, `cuDriverGetVersion`).
    ///
    /// A success is remembered for the process, so later calls cost a load. A failure is not: a driver that
    /// was not ready yet may be tried again.
    ///
    /// # Errors
    /// [`Error::NoDriver`] without a working libcuda, [`Error::OldDriver`] below [`Driver::OLDEST`] or without
    /// a function this crate calls, [`Error::NoDevice`] where the driver sees no GPU, [`Error::Call`] otherwise.
    pub fn load() -> Result<Self> {
        static LOADED: OnceLock<Driver> = OnceLock::new();
        if let Some(driver) = LOADED.get() {
            return Ok(*driver);
        }
        let driver = Self::probe()?;
        Ok(*LOADED.get_or_init(|| driver))
    }

    fn probe() -> Result<Self> {
        use sys::CUresult::*;
        if !symbols::library_present() {
            let reason = "the library libcuda.so.1 was not found or could not be loaded";
            return Err(Error::NoDriver { reason: reason.to_owned() });
        }
        // Without these a status cannot even be put into words.
        const FIRST: &[&str] = &["cuDriverGetVersion", "cuInit", "cuGetErrorName", "cuGetErrorString"];
        if let Some(symbol) = symbols::missing(FIRST) {
            let reason =
                format!("the library called libcuda has no `{symbol}`, so it is not the CUDA driver");
            return Err(Error::NoDriver { reason });
        }
        let mut raw = 0;
        // SAFETY: the function exists, may be called before `cuInit`, and writes one int.
        let result = unsafe { sys::cuDriverGetVersion(&mut raw) };
        check_usable(result)?;
        check(result, "cuDriverGetVersion", || "asking for the driver's version".to_owned())?;
        let version = Version::from_raw(raw);
        let old = |missing| Error::OldDriver { found: version, needed: Self::OLDEST, missing };
        if version < Self::OLDEST {
            return Err(old(None));
        }
        if let Some(symbol) = symbols::missing(symbols::REQUIRED) {
            return Err(old(Some(symbol)));
        }
        if symbols::elapsed_time().is_none() {
            return Err(old(Some("cuEventElapsedTime")));
        }
        // SAFETY: the function exists; zero is the only flag there is.
        let result = unsafe { sys::cuInit(0) };
        if is(result, CUDA_ERROR_NO_DEVICE) {
            return Err(Error::NoDevice { reason: "the driver sees no GPU".to_owned() });
        }
        check_usable(result)?;
        check(result, "cuInit", || "initialising the driver".to_owned())?;
        Ok(Self { version })
    }

    /// The newest CUDA version that the driver supports.
    pub fn version(self) -> Version {
        self.version
    }

    /// Hardware queues that all streams of a device share (`CUDA_DEVICE_MAX_CONNECTIONS`, 8 unless set). A kernel that waits in a queue
    /// for the one before it on its stream keeps kernels of other streams behind it from beginning.
    pub fn connections(self) -> u32 {
        const UNLESS_SET: u32 = 8;
        let set = std::env::var(Self::CONNECTIONS).ok().and_then(|text| text.trim().parse().ok());
        set.unwrap_or(UNLESS_SET).clamp(1, Self::MOST_CONNECTIONS)
    }

    /// The variable that sets [`Driver::connections`]: read by the driver when it makes a context.
    pub const CONNECTIONS: &str = "CUDA_DEVICE_MAX_CONNECTIONS";
    /// The most that can be set.
    pub const MOST_CONNECTIONS: u32 = 32;

    /// The number of devices that this process may use (`cuDeviceGetCount`).
    ///
    /// # Errors
    /// [`Error::Call`] if the driver fails.
    pub fn device_count(self) -> Result<usize> {
        let mut count = 0;
        // SAFETY: the driver is initialised and `count` is a valid out-pointer.
        let result = unsafe { sys::cuDeviceGetCount(&mut count) };
        check(result, "cuDeviceGetCount", || "counting devices".to_owned())?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// The device with this ordinal, counted from 0 after `CUDA_VISIBLE_DEVICES` (`cuDeviceGet`).
    ///
    /// # Errors
    /// [`Error::NoDevice`] if the ordinal is not below [`Driver::device_count`].
    pub fn device(self, ordinal: usize) -> Result<Device> {
        let count = self.device_count()?;
        if ordinal >= count {
            return Err(Error::NoDevice {
                reason: format!("device {ordinal} was asked for, there are {count}"),
            });
        }
        Device::open(ordinal)
    }

    /// All devices in the order of their ordinals.
    ///
    /// # Errors
    /// [`Error::Call`] if the driver fails.
    pub fn devices(self) -> Result<Vec<Device>> {
        (0..self.device_count()?).map(Device::open).collect()
    }
}

/// Tells a library that stands in for the driver, or does not fit the kernel module, from other failures.
fn check_usable(result: sys::CUresult) -> Result<()> {
    use sys::CUresult::*;
    let reason = if is(result, CUDA_ERROR_STUB_LIBRARY) {
        "the libcuda found is the toolkit's stub for linking: take its folder out of LD_LIBRARY_PATH"
    } else if is(result, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH) {
        "libcuda and the loaded kernel module are of different versions: restart the machine after an update"
    } else {
        return Ok(());
    };
    Err(Error::NoDriver { reason: reason.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_written_with_a_dot() {
        assert_eq!(Version::from_raw(12040).to_string(), "12.4");
        assert_eq!(Version::from_raw(13010).to_string(), "13.1");
        assert!(Version::from_raw(12090) < Version::from_raw(13000));
    }

    #[test]
    fn loading_never_panics_and_says_what_to_do() {
        match Driver::load() {
            Ok(driver) => assert!(driver.version() >= Driver::OLDEST),
            Err(error @ Error::NoDriver { .. }) => {
                assert!(error.to_string().starts_with("no CUDA driver:"), "{error}");
                assert!(error.to_string().contains("install the NVIDIA driver"), "{error}");
                assert!(!symbols::library_present() || error.to_string().contains("libcuda"), "{error}");
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}
