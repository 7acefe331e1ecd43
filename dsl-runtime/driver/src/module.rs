//! Modules of device code, and the kernels in them.

use std::ffi::{CString, c_int, c_void};
use std::fmt;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys;

use crate::context::release;
use crate::error::{Error, Result, check, check_jit, is};
use crate::handle::Handle;
use crate::{Context, DevicePtr};

/// Bytes kept of the compiler's information log and of its error log.
const LOG_BYTES: usize = 16 << 10;

/// How the driver compiles PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JitOptions {
    /// 0 (none) to 4 (all, the default).
    pub optimization_level: u32,
    /// Keep the `.loc` lines of the PTX for profilers and sanitizers; costs no speed.
    pub line_info: bool,
    /// Put registers, spills and shared memory of each kernel into [`Module::jit_log`].
    pub verbose: bool,
    /// Most registers a thread may use; what does not fit is spilled.
    pub max_registers: Option<u32>,
}

impl Default for JitOptions {
    fn default() -> Self {
        Self { optimization_level: 4, line_info: false, verbose: false, max_registers: None }
    }
}

impl JitOptions {
    fn to_driver(self) -> Vec<(sys::CUjit_option, *mut c_void)> {
        use sys::CUjit_option_enum::*;
        // Options that are numbers travel in the place of a pointer.
        let number = |value: u32| ptr::without_provenance_mut(value as usize);
        let mut options = vec![
            (CU_JIT_OPTIMIZATION_LEVEL, number(self.optimization_level)),
            (CU_JIT_GENERATE_LINE_INFO, number(self.line_info.into())),
            (CU_JIT_LOG_VERBOSE, number(self.verbose.into())),
        ];
        options.extend(self.max_registers.map(|most| (CU_JIT_MAX_REGISTERS, number(most))));
        options
    }
}

/// Device code loaded into a context. Clones share it; it is unloaded with the last clone.
///
/// The driver may defer loading a kernel to its first launch (`CUDA_MODULE_LOADING=LAZY`, its default), which
/// would allocate inside a capture and could wait for a kernel that spins. [`Module::function`] therefore
/// finishes the load of each kernel it returns (`cuFuncLoad`). A kernel that uses local memory
/// ([`FunctionAttributes::local_bytes`]) may still make the driver enlarge its pool at the first launch:
/// launch such a kernel once before anything spins.
#[derive(Clone)]
pub struct Module {
    inner: Arc<Inner>,
}

struct Inner {
    raw: Handle<sys::CUmodule>,
    context: Context,
    jit_log: String,
}

impl Module {
    /// Compiles PTX for the context's device and loads it (`cuModuleLoadDataEx`).
    ///
    /// # Errors
    /// [`Error::Jit`] with the compiler's log if it refuses the text, [`Error::Misuse`] if the text contains a
    /// NUL character or the optimisation level is above 4, [`Error::Call`] otherwise.
    pub fn load_ptx(context: &Context, ptx: &str, options: &JitOptions) -> Result<Self> {
        if options.optimization_level > 4 {
            let level = options.optimization_level;
            return Err(Error::misuse(format!("the optimisation level is 0 to 4, not {level}")));
        }
        let text = CString::new(ptx.trim_end_matches('\0'))
            .map_err(|_| Error::misuse("PTX must not contain a NUL character"))?;
        // SAFETY: the text is NUL-terminated, as the driver expects of PTX.
        unsafe { Self::load(context, text.as_ptr().cast(), "PTX", options.to_driver()) }
    }

    /// Loads machine code as `ptxas` makes it (`cuModuleLoadDataEx`).
    ///
    /// # Safety
    /// `image` is a whole, well-formed cubin or fat binary: the driver is not told its length and trusts the
    /// sizes written in it.
    ///
    /// # Errors
    /// [`Error::Misuse`] if it is neither kind, [`Error::Jit`] if it is not for this device, [`Error::Call`]
    /// otherwise.
    pub unsafe fn load_cubin(context: &Context, image: &[u8]) -> Result<Self> {
        const ELF: [u8; 4] = *b"\x7fELF";
        const FAT_BINARY: [u8; 4] = 0xba55_ed50_u32.to_le_bytes();
        const ELF_HEADER_BYTES: usize = 64;
        if image.len() < ELF_HEADER_BYTES || ![ELF, FAT_BINARY].iter().any(|magic| image.starts_with(magic)) {
            return Err(Error::misuse("the image is neither a cubin (ELF) nor a fat binary"));
        }
        // The headers hold 8-byte numbers; a byte slice need not be aligned for them.
        let mut aligned = vec![0_u64; image.len().div_ceil(8)];
        bytemuck::cast_slice_mut(&mut aligned)[..image.len()].copy_from_slice(image);
        // SAFETY: the caller vouches for the image, and the copy holds all of it.
        unsafe { Self::load(context, aligned.as_ptr().cast(), "a cubin", Vec::new()) }
    }

