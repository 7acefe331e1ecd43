//! Transports and symmetric memory, for C.

use crate::{fusewire_status, fusewire_stream, fusewire_world, given, guard, hand, misuse, take, text};
use fusewire::dynamic::Region;
use fusewire::{Buffer, Device, Nvl, Options, Shm, Transport};
use std::any::Any;
use std::ffi::c_char;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A transport.
pub struct fusewire_transport {
    pub(crate) transport: Opened,
    pub(crate) device: Device,
    symmetric: Arc<Allocations>,
}

/// The symmetric memory of a transport: a launch finds it by its address.
#[derive(Default)]
struct Allocations(Mutex<Vec<Region>>);

/// Memory that every rank of a transport has, and that all can reach.
pub struct fusewire_symmetric {
    region: Region,
    of: Arc<Allocations>,
}

/// The transports that C can open.
pub(crate) enum Opened {
    Shm(Shm),
    Nvl(Nvl),
}

macro_rules! each {
    ($transport:expr, $it:ident => $body:expr) => {
        match $transport {
            Opened::Shm($it) => $body,
            Opened::Nvl($it) => $body,
        }
    };
}

impl Opened {
    pub(crate) fn any(&self) -> &dyn Any {
        each!(self, transport => transport)
    }
}

/// How a transport is made; equal on all ranks. 0 is the default of each.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fusewire_transport_options {
    /// Staging for each peer and direction, in bytes; 32 MiB.
    pub per_peer_bytes: usize,
    /// Channels to each peer; 32.
    pub channels: u32,
    /// Channels with buffers for LL128; 80. `FUSEWIRE_NO_LL128` is none.
    pub ll128_channels: u32,
    /// Channels with buffers for LL; 64. `FUSEWIRE_NO_LL128` is none.
    pub ll_channels: u32,
    /// How long one wait in a kernel may last, in milliseconds; 10,000.
    pub deadline_ms: u64,
}

/// For `ll128_channels` and `ll_channels`: without that protocol.
pub const FUSEWIRE_NO_LL128: u32 = u32::MAX;

impl From<&fusewire_transport_options> for Options {
    fn from(asked: &fusewire_transport_options) -> Self {
        let mut options = match asked.per_peer_bytes {
            0 => Options::default(),
            bytes => Options::per_peer(bytes),
        };
        if asked.channels > 0 {
            options.channels = asked.channels;
        }
        let flagged = [
            (asked.ll128_channels, &mut options.ll128_channels),
            (asked.ll_channels, &mut options.ll_channels),
        ];
        for (asked, channels) in flagged {
            match asked {
                0 => {}
                FUSEWIRE_NO_LL128 => *channels = 0,
                some => *channels = some,
            }
        }
        if asked.deadline_ms > 0 {
            options.deadline = Duration::from_millis(asked.deadline_ms);
        }
        options
    }
}

/// Makes a transport by its name: "Shm" (CPU threads of one host) or "Nvl" (GPUs of one host). `options` may be null. Collective.
///
/// # Safety
/// As the crate says; `out` takes the transport.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_transport_open(
    world: *const fusewire_world,
    name: *const c_char,
    options: *const fusewire_transport_options,
    out: *mut *mut fusewire_transport,
) -> fusewire_status {
    guard(|| {
        // SAFETY: the caller's contract.
        let (world, name) = unsafe { (&given(world, "world")?.0, text(name, "name")?) };
        // SAFETY: the caller's contract.
        let options: Options = unsafe { options.as_ref() }.unwrap_or(&Default::default()).into();
        let transport = match name {
            "Shm" => Opened::Shm(Shm::rendezvous(world, options)?),
            "Nvl" => Opened::Nvl(Nvl::rendezvous(world, options)?),
            other => {
                return Err(misuse(format!(
                    "there is no transport `{other}` here: \"Shm\" and \"Nvl\" are known"
                )));
            }
        };
        let device = each!(&transport, transport => Device::of(transport));
        // SAFETY: the caller's contract.
        unsafe { hand(out, fusewire_transport { transport, device, symmetric: Arc::default() }) }
    })
}

/// Number of the GPU that its kernels run on; -1 for CPU threads.
///
/// # Safety
/// As the crate says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_transport_device(transport: *const fusewire_transport) -> i32 {
    // SAFETY: the caller's contract.
    match unsafe { transport.as_ref() }.map(|transport| &transport.transport) {
        Some(Opened::Nvl(nvl)) => i32::try_from(nvl.context().device().ordinal()).unwrap_or(-1),
        _ => -1,
    }
}

/// Whether it can be used: `FUSEWIRE_FAULT` or `FUSEWIRE_LOST` until `fusewire_transport_renew`.
///
/// # Safety
/// As the crate says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_transport_check(transport: *const fusewire_transport) -> fusewire_status {
    // SAFETY: the caller's contract.
    guard(|| Ok(each!(unsafe { &given(transport, "transport")?.transport }, it => it.check())?))
}

