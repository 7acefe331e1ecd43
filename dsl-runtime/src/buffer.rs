//! Buffers: memory of a device, and views of it that launches take.

use crate::foreign::Owner;
use crate::kernel::Place;
use crate::machine::{bytes_of, bytes_of_mut};
use crate::parked::{drop_later, make_room, with_room};
use crate::stream::Kind;
use crate::uses::{Access, Claims, Uses};
use crate::{Device, Error, Result, Stream, Transport};
use fusewire_device::element::Element;
use fusewire_driver::{self as cuda, DevicePtr, memory::DeviceRegion};
use fusewire_transports::host::{Machine, Symmetric};
use fusewire_transports::peers::{Allocation, Sharable};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;

/// Alignment of every buffer; launches want 16.
const ALIGN: usize = 256;

/// The bytes behind a buffer.
pub(crate) struct Memory {
    store: Store,
    device: Device,
    uses: Uses,
}

enum Store {
    Empty,
    Host(NonNull<u8>, Layout),
    Cuda(cuda::memory::DeviceMemory),
    Symmetric(Arc<Symmetric>),
    /// That peers can map, one by one.
    Shared(Arc<Sharable>),
    /// Somebody else's: its address, and what is dropped when it is not used any more.
    Foreign {
        address: u64,
        _owner: Option<Owner>,
    },
}

/// Where the bytes of a store are.
enum At {
    Nowhere,
    Host(*mut u8),
    Cuda(DevicePtr),
}

