//! The functions of the C interface, of the library at hand or of one that was loaded.

use fusewire_capi::*;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{c_char, c_void};
use std::path::Path;

macro_rules! api {
    ($($name:ident: fn($($of:ty),*) $(-> $gives:ty)?;)*) => {
        /// One function for each of the header's.
        #[allow(clippy::type_complexity)]
        pub struct Api {
            $(pub $name: unsafe extern "C" fn($($of),*) $(-> $gives)?,)*
        }

        impl Api {
            fn bundled() -> Self {
                Api { $($name: $name as unsafe extern "C" fn($($of),*) $(-> $gives)?,)* }
            }

            /// # Safety
            /// The library's functions are those of the header.
            unsafe fn of(library: &Library) -> Result<Self, libloading::Error> {
                // SAFETY: the caller's contract.
                Ok(Api { $($name: unsafe { *library.get(stringify!($name).as_bytes())? },)* })
            }
        }
    };
}

type Out<T> = *mut *mut T;

api! {
    fusewire_last_error: fn() -> *const fusewire_error;
    fusewire_world_from_env: fn(u64, Out<fusewire_world>) -> fusewire_status;
    fusewire_world_single: fn(Out<fusewire_world>) -> fusewire_status;
    fusewire_unique_id: fn(*mut u8) -> fusewire_status;
    fusewire_world_connect: fn(*const u8, usize, usize, u64, Out<fusewire_world>) -> fusewire_status;
    fusewire_world_split: fn(*const fusewire_world, u64, u64, Out<fusewire_world>) -> fusewire_status;
    fusewire_world_rank: fn(*const fusewire_world) -> usize;
    fusewire_world_size: fn(*const fusewire_world) -> usize;
    fusewire_world_local_rank: fn(*const fusewire_world) -> usize;
    fusewire_world_broadcast: fn(*const fusewire_world, usize, *mut u8, usize) -> fusewire_status;
    fusewire_world_barrier: fn(*const fusewire_world) -> fusewire_status;
    fusewire_world_teardown: fn(*const fusewire_world) -> fusewire_status;
    fusewire_world_free: fn(*mut fusewire_world);
    fusewire_transport_open: fn(*const fusewire_world, *const c_char, *const fusewire_transport_options, Out<fusewire_transport>) -> fusewire_status;
    fusewire_transport_device: fn(*const fusewire_transport) -> i32;
    fusewire_transport_check: fn(*const fusewire_transport) -> fusewire_status;
    fusewire_transport_renew: fn(*const fusewire_transport) -> fusewire_status;
    fusewire_transport_abort: fn(*const fusewire_transport, *const c_char) -> fusewire_status;
    fusewire_transport_close: fn(*const fusewire_transport) -> fusewire_status;
    fusewire_transport_free: fn(*mut fusewire_transport);
    fusewire_symmetric_new: fn(*const fusewire_transport, usize, Out<fusewire_symmetric>) -> fusewire_status;
    fusewire_symmetric_address: fn(*const fusewire_symmetric) -> *mut u8;
    fusewire_symmetric_hand_to: fn(*const fusewire_symmetric, *const fusewire_stream) -> fusewire_status;
    fusewire_symmetric_free: fn(*mut fusewire_symmetric);
    fusewire_stream_new: fn(*const fusewire_transport, Out<fusewire_stream>) -> fusewire_status;
    fusewire_stream_wrap: fn(*const fusewire_transport, *mut c_void, Out<fusewire_stream>) -> fusewire_status;
    fusewire_stream_raw: fn(*const fusewire_stream) -> *mut c_void;
    fusewire_stream_synchronize: fn(*const fusewire_stream, u64) -> fusewire_status;
    fusewire_stream_free: fn(*mut fusewire_stream);
    fusewire_kernel_count: fn() -> usize;
    fusewire_kernel_at: fn(usize) -> *const fusewire_kernel;
    fusewire_launcher_new: fn(*const fusewire_kernel, *const fusewire_transport, Out<fusewire_launcher>) -> fusewire_status;
    fusewire_launcher_free: fn(*mut fusewire_launcher);
    fusewire_launch: fn(*const fusewire_launcher, *const fusewire_transport, *const fusewire_stream, *const fusewire_value, usize, *const fusewire_call) -> fusewire_status;
    fusewire_explain: fn(*const fusewire_launcher, *const fusewire_transport, *const fusewire_value, usize, *const fusewire_call, *mut c_char, usize) -> fusewire_status;
}

/// The functions of the library that is a part of this module.
pub fn bundled() -> &'static Api {
    static BUNDLED: std::sync::LazyLock<Api> = std::sync::LazyLock::new(Api::bundled);
    &BUNDLED
}

/// Loads a library, for as long as the process runs: streams and threads of it may.
///
/// # Errors
/// In words: what is not a library, or not one of this interface.
pub fn load(path: &Path) -> Result<&'static Api, String> {
    // Its symbols are its own: every such library has them.
    // SAFETY: initialisers of a library that the user names.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    let library = library.map_err(|error| {
        let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        format!("loading {}: {why}", path.display())
    })?;
    let not = |error: &libloading::Error| {
        format!(
            "{} is no library of kernels ({error}): build one with `fusewire_capi::export!(..)` and `crate-type = [\"cdylib\"]`",
            path.display()
        )
    };
    // SAFETY: this function is of every version of the interface.
    let abi =
        unsafe { library.get::<extern "C" fn() -> u32>(b"fusewire_abi") }.map_err(|error| not(&error))?();
    if abi != FUSEWIRE_ABI {
        return Err(format!(
            "{} has version {abi} of the C interface, and this module version {FUSEWIRE_ABI}: build both of one version of fusewire",
            path.display()
        ));
    }
    // SAFETY: of this version.
    let api = unsafe { Api::of(&library) }.map_err(|error| not(&error))?;
    std::mem::forget(library);
    Ok(Box::leak(Box::new(api)))
}
