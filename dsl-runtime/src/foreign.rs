//! Memory, streams and captures of other libraries in the process.
//!
//! | theirs | here | must be valid |
//! |---|---|---|
//! | memory | [`Buffer::from_raw`], [`Buffer::from_vec`]; with the feature `dlpack` tensors, by `Buffer::from_dlpack`; with `cudarc` its slices, by `Buffer::from_cudarc` | until its `owner` is dropped, after the work that uses it |
//! | memory that peers will access | [`Buffer::into_symmetric`]; a window over a buffer of it | the same, and until no rank has it mapped |
//! | a stream | [`Stream::from_raw`]; with the feature `cudarc` `Stream::from_cudarc` | while there is a handle of it |
//! | a capture | noticed by whatever is queued on the stream | - |
//!
//! On one stream, work of this library and of others runs in the order in which it was queued. Between streams, this library orders
//! its own uses of a buffer or a transport; [`Buffer::hand_to`] makes it order theirs as well.
//!
//! # Captures that others have begun
//! Launches, copies and fills on a stream that somebody else captures become nodes of their graph. The graph keeps the resources of these
//! (buffers, transports, kernels) until it and all graphs that were instantiated or cloned from it are destroyed; the next call that queues
//! or waits then drops them. This library does not see replays of such a graph. The caller must ensure that no other work on its transports and
//! buffers runs at the same time, for example by queueing all of it on the stream that replays the graph. Faults of its kernels are reported by
//! [`Stream::synchronize`] of the stream that was captured.

#[cfg(feature = "cudarc")]
pub mod cudarc;
#[cfg(feature = "dlpack")]
pub mod dlpack;

pub use fusewire_transports::host::NotExportable;

use crate::buffer::Memory;
use crate::capture::Captured;
use crate::order::Used;
use crate::parked::settle;
use crate::stream::{Handle, Kind, Queue, lock};
use crate::uses::{Access, Claims};
use crate::{Buffer, Device, Error, Result, Stream, Transport};
use fusewire_device::element::Element;
use fusewire_driver::{self as cuda, DevicePtr, foreign};
use fusewire_transports::host::{Link, Machine};
use std::any::Any;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// Something that is to be dropped when memory or a stream is not used any more.
pub(crate) type Owner = Box<dyn Any + Send + Sync>;

/// What a queue has more if somebody else made its stream.
pub(crate) struct Foreign {
    /// The capture that was noticed; 0 if there is none.
    capture: AtomicU64,
    /// What graphs of others run on, of which nobody here waits for a replay.
    recorded: Mutex<Vec<Weak<Link>>>,
    _owner: Owner,
}

/// What a graph of somebody else keeps.
#[derive(Default)]
pub(crate) struct Kept(Mutex<Vec<Owner>>);

/// Streams of the process by context and handle, ours too: another library may hand one back.
static STREAMS: Mutex<Vec<([usize; 2], Weak<Handle>)>> = Mutex::new(Vec::new());

/// Streams that others capture.
static CAPTURED: Mutex<Vec<Weak<Queue>>> = Mutex::new(Vec::new());
static CAPTURES: AtomicUsize = AtomicUsize::new(0);

fn key(context: &cuda::Context, raw: *mut c_void) -> [usize; 2] {
    [context.as_raw().addr(), raw.addr()]
}

/// Lets a stream be found by its handle.
pub(crate) fn register(context: &cuda::Context, raw: *mut c_void, handle: &Arc<Handle>) {
    enter(&mut lock(&STREAMS), key(context, raw), handle);
}

fn enter(streams: &mut Vec<([usize; 2], Weak<Handle>)>, key: [usize; 2], handle: &Arc<Handle>) {
    streams.retain(|(_, handle)| handle.strong_count() > 0);
    streams.push((key, Arc::downgrade(handle)));
}

/// Notices which captures of others have ended: until then, what they use is refused to other streams.
pub(crate) fn notice_all() {
    if CAPTURES.load(Ordering::Acquire) == 0 {
        return;
    }
    let queues: Vec<_> = lock(&CAPTURED).iter().filter_map(Weak::upgrade).collect();
    for queue in &queues {
        let _ = queue.notice();
    }
    let mut captured = lock(&CAPTURED);
    captured.retain(|queue| queue.upgrade().is_some_and(|queue| queue.is_capturing()));
    CAPTURES.store(captured.len(), Ordering::Release);
}

