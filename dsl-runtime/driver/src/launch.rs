//! Launching kernels.

use std::ffi::c_void;
use std::fmt;
use std::ptr;

use bytemuck::{NoUninit, Zeroable};
use cudarc::driver::sys;

use crate::error::{Error, Result, check};
use crate::{Function, Stream};

/// The extent of a grid in blocks, of a block in threads or of a cluster in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dim3 {
    /// Along x, which varies fastest.
    pub x: u32,
    /// Along y.
    pub y: u32,
    /// Along z.
    pub z: u32,
}

impl Dim3 {
    /// The number of elements.
    pub const fn count(self) -> u64 {
        (self.x as u64).saturating_mul(self.y as u64).saturating_mul(self.z as u64)
    }
}

impl From<u32> for Dim3 {
    fn from(x: u32) -> Self {
        Self { x, y: 1, z: 1 }
    }
}

impl From<(u32, u32)> for Dim3 {
    fn from((x, y): (u32, u32)) -> Self {
        Self { x, y, z: 1 }
    }
}

impl From<(u32, u32, u32)> for Dim3 {
    fn from((x, y, z): (u32, u32, u32)) -> Self {
        Self { x, y, z }
    }
}

impl fmt::Display for Dim3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.x, self.y, self.z)
    }
}

/// The shape of a launch and how it is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Blocks in the grid.
    pub grid: Dim3,
    /// Threads in a block.
    pub block: Dim3,
    /// Bytes of dynamic shared memory of a block. Above 48 KiB less the static share, the kernel must be
    /// allowed them first: [`Function::set_max_dynamic_shared`].
    pub dynamic_shared: u32,
    /// Blocks in a cluster; each extent must divide the grid's.
    pub cluster: Option<Dim3>,
    /// Let the kernel begin while the one before it in the stream is still ending; the kernel then waits by
    /// itself (`griddepcontrol.wait`) before it touches what the other wrote.
    pub programmatic_serialization: bool,
    /// Fail unless all blocks fit on the device at once.
    pub cooperative: bool,
}

impl LaunchConfig {
    /// A plain launch of `grid` blocks of `block` threads.
    pub fn new(grid: impl Into<Dim3>, block: impl Into<Dim3>) -> Self {
        Self {
            grid: grid.into(),
            block: block.into(),
            dynamic_shared: 0,
            cluster: None,
            programmatic_serialization: false,
            cooperative: false,
        }
    }

    /// With `bytes` of dynamic shared memory.
    pub fn dynamic_shared(self, bytes: u32) -> Self {
        Self { dynamic_shared: bytes, ..self }
    }

    /// In clusters of this extent.
    pub fn cluster(self, cluster: impl Into<Dim3>) -> Self {
        Self { cluster: Some(cluster.into()), ..self }
    }

    /// With programmatic stream serialisation on or off.
    pub fn programmatic_serialization(self, on: bool) -> Self {
        Self { programmatic_serialization: on, ..self }
    }

    /// With the cooperative attribute on or off.
    pub fn cooperative(self, on: bool) -> Self {
        Self { cooperative: on, ..self }
    }

    /// Refuses what no device can launch, in words.
    fn validate(&self, kernel: &str, max_threads: u32) -> Result<()> {
        if self.grid.count() == 0 || self.block.count() == 0 {
            let (grid, block) = (self.grid, self.block);
            return Err(Error::misuse(format!(
                "`{kernel}` cannot be launched as a grid of {grid} blocks of {block}: no extent may be 0"
            )));
        }
        if self.block.count() > u64::from(max_threads) {
            return Err(Error::misuse(format!(
                "`{kernel}` can have at most {max_threads} threads in a block, not {}",
                self.block.count()
            )));
        }
        if let Some(cluster) = self.cluster {
            let pairs = [(self.grid.x, cluster.x), (self.grid.y, cluster.y), (self.grid.z, cluster.z)];
            if pairs.iter().any(|&(grid, cluster)| cluster == 0 || !grid.is_multiple_of(cluster)) {
                return Err(Error::misuse(format!(
                    "`{kernel}`: a cluster of {cluster} blocks must divide the grid of {}",
                    self.grid
                )));
            }
        }
        Ok(())
    }

