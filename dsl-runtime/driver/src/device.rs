//! Devices and what they can do.

use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys;

use crate::error::{Error, Result, check};

/// A property of a device that the driver gives as one number (`CUdevice_attribute`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceAttribute {
    /// Threads in a warp.
    WarpSize,
    /// Most threads in a block.
    MaxThreadsPerBlock,
    /// Most threads resident on a multiprocessor.
    MaxThreadsPerMultiprocessor,
    /// Most blocks resident on a multiprocessor.
    MaxBlocksPerMultiprocessor,
    /// 32-bit registers of a multiprocessor.
    RegistersPerMultiprocessor,
    /// Bytes of shared memory of a multiprocessor.
    SharedMemoryPerMultiprocessor,
    /// Bytes of shared memory that a block may use without opting in.
    SharedMemoryPerBlock,
    /// Bytes of shared memory that the system reserves in each block.
    ReservedSharedMemoryPerBlock,
    /// Bytes of level-2 cache.
    L2CacheSize,
    /// Copy engines that work beside kernels.
    AsyncEngineCount,
    /// 1 if cooperative launches are supported.
    CooperativeLaunch,
    /// 1 if launches in clusters of blocks are supported.
    ClusterLaunch,
    /// 1 if 64-bit stream memory operations are supported.
    CanUse64BitStreamMemOps,
    /// 1 if stream waits may use the NOR condition.
    CanUseStreamWaitValueNor,
    /// 1 if memory of this kind can be exported as a dma-buf.
    DmaBufSupported,
    /// 1 if other devices may reach this device's `cuMemAlloc` memory directly (GPUDirect RDMA).
    GpuDirectRdmaSupported,
    /// 1 if other devices may reach this device's virtual memory allocations directly.
    GpuDirectRdmaWithVmmSupported,
    /// 1 if the device and the host are atomic towards each other's memory.
    HostNativeAtomics,
    /// 1 if kernels are ended by a watchdog after some seconds.
    KernelExecTimeout,
    /// 0 if any process may use the device, 2 if none, 3 if one at a time.
    ComputeMode,
    /// 1 if the device is served through the Multi-Process Service.
    MpsEnabled,
}

impl DeviceAttribute {
    fn raw(self) -> sys::CUdevice_attribute {
        use sys::CUdevice_attribute_enum::*;
        match self {
            Self::WarpSize => CU_DEVICE_ATTRIBUTE_WARP_SIZE,
            Self::MaxThreadsPerBlock => CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
            Self::MaxThreadsPerMultiprocessor => CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
            Self::MaxBlocksPerMultiprocessor => CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR,
            Self::RegistersPerMultiprocessor => CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR,
            Self::SharedMemoryPerMultiprocessor => CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
            Self::SharedMemoryPerBlock => CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK,
            Self::ReservedSharedMemoryPerBlock => CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK,
            Self::L2CacheSize => CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE,
            Self::AsyncEngineCount => CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT,
            Self::CooperativeLaunch => CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH,
            Self::ClusterLaunch => CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH,
            Self::CanUse64BitStreamMemOps => CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
            Self::CanUseStreamWaitValueNor => CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR,
            Self::DmaBufSupported => CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
            Self::GpuDirectRdmaSupported => CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
            Self::GpuDirectRdmaWithVmmSupported => {
                CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
            }
            Self::HostNativeAtomics => CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED,
            Self::KernelExecTimeout => CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT,
            Self::ComputeMode => CU_DEVICE_ATTRIBUTE_COMPUTE_MODE,
            Self::MpsEnabled => CU_DEVICE_ATTRIBUTE_MPS_ENABLED,
        }
    }
}

/// A property of the path from one device to another (`CUdevice_P2PAttribute`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerAttribute {
    /// A number that orders links by performance; 0 is the best.
    PerformanceRank,
    /// 1 if the device can load from and store to the other's memory.
    Access,
    /// 1 if the device's atomic operations work natively on the other's memory.
    NativeAtomics,
}