/// Makes it usable again after a fault. Waits for what this rank has queued on it. Collective.
///
/// # Safety
/// As the crate says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_transport_renew(transport: *const fusewire_transport) -> fusewire_status {
    // SAFETY: the caller's contract.
    guard(|| Ok(each!(unsafe { &given(transport, "transport")?.transport }, it => it.renew())?))
}

/// Ends every wait of its kernels, on this rank and on its peers, with `FUSEWIRE_FAULT`, this rank and `reason`: then it is to be renewed. From any
/// thread, also while others wait for a stream or close it; it waits for nobody. What came first counts. `FUSEWIRE_PEER` if the peers cannot be told.
///
/// # Safety
/// As the crate says; `reason` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_transport_abort(
    transport: *const fusewire_transport,
    reason: *const c_char,
) -> fusewire_status {
    guard(|| {
        // SAFETY: the caller's contract.
        let (transport, reason) =
            unsafe { (&given(transport, "transport")?.transport, text(reason, "reason")?) };
        Ok(each!(transport, it => it.abort(reason))?)
    })
}

/// Ends it: waits for what this rank has queued on it, then for every rank. Launchers of it refuse launches from here on. Collective.
///
/// # Safety
/// As the crate says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_transport_close(transport: *const fusewire_transport) -> fusewire_status {
    // SAFETY: the caller's contract.
    guard(|| Ok(each!(unsafe { &given(transport, "transport")?.transport }, it => it.link().close())?))
}

/// Lets go of it without waiting for peers; launchers keep what they need of it.
///
/// # Safety
/// As the crate says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_transport_free(transport: *mut fusewire_transport) {
    // SAFETY: the caller's contract.
    drop(unsafe { take(transport) });
}

/// Zeroed memory of `bytes` bytes on every rank, which all map. As an output it is stored to by peers directly: name it by its address.
/// Collective: all ranks ask for as many bytes.
///
/// # Safety
/// As the crate says; `out` takes the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_symmetric_new(
    transport: *const fusewire_transport,
    bytes: usize,
    out: *mut *mut fusewire_symmetric,
) -> fusewire_status {
    guard(|| {
        // SAFETY: the caller's contract.
        let transport = unsafe { given(transport, "transport")? };
        let buffer: Buffer<u8> = each!(&transport.transport, it => Buffer::symmetric(it, bytes))?;
        let (region, of) = (Region::of(&buffer), Arc::clone(&transport.symmetric));
        of.0.lock().unwrap_or_else(PoisonError::into_inner).push(region.clone());
        // SAFETY: the caller's contract.
        unsafe { hand(out, fusewire_symmetric { region, of }) }
    })
}

/// Its address.
///
/// # Safety
/// As the crate says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_symmetric_address(memory: *const fusewire_symmetric) -> *mut u8 {
    // SAFETY: the caller's contract.
    unsafe { memory.as_ref() }.map_or(std::ptr::null_mut(), |memory| memory.region.address() as *mut u8)
}

/// Makes `stream` the next that uses it: what is queued there from here on, by whomever, runs behind launches that use it now; and it is given back, or
/// used on another stream, behind what is queued on `stream` until then. Waits for nothing.
///
/// # Safety
/// As the crate says; the stream is of the memory's transport.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_symmetric_hand_to(
    memory: *const fusewire_symmetric,
    stream: *const fusewire_stream,
) -> fusewire_status {
    // SAFETY: the caller's contract.
    guard(|| unsafe { given(memory, "memory")?.region.hand_to(&given(stream, "stream")?.0) })
}

/// Gives it back, behind what this rank has queued with it.
///
/// # Safety
/// As the crate says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_symmetric_free(memory: *mut fusewire_symmetric) {
    // SAFETY: the caller's contract.
    drop(unsafe { take(memory) });
}

impl Drop for fusewire_symmetric {
    fn drop(&mut self) {
        let mut all = self.of.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|region| region.address() != self.region.address());
    }
}

impl fusewire_transport {
    /// `len` elements of `size` bytes at an address, of the type with the number `code`.
    ///
    /// # Safety
    /// That of [`Region::borrowed`], unless the address is in symmetric memory.
    pub(crate) unsafe fn region(
        &self,
        address: u64,
        len: usize,
        code: u64,
        size: usize,
    ) -> fusewire::Result<Region> {
        let all = self.symmetric.0.lock().unwrap_or_else(PoisonError::into_inner);
        let within = |region: &&Region| {
            (region.address()..region.address() + region.bytes() as u64).contains(&address)
        };
        if let Some(region) = all.iter().find(within) {
            let start = (address - region.address()) as usize;
            let end = len.checked_mul(size).and_then(|bytes| start.checked_add(bytes));
            let end =
                end.ok_or_else(|| misuse(format!("{len} elements are more than there are addresses")))?;
            return region.slice(start..end, code, size);
        }
        drop(all);
        // SAFETY: the caller's contract.
        unsafe { Region::borrowed(&self.device, address, len, code) }
    }
}
