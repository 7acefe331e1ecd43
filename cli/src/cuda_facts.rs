//! What the CUDA driver tells about this machine.

use fusewire_driver::{Device, DeviceAttribute, Driver, Error, PeerAttribute};

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
    /// Ranks that can share it, and the multiprocessors that each of them has then.
    pub shares: Vec<(u32, u32)>,
    /// Whether MPS serves it.
    pub mps: bool,
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
    /// There is no driver.
    #[error("libcuda is not on this machine")]
    NoLibrary,
    /// The driver is there and refuses.
    #[error("libcuda is there, but: {0}")]
    Driver(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        match error {
            Error::NoDriver { .. } => Trouble::NoLibrary,
            other => Trouble::Driver(other),
        }
    }
}

/// Asks the driver.
pub fn look() -> Result<Cuda, Trouble> {
    let driver = Driver::load()?;
    let (version, devices) = (driver.version(), driver.devices()?);
    let gpus = devices.iter().map(|device| gpu(device, &devices)).collect::<Result<_, Error>>()?;
    Ok(Cuda { version: (version.major() as u32, version.minor() as u32), gpus })
}

fn gpu(device: &Device, all: &[Device]) -> Result<Gpu, Error> {
    Ok(Gpu {
        name: device.name().to_owned(),
        capability: device.compute_capability(),
        memory: device.total_memory(),
        multiprocessors: device.sm_count(),
        shares: [2, 4, 8, 16].into_iter().filter_map(|ranks| Some((ranks, device.part_of(ranks)?))).collect(),
        mps: device.attribute(DeviceAttribute::MpsEnabled).is_ok_and(|mps| mps == 1),
        reaches: all.iter().map(|other| reach(device, other)).collect::<Result<_, _>>()?,
    })
}

fn reach(from: &Device, to: &Device) -> Result<Reach, Error> {
    Ok(if from == to {
        Reach::Itself
    } else if !from.can_access_peer(to)? {
        Reach::No
    } else if from.peer_attribute(to, PeerAttribute::NativeAtomics)? != 0 {
        Reach::Atomics
    } else {
        Reach::Memory
    })
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
