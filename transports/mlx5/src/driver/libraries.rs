//! The seam over the real libraries.

use super::sys::*;
use super::{Bytes, Driver, Handle, Page, PageKind, Registered};
use crate::error::{from_verbs, last, misuse, no_adapter, system};
use crate::prm::{Command, layout::answer};
use fusewire_nic::Result;
use fusewire_verbs::library::{Verbs, mlx5, verbs};
use fusewire_verbs::sys::*;
use libloading::Library;
use std::ffi::CStr;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{NonNull, null_mut};

/// Everything for peers.
const ALL: i32 =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/// Page size that dma-bufs are cut by at least.
const PAGE: u64 = 4096;

/// The functions beyond those of the verbs layer.
struct Functions {
    init_obj: InitObj,
    general_cmd: GeneralCmd,
    obj_create: ObjCreate,
    obj_modify: ObjCommand,
    obj_query: ObjCommand,
    obj_destroy: ObjDestroy,
    umem_reg: UmemReg,
    /// Since rdma-core 35.
    umem_reg_ex: Option<UmemRegEx>,
    umem_dereg: UmemDereg,
    alloc_uar: AllocUar,
    free_uar: FreeUar,
    query_eqn: QueryEqn,
    create_ah: CreateAh,
    destroy_ah: DestroyAh,
    reg_mr_iova2: RegMrIova2,
}

/// A function of a library.
///
/// # Safety
/// `T` is the function's type.
unsafe fn find<T: Copy>(library: &Library, name: &str) -> Result<T> {
    // SAFETY: the caller vouches for the type.
    let found = unsafe { library.get::<T>(name.as_bytes()) };
    found.map(|f| *f).map_err(|e| no_adapter(format!("rdma-core is too old: it has no {name} ({e})")))
}

impl Functions {
    fn new(mlx5: &Library) -> Result<Functions> {
        // libmlx5 depends on libibverbs, so that its handle finds functions of both.
        // SAFETY: the types are those of the declarations in mlx5dv.h and verbs.h.
        unsafe {
            Ok(Functions {
                init_obj: find(mlx5, "mlx5dv_init_obj")?,
                general_cmd: find(mlx5, "mlx5dv_devx_general_cmd")?,
                obj_create: find(mlx5, "mlx5dv_devx_obj_create")?,
                obj_modify: find(mlx5, "mlx5dv_devx_obj_modify")?,
                obj_query: find(mlx5, "mlx5dv_devx_obj_query")?,
                obj_destroy: find(mlx5, "mlx5dv_devx_obj_destroy")?,
                umem_reg: find(mlx5, "mlx5dv_devx_umem_reg")?,
                umem_reg_ex: find(mlx5, "mlx5dv_devx_umem_reg_ex").ok(),
                umem_dereg: find(mlx5, "mlx5dv_devx_umem_dereg")?,
                alloc_uar: find(mlx5, "mlx5dv_devx_alloc_uar")?,
                free_uar: find(mlx5, "mlx5dv_devx_free_uar")?,
                query_eqn: find(mlx5, "mlx5dv_devx_query_eqn")?,
                create_ah: find(mlx5, "ibv_create_ah")?,
                destroy_ah: find(mlx5, "ibv_destroy_ah")?,
                reg_mr_iova2: find(mlx5, "ibv_reg_mr_iova2")?,
            })
        }
    }
}