impl Queue {
    /// Notices whether somebody else has begun to capture the stream, or has ended that.
    pub(crate) fn notice(self: &Arc<Self>) -> Result<()> {
        let (Some(foreign), Kind::Cuda(stream)) = (&self.foreign, &self.kind) else { return Ok(()) };
        if self.is_retired() && !self.is_capturing() {
            return Ok(());
        }
        let now = stream.recording()?;
        let id = now.as_ref().map_or(0, |recording| recording.id());
        if id == foreign.capture.load(Ordering::Acquire) {
            return Ok(());
        }
        // What it kept may wait for the stream: dropped behind the locks.
        let _ended;
        let alone = self.alone();
        _ended = lock(&self.capture).take();
        self.capturing.store(false, Ordering::Release);
        foreign.capture.store(0, Ordering::Release);
        if let Some(recording) = now {
            let kept = Arc::new(Kept::default());
            recording.keep(Arc::clone(&kept) as _)?;
            *lock(&self.capture) = Some(Captured { kept: Some(kept), ..Captured::default() });
            self.capturing.store(true, Ordering::Release);
            foreign.capture.store(id, Ordering::Release);
            let mut captured = lock(&CAPTURED);
            captured.push(Arc::downgrade(self));
            CAPTURES.store(captured.len(), Ordering::Release);
        }
        drop(alone);
        Ok(())
    }

    /// This library has begun a capture of somebody else's stream, or has ended it.
    pub(crate) fn own_capture(&self, begun: bool) -> Result<()> {
        let (Some(foreign), Kind::Cuda(stream)) = (&self.foreign, &self.kind) else { return Ok(()) };
        let id = if begun { stream.recording()?.map_or(0, |recording| recording.id()) } else { 0 };
        foreign.capture.store(id, Ordering::Release);
        Ok(())
    }

    /// Whether no handle of somebody else's stream is left, so that it may be gone: events tell how far it has got.
    pub(crate) fn is_retired(&self) -> bool {
        self.foreign.is_some() && self.has_no_handle()
    }

