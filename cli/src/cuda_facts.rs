//! What the CUDA driver tells about this machine. Never panics where there is no driver.

use std::ffi::c_int;

use cudarc::driver::{
    DriverError, result,
    sys::{self, CUdevice_P2PAttribute, CUdevice_attribute},
};

/// The driver and its GPUs.
#[derive(Debug)]
pub struct Cuda {
    /// Major and minor CUDA version that the driver takes.
    pub version: (u32, u32),
    /// The GPUs, by ordinal.
    pub gpus: Vec<Gpu>,
}

/// One GPU.
#[derive(Debug)]
pub struct Gpu {
    /// Its name.
    pub name: String,
    /// Compute capability.
    pub capability: (u32, u32),
    /// Memory in bytes.
    pub memory: u64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// For every GPU, by ordinal, whether this one can read and write its memory, and do atomics there.
    pub reaches: Vec<Reach>,
}

/// How one GPU reaches another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It is the same GPU.
    Itself,
    /// Loads, stores and atomics.
    Atomics,
    /// Loads and stores only.
    Memory,
    /// Not at all.
    No,
}

/// Why nothing is told.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// There is no driver library.
    #[error("libcuda is not on this machine")]
    NoLibrary,
    /// The driver refuses.
    #[error("libcuda is there, but {step} failed: {error:?}")]
    Driver {
        /// What was asked.
        step: &'static str,
        /// The driver's word.
        error: DriverError,
    },
}

/// Asks the driver.
pub fn look() -> Result<Cuda, Trouble> {
    // SAFETY: it only tries to open the driver's library, which has no requirement of its caller.
    if !unsafe { sys::is_culib_present() } {
        return Err(Trouble::NoLibrary);
    }
    let at = |step| move |error| Trouble::Driver { step, error };
    result::init().map_err(at("cuInit"))?;
    let mut version: c_int = 0;
    // SAFETY: `version` is a live, writable int for the length of the call.
    let status = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    status.result().map_err(at("cuDriverGetVersion"))?;
    let count = result::device::get_count().map_err(at("cuDeviceGetCount"))?;
    let devices: Result<Vec<_>, _> = (0..count).map(result::device::get).collect();
    let devices = devices.map_err(at("cuDeviceGet"))?;
    let gpus = devices.iter().map(|device| gpu(*device, &devices).map_err(at("a GPU's attributes")));
    let (major, minor) = (version / 1000, version % 1000 / 10);
    Ok(Cuda { version: (major as u32, minor as u32), gpus: gpus.collect::<Result<_, _>>()? })
}

fn gpu(device: sys::CUdevice, all: &[sys::CUdevice]) -> Result<Gpu, DriverError> {
    let attribute = |attribute| {
        // SAFETY: `device` came from `cuDeviceGet` after `cuInit`.
        unsafe { result::device::get_attribute(device, attribute) }.map(|value| value as u32)
    };
    // SAFETY: as above.
    let memory = unsafe { result::device::total_mem(device) }?;
    let reaches = all.iter().map(|other| reach(device, *other)).collect::<Result<_, _>>()?;
    Ok(Gpu {
        name: result::device::get_name(device)?,
        capability: (
            attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        memory: memory as u64,
        multiprocessors: attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        reaches,
    })
}

fn reach(from: sys::CUdevice, to: sys::CUdevice) -> Result<Reach, DriverError> {
    if from == to {
        return Ok(Reach::Itself);
    }
    let ask = |attribute| {
        let mut value: c_int = 0;
        // SAFETY: both devices came from `cuDeviceGet` and differ; `value` is live and writable.
        let status = unsafe { sys::cuDeviceGetP2PAttribute(&raw mut value, attribute, from, to) };
        status.result().map(|()| value != 0)
    };
    if !ask(CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED)? {
        return Ok(Reach::No);
    }
    let atomics = ask(CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED)?;
    Ok(if atomics { Reach::Atomics } else { Reach::Memory })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_never_panics() {
        match look() {
            Ok(cuda) => assert!(cuda.version.0 >= 11),
            Err(trouble) => assert!(trouble.to_string().contains("libcuda")),
        }
    }
}