    /// The attributes that are asked for, and how many of them there are.
    fn attributes(&self) -> ([sys::CUlaunchAttribute; 3], u32) {
        use sys::CUlaunchAttributeID_enum::*;
        let blank = || sys::CUlaunchAttributeValue { pad: [0; 64] };
        let ignored = sys::CUlaunchAttribute { id: CU_LAUNCH_ATTRIBUTE_IGNORE, pad: [0; 4], value: blank() };
        let (mut attributes, mut used) = ([ignored; 3], 0);
        let mut add = |id, value| {
            attributes[used] = sys::CUlaunchAttribute { id, value, ..ignored };
            used += 1;
        };
        if let Some(Dim3 { x, y, z }) = self.cluster {
            let mut value = blank();
            value.clusterDim = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
            add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, value);
        }
        if self.programmatic_serialization {
            let mut value = blank();
            value.programmaticStreamSerializationAllowed = 1;
            add(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, value);
        }
        if self.cooperative {
            let mut value = blank();
            value.cooperative = 1;
            add(CU_LAUNCH_ATTRIBUTE_COOPERATIVE, value);
        }
        (attributes, used as u32)
    }
}

/// A piece of parameter memory, aligned for any parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(16))]
struct Chunk([u8; 16]);

// SAFETY: an all-zero array of bytes is a valid `Chunk`.
unsafe impl Zeroable for Chunk {}
// SAFETY: `Chunk` is 16 bytes of `u8`, 16-aligned, so it has no padding and every bit pattern is valid.
unsafe impl bytemuck::Pod for Chunk {}

/// The parameters of a launch, kept as plain bytes and in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params {
    chunks: Vec<Chunk>,
    /// Of each parameter: its first chunk and its size in bytes.
    spans: Vec<(usize, usize)>,
}

impl Params {
    /// No parameters.
    pub fn new() -> Self {
        Self::default()
    }

    /// With one more parameter; for chains.
    #[must_use]
    pub fn with<T: NoUninit>(mut self, value: T) -> Self {
        self.push(value);
        self
    }

    /// Appends a parameter: a number, a [`crate::DevicePtr`] or a `repr(C)` struct passed by value.
    pub fn push<T: NoUninit>(&mut self, value: T) {
        self.push_bytes(bytemuck::bytes_of(&value));
    }

    /// Appends a parameter that is already bytes in the device's layout.
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        let first = self.chunks.len();
        self.chunks.resize(first + bytes.len().div_ceil(size_of::<Chunk>()), Chunk([0; 16]));
        bytemuck::cast_slice_mut(&mut self.chunks[first..])[..bytes.len()].copy_from_slice(bytes);
        self.spans.push((first, bytes.len()));
    }

    /// The number of parameters.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The size in bytes of each parameter, in order.
    pub fn sizes(&self) -> impl Iterator<Item = usize> {
        self.spans.iter().map(|&(_, bytes)| bytes)
    }

    /// The address of each parameter. The driver reads through them and never writes.
    fn pointers(&self) -> Vec<*mut c_void> {
        let base = self.chunks.as_ptr();
        // `wrapping_add` as an empty last parameter begins at the end of the chunks.
        self.spans.iter().map(|&(first, _)| base.wrapping_add(first).cast_mut().cast()).collect()
    }

    /// Refuses parameters that the kernel does not take.
    fn validate(&self, kernel: &str, expected: &[usize]) -> Result<()> {
        if self.sizes().eq(expected.iter().copied()) {
            return Ok(());
        }
        let given: Vec<_> = self.sizes().collect();
        Err(Error::misuse(format!(
            "`{kernel}` takes {} parameters of {expected:?} bytes; {} of {given:?} bytes were given",
            expected.len(),
            given.len()
        )))
    }
}

/// Queues a kernel on a stream (`cuLaunchKernelEx`).
///
/// Number and sizes of the parameters are compared with the kernel's own
/// ([`Function::parameter_sizes`]) before anything is queued.
///
/// # Safety
/// - The parameters have the types that the kernel declares, and what they point to is valid for what the
///   kernel does with it, and not freed or touched in a racing way, until the kernel has ended.
/// - The function (and so its module) and the stream are kept until the kernel has ended.
/// - If the stream is capturing, both hold for every replay of the graph.
/// - Blocks that wait for each other are all resident at once, or the kernel never ends.
///
/// # Errors
/// [`Error::Misuse`] if the shape or the parameters cannot be right or function and stream belong to different
/// contexts, [`Error::Call`] otherwise. An error of earlier work on the device may also appear here.
pub unsafe fn launch(
    function: &Function,
    config: &LaunchConfig,
    stream: &Stream,
    params: &Params,
) -> Result<()> {
    if let Some(expected) = function.parameter_sizes() {
        params.validate(function.name(), expected)?;
    }
    // SAFETY: the caller vouches for all but the pointers, and those lead to the parameters in `params`.
    unsafe { launch_raw(function, config, stream, &mut params.pointers()) }
}