    pub(crate) fn has_no_handle(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// The links of graphs that others replay.
    pub(crate) fn recorded(&self) -> Vec<Arc<Link>> {
        let recorded = |foreign: &Foreign| lock(&foreign.recorded).iter().filter_map(Weak::upgrade).collect();
        self.foreign.as_ref().map_or(Vec::new(), recorded)
    }

    /// Has the graph under capture keep what was recorded in it.
    pub(crate) fn hand_over(&self, captured: &mut Captured) {
        let (Some(foreign), Some(kept)) = (&self.foreign, &captured.kept) else { return };
        let mut recorded = lock(&foreign.recorded);
        for Used { link, .. } in captured.links.iter().filter(|used| used.told) {
            recorded.retain(|known| known.strong_count() > 0);
            if !recorded.iter().any(|known| known.as_ptr() == Arc::as_ptr(link)) {
                recorded.push(Arc::downgrade(link));
            }
        }
        let mut kept = lock(&kept.0);
        kept.push(Box::new(std::mem::take(&mut captured.links)));
        kept.push(Box::new(std::mem::take(&mut captured.memory)));
        kept.push(Box::new(std::mem::take(&mut captured.held)));
        kept.push(Box::new(std::mem::take(&mut captured.modules)));
    }
}

/// Memory of somebody else on `device`, with `len` elements of `size` bytes at `address`.
///
/// # Errors
/// [`Error::Misuse`] if the address is null, is not aligned to an element, or is not in the memory of `device`.
pub(crate) fn memory(
    device: &Device,
    address: u64,
    len: usize,
    size: usize,
    owner: Option<Owner>,
) -> Result<Memory> {
    if len.checked_mul(size).is_none_or(|bytes| bytes as u64 > u64::MAX - address) {
        return Err(Error::misuse(format!(
            "{len} elements from {address:#x} on: there are no such addresses"
        )));
    }
    if len > 0 && (address == 0 || !address.is_multiple_of(size as u64)) {
        return Err(Error::misuse(format!(
            "a buffer at {address:#x}: the address of elements of {size} bytes is a multiple of that, and not null"
        )));
    }
    if len > 0 {
        is_on(device, address)?;
    }
    Ok(Memory::foreign(device, if len > 0 { address } else { 0 }, owner))
}

/// Refuses an address that is not in the memory of `device`.
fn is_on(device: &Device, address: u64) -> Result<()> {
    let Machine::Cuda(context) = &device.0 else { return Ok(()) };
    let (own, found) = (context.device(), foreign::device_of(context, DevicePtr::new(address))?);
    if found == Some(own.ordinal()) {
        return Ok(());
    }
    let found = found.map_or("memory of the host".into(), |other| format!("memory of GPU {other}"));
    Err(Error::misuse(format!(
        "a buffer at {address:#x} is to be on GPU {} ({own}), but that address is {found}: copy it there first",
        own.ordinal()
    )))
}

impl Stream {
    /// A CUDA stream that another library made, as `cudaStream_t` or `CUstream`; null is the legacy default stream. Launches, copies, fills
    /// and events stay in order with other work that is queued on it. All handles of one stream are clones of each other; for a stream that
    /// this library made, they are clones of its handle. Dropping the last does not wait. `owner` is dropped when the stream is not needed here.
    ///
    /// Ranks that share a GPU have parts of it, and kernels of their transports are refused on streams of the whole GPU. In that case make
    /// the stream here and give the other library [`Stream::as_raw`].
    ///
    /// # Errors
    /// [`Error::Misuse`] on CPU threads; for the default stream of a thread, which has no handle; for a stream of another GPU, of another
    /// context than the primary one or of a green context. The driver's errors.
    ///
    /// # Safety
    /// The stream is valid while a handle made from it exists. If the last one is dropped while the stream captures, it stays valid for as long
    /// as the program uses this library: keep a handle over a capture. No other work that is queued on it corrupts the memory of this library.
    pub unsafe fn from_raw(
        device: &Device,
        raw: *mut c_void,
        owner: impl Any + Send + Sync,
    ) -> Result<Stream> {
        settle();
        let Machine::Cuda(context) = &device.0 else {
            return Err(Error::misuse("CPU threads have no streams of CUDA: make one by `Device::stream`"));
        };
        let context = context.whole();
        let key = key(&context, raw);
        // Over both, so that two threads do not make two of one stream.
        let mut streams = lock(&STREAMS);
        let known =
            streams.iter().filter(|(known, _)| *known == key).find_map(|(_, handle)| handle.upgrade());
        if let Some(handle) = known {
            return Ok(Stream(handle));
        }
        // SAFETY: the caller's contract.
        let stream = unsafe { cuda::Stream::borrowed(&context, raw.cast())? };
        let foreign =
            Foreign { capture: AtomicU64::new(0), recorded: Mutex::default(), _owner: Box::new(owner) };
        let device = Device(Machine::Cuda(context));
        let stream = Stream::over(&device, Kind::Cuda(stream), Some(foreign));
        enter(&mut streams, key, &stream.0);
        Ok(stream)
    }

    /// The CUDA handle (`CUstream`), for other libraries. Null on CPU threads. Valid while a handle of the stream exists here.
    /// Once they capture a collective of it, this rank's launches on that transport are not compared with those of the host's other ranks any more.
    pub fn as_raw(&self) -> *mut c_void {
        match &self.0.kind {
            Kind::Cuda(stream) => {
                self.0.lent.store(true, Ordering::Release);
                stream.as_raw().cast()
            }
            Kind::Host(_) => std::ptr::null_mut(),
        }
    }
}

impl<T: Element> Buffer<T> {
    /// `len` elements at `address`, in memory that another library has allocated on `device`: for a GPU a CUDA address, for CPU threads an
    /// ordinary one. It is used as any other buffer; [`Buffer::into_symmetric`] lets peers map it. `owner` is dropped after all work that was queued with
    /// the buffer, and after graphs that use it; dropping the buffer does not wait.
    ///
    /// A launch asks for addresses that are multiples of 16.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the address is null, is not aligned to an element, or is not in the memory of `device`.
    ///
    /// # Safety
    /// The elements can be read and written until `owner` is dropped. Nobody else uses them while work that is queued with this buffer does,
    /// unless both only read ([`Buffer::hand_to`] orders uses by others). No other buffer is made of them during that time.
    pub unsafe fn from_raw(
        device: &Device,
        address: u64,
        len: usize,
        owner: impl Any + Send + Sync,
    ) -> Result<Self> {
        settle();
        Ok(Self::over(memory(device, address, len, T::SIZE, Some(Box::new(owner)))?, len))
    }

