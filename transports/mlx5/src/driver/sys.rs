//! The part of `infiniband/mlx5dv.h` (and what of `verbs.h` goes with it) that is used, by hand, with the names it has there.
//!
//! The assertions at the end pin what `offsetof` gives for rdma-core 44 on LP64; later releases only append.
#![allow(missing_docs, non_camel_case_types)] // named and documented by mlx5dv.h

use fusewire_verbs::sys::{ibv_ah_attr, ibv_context, ibv_device, ibv_mr, ibv_pd};
use std::ffi::{c_int, c_uint, c_void};

macro_rules! opaque {
    ($($name:ident)*) => {$(
        #[repr(C)]
        pub struct $name {
            private: [u8; 0],
        }
    )*};
}

opaque! { mlx5dv_devx_obj ibv_ah }

#[repr(C)]
pub struct mlx5dv_context_attr {
    pub flags: u32,
    pub comp_mask: u64,
}

pub const MLX5DV_CONTEXT_FLAGS_DEVX: u32 = 1 << 0;

#[repr(C)]
pub struct mlx5dv_pd {
    pub pdn: u32,
    pub comp_mask: u64,
}

#[repr(C)]
pub struct mlx5_wqe_av {
    key: u64,
    dqp_dct: u32,
    stat_rate_sl: u8,
    fl_mlid: u8,
    rlid: u16,
    reserved0: [u8; 4],
    pub rmac: [u8; 6],
    tclass: u8,
    hop_limit: u8,
    grh_gid_fl: u32,
    rgid: [u8; 16],
}

#[repr(C)]
pub struct mlx5dv_ah {
    pub av: *mut mlx5_wqe_av,
    pub comp_mask: u64,
}

#[repr(C)]
pub struct Pair<I, O> {
    pub object: *mut I,
    pub out: *mut O,
}

#[repr(C)]
pub struct mlx5dv_obj {
    /// Queue pair, completion queue, shared receive queue, work queue, device memory: not used.
    pub others: [*mut c_void; 10],
    pub ah: Pair<ibv_ah, mlx5dv_ah>,
    pub pd: Pair<ibv_pd, mlx5dv_pd>,
}

pub const MLX5DV_OBJ_AH: u64 = 1 << 5;
pub const MLX5DV_OBJ_PD: u64 = 1 << 6;

#[repr(C)]
pub struct mlx5dv_devx_umem {
    pub umem_id: u32,
}

#[repr(C)]
pub struct mlx5dv_devx_umem_in {
    pub addr: *mut c_void,
    pub size: usize,
    pub access: u32,
    pub pgsz_bitmap: u64,
    pub comp_mask: u64,
    pub dmabuf_fd: c_int,
}

pub const MLX5DV_UMEM_MASK_DMABUF: u64 = 1 << 0;

#[repr(C)]
pub struct mlx5dv_devx_uar {
    pub reg_addr: *mut c_void,
    pub base_addr: *mut c_void,
    pub page_id: u32,
    pub mmap_off: i64,
    pub comp_mask: u64,
}

pub const MLX5DV_UAR_ALLOC_TYPE_BF: u32 = 0;
pub const MLX5DV_UAR_ALLOC_TYPE_NC: u32 = 1;
pub const MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED: u32 = 1 << 31;

type Devx = *mut mlx5dv_devx_obj;
type Context = *mut ibv_context;
type In = *const c_void;
type Out = *mut c_void;

pub type IsSupported = unsafe extern "C" fn(*mut ibv_device) -> bool;
pub type OpenDevice = unsafe extern "C" fn(*mut ibv_device, *mut mlx5dv_context_attr) -> Context;
pub type InitObj = unsafe extern "C" fn(*mut mlx5dv_obj, u64) -> c_int;
pub type GeneralCmd = unsafe extern "C" fn(Context, In, usize, Out, usize) -> c_int;
pub type ObjCreate = unsafe extern "C" fn(Context, In, usize, Out, usize) -> Devx;
pub type ObjCommand = unsafe extern "C" fn(Devx, In, usize, Out, usize) -> c_int;
pub type ObjDestroy = unsafe extern "C" fn(Devx) -> c_int;
pub type UmemReg = unsafe extern "C" fn(Context, *mut c_void, usize, u32) -> *mut mlx5dv_devx_umem;
pub type UmemRegEx = unsafe extern "C" fn(Context, *mut mlx5dv_devx_umem_in) -> *mut mlx5dv_devx_umem;
pub type UmemDereg = unsafe extern "C" fn(*mut mlx5dv_devx_umem) -> c_int;
pub type AllocUar = unsafe extern "C" fn(Context, u32) -> *mut mlx5dv_devx_uar;
pub type FreeUar = unsafe extern "C" fn(*mut mlx5dv_devx_uar);
pub type QueryEqn = unsafe extern "C" fn(Context, u32, *mut u32) -> c_int;
pub type CreateAh = unsafe extern "C" fn(*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah;
pub type DestroyAh = unsafe extern "C" fn(*mut ibv_ah) -> c_int;
pub type RegMrIova2 = unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, u64, c_uint) -> *mut ibv_mr;

macro_rules! layout {
    ($($t:ty { $($field:ident: $offset:expr),* } = $size:expr;)*) => {$(
        $(const _: () = assert!(core::mem::offset_of!($t, $field) == $offset);)*
        const _: () = assert!(size_of::<$t>() == $size);
    )*};
}

layout! {
    mlx5dv_context_attr { flags: 0, comp_mask: 8 } = 16;
    mlx5dv_pd { pdn: 0 } = 16;
    mlx5_wqe_av { rmac: 20, rgid: 32 } = 48;
    mlx5dv_ah { av: 0 } = 16;
    mlx5dv_devx_umem { umem_id: 0 } = 4;
    mlx5dv_devx_umem_in { access: 16, pgsz_bitmap: 24, comp_mask: 32, dmabuf_fd: 40 } = 48;
    mlx5dv_devx_uar { reg_addr: 0, page_id: 16 } = 40;
}
const _: () =
    assert!(core::mem::offset_of!(mlx5dv_obj, ah) == 80 && core::mem::offset_of!(mlx5dv_obj, pd) == 96);
