//! Adapters: finding, opening, asking.

use crate::error::{Error, Result};
use crate::filter::Filter;
use crate::library::{Verbs, verbs};
use crate::sys::*;
use std::ffi::CStr;
use std::fmt;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::Arc;

/// The names of all adapters, in the library's order; empty where there is none.
///
/// # Errors
/// [`Error::NoLibrary`] without libibverbs; [`Error::NoAdapter`] where the kernel has no RDMA at all.
pub fn adapters() -> Result<Vec<String>> {
    Ok(List::new()?.names().collect())
}

/// The library's list of devices.
struct List {
    verbs: &'static Verbs,
    start: NonNull<*mut ibv_device>,
    count: usize,
}

impl List {
    fn new() -> Result<Self> {
        let verbs = verbs()?;
        let mut count = 0;
        // SAFETY: `count` is a valid out-pointer.
        let list = unsafe { (verbs.ibv_get_device_list)(&raw mut count) };
        let why = || format!("the kernel lists no RDMA devices ({})", std::io::Error::last_os_error());
        let start = NonNull::new(list).ok_or_else(|| Error::NoAdapter { why: why() })?;
        Ok(List { verbs, start, count: count.max(0) as usize })
    }

    fn devices(&self) -> &[*mut ibv_device] {
        // SAFETY: the library gave out `count` entries, which live until the list is freed.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }

    fn name(&self, device: *mut ibv_device) -> String {
        // SAFETY: a device of this list; the name is a C string within it.
        unsafe { CStr::from_ptr((self.verbs.ibv_get_device_name)(device)) }.to_string_lossy().into_owned()
    }

    fn names(&self) -> impl Iterator<Item = String> {
        self.devices().iter().map(|d| self.name(*d))
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: from `ibv_get_device_list`, freed once; opened devices hold what they need.
        unsafe { (self.verbs.ibv_free_device_list)(self.start.as_ptr()) };
    }
}

/// What an adapter and the port in use can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests in one queue.
    pub queue_depth: u32,
    /// Reads and atomics under way on one queue pair, as requester and as responder.
    pub reads: (u8, u8),
    /// Whether remote atomics are done at all. They are atomic among adapters' accesses, not with the processor's.
    pub atomics: bool,
    /// Bytes of one message.
    pub message: u32,
    /// `ibv_mtu` of the port: 1 is 256 bytes, 5 is 4096.
    pub mtu: u8,
}

/// Which port, by which of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// The port's number, from 1.
    pub number: u8,
    /// Local identifier; 0 on Ethernet.
    pub lid: u16,
    /// The GID that is used.
    pub gid: [u8; 16],
    /// Its index.
    pub gid_index: u8,
    /// Whether the link is Ethernet (RoCE), where packets are routed by GID.
    pub ethernet: bool,
}

/// An open adapter with a protection domain. What is made from it holds it open.
pub struct Adapter {
    name: String,
    verbs: &'static Verbs,
    context: NonNull<ibv_context>,
    domain: NonNull<ibv_pd>,
    port: Port,
    limits: Limits,
}

// SAFETY: libibverbs locks whatever threads share in a context and a protection domain.
unsafe impl Send for Adapter {}
// SAFETY: as above.
unsafe impl Sync for Adapter {}

impl Adapter {
    /// Opens the `nth` (modulo their number) of the adapters that have an active port and that the filter lets through.
    ///
    /// # Errors
    /// [`Error::NoLibrary`], [`Error::NoAdapter`], [`Error::PortDown`] if it is the link alone that is missing, or [`Error::Call`].
    pub fn open(filter: &Filter, nth: usize) -> Result<Arc<Self>> {
        let list = List::new()?;
        let (mut fitting, mut down) = (Vec::new(), None);
        for device in list.devices() {
            let opened = Opened::new(&list, *device)?;
            let attributes = opened.attributes()?;
            let ports = 1..=attributes.phys_port_cnt.max(1);
            let Some(port) = ports.into_iter().find(|p| filter.admits(&opened.name, *p)) else { continue };
            let state = opened.port(port)?;
            match state.state {
                IBV_PORT_ACTIVE => fitting.push((opened, attributes, port, state)),
                state => down = Some(Error::PortDown { adapter: opened.name.clone(), port, state }),
            }
        }
        if fitting.is_empty() {
            let names: Vec<String> = list.names().collect();
            return Err(down.unwrap_or_else(|| Error::NoAdapter {
                why: match names.as_slice() {
                    [] => "there is none on this machine".into(),
                    names => format!("FUSEWIRE_IB_HCA lets none through of {}", names.join(", ")),
                },
            }));
        }
        let nth = nth % fitting.len();
        let (opened, attributes, number, state) = fitting.swap_remove(nth);
        let port = opened.address(number, &state)?;
        let small = |n: i32| n.clamp(0, 16) as u8;
        let limits = Limits {
            queue_depth: attributes.max_qp_wr.max(1) as u32,
            reads: (small(attributes.max_qp_init_rd_atom), small(attributes.max_qp_rd_atom)),
            atomics: attributes.atomic_cap != 0,
            message: state.max_msg_sz,
            mtu: state.active_mtu as u8,
        };
        // SAFETY: a live context.
        let domain = unsafe { (list.verbs.ibv_alloc_pd)(opened.context.as_ptr()) };
        let domain = NonNull::new(domain)
            .ok_or_else(|| Error::call("ibv_alloc_pd", &opened.name, "making a protection domain"))?;
        let (name, context) = opened.keep();
        Ok(Arc::new(Adapter { name, verbs: list.verbs, context, domain, port, limits }))
    }