// SAFETY: the bytes are reached only by operations of one stream at a time that writes, or of some that read, or by the host, each behind
// a claim (`Claims`).
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(device: &Device, bytes: usize) -> Result<Self> {
        let store = match &device.0 {
            _ if bytes == 0 => Store::Empty,
            Machine::Host => {
                let layout = Layout::from_size_align(bytes, ALIGN)
                    .map_err(|_| Error::misuse(format!("a buffer of {bytes} bytes")))?;
                // SAFETY: the layout is not empty.
                let start = unsafe { alloc_zeroed(layout) };
                let Some(start) = NonNull::new(start) else {
                    return Err(Error::misuse(format!("there is no memory for a buffer of {bytes} bytes")));
                };
                Store::Host(start, layout)
            }
            Machine::Cuda(context) => {
                let make = || Ok(cuda::memory::DeviceMemory::new(context, bytes)?);
                let memory = with_room(Error::is_out_of_memory, make)?;
                memory.fill(0)?;
                Store::Cuda(memory)
            }
        };
        Ok(Memory { store, device: device.clone(), uses: Uses::default() })
    }

    /// Zeroed memory that peers can map.
    pub(crate) fn shared(device: &Device, bytes: usize) -> Result<Self> {
        let make = || Ok(Sharable::create(&device.0, bytes)?);
        let store = Store::Shared(Arc::new(with_room(Error::is_out_of_memory, make)?));
        Ok(Memory { store, device: device.clone(), uses: Uses::default() })
    }

    /// Somebody else's memory.
    pub(crate) fn foreign(device: &Device, address: u64, owner: Option<Owner>) -> Self {
        let store = Store::Foreign { address, _owner: owner };
        Memory { store, device: device.clone(), uses: Uses::default() }
    }

    /// The memory, if it was made for peers to map.
    pub(crate) fn sharable(&self) -> Option<&Arc<Sharable>> {
        match &self.store {
            Store::Shared(memory) => Some(memory),
            _ => None,
        }
    }

    /// Symmetric memory.
    pub(crate) fn over(device: &Device, symmetric: Arc<Symmetric>) -> Self {
        Memory { store: Store::Symmetric(symmetric), device: device.clone(), uses: Uses::default() }
    }

    /// What an adapter registers: the whole allocation that holds a buffer of so many bytes.
    pub(crate) fn allocation(&self, bytes: u64) -> Allocation<'_> {
        match &self.store {
            Store::Shared(memory) => memory.allocation(),
            _ => Allocation { base: self.address(), bytes, file: None },
        }
    }

    /// Waits for the streams that use the memory.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        self.uses.wait_idle()
    }

    pub(crate) fn uses(&self) -> &Uses {
        &self.uses
    }

    /// Queues setting `bytes` bytes at `offset` to `value` on `stream`.
    pub(crate) fn fill(
        self: &Arc<Self>,
        stream: &Stream,
        offset: usize,
        value: u8,
        bytes: usize,
    ) -> Result<()> {
        stream.device().check_same(self.machine(), "a buffer")?;
        let _claim = Claims::of(stream, [(self, Access::Write)])?;
        match (&stream.0.kind, self.at()) {
            // SAFETY: the callers' ranges lie within the memory, which drops only after the stream is idle.
            (Kind::Cuda(s), At::Cuda(start)) => unsafe {
                cuda::copy::memset_u8_async(s, start.offset(offset), value, bytes)?;
            },
            (Kind::Host(_), At::Host(_)) => {
                let memory = Arc::clone(self);
                // SAFETY: as above; held by this operation, and one stream at a time uses it.
                stream.push(Arc::new(move |_| unsafe {
                    (memory.address() as *mut u8).add(offset).write_bytes(value, bytes)
                }));
            }
            _ => {}
        }
        Ok(())
    }

    fn at(&self) -> At {
        match (&self.store, &self.device.0) {
            (Store::Empty, _) => At::Nowhere,
            (Store::Host(start, _), _) => At::Host(start.as_ptr()),
            (Store::Cuda(memory), _) => At::Cuda(memory.ptr()),
            (Store::Symmetric(memory), Machine::Host) => At::Host(memory.own() as *mut u8),
            (Store::Symmetric(memory), Machine::Cuda(_)) => At::Cuda(DevicePtr::new(memory.own())),
            (Store::Shared(memory), Machine::Host) => At::Host(memory.address() as *mut u8),
            (Store::Shared(memory), Machine::Cuda(_)) => At::Cuda(DevicePtr::new(memory.address())),
            (Store::Foreign { address: 0, .. }, _) => At::Nowhere,
            (Store::Foreign { address, .. }, Machine::Host) => At::Host(*address as *mut u8),
            (Store::Foreign { address, .. }, Machine::Cuda(_)) => At::Cuda(DevicePtr::new(*address)),
        }
    }

    pub(crate) fn address(&self) -> u64 {
        match self.at() {
            At::Nowhere => 0,
            At::Host(start) => start as u64,
            At::Cuda(start) => start.as_u64(),
        }
    }

    pub(crate) fn symmetric(&self) -> Option<&Arc<Symmetric>> {
        match &self.store {
            Store::Symmetric(memory) => Some(memory),
            _ => None,
        }
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.device.0
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match self.store {
            Store::Empty => {}
            // SAFETY: allocated with this layout; every queued operation holds the memory, so none is left.
            Store::Host(start, layout) => unsafe { dealloc(start.as_ptr(), layout) },
            // As above.
            _ if matches!(self.device.0, Machine::Host) => {}
            // Launches do not hold the memory.
            _ => {
                let users = self.uses.users();
                if !users.is_empty() {
                    let store = std::mem::replace(&mut self.store, Store::Empty);
                    let unused = Memory { store, device: self.device.clone(), uses: Uses::default() };
                    drop_later(users, Box::new(unused));
                }
            }
        }
    }
}

/// Elements in the memory of a device. Dropping a buffer does not wait: its memory is freed after the work queued with it has run, at the next
/// allocation, drop or synchronization. An allocation that finds no room waits for such memory, as long as kernels wait for peers.
pub struct Buffer<T> {
    memory: Arc<Memory>,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Element> Buffer<T> {
    pub(crate) fn new(device: &Device, len: usize) -> Result<Self> {
        let bytes = len
            .checked_mul(T::SIZE)
            .ok_or_else(|| Error::misuse(format!("a buffer of {len} elements is too large")))?;
        Ok(Self::over(Memory::new(device, bytes)?, len))
    }

    pub(crate) fn shared(device: &Device, len: usize) -> Result<Self> {
        let bytes = len
            .checked_mul(T::SIZE)
            .ok_or_else(|| Error::misuse(format!("a buffer of {len} elements is too large")))?;
        Ok(Self::over(Memory::shared(device, bytes)?, len))
    }

    pub(crate) fn over(memory: Memory, len: usize) -> Self {
        Buffer { memory: Arc::new(memory), len, element: PhantomData }
    }

    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    pub(crate) fn into_memory(self) -> Arc<Memory> {
        self.memory
    }

    /// Allocates symmetric memory: a buffer of zeros on every rank of a transport, which all ranks map. Collective: all ranks call it,
    /// with equal lengths. It is used as any other buffer. As an output, it lets peers store to it directly, so hooks without a
    /// `consume` need no staging ([`crate::Protocol::Direct`], [`crate::Protocol::Bulk`], [`crate::Protocol::Copy`]).
    ///
    /// # Errors
    /// [`Error::Misuse`] if the transport has no symmetric memory, or ranks ask for different lengths; [`Error::Peer`] if a rank
    /// does not call it; the driver's error if memory is exhausted.
    pub fn symmetric<X: Transport>(transport: &X, len: usize) -> Result<Self> {
        let bytes = len
            .checked_mul(T::SIZE)
            .ok_or_else(|| Error::misuse(format!("a buffer of {len} elements is too large")))?;
        let device = Device::of(transport);
        make_room(&device, bytes);
        Ok(Self::over(Memory::over(&device, transport.link().symmetric(bytes)?), len))
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All of it, to be read by a launch.
    pub fn view(&self) -> View<'_, T> {
        View::of(&self.memory, self.len)
    }

    /// All of it, to be written by a launch.
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut::of(&self.memory, self.len)
    }