    /// The elements of `values` as a buffer of CPU threads, without a copy.
    pub fn from_vec(values: Vec<T>) -> Self {
        /// Elements that are reached by their address alone.
        struct Owned<T>(*mut [T]);
        // SAFETY: elements are plain numbers, and nothing is reached through this but by `Drop`.
        unsafe impl<T> Send for Owned<T> {}
        // SAFETY: as above.
        unsafe impl<T> Sync for Owned<T> {}
        impl<T> Drop for Owned<T> {
            fn drop(&mut self) {
                // SAFETY: from `Box::into_raw`, and dropped once.
                drop(unsafe { Box::from_raw(self.0) });
            }
        }
        let (len, owned) = (values.len(), Owned(Box::into_raw(values.into_boxed_slice())));
        let address = if len > 0 { owned.0.cast::<T>().addr() as u64 } else { 0 };
        Self::over(Memory::foreign(&Device::host(), address, Some(Box::new(owned))), len)
    }

    /// Makes the elements symmetric memory in place, like that of [`Buffer::symmetric`]. They may come from [`Buffer::from_raw`], a tensor, or an
    /// ordinary buffer. Collective: all ranks call it, with equal lengths. Waits for work that is queued with the buffer.
    ///
    /// Peers map the memory, so its owner is dropped when every rank has dropped its buffer or is gone. On an error the buffer is dropped.
    ///
    /// | memory | ranks of one process | ranks of several |
    /// |---|---|---|
    /// | of `cudaMalloc`, `cuMemAlloc` | yes | yes |
    /// | of `cuMemCreate` with a file descriptor, one allocation | yes | yes |
    /// | of `cuMemCreate` without one, of pools (`cudaMallocAsync`), managed | on one GPU | no |
    /// | of the host | yes | no |
    ///
    /// # Errors
    /// [`Error::NotExportable`], on all ranks; [`Error::Misuse`] for no elements, and as for [`Buffer::symmetric`]; [`Error::Peer`] if a rank
    /// does not call it or has another length.
    pub fn into_symmetric<X: Transport>(self, transport: &X) -> Result<Self> {
        // Graphs of others may have let go of it.
        settle();
        let (len, device) = (self.len(), Device::of(transport));
        let memory = self.into_memory();
        let idle = match memory.wait_idle() {
            Err(error) if !error.is_misuse() => return Err(error),
            waited => waited.is_ok(),
        };
        let own = match Arc::try_unwrap(memory) {
            Ok(memory) if device.check_same(memory.machine(), "a buffer").is_err() => {
                Err(NotExportable::Elsewhere)
            }
            Ok(memory) if idle => Ok((memory.address(), Box::new(memory) as Owner)),
            _ => Err(NotExportable::InUse),
        };
        // SAFETY: elements of a buffer, on that device, until the memory is dropped: nothing else reaches them by it.
        let symmetric = unsafe { transport.link().adopt(own, len * T::SIZE)? };
        Ok(Self::over(Memory::over(&device, symmetric), len))
    }

    /// The address of the first element, for other libraries; 0 if the buffer is empty. Valid as long as the buffer. [`Buffer::hand_to`] says
    /// when others may use it.
    pub fn address(&self) -> u64 {
        self.memory().address()
    }