/// A GPU: a cheap handle to facts that are read once. It holds no context.
#[derive(Clone)]
pub struct Device {
    facts: Arc<Facts>,
}

#[derive(Debug)]
struct Facts {
    raw: sys::CUdevice,
    ordinal: usize,
    name: String,
    uuid: [u8; 16],
    pci_bus_id: String,
    total_memory: u64,
    compute_capability: (u32, u32),
    sm_count: u32,
    max_shared_per_block_optin: u32,
    vmm: bool,
    posix_fd: bool,
}

impl Device {
    /// Opens a device; existing values come only from [`crate::Driver`], which has initialised the driver.
    pub(crate) fn open(ordinal: usize) -> Result<Self> {
        use sys::CUdevice_attribute_enum::*;
        let what = || format!("looking at device {ordinal}");
        let index =
            c_int::try_from(ordinal).map_err(|_| Error::misuse("a device ordinal must fit an int"))?;
        let mut raw = 0;
        // SAFETY: `raw` is a valid out-pointer.
        check(unsafe { sys::cuDeviceGet(&mut raw, index) }, "cuDeviceGet", what)?;

        let mut text: [c_char; 256] = [0; 256];
        // SAFETY: the buffer holds 256 characters; the driver writes at most that many, the NUL included.
        let result = unsafe { sys::cuDeviceGetName(text.as_mut_ptr(), 256, raw) };
        check(result, "cuDeviceGetName", what)?;
        let name = text_of(&text);

        let mut text: [c_char; 256] = [0; 256];
        // SAFETY: as above.
        let result = unsafe { sys::cuDeviceGetPCIBusId(text.as_mut_ptr(), 256, raw) };
        check(result, "cuDeviceGetPCIBusId", what)?;
        let pci_bus_id = text_of(&text);

        let mut uuid = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: `uuid` is a valid out-pointer.
        check(unsafe { sys::cuDeviceGetUuid_v2(&mut uuid, raw) }, "cuDeviceGetUuid", what)?;

        let mut total = 0;
        // SAFETY: `total` is a valid out-pointer.
        check(unsafe { sys::cuDeviceTotalMem_v2(&mut total, raw) }, "cuDeviceTotalMem", what)?;

        let number = |name| Ok::<_, Error>(attribute(raw, ordinal, name)?.unsigned_abs());
        let facts = Facts {
            raw,
            ordinal,
            name,
            uuid: uuid.bytes.map(|byte| byte as u8),
            pci_bus_id,
            total_memory: total as u64,
            compute_capability: (
                number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            sm_count: number(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            max_shared_per_block_optin: number(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            vmm: number(CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED)? != 0,
            posix_fd: number(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)? != 0,
        };
        Ok(Self { facts: Arc::new(facts) })
    }

    /// The ordinal, counted from 0 after `CUDA_VISIBLE_DEVICES`.
    pub fn ordinal(&self) -> usize {
        self.facts.ordinal
    }

    /// The product name.
    pub fn name(&self) -> &str {
        &self.facts.name
    }

    /// The identity of the device, or of its MIG instance, the same in every process (`cuDeviceGetUuid_v2`).
    pub fn uuid(&self) -> [u8; 16] {
        self.facts.uuid
    }

    /// The PCI address as `domain:bus:device.function` (`cuDeviceGetPCIBusId`).
    pub fn pci_bus_id(&self) -> &str {
        &self.facts.pci_bus_id
    }

    /// Bytes of memory on the device (`cuDeviceTotalMem`).
    pub fn total_memory(&self) -> u64 {
        self.facts.total_memory
    }

    /// The compute capability, (9, 0) for Hopper.
    pub fn compute_capability(&self) -> (u32, u32) {
        self.facts.compute_capability
    }

    /// The number of streaming multiprocessors.
    pub fn sm_count(&self) -> u32 {
        self.facts.sm_count
    }

    /// Most bytes of shared memory, static and dynamic, in a block that has opted in.
    pub fn max_shared_per_block_optin(&self) -> u32 {
        self.facts.max_shared_per_block_optin
    }

    /// Multiprocessors of each of `of` equal parts of it ([`crate::Context::partition`]); `None` if they would be too small.
    pub fn part_of(&self, of: u32) -> Option<u32> {
        crate::partition::each(self.sm_count(), of, self.compute_capability().0)
    }

    /// Whether physical memory and addresses can be managed apart (`cuMemCreate`, `cuMemMap`).
    pub fn supports_vmm(&self) -> bool {
        self.facts.vmm
    }

    /// Whether physical memory can be exported as a POSIX file descriptor.
    pub fn supports_posix_fd(&self) -> bool {
        self.facts.posix_fd
    }

    /// Any other property (`cuDeviceGetAttribute`).
    ///
    /// # Errors
    /// [`Error::Call`] if the driver does not know the attribute.
    pub fn attribute(&self, attribute_: DeviceAttribute) -> Result<i32> {
        attribute(self.facts.raw, self.ordinal(), attribute_.raw())
    }

    /// Whether kernels of this device can reach the other's memory (`cuDeviceCanAccessPeer`).
    ///
    /// A device does not count as its own peer; this returns false for it.
    ///
    /// # Errors
    /// [`Error::Call`] if the driver fails.
    pub fn can_access_peer(&self, other: &Self) -> Result<bool> {
        if self == other {
            return Ok(false);
        }
        let mut can = 0;
        // SAFETY: `can` is a valid out-pointer and both devices exist.
        let result = unsafe { sys::cuDeviceCanAccessPeer(&mut can, self.facts.raw, other.facts.raw) };
        check(result, "cuDeviceCanAccessPeer", || format!("asking whether {self} reaches {other}"))?;
        Ok(can != 0)
    }

    /// A property of the path to another device (`cuDeviceGetP2PAttribute`).
    ///
    /// # Errors
    /// [`Error::Misuse`] for a device and itself, [`Error::Call`] if the driver fails.
    pub fn peer_attribute(&self, other: &Self, attribute: PeerAttribute) -> Result<i32> {
        use sys::CUdevice_P2PAttribute_enum::*;
        if self == other {
            return Err(Error::misuse(format!("{self} is no peer of itself: ask about two devices")));
        }
        let name = match attribute {
            PeerAttribute::PerformanceRank => CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK,
            PeerAttribute::Access => CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED,
            PeerAttribute::NativeAtomics => CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
        };
        let mut value = 0;
        // SAFETY: `value` is a valid out-pointer and both devices exist.
        let result =
            unsafe { sys::cuDeviceGetP2PAttribute(&mut value, name, self.facts.raw, other.facts.raw) };
        check(result, "cuDeviceGetP2PAttribute", || format!("asking about the path from {self} to {other}"))?;
        Ok(value)
    }

    /// The driver's handle.
    pub fn as_raw(&self) -> sys::CUdevice {
        self.facts.raw
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.facts.raw == other.facts.raw
    }
}

impl Eq for Device {}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.facts.fmt(f)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {} ({})", self.facts.ordinal, self.facts.name)
    }
}

fn attribute(raw: sys::CUdevice, ordinal: usize, name: sys::CUdevice_attribute) -> Result<i32> {
    let mut value = 0;
    // SAFETY: `value` is a valid out-pointer.
    let result = unsafe { sys::cuDeviceGetAttribute(&mut value, name, raw) };
    check(result, "cuDeviceGetAttribute", || format!("asking device {ordinal} for {name:?}"))?;
    Ok(value)
}

fn text_of(text: &[c_char; 256]) -> String {
    let bytes = text.map(|character| character as u8);
    CStr::from_bytes_until_nul(&bytes).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}
