//! Finding libibverbs, and libmlx5 beside it, when the program runs.

use crate::error::{Error, Result};
use crate::sys::*;
use libloading::Library;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident: $type:ty;)*) => {
        /// The functions of libibverbs that this crate calls.
        #[allow(missing_docs)] // documented by their man pages
        pub struct Verbs {
            $($(#[$doc])* pub $name: $type,)*
            /// Registers a dma-buf; since rdma-core 34.
            pub ibv_reg_dmabuf_mr: Option<RegisterDmaBuf>,
            /// Never unloaded: the functions above are in it.
            _library: Library,
        }

        impl Verbs {
            fn new(library: Library) -> Result<Self, libloading::Error> {
                // SAFETY: the types are those of the declarations in verbs.h.
                unsafe {
                    Ok(Verbs {
                        $($name: *library.get::<$type>(concat!(stringify!($name), "\0").as_bytes())?,)*
                        ibv_reg_dmabuf_mr: library.get::<RegisterDmaBuf>(b"ibv_reg_dmabuf_mr\0").ok().map(|f| *f),
                        _library: library,
                    })
                }
            }
        }
    };
}

type RegisterDmaBuf = unsafe extern "C" fn(*mut ibv_pd, u64, usize, u64, c_int, c_int) -> *mut ibv_mr;

functions! {
    ibv_get_device_list: unsafe extern "C" fn(*mut c_int) -> *mut *mut ibv_device;
    ibv_free_device_list: unsafe extern "C" fn(*mut *mut ibv_device);
    ibv_get_device_name: unsafe extern "C" fn(*mut ibv_device) -> *const c_char;
    ibv_open_device: unsafe extern "C" fn(*mut ibv_device) -> *mut ibv_context;
    ibv_close_device: unsafe extern "C" fn(*mut ibv_context) -> c_int;
    ibv_query_device: unsafe extern "C" fn(*mut ibv_context, *mut ibv_device_attr) -> c_int;
    ibv_query_port: unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
    ibv_query_gid: unsafe extern "C" fn(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int;
    ibv_alloc_pd: unsafe extern "C" fn(*mut ibv_context) -> *mut ibv_pd;
    ibv_dealloc_pd: unsafe extern "C" fn(*mut ibv_pd) -> c_int;
    ibv_reg_mr: unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    ibv_dereg_mr: unsafe extern "C" fn(*mut ibv_mr) -> c_int;
    ibv_create_cq: unsafe extern "C" fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    ibv_destroy_cq: unsafe extern "C" fn(*mut ibv_cq) -> c_int;
    ibv_create_qp: unsafe extern "C" fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
    ibv_modify_qp: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    ibv_destroy_qp: unsafe extern "C" fn(*mut ibv_qp) -> c_int;
    ibv_wc_status_str: unsafe extern "C" fn(c_uint) -> *const c_char;
}

/// The libraries' names; the numbers are their ABI versions.
const VERBS: &str = "libibverbs.so.1";
const MLX5: &str = "libmlx5.so.1";

/// Loads libibverbs, once for the process.
///
/// # Errors
/// [`Error::NoLibrary`] if there is none, or one that lacks a function.
pub fn verbs() -> Result<&'static Verbs> {
    static LOADED: OnceLock<Result<Verbs, String>> = OnceLock::new();
    let load = || Verbs::new(open(VERBS)?).map_err(|e| e.to_string());
    LOADED.get_or_init(load).as_ref().map_err(|why| Error::NoLibrary { library: VERBS, why: why.clone() })
}

/// Loads libmlx5, once for the process: `mlx5dv_init_obj`, `mlx5dv_devx_*` and what else a driver of mlx5 queues looks up by itself.
///
/// The library shares libibverbs' data, so a program that uses it has loaded [`verbs`] as well.
///
/// # Errors
/// [`Error::NoLibrary`] if there is none.
pub fn mlx5() -> Result<&'static Library> {
    static LOADED: OnceLock<Result<Library, String>> = OnceLock::new();
    verbs()?;
    let library = LOADED.get_or_init(|| open(MLX5)).as_ref();
    library.map_err(|why| Error::NoLibrary { library: MLX5, why: why.clone() })
}

fn open(name: &str) -> Result<Library, String> {
    // SAFETY: rdma-core's libraries; their initialisers register providers and have no other effect.
    unsafe { Library::new(name) }.map_err(|e| e.to_string())
}