    /// Makes `stream` the next user of the buffer. Work that anyone queues on it from now on runs after all work that uses the buffer
    /// now. Later uses of the buffer on another stream run after the work that is queued on `stream` by then. The call does not wait.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the stream is of another device, or a capture on another stream uses the buffer.
    pub fn hand_to(&mut self, stream: &Stream) -> Result<()> {
        hand_to(self.memory(), stream)
    }
}

/// See [`Buffer::hand_to`].
pub(crate) fn hand_to(memory: &Arc<Memory>, stream: &Stream) -> Result<()> {
    stream.device().check_same(memory.machine(), "a buffer")?;
    Claims::of(stream, [(memory, Access::Write)]).map(Claims::hand_over)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    #[test]
    fn a_vector_is_a_buffer_where_it_is() {
        let values: Vec<u32> = (0..1000).collect();
        let at = values.as_ptr().addr() as u64;
        let mut buffer = Buffer::from_vec(values);
        assert_eq!((buffer.address(), buffer.len()), (at, 1000));
        let stream = Device::host().stream().unwrap();
        assert_eq!(buffer.read(&stream).unwrap()[999], 999);
        buffer.fill_bytes(&stream, 0).unwrap();
        assert_eq!(buffer.read(&stream).unwrap(), vec![0; 1000]);
        assert_eq!(Buffer::<u32>::from_vec(Vec::new()).address(), 0);
    }

    #[test]
    fn an_owner_outlives_what_is_queued() {
        struct Told(Arc<AtomicBool>, Vec<u32>);
        impl Drop for Told {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Release);
            }
        }
        let (dropped, go) = (Arc::new(AtomicBool::new(false)), Arc::new(std::sync::Barrier::new(2)));
        let owner = Told(Arc::clone(&dropped), vec![7; 64]);
        let address = owner.1.as_ptr().addr() as u64;
        let (device, stream) = (Device::host(), Device::host().stream().unwrap());
        // SAFETY: the vector is the owner's, and nobody else uses it.
        let mut buffer = unsafe { Buffer::<u32>::from_raw(&device, address, 64, owner).unwrap() };
        let waits = Arc::clone(&go);
        stream.push(Arc::new(move |_| {
            waits.wait();
        }));
        buffer.fill_bytes(&stream, 1).unwrap();
        drop(buffer);
        std::thread::sleep(Duration::from_millis(5));
        assert!(!dropped.load(Ordering::Acquire));
        go.wait();
        stream.synchronize().unwrap();
        assert!(dropped.load(Ordering::Acquire));
    }

    #[test]
    fn addresses_that_cannot_be_are_refused() {
        let device = Device::host();
        let refusal = |address, len| {
            // SAFETY: refused, so never used.
            unsafe { Buffer::<u32>::from_raw(&device, address, len, ()) }.unwrap_err().to_string()
        };
        for (address, len) in [(0, 1), (2, 1), (u64::MAX - 3, 2), (4, usize::MAX)] {
            assert!(refusal(address, len).contains("address"), "{}", refusal(address, len));
        }
        // SAFETY: as above.
        let text = unsafe { Stream::from_raw(&device, std::ptr::null_mut(), ()) }.unwrap_err().to_string();
        assert!(text.contains("Device::stream"), "{text}");
    }

    #[test]
    fn a_buffer_is_handed_to_a_stream_and_back() {
        let (device, go) = (Device::host(), Arc::new(std::sync::Barrier::new(2)));
        let [ours, theirs] = [(); 2].map(|()| device.stream().unwrap());
        let mut buffer = Buffer::from_vec(vec![1u8; 16]);
        let address = buffer.address() as usize;
        let waits = Arc::clone(&go);
        ours.push(Arc::new(move |_| {
            waits.wait();
        }));
        buffer.fill_bytes(&ours, 2).unwrap();
        buffer.hand_to(&theirs).unwrap();
        let seen = Arc::new(Mutex::new(0));
        let see = Arc::clone(&seen);
        theirs.push(Arc::new(move |_| {
            let at = address as *mut u8;
            // SAFETY: behind the fill, and in front of what uses the buffer later.
            unsafe {
                *lock(&see) = at.read();
                at.write(9);
            }
        }));
        let mut copy = device.buffer::<u8>(16).unwrap();
        copy.copy_from(&ours, &buffer).unwrap();
        go.wait();
        assert_eq!(copy.read(&ours).unwrap()[0], 9);
        assert_eq!(*lock(&seen), 2);
    }

    /// Work of others has no number, and may be queued when the stream was waited for already, or behind another buffer's use.
    #[test]
    fn what_others_queue_behind_a_hand_over_is_waited_for() {
        let (device, go) = (Device::host(), Arc::new(std::sync::Barrier::new(2)));
        let [ours, theirs] = [(); 2].map(|()| device.stream().unwrap());
        let mut buffers = [(); 2].map(|()| Buffer::from_vec(vec![1u8; 16]));
        let mut copy = device.buffer::<u8>(16).unwrap();
        buffers.iter_mut().for_each(|buffer| buffer.hand_to(&theirs).unwrap());
        theirs.synchronize().unwrap();
        // Records an event on their stream.
        copy.copy_from(&ours, &buffers[1]).unwrap();
        let (address, waits) = (buffers[0].address() as usize, Arc::clone(&go));
        theirs.push(Arc::new(move |_| {
            waits.wait();
            // SAFETY: behind the hand-over, and in front of what uses the buffer later.
            unsafe { (address as *mut u8).write(9) }
        }));
        copy.copy_from(&ours, &buffers[0]).unwrap();
        go.wait();
        assert_eq!(copy.read(&ours).unwrap()[0], 9);
        // A stream that nobody has any more is waited for as far as it was given work.
        buffers[0].hand_to(&theirs).unwrap();
        drop(theirs);
        copy.copy_from(&ours, &buffers[0]).unwrap();
        assert_eq!(copy.read(&ours).unwrap()[0], 9);
    }
}