/// Does something with the device of this name.
fn with_device<T>(name: &str, act: impl FnOnce(&'static Verbs, *mut ibv_device) -> T) -> Result<T> {
    let verbs = verbs().map_err(from_verbs)?;
    let mut count = 0;
    // SAFETY: `count` is a valid out-pointer.
    let list = unsafe { (verbs.ibv_get_device_list)(&raw mut count) };
    if list.is_null() {
        return Err(no_adapter("the kernel lists no RDMA devices"));
    }
    // SAFETY: the library gave out `count` entries, which live until the list is freed.
    let devices = unsafe { std::slice::from_raw_parts(list, count.max(0) as usize) };
    let named = devices.iter().copied().find(|device| {
        // SAFETY: a device of the live list; its name is a C string within it.
        unsafe { CStr::from_ptr((verbs.ibv_get_device_name)(*device)) }.to_bytes() == name.as_bytes()
    });
    let result = named.map(|device| act(verbs, device));
    // SAFETY: from `ibv_get_device_list`, freed once; opened devices hold what they need.
    unsafe { (verbs.ibv_free_device_list)(list) };
    result.ok_or_else(|| no_adapter(format!("{name} is gone")))
}

/// Whether libmlx5 drives the device of this name.
pub fn is_mlx5(name: &str) -> Result<bool> {
    // SAFETY: the type is that of the declaration in mlx5dv.h.
    let supported: IsSupported = unsafe { find(mlx5().map_err(from_verbs)?, "mlx5dv_is_supported")? };
    // SAFETY: a device of a live list.
    with_device(name, |_, device| unsafe { supported(device) })
}

/// An adapter opened for DevX, with a protection domain of its own.
pub struct Libraries {
    name: String,
    port: u8,
    verbs: &'static Verbs,
    functions: Functions,
    context: NonNull<ibv_context>,
    pd: NonNull<ibv_pd>,
}

// SAFETY: libibverbs and libmlx5 lock whatever threads share in a context and a protection domain; DevX calls are system calls.
unsafe impl Send for Libraries {}
// SAFETY: as above.
unsafe impl Sync for Libraries {}

impl Libraries {
    /// Opens the device of this name; `port` is for addresses.
    pub fn open(name: &str, port: u8) -> Result<Libraries> {
        let library = mlx5().map_err(from_verbs)?;
        let functions = Functions::new(library)?;
        // SAFETY: the type is that of the declaration in mlx5dv.h.
        let open: OpenDevice = unsafe { find(library, "mlx5dv_open_device")? };
        let (verbs, context) = with_device(name, |verbs, device| {
            let mut how = mlx5dv_context_attr { flags: MLX5DV_CONTEXT_FLAGS_DEVX, comp_mask: 0 };
            // SAFETY: a device of the live list and valid attributes.
            let context = NonNull::new(unsafe { open(device, &raw mut how) });
            (verbs, context.ok_or_else(io::Error::last_os_error))
        })?;
        let context = context.map_err(|why| {
            no_adapter(format!(
                "{name} cannot be opened for DevX ({why}): it needs /dev/infiniband and firmware with `UCTX_EN` (`mlxconfig -d {name} \
                 set UCTX_EN=1`); transports within a host need none"
            ))
        })?;
        // SAFETY: a live context.
        let Some(pd) = NonNull::new(unsafe { (verbs.ibv_alloc_pd)(context.as_ptr()) }) else {
            let error = last(format!("making a protection domain on {name}"));
            // SAFETY: opened above; nothing was made from it.
            unsafe { (verbs.ibv_close_device)(context.as_ptr()) };
            return Err(error);
        };
        Ok(Libraries { name: name.to_owned(), port, verbs, functions, context, pd })
    }

    /// An answer, or what it says is wrong.
    fn answer(&self, command: &Command, code: i32, bytes: Vec<u8>) -> Result<Vec<u8>> {
        let status = answer::STATUS.get(&bytes).unwrap_or(0);
        if code == 0 && status == 0 {
            return Ok(bytes);
        }
        let source = match code {
            0 => io::Error::other(format!("the firmware's status is {status:#x}")),
            code if code > 0 => io::Error::from_raw_os_error(code),
            _ => io::Error::last_os_error(),
        };
        let syndrome = answer::SYNDROME.get(&bytes).unwrap_or(0);
        Err(system(format!("{} on {} (syndrome {syndrome:#x})", command.name, self.name), source))
    }

    fn run(
        &self,
        command: &Command,
        call: impl FnOnce(*const std::ffi::c_void, usize, *mut std::ffi::c_void, usize) -> i32,
    ) -> Result<Vec<u8>> {
        let mut bytes = vec![0; command.answer];
        let input = command.bytes.as_ptr().cast();
        let code = call(input, command.bytes.len(), bytes.as_mut_ptr().cast(), command.answer);
        self.answer(command, code, bytes)
    }

    fn ended(&self, code: i32, what: &str) -> Result<()> {
        match code {
            0 => Ok(()),
            code if code > 0 => {
                Err(system(format!("{what} on {}", self.name), io::Error::from_raw_os_error(code)))
            }
            _ => Err(last(format!("{what} on {}", self.name))),
        }
    }

    fn init(&self, object: &mut mlx5dv_obj, kind: u64, what: &str) -> Result<()> {
        // SAFETY: the field of `kind` names a live object and room for what is known of it.
        let code = unsafe { (self.functions.init_obj)(object, kind) };
        self.ended(code, what)
    }
}

/// An object to ask about: none at first.
fn blank() -> mlx5dv_obj {
    mlx5dv_obj {
        others: [null_mut(); 10],
        ah: Pair { object: null_mut(), out: null_mut() },
        pd: Pair { object: null_mut(), out: null_mut() },
    }
}

impl Driver for Libraries {
    fn general(&self, command: &Command) -> Result<Vec<u8>> {
        let (call, context) = (self.functions.general_cmd, self.context.as_ptr());
        // SAFETY: a live context; `run` gives valid ranges.
        self.run(command, |i, n, o, m| unsafe { call(context, i, n, o, m) })
    }

    fn create(&self, command: &Command) -> Result<(Handle, Vec<u8>)> {
        let (call, context) = (self.functions.obj_create, self.context.as_ptr());
        let mut made = null_mut();
        let answer = self.run(command, |i, n, o, m| {
            // SAFETY: a live context; `run` gives valid ranges.
            made = unsafe { call(context, i, n, o, m) };
            if made.is_null() { -1 } else { 0 }
        })?;
        Ok((Handle(made as usize), answer))
    }

    fn modify(&self, object: &Handle, command: &Command) -> Result<Vec<u8>> {
        let (call, object) = (self.functions.obj_modify, object.0 as *mut mlx5dv_devx_obj);
        // SAFETY: an object that `create` made and nobody ended; `run` gives valid ranges.
        self.run(command, |i, n, o, m| unsafe { call(object, i, n, o, m) })
    }

    fn query(&self, object: &Handle, command: &Command) -> Result<Vec<u8>> {
        let (call, object) = (self.functions.obj_query, object.0 as *mut mlx5dv_devx_obj);
        // SAFETY: as for `modify`.
        self.run(command, |i, n, o, m| unsafe { call(object, i, n, o, m) })
    }

    fn destroy(&self, object: Handle) -> Result<()> {
        // SAFETY: an object that `create` made; its handle is given up.
        let code = unsafe { (self.functions.obj_destroy)(object.0 as *mut mlx5dv_devx_obj) };
        self.ended(code, "ending a queue")
    }

    unsafe fn pin(&self, bytes: Bytes<'_>) -> Result<(Handle, u32)> {
        let (context, access) = (self.context.as_ptr(), IBV_ACCESS_LOCAL_WRITE as u32);
        let memory = match bytes {
            // SAFETY: a live context; the caller vouches for the memory.
            Bytes::Host(start, size) => unsafe {
                (self.functions.umem_reg)(context, start.as_ptr().cast(), size as usize, access)
            },
            Bytes::DmaBuf(fd, offset, size) => {
                let Some(register) = self.functions.umem_reg_ex else {
                    return Err(misuse(
                        "this rdma-core is too old for queues in GPU memory; leave them in host memory (Queues::Offered)",
                    ));
                };
                let mut how = mlx5dv_devx_umem_in {
                    addr: offset as *mut _,
                    size: size as usize,
                    access,
                    pgsz_bitmap: !(PAGE - 1),
                    comp_mask: MLX5DV_UMEM_MASK_DMABUF,
                    dmabuf_fd: fd.as_raw_fd(),
                };
                // SAFETY: a live context and descriptor; the caller vouches for the memory.
                unsafe { register(context, &raw mut how) }
            }
        };
        let Some(memory) = NonNull::new(memory) else {
            return Err(last(format!("registering queue memory on {}", self.name)));
        };
        // SAFETY: just made.
        let number = unsafe { memory.as_ref() }.umem_id;
        Ok((Handle(memory.as_ptr() as usize), number))
    }

    fn unpin(&self, memory: Handle) -> Result<()> {
        // SAFETY: what `pin` made; its handle is given up.
        let code = unsafe { (self.functions.umem_dereg)(memory.0 as *mut mlx5dv_devx_umem) };
        self.ended(code, "taking queue memory back")
    }

    fn page(&self, kind: PageKind) -> Result<Page> {
        let flags = match kind {
            PageKind::Dedicated => MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED,
            PageKind::NonCached => MLX5DV_UAR_ALLOC_TYPE_NC,
            PageKind::BlueFlame => MLX5DV_UAR_ALLOC_TYPE_BF,
        };
        // SAFETY: a live context.
        let page = NonNull::new(unsafe { (self.functions.alloc_uar)(self.context.as_ptr(), flags) });
        let page = page.ok_or_else(|| last(format!("mapping a doorbell ({kind:?}) of {}", self.name)))?;
        // SAFETY: just made.
        let (register, number) = unsafe { (page.as_ref().reg_addr, page.as_ref().page_id) };
        let handle = Handle(page.as_ptr() as usize);
        match NonNull::new(register.cast()) {
            Some(doorbell) => Ok(Page { handle, number, doorbell }),
            None => {
                self.free_page(handle);
                Err(misuse(format!("{} gave a doorbell without an address", self.name)))
            }
        }
    }

    fn free_page(&self, page: Handle) {
        // SAFETY: what `page` made; its handle is given up.
        unsafe { (self.functions.free_uar)(page.0 as *mut mlx5dv_devx_uar) };
    }

    fn domain(&self) -> Result<u32> {
        let mut known = mlx5dv_pd { pdn: 0, comp_mask: 0 };
        let mut object = blank();
        object.pd = Pair { object: self.pd.as_ptr(), out: &raw mut known };
        self.init(&mut object, MLX5DV_OBJ_PD, "asking for the protection domain's number")?;
        Ok(known.pdn)
    }

    fn event_queue(&self) -> Result<u32> {
        let mut number = 0;
        // SAFETY: a live context and a valid out-pointer; vector 0 always is.
        let code = unsafe { (self.functions.query_eqn)(self.context.as_ptr(), 0, &raw mut number) };
        self.ended(code, "asking for an event queue")?;
        Ok(number)
    }

    unsafe fn register(&self, bytes: Bytes<'_>, address: u64) -> Result<Registered> {
        let pd = self.pd.as_ptr();
        let (region, size) = match bytes {
            Bytes::Host(start, size) => {
                let call = self.functions.reg_mr_iova2;
                // SAFETY: a live protection domain; the caller vouches for the memory.
                let region = unsafe { call(pd, start.as_ptr().cast(), size as usize, address, ALL as u32) };
                (region, size)
            }
            Bytes::DmaBuf(fd, offset, size) => {
                let Some(call) = self.verbs.ibv_reg_dmabuf_mr else {
                    return Err(misuse(
                        "this rdma-core is too old for dma-bufs (34 is needed): use host memory",
                    ));
                };
                // SAFETY: a live protection domain and descriptor; the caller vouches for the memory.
                let region = unsafe { call(pd, offset, size as usize, address, fd.as_raw_fd(), ALL) };
                (region, size)
            }
        };
        let Some(region) = NonNull::new(region) else {
            return Err(last(format!(
                "registering {size} bytes on {} (`ulimit -l` may be too small, or the GPU's driver gives no dma-bufs)",
                self.name
            )));
        };
        // SAFETY: just made.
        let (lkey, rkey) = unsafe { (region.as_ref().lkey, region.as_ref().rkey) };
        Ok(Registered { handle: Handle(region.as_ptr() as usize), lkey, rkey })
    }

    fn deregister(&self, region: Handle) -> Result<()> {
        // SAFETY: what `register` made; its handle is given up.
        let code = unsafe { (self.verbs.ibv_dereg_mr)(region.0 as *mut ibv_mr) };
        self.ended(code, "taking a region back")
    }

    fn mac(&self, gid: [u8; 16], index: u8, hop_limit: u8) -> Result<[u8; 6]> {
        let grh = ibv_global_route {
            dgid: ibv_gid { raw: gid },
            flow_label: 0,
            sgid_index: index,
            hop_limit,
            traffic_class: 0,
        };
        let mut how = ibv_ah_attr {
            grh,
            dlid: 0,
            sl: 0,
            src_path_bits: 0,
            static_rate: 0,
            is_global: 1,
            port_num: self.port,
        };
        // SAFETY: a live protection domain and valid attributes.
        let handle = unsafe { (self.functions.create_ah)(self.pd.as_ptr(), &raw mut how) };
        if handle.is_null() {
            return Err(last(format!(
                "looking for the way to {} from {}: is there a route, and does the host answer?",
                std::net::Ipv6Addr::from(gid),
                self.name
            )));
        }
        let mut known = mlx5dv_ah { av: null_mut(), comp_mask: 0 };
        let mut object = blank();
        object.ah = Pair { object: handle, out: &raw mut known };
        let asked = self.init(&mut object, MLX5DV_OBJ_AH, "asking for a peer's MAC address");
        let found = match NonNull::new(known.av) {
            // SAFETY: a vector of the live address handle.
            Some(vector) if asked.is_ok() => Ok(unsafe { vector.as_ref() }.rmac),
            _ => Err(misuse(format!(
                "{} knows no MAC address for {}",
                self.name,
                std::net::Ipv6Addr::from(gid)
            ))),
        };
        // SAFETY: made above, ended once.
        unsafe { (self.functions.destroy_ah)(handle) };
        asked.and(found)
    }
}

impl Drop for Libraries {
    fn drop(&mut self) {
        // SAFETY: made in `open`, each ended once; whoever made queues and regions from it has ended them.
        unsafe {
            (self.verbs.ibv_dealloc_pd)(self.pd.as_ptr());
            (self.verbs.ibv_close_device)(self.context.as_ptr());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where there is an rdma-core; elsewhere it must be that which is missing.
    #[test]
    fn every_function_is_found() {
        match mlx5() {
            Ok(library) => {
                let functions = Functions::new(library).unwrap();
                println!("rdma-core is there, with `umem_reg_ex`: {}", functions.umem_reg_ex.is_some());
                // SAFETY: only looked up.
                let unknown = unsafe { find::<QueryEqn>(library, "mlx5dv_no_such_function") };
                let said = unknown.unwrap_err().to_string();
                assert!(said.contains("rdma-core is too old: it has no mlx5dv_no_such_function"), "{said}");
            }
            Err(error) => assert!(error.is_no_adapter(), "{error}"),
        }
    }
}