    /// # Safety
    /// `image` is a NUL-terminated PTX text or a whole binary image.
    unsafe fn load(
        context: &Context,
        image: *const c_void,
        what: &str,
        mut options: Vec<(sys::CUjit_option, *mut c_void)>,
    ) -> Result<Self> {
        use sys::CUjit_option_enum::*;
        context.bind()?;
        let (mut info, mut error) = (vec![0_u8; LOG_BYTES], vec![0_u8; LOG_BYTES]);
        options.extend([
            (CU_JIT_INFO_LOG_BUFFER, info.as_mut_ptr().cast()),
            (CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, ptr::without_provenance_mut(LOG_BYTES)),
            (CU_JIT_ERROR_LOG_BUFFER, error.as_mut_ptr().cast()),
            (CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, ptr::without_provenance_mut(LOG_BYTES)),
        ]);
        let (mut names, mut values): (Vec<_>, Vec<_>) = options.into_iter().unzip();
        let mut raw = ptr::null_mut();
        // SAFETY: the caller vouches for `image`. Names and values are of one length; the two buffers live
        // through the call and are of the size told.
        let result = unsafe {
            sys::cuModuleLoadDataEx(
                &mut raw,
                image,
                names.len() as u32,
                names.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        check_jit(result, what, text_of(&error))?;
        let inner = Inner { raw: Handle(raw), context: context.clone(), jit_log: text_of(&info) };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The context.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// What the compiler had to say about a module that it accepted; often empty.
    pub fn jit_log(&self) -> &str {
        &self.inner.jit_log
    }

    /// A kernel by its name in the PTX, fully loaded (`cuModuleGetFunction`, `cuFuncLoad`).
    ///
    /// # Errors
    /// [`Error::Call`] with `CUDA_ERROR_NOT_FOUND` if there is no such kernel.
    pub fn function(&self, name: &str) -> Result<Function> {
        let what = || format!("looking up kernel `{name}`");
        let text = c_name(name)?;
        self.context().bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the module is alive, `raw` is a valid out-pointer and the name is NUL-terminated.
        let result = unsafe { sys::cuModuleGetFunction(&mut raw, self.as_raw(), text.as_ptr()) };
        check(result, "cuModuleGetFunction", what)?;
        // SAFETY: the function belongs to a live module.
        check(unsafe { sys::cuFuncLoad(raw) }, "cuFuncLoad", what)?;
        Ok(Function {
            inner: Arc::new(FunctionInner {
                raw: Handle(raw),
                module: self.clone(),
                name: name.to_owned(),
                attributes: FunctionAttributes::read(raw, name)?,
                parameter_sizes: parameter_sizes(raw),
            }),
        })
    }

    /// The address and the size in bytes of a global variable (`cuModuleGetGlobal`).
    ///
    /// # Errors
    /// [`Error::Call`] with `CUDA_ERROR_NOT_FOUND` if there is no such variable.
    pub fn global(&self, name: &str) -> Result<(DevicePtr, usize)> {
        let text = c_name(name)?;
        self.context().bind()?;
        let (mut address, mut bytes) = (0, 0);
        // SAFETY: the module is alive, both out-pointers are valid and the name is NUL-terminated.
        let result =
            unsafe { sys::cuModuleGetGlobal_v2(&mut address, &mut bytes, self.as_raw(), text.as_ptr()) };
        check(result, "cuModuleGetGlobal", || format!("looking up global variable `{name}`"))?;
        Ok((DevicePtr::new(address), bytes))
    }

    /// The driver's handle.
    pub fn as_raw(&self) -> sys::CUmodule {
        self.inner.raw.0
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: every function of the module holds it, so none is left. That no launch is pending is part of
        // the contract of launching.
        release(Some(&self.context), || unsafe { sys::cuModuleUnload(self.raw.0) });
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module").field("context", self.context()).finish_non_exhaustive()
    }
}

/// What a kernel needs, as compiled for its device (`cuFuncGetAttribute`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FunctionAttributes {
    /// 32-bit registers of a thread.
    pub registers: u32,
    /// Bytes of local memory of a thread: stack and spills.
    pub local_bytes: u32,
    /// Bytes of shared memory of a block that the kernel declares itself.
    pub static_shared_bytes: u32,
    /// Most threads in a block, given the registers.
    pub max_threads_per_block: u32,
    /// The virtual architecture of the PTX it was compiled from, 10 × major + minor: 90 for `.target sm_90`.
    pub ptx_version: u32,
    /// The architecture of the machine code, 10 × major + minor.
    pub binary_version: u32,
}

impl FunctionAttributes {
    fn read(raw: sys::CUfunction, name: &str) -> Result<Self> {
        use sys::CUfunction_attribute_enum::*;
        let number = |attribute| function_attribute(raw, name, attribute);
        Ok(Self {
            registers: number(CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            local_bytes: number(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            static_shared_bytes: number(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            max_threads_per_block: number(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            ptx_version: number(CU_FUNC_ATTRIBUTE_PTX_VERSION)?,
            binary_version: number(CU_FUNC_ATTRIBUTE_BINARY_VERSION)?,
        })
    }
}

/// A kernel. It holds its module; clones share it.
#[derive(Clone)]
pub struct Function {
    inner: Arc<FunctionInner>,
}

struct FunctionInner {
    raw: Handle<sys::CUfunction>,
    module: Module,
    name: String,
    attributes: FunctionAttributes,
    parameter_sizes: Option<Vec<usize>>,
}

impl Function {
    /// The name in the PTX.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The context.
    pub fn context(&self) -> &Context {
        self.inner.module.context()
    }

    /// What the kernel needs.
    pub fn attributes(&self) -> FunctionAttributes {
        self.inner.attributes
    }

    /// The size in bytes of each parameter, in order; `None` if the image does not tell
    /// (`cuFuncGetParamInfo`).
    pub fn parameter_sizes(&self) -> Option<&[usize]> {
        self.inner.parameter_sizes.as_deref()
    }

    /// Most bytes of dynamic shared memory that a launch may ask for now.
    ///
    /// # Errors
    /// [`Error::Call`] if the driver fails.
    pub fn max_dynamic_shared(&self) -> Result<u32> {
        use sys::CUfunction_attribute_enum::*;
        self.context().bind()?;
        function_attribute(self.as_raw(), self.name(), CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
    }

    /// Lets launches ask for up to `bytes` of dynamic shared memory (`cuFuncSetAttribute`).
    ///
    /// # Errors
    /// [`Error::Misuse`] if the device has not that much, the kernel's static share counted in.
    pub fn set_max_dynamic_shared(&self, bytes: u32) -> Result<()> {
        use sys::CUfunction_attribute_enum::*;
        let device = self.context().device();
        let fixed = self.attributes().static_shared_bytes;
        let most = device.max_shared_per_block_optin().saturating_sub(fixed);
        if bytes > most {
            return Err(Error::misuse(format!(
                "`{}` may have at most {most} bytes of dynamic shared memory on {device} beside its {fixed} \
                 static ones, not {bytes}",
                self.name()
            )));
        }
        self.context().bind()?;
        // The limit is below `most`, so it fits.
        let value = bytes as c_int;
        // SAFETY: the function is alive.
        let result = unsafe {
            sys::cuFuncSetAttribute(self.as_raw(), CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, value)
        };
        let what = || format!("raising the dynamic shared memory of `{}` to {bytes} bytes", self.name());
        check(result, "cuFuncSetAttribute", what)
    }

    /// Blocks of `threads` threads and `dynamic_shared` bytes that fit on one multiprocessor at once
    /// (`cuOccupancyMaxActiveBlocksPerMultiprocessor`); 0 if not even one does.
    ///
    /// # Errors
    /// [`Error::Misuse`] for no threads or too many to count, [`Error::Call`] if the driver fails.
    pub fn max_active_blocks_per_sm(&self, threads: u32, dynamic_shared: u32) -> Result<u32> {
        let threads_int = c_int::try_from(threads).ok().filter(|&threads| threads > 0);
        let Some(threads_int) = threads_int else {
            return Err(Error::misuse(format!("a block cannot have {threads} threads")));
        };
        self.context().bind()?;
        let mut blocks = 0;
        // SAFETY: the function is alive and `blocks` is a valid out-pointer.
        let result = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut blocks,
                self.as_raw(),
                threads_int,
                dynamic_shared as usize,
            )
        };
        let what = || format!("asking how many blocks of {threads} threads of `{}` fit", self.name());
        check(result, "cuOccupancyMaxActiveBlocksPerMultiprocessor", what)?;
        Ok(blocks.unsigned_abs())
    }

    /// Blocks that the whole device holds at once: those of one multiprocessor times their number.
    ///
    /// It is an upper bound for blocks that wait for each other, on a device that runs nothing else.
    ///
    /// # Errors
    /// As [`Function::max_active_blocks_per_sm`].
    pub fn max_resident_blocks(&self, threads: u32, dynamic_shared: u32) -> Result<u32> {
        let per_sm = self.max_active_blocks_per_sm(threads, dynamic_shared)?;
        Ok(per_sm.saturating_mul(self.context().device().sm_count()))
    }

    /// The driver's handle.
    pub fn as_raw(&self) -> sys::CUfunction {
        self.inner.raw.0
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function")
            .field("name", &self.name())
            .field("attributes", &self.inner.attributes)
            .field("parameter_sizes", &self.inner.parameter_sizes)
            .finish_non_exhaustive()
    }
}

fn function_attribute(raw: sys::CUfunction, name: &str, attribute: sys::CUfunction_attribute) -> Result<u32> {
    let mut value = 0;
    // SAFETY: `value` is a valid out-pointer and the caller's function is alive.
    let result = unsafe { sys::cuFuncGetAttribute(&mut value, attribute, raw) };
    check(result, "cuFuncGetAttribute", || format!("asking for {attribute:?} of `{name}`"))?;
    Ok(value.unsigned_abs())
}

/// Asks for one parameter after the other until the driver says that there are no more.
fn parameter_sizes(raw: sys::CUfunction) -> Option<Vec<usize>> {
    let mut sizes = Vec::new();
    loop {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: both out-pointers are valid and the caller's function is alive; an index past the last
        // parameter is answered by an error.
        let result = unsafe { sys::cuFuncGetParamInfo(raw, sizes.len(), &mut offset, &mut size) };
        if is(result, sys::CUresult::CUDA_ERROR_INVALID_VALUE) {
            return Some(sizes);
        }
        if result as u32 != 0 {
            return None;
        }
        sizes.push(size);
    }
}

fn c_name(name: &str) -> Result<CString> {
    CString::new(name).map_err(|_| Error::misuse(format!("the name {name:?} contains a NUL character")))
}

/// The text in a log buffer that was all zeros before the driver wrote to it.
fn text_of(log: &[u8]) -> String {
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    String::from_utf8_lossy(&log[..end]).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_end_at_the_first_nul() {
        assert_eq!(text_of(b"ptxas error\n\0\0junk"), "ptxas error");
        assert_eq!(text_of(b"\0\0"), "");
        assert_eq!(text_of(b"full"), "full");
    }

    #[test]
    fn numbers_travel_as_pointers() {
        use sys::CUjit_option_enum::*;
        let options = JitOptions { line_info: true, max_registers: Some(64), ..JitOptions::default() };
        let values: Vec<_> =
            options.to_driver().into_iter().map(|(name, value)| (name as u32, value.addr())).collect();
        assert_eq!(
            values,
            [
                (CU_JIT_OPTIMIZATION_LEVEL as u32, 4),
                (CU_JIT_GENERATE_LINE_INFO as u32, 1),
                (CU_JIT_LOG_VERBOSE as u32, 0),
                (CU_JIT_MAX_REGISTERS as u32, 64),
            ]
        );
    }
}