    /// Its name, such as `mlx5_0`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The port in use.
    pub fn port(&self) -> Port {
        self.port
    }

    /// What it can do.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    pub(crate) fn verbs(&self) -> &'static Verbs {
        self.verbs
    }

    /// The `ibv_context`, for what this crate does not offer (direct verbs, say). It lives as long as `self`.
    pub fn as_raw_context(&self) -> *mut ibv_context {
        self.context.as_ptr()
    }

    /// The protection domain, as [`Adapter::as_raw_context`].
    pub fn as_raw_domain(&self) -> *mut ibv_pd {
        self.domain.as_ptr()
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        // SAFETY: made in `open`, each ended once; memory, queues and pairs hold the adapter, so none is left.
        unsafe {
            (self.verbs.ibv_dealloc_pd)(self.domain.as_ptr());
            (self.verbs.ibv_close_device)(self.context.as_ptr());
        }
    }
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} port {}", self.name, self.port.number)
    }
}

/// An open device that may turn out not to be the one wanted.
struct Opened {
    name: String,
    verbs: &'static Verbs,
    context: NonNull<ibv_context>,
}

impl Opened {
    fn new(list: &List, device: *mut ibv_device) -> Result<Self> {
        let name = list.name(device);
        // SAFETY: a device of the live list.
        let context = unsafe { (list.verbs.ibv_open_device)(device) };
        let context =
            NonNull::new(context).ok_or_else(|| Error::call("ibv_open_device", &name, "opening it"))?;
        Ok(Opened { name, verbs: list.verbs, context })
    }

    fn keep(self) -> (String, NonNull<ibv_context>) {
        let mut own = std::mem::ManuallyDrop::new(self);
        (std::mem::take(&mut own.name), own.context)
    }

    fn attributes(&self) -> Result<ibv_device_attr> {
        // SAFETY: plain numbers, for which zero is a value.
        let mut attributes: ibv_device_attr = unsafe { std::mem::zeroed() };
        // SAFETY: a live context and a valid out-pointer.
        match unsafe { (self.verbs.ibv_query_device)(self.context.as_ptr(), &raw mut attributes) } {
            0 => Ok(attributes),
            code => Err(Error::returned(code, "ibv_query_device", &self.name, "asking what it can do")),
        }
    }

    fn port(&self, number: u8) -> Result<ibv_port_attr> {
        // SAFETY: plain numbers, for which zero is a value.
        let mut state: ibv_port_attr = unsafe { std::mem::zeroed() };
        // SAFETY: a live context; the exported function fills no more than this struct has.
        match unsafe { (self.verbs.ibv_query_port)(self.context.as_ptr(), number, &raw mut state) } {
            0 => Ok(state),
            code => {
                Err(Error::returned(code, "ibv_query_port", &self.name, format!("asking for port {number}")))
            }
        }
    }

    /// The port's address: on InfiniBand its first GID; on Ethernet one of RoCE v2, of an IPv4 address if there is one.
    fn address(&self, number: u8, state: &ibv_port_attr) -> Result<Port> {
        let sys = PathBuf::from(format!("/sys/class/infiniband/{}/ports/{number}", self.name));
        let read = |name: String| std::fs::read_to_string(sys.join(name)).unwrap_or_default();
        let ethernet = read("link_layer".into()).trim() == "Ethernet";
        let wanted = match std::env::var("FUSEWIRE_IB_GID_INDEX") {
            Err(_) => None,
            Ok(text) => Some(text.trim().parse::<u8>().map_err(|_| {
                Error::misuse(format!("FUSEWIRE_IB_GID_INDEX=`{text}` is not the index of a GID (0 to 255)"))
            })?),
        };
        let mut best: Option<(u8, u8, [u8; 16])> = None;
        for index in 0..state.gid_tbl_len.clamp(0, 64) as u8 {
            let gid = self.gid(number, index)?;
            if gid == [0; 16] {
                continue;
            }
            let v2 = read(format!("gid_attrs/types/{index}")).contains("v2");
            let ipv4 = gid[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
            let rank = if ethernet { u8::from(v2) * 2 + u8::from(ipv4) } else { 0 };
            let chosen = wanted.map_or(best.is_none_or(|(r, ..)| rank > r), |w| w == index);
            if chosen {
                best = Some((rank, index, gid));
            }
        }
        match best {
            Some((_, gid_index, gid)) => Ok(Port { number, lid: state.lid, gid, gid_index, ethernet }),
            None => Err(Error::misuse(format!(
                "port {number} of RDMA adapter {} has no GID{}: give its network device an address",
                self.name,
                wanted.map_or(String::new(), |w| format!(" at index {w} (FUSEWIRE_IB_GID_INDEX)"))
            ))),
        }
    }

    fn gid(&self, number: u8, index: u8) -> Result<[u8; 16]> {
        let mut gid = ibv_gid { raw: [0; 16] };
        // SAFETY: a live context and a valid out-pointer.
        let code = unsafe {
            (self.verbs.ibv_query_gid)(self.context.as_ptr(), number, i32::from(index), &raw mut gid)
        };
        match code {
            0 => Ok(gid.raw),
            code => Err(Error::returned(code, "ibv_query_gid", &self.name, format!("reading GID {index}"))),
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: opened in `new`; nothing was made from it.
        unsafe { (self.verbs.ibv_close_device)(self.context.as_ptr()) };
    }
}