    /// Waits for everything queued on `stream`, then copies all elements out. Launches of other threads that write the buffer (a graph
    /// borrows none) wait until the elements are copied.
    ///
    /// # Errors
    /// Those of [`Stream::synchronize`]. A fault is reported once: after that, a read returns whatever the launch has written.
    pub fn read(&self, stream: &Stream) -> Result<Vec<T>> {
        let mut values = vec![T::default(); self.len];
        self.read_into(stream, &mut values)?;
        Ok(values)
    }

    /// As [`Buffer::read`], into existing memory: a large allocation can take longer than the copy.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the lengths differ; those of [`Stream::synchronize`].
    pub fn read_into(&self, stream: &Stream, values: &mut [T]) -> Result<()> {
        if values.len() != self.len {
            return Err(Error::misuse(format!(
                "room for {} values, but the buffer has {} elements",
                values.len(),
                self.len
            )));
        }
        self.memory.device.check_same(&stream.device().0, "the stream")?;
        // Dropped behind the claim: the last end of a link waits until its peers are done, with whatever they do.
        let _links;
        let _claim = Claims::uncaptured(stream, "Buffer::read", [(&self.memory, Access::Look)])?;
        stream.queue().wait_idle()?;
        let verdict;
        (verdict, _links) = stream.verdict();
        verdict?;
        match (self.memory.at(), self.memory.machine()) {
            // SAFETY: `len` elements; no stream writes the memory: the last that did is idle, and under the claim none is given such work.
            (At::Host(start), _) => unsafe {
                std::ptr::copy_nonoverlapping(start, values.as_mut_ptr().cast(), self.len * T::SIZE);
            },
            // SAFETY: as above.
            (At::Cuda(start), Machine::Cuda(context)) => unsafe {
                cuda::copy::d2h(context, bytes_of_mut(values), start)?;
            },
            _ => {}
        }
        Ok(())
    }

    /// Waits for the streams that have used the buffer, unless they were waited for since, then copies `values` in. Launches of other
    /// threads that use the buffer (a graph borrows none) wait until the values are copied.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the lengths differ, while one of those streams is capturing, or while a capture uses the buffer.
    pub fn fill_from(&mut self, values: &[T]) -> Result<()> {
        if values.len() != self.len {
            return Err(Error::misuse(format!(
                "{} values for a buffer of {} elements",
                values.len(),
                self.len
            )));
        }
        let _claim = Claims::to_fill(&self.memory, "Buffer::fill_from")?;
        match (self.memory.at(), self.memory.machine()) {
            // SAFETY: `len` elements; no stream uses the memory, and under the claim none is given work that does.
            (At::Host(start), _) => unsafe {
                std::ptr::copy_nonoverlapping(values.as_ptr().cast(), start, self.len * T::SIZE);
            },
            // SAFETY: as above.
            (At::Cuda(start), Machine::Cuda(context)) => unsafe {
                cuda::copy::h2d(context, start, bytes_of(values))?;
            },
            _ => {}
        }
        Ok(())
    }

