//! Which driver functions this crate calls, so that a driver that lacks one gives an error at the start.
//!
//! The bindings look a function up at its first call and panic if it is missing. [`missing`] looks them all
//! up beforehand; afterwards that cannot happen.

use std::sync::OnceLock;

use cudarc::driver::sys;

/// Every driver function that this crate calls through the bindings. A test compares it with the source.
pub(crate) const REQUIRED: &[&str] = &[
    "cuCtxEnablePeerAccess",
    "cuCtxFromGreenCtx",
    "cuCtxGetCurrent",
    "cuCtxGetLimit",
    "cuCtxGetStreamPriorityRange",
    "cuCtxSetCurrent",
    "cuCtxSetLimit",
    "cuCtxSynchronize",
    "cuDevResourceGenerateDesc",
    "cuDevSmResourceSplitByCount",
    "cuDeviceCanAccessPeer",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetDevResource",
    "cuDeviceGetName",
    "cuDeviceGetP2PAttribute",
    "cuDeviceGetPCIBusId",
    "cuDeviceGetUuid_v2",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncGetAttribute",
    "cuFuncGetParamInfo",
    "cuFuncLoad",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGraphAddChildGraphNode",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphGetNodes",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphRetainUserObject",
    "cuGraphUpload",
    "cuGreenCtxCreate",
    "cuInit",
    "cuIpcCloseMemHandle",
    "cuIpcGetMemHandle",
    "cuIpcOpenMemHandle_v2",
    "cuLaunchHostFunc",
    "cuLaunchKernelEx",
    "cuMemAddressFree",
    "cuMemAddressReserve",
    "cuMemCreate",
    "cuMemExportToShareableHandle",
    "cuMemGetAddressRange_v2",
    "cuMemGetAllocationGranularity",
    "cuMemGetAllocationPropertiesFromHandle",
    "cuMemGetHandleForAddressRange",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemHostGetDevicePointer_v2",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemImportFromShareableHandle",
    "cuMemMap",
    "cuMemRelease",
    "cuMemRetainAllocationHandle",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoD_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoH_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyHtoD_v2",
    "cuMemsetD32Async",
    "cuMemsetD8Async",
    "cuMemsetD8_v2",
    "cuModuleGetFunction",
    "cuModuleGetGlobal_v2",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuPointerGetAttributes",
    "cuStreamBeginCapture_v2",
    "cuStreamCreateWithPriority",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamGetCaptureInfo_v3",
    "cuStreamGetCtx",
    "cuStreamGetGreenCtx",
    "cuStreamIsCapturing",
    "cuStreamQuery",
    "cuStreamSynchronize",
    "cuStreamUpdateCaptureDependencies_v2",
    "cuStreamWaitEvent",
    "cuStreamWaitValue64_v2",
    "cuStreamWriteValue64_v2",
    "cuThreadExchangeStreamCaptureMode",
    "cuUserObjectCreate",
    "cuUserObjectRelease",
];

/// `cuEventElapsedTime` and its second version, which have one signature.
pub(crate) type ElapsedTime = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> sys::CUresult;

/// Whether the driver library can be loaded at all.
pub(crate) fn library_present() -> bool {
    // SAFETY: loading libcuda runs its initialisers, which are those of the system's GPU driver.
    unsafe { sys::is_culib_present() }
}

/// The first of `names` that the driver library lacks. The library must be present.
pub(crate) fn missing(names: &'static [&'static str]) -> Option<&'static str> {
    type Any = unsafe extern "C" fn();
    // SAFETY: the symbol is only looked up and never called through this type.
    names.iter().copied().find(|name| unsafe { sys::culib().get::<Any>(name.as_bytes()) }.is_err())
}

/// The function that measures between two events, whichever version this driver has.
///
/// Version 2 came with CUDA 12.8 and is what newer headers name; drivers keep the first version's symbol.
pub(crate) fn elapsed_time() -> Option<ElapsedTime> {
    static FOUND: OnceLock<Option<ElapsedTime>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        ["cuEventElapsedTime_v2", "cuEventElapsedTime"].iter().find_map(|name| {
            // SAFETY: both symbols have the type `ElapsedTime` in cuda.h. The library is never unloaded, so
            // the copied function pointer stays valid.
            unsafe { sys::culib().get::<ElapsedTime>(name.as_bytes()) }.ok().map(|symbol| *symbol)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    fn sources(folder: &Path, text: &mut String) {
        for entry in std::fs::read_dir(folder).expect("a source folder") {
            let path = entry.expect("a folder entry").path();
            if path.is_dir() {
                sources(&path, text);
            } else {
                text.push_str(&std::fs::read_to_string(&path).expect("a source file"));
            }
        }
    }

    #[test]
    fn the_list_is_what_the_source_calls() {
        let mut text = String::new();
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut text);
        let prefix = concat!("sys::", "cu");
        let called: BTreeSet<String> = text
            .split(prefix)
            .skip(1)
            .map(|rest| {
                rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect::<String>()
            })
            .map(|rest| format!("cu{rest}"))
            .filter(|name| name != "culib")
            .collect();
        let listed: BTreeSet<String> = REQUIRED.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(called, listed);
    }

    #[test]
    fn neither_multicast_nor_managed_memory_is_used() {
        assert!(!REQUIRED.iter().any(|name| name.contains("Multicast") || name.contains("Managed")));
    }
}