/// [`launch`] with a pointer to each parameter.
///
/// # Safety
/// As [`launch`]; further, there is one pointer for each parameter of the kernel, and it leads to readable
/// memory of that parameter's size. They are read before this returns.
///
/// # Errors
/// As [`launch`], but the parameters are not compared.
pub unsafe fn launch_raw(
    function: &Function,
    config: &LaunchConfig,
    stream: &Stream,
    params: &mut [*mut c_void],
) -> Result<()> {
    config.validate(function.name(), function.attributes().max_threads_per_block)?;
    function.context().expect_same(stream.context(), "a kernel and its stream")?;
    function.context().bind()?;
    let (mut attributes, used) = config.attributes();
    let raw = sys::CUlaunchConfig {
        gridDimX: config.grid.x,
        gridDimY: config.grid.y,
        gridDimZ: config.grid.z,
        blockDimX: config.block.x,
        blockDimY: config.block.y,
        blockDimZ: config.block.z,
        sharedMemBytes: config.dynamic_shared,
        hStream: stream.as_raw(),
        attrs: attributes.as_mut_ptr(),
        numAttrs: used,
    };
    let _turn = function.context().submitting();
    // SAFETY: configuration and attributes live through the call; function and stream are alive and of the
    // current context; the caller vouches for the parameters and for what the kernel does.
    let result =
        unsafe { sys::cuLaunchKernelEx(&raw, function.as_raw(), params.as_mut_ptr(), ptr::null_mut()) };
    check(result, "cuLaunchKernelEx", || {
        let LaunchConfig { grid, block, dynamic_shared, .. } = config;
        let (name, device) = (function.name(), function.context().device());
        format!(
            "launching `{name}`, {grid} blocks of {block} threads and {dynamic_shared} bytes, on {device}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DevicePtr;

    #[test]
    fn parameters_keep_order_size_and_value() {
        let params = Params::new()
            .with(DevicePtr::new(0x1234))
            .with(7_u32)
            .with([1_u64, 2, 3])
            .with(-1_i8)
            .with(2.5_f32);
        assert_eq!(params.len(), 5);
        assert_eq!(params.sizes().collect::<Vec<_>>(), [8, 4, 24, 1, 4]);
        let pointers = params.pointers();
        assert!(pointers.iter().all(|pointer| pointer.addr().is_multiple_of(16)));
        // SAFETY: each pointer leads to an aligned value of the type pushed at its place.
        unsafe {
            assert_eq!(pointers[0].cast::<u64>().read(), 0x1234);
            assert_eq!(pointers[1].cast::<u32>().read(), 7);
            assert_eq!(pointers[2].cast::<[u64; 3]>().read(), [1, 2, 3]);
            assert_eq!(pointers[3].cast::<i8>().read(), -1);
            assert_eq!(pointers[4].cast::<f32>().read(), 2.5);
        }
    }

    #[test]
    fn wrong_parameters_are_named() {
        let params = Params::new().with(1_u64).with(2_u32);
        assert!(params.validate("k", &[8, 4]).is_ok());
        let error = params.validate("k", &[8, 8]).expect_err("the sizes differ").to_string();
        assert_eq!(error, "`k` takes 2 parameters of [8, 8] bytes; 2 of [8, 4] bytes were given");
        assert!(params.validate("k", &[8]).is_err());
        assert!(Params::new().validate("k", &[]).is_ok());
    }

    #[test]
    fn impossible_shapes_are_refused_before_the_driver() {
        let check = |config: LaunchConfig| config.validate("k", 1024);
        assert!(check(LaunchConfig::new(4, 1024)).is_ok());
        assert!(check(LaunchConfig::new(0, 32)).is_err());
        assert!(check(LaunchConfig::new(1, (32, 0, 1))).is_err());
        assert!(check(LaunchConfig::new(1, (32, 32, 2))).is_err());
        assert!(check(LaunchConfig::new(4, 32).cluster(2)).is_ok());
        assert!(check(LaunchConfig::new(5, 32).cluster(2)).is_err());
        assert!(check(LaunchConfig::new(4, 32).cluster((2, 0, 1))).is_err());
    }

    #[test]
    fn attributes_are_those_asked_for() {
        assert_eq!(LaunchConfig::new(1, 1).attributes().1, 0);
        let config =
            LaunchConfig::new(4, 1).cluster((2, 1, 1)).programmatic_serialization(true).cooperative(true);
        let (attributes, used) = config.attributes();
        assert_eq!(used, 3);
        assert_eq!(attributes.map(|attribute| attribute.id as u32), [4, 6, 2]);
        // SAFETY: `attributes` filled this member of the union.
        assert_eq!(unsafe { attributes[0].value.clusterDim }.x, 2);
    }
}