    /// Queues a copy of `from` on `stream`: capturable, nothing waits.
    ///
    /// # Errors
    /// [`Error::Misuse`] if lengths or devices differ.
    pub fn copy_from(&mut self, stream: &Stream, from: &Buffer<T>) -> Result<()> {
        if from.len != self.len {
            return Err(Error::misuse(format!("{} elements into a buffer of {}", from.len, self.len)));
        }
        let both = [(&self.memory, Access::Write), (&from.memory, Access::Read)];
        both.iter().try_for_each(|(memory, _)| stream.device().check_same(memory.machine(), "a buffer"))?;
        let _claims = Claims::of(stream, both)?;
        let bytes = self.len * T::SIZE;
        match (&stream.0.kind, from.memory.at(), self.memory.at()) {
            (Kind::Cuda(s), At::Cuda(a), At::Cuda(b)) => {
                // SAFETY: both hold `bytes`, are distinct (one is borrowed mutably), and drop only after the stream is idle.
                unsafe { cuda::copy::d2d_async(s, b, a, bytes)? };
            }
            (Kind::Host(_), At::Host(_), At::Host(_)) => {
                let (from, to) = (Arc::clone(&from.memory), Arc::clone(&self.memory));
                stream.push(Arc::new(move |_| {
                    // SAFETY: both are held by this operation, hold `bytes` and are distinct; no other stream writes them.
                    unsafe {
                        std::ptr::copy_nonoverlapping(
                            from.address() as *const u8,
                            to.address() as *mut u8,
                            bytes,
                        )
                    };
                }));
            }
            _ => {}
        }
        Ok(())
    }

    /// Queues setting every byte to `value` on `stream`: capturable, nothing waits.
    ///
    /// # Errors
    /// [`Error::Misuse`] on a stream of another device.
    pub fn fill_bytes(&mut self, stream: &Stream, value: u8) -> Result<()> {
        self.memory.fill(stream, 0, value, self.len * T::SIZE)
    }
}

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer of {} elements on {:?}", self.len, self.memory.device.0)
    }
}

macro_rules! view {
    ($(#[$doc:meta])* $name:ident, $life:ty, $from:ty, $how:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<'a, T> {
            pub(crate) memory: &'a Arc<Memory>,
            start: usize,
            len: usize,
            life: PhantomData<$life>,
        }

        impl<'a, T: Element> $name<'a, T> {
            pub(crate) fn of(memory: &'a Arc<Memory>, len: usize) -> Self {
                $name { memory, start: 0, len, life: PhantomData }
            }

            /// Elements.
            pub fn len(&self) -> usize {
                self.len
            }

            /// Whether there are none.
            pub fn is_empty(&self) -> bool {
                self.len == 0
            }

            /// A part of it.
            ///
            /// # Errors
            /// [`Error::Misuse`] if the range is not within it.
            pub fn slice(self, range: impl RangeBounds<usize>) -> Result<Self> {
                let start = match range.start_bound() {
                    Bound::Included(s) => *s,
                    Bound::Excluded(s) => s.saturating_add(1),
                    Bound::Unbounded => 0,
                };
                let end = match range.end_bound() {
                    Bound::Included(e) => e.saturating_add(1),
                    Bound::Excluded(e) => *e,
                    Bound::Unbounded => self.len,
                };
                if start > end || end > self.len {
                    return Err(Error::misuse(format!("elements {start}..{end} of a view of {}", self.len)));
                }
                Ok(Self { start: self.start + start, len: end - start, ..self })
            }

            pub(crate) fn over(memory: &'a Arc<Memory>, start: usize, len: usize) -> Self {
                Self { memory, start, len, life: PhantomData }
            }

            pub(crate) fn address(&self) -> u64 {
                self.memory.address() + (self.start * T::SIZE) as u64
            }

            #[doc(hidden)]
            pub fn place(&self) -> Place<'_> {
                Place { len: self.len, address: self.address(), symmetric: self.memory.symmetric() }
            }
        }

        impl<'a, T: Element> From<$from> for $name<'a, T> {
            fn from(buffer: $from) -> Self {
                buffer.$how()
            }
        }
    };
}

view!(
    /// A buffer, or a part of one, that a launch reads.
    View,
    &'a [T],
    &'a Buffer<T>,
    view
);
view!(
    /// A buffer, or a part of one, that a launch writes.
    ViewMut,
    &'a mut [T],
    &'a mut Buffer<T>,
    view_mut
);

impl<T: Element> Clone for View<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Element> Copy for View<'_, T> {}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory on {:?}", self.device.0)
    }
}
