//! Data: puts into peers' registered buffers, by offset; sending and receiving.

use super::bound::Call;
use super::copy::copy;
use super::{Add, Links, LocalMemory, Rdma, RemoteMemory, SignalOp, Transfer, Window, WindowPeer, operation};
use crate::args::Out;
use crate::atomic::{Device, Modify, Release};
use crate::element::Element;
use crate::group::Group;
use crate::kernel::Tile;
use crate::mapped::LINE;
use crate::ops::Ops;
use crate::wait::{Flow, kind};
use core::panic::Location;

impl<O: Ops, L: Links> Window<'_, O, L> {
    /// Elements of `T` in this rank's own buffer.
    #[inline(always)]
    pub fn len<T: Element>(&self) -> usize {
        self.device.parts.data_bytes as usize / T::SIZE
    }

    /// Whether this rank has no buffer in the window.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.device.parts.data_bytes == 0
    }

    /// Copies `from` to element `to` of the buffer of `peer`; all threads of the group take part. Visible at the peer once it has seen
    /// a later signal of this group.
    ///
    /// Over an adapter `from` must lie in registered memory: the window's own buffer, or one that was registered with it; and it is
    /// still being read when `put` returns, until a counter says otherwise.
    ///
    /// # Safety
    /// Nobody else accesses that part of the peer's buffer before the peer has seen that signal; nobody writes `from` meanwhile.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn put<T: Element, G: Group>(&self, group: &G, peer: usize, to: usize, from: &[T]) -> Flow {
        let call = Call::new(operation::PUT, peer, 0, Location::caller());
        let entry = self.peer(call, peer)?;
        let (to, bytes) = self.target(call, entry, to, from)?;
        if self.far(entry) {
            let transfer = self.transfer(call, entry, from.as_ptr() as u64, to, bytes)?;
            self.ready(group)?;
            // SAFETY: both ranges are registered and checked; exclusive by the caller's contract.
            let outcome = unsafe { self.device.parts.adapter.put(group, self.route(entry), transfer) };
            return self.posted(group, call, outcome);
        }
        // SAFETY: in range by the check, exclusive by the caller's contract.
        unsafe { copy(group, to as *mut u8, from.as_ptr().cast(), bytes) };
        Ok(())
    }

    /// [`Window::put`], then signal `id` by `value` (added).
    ///
    /// # Safety
    /// As for [`Window::put`].
    #[inline(always)]
    #[track_caller]
    pub unsafe fn put_signal<T: Element, G: Group>(
        &self,
        group: &G,
        peer: usize,
        to: usize,
        from: &[T],
        id: usize,
        value: u64,
    ) -> Flow {
        let call = Call::new(operation::PUT_SIGNAL, peer, id, Location::caller());
        let entry = self.peer(call, peer)?;
        self.id(call, id, self.device.parts.layout.signals)?;
        let (to, bytes) = self.target(call, entry, to, from)?;
        if self.far(entry) {
            let transfer = self.transfer(call, entry, from.as_ptr() as u64, to, bytes)?;
            let signal = signal_of(entry, id, value);
            self.ready(group)?;
            // SAFETY: both ranges are registered and checked; exclusive by the caller's contract.
            let outcome =
                unsafe { self.device.parts.adapter.put_signal(group, self.route(entry), transfer, signal) };
            return self.posted(group, call, outcome);
        }
        // SAFETY: in range by the check, exclusive by the caller's contract.
        unsafe { copy(group, to as *mut u8, from.as_ptr().cast(), bytes) };
        self.ready(group)?;
        self.raise(group, call, entry, SignalOp::Add, value)
    }

    /// [`Window::put_signal`], then counter `counter` of operations to the peer by 1, when data and signal are complete. Over mapped
    /// memory they are complete at once, and counted all the same.
    ///
    /// # Safety
    /// As for [`Window::put`].
    #[inline(always)]
    #[track_caller]
    #[allow(clippy::too_many_arguments)] // as many as the operation has
    pub unsafe fn put_signal_counter<T: Element, G: Group>(
        &self,
        group: &G,
        peer: usize,
        to: usize,
        from: &[T],
        id: usize,
        value: u64,
        counter: usize,
    ) -> Flow {
        let call = Call::new(operation::PUT_SIGNAL_COUNTER, peer, id, Location::caller());
        let entry = self.peer(call, peer)?;
        self.id(call, id, self.device.parts.layout.signals)?;
        let count = self.counter(Call { id: counter as u32, ..call }, peer, counter)?;
        let (to, bytes) = self.target(call, entry, to, from)?;
        if self.far(entry) {
            let transfer = self.transfer(call, entry, from.as_ptr() as u64, to, bytes)?;
            let signal = signal_of(entry, id, value);
            let count = LocalMemory { address: count, bytes: 8, key: entry.counter_key, reserved: 0 };
            self.ready(group)?;
            // SAFETY: all ranges are registered and checked; exclusive by the caller's contract.
            let outcome = unsafe {
                let adapter = &self.device.parts.adapter;
                adapter.put_signal_counter(group, self.route(entry), transfer, signal, count)
            };
            return self.posted(group, call, outcome);
        }
        // SAFETY: in range by the check, exclusive by the caller's contract.
        unsafe { copy(group, to as *mut u8, from.as_ptr().cast(), bytes) };
        self.ready(group)?;
        self.raise(group, call, entry, SignalOp::Add, value)?;
        if group.leads() {
            // SAFETY: a live word of this window; for a mapped peer this processor alone changes it.
            unsafe { <u64 as Modify<Device, Release>>::fetch_add(count as *mut u64, 1) };
        }
        Ok(())
    }

    /// Element `index` of this rank's own buffer.
    ///
    /// # Safety
    /// No peer writes it meanwhile: it was signalled, and not yet signalled back.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get<T: Element>(&self, index: usize) -> T {
        assert!(index < self.len::<T>(), "index past the end of the window's buffer");
        // SAFETY: in bounds by the assertion, aligned as every buffer is; not written by the caller's contract.
        unsafe { (self.device.parts.data as *const T).add(index).read_volatile() }
    }

    /// Sets element `index` of this rank's own buffer.
    ///
    /// # Safety
    /// Nobody else accesses it meanwhile.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn set<T: Element>(&self, index: usize, value: T) {
        assert!(index < self.len::<T>(), "index past the end of the window's buffer");
        // SAFETY: in bounds by the assertion, aligned as every buffer is; exclusive by the caller's contract.
        unsafe { (self.device.parts.data as *mut T).add(index).write_volatile(value) };
    }

    /// `len` elements of this rank's own buffer from element `start` on: as a source of [`Window::put`], say.
    ///
    /// # Safety
    /// Nobody writes them while the slice lives.
    ///
    /// # Panics
    /// If they do not lie within the buffer.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn slice<T: Element>(&self, start: usize, len: usize) -> &[T] {
        let have = self.len::<T>();
        assert!(start <= have && len <= have - start, "elements past the end of the window's buffer");
        if len == 0 {
            return &[];
        }
        // SAFETY: in bounds by the assertion, aligned as every buffer is; not written by the caller's contract.
        unsafe { core::slice::from_raw_parts((self.device.parts.data as *const T).add(start), len) }
    }

    /// Sends `from` to `peer` through the transport that the kernel runs on, on the channel with this block's index; the peer's block of
    /// the same index receives it by [`Window::recv`] of the same length. Called by all threads of the block; waits only for staging.
    #[inline(always)]
    #[track_caller]
    pub fn send<T: Element>(&self, peer: usize, from: &[T]) -> Flow {
        self.kernel.running()?;
        self.kernel.send_tile(peer, Tile { start: 0, len: from.len() }, |ctx| from[ctx.index()])
    }

    /// Receives `len` elements from `peer` into `to`, from element `start` on.
    ///
    /// # Safety
    /// No other block, and no other operation of this block without a sync between, writes those elements.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn recv<T: Element>(&self, peer: usize, to: &Out<'_, T>, start: usize, len: usize) -> Flow {
        self.kernel.running()?;
        // SAFETY: the caller's contract.
        unsafe { self.kernel.recv_tile(peer, Tile { start, len }, |ctx, value: T| to.at(ctx).set(value)) }
    }

    /// Address of element `to` at the peer, and bytes.
    #[inline(always)]
    fn target<T: Element>(&self, call: Call, entry: &WindowPeer, to: usize, from: &[T]) -> Flow<(u64, u64)> {
        let have = entry.data_bytes as usize / T::SIZE;
        if to > have || from.len() > have - to {
            let given = to.saturating_add(from.len()) as u64;
            return Err(self.refuse(call, kind::BEYOND, have as u64 + 1, given));
        }
        Ok((entry.data + (to * T::SIZE) as u64, size_of_val(from) as u64))
    }

    /// A put between registered memory.
    #[inline(always)]
    fn transfer(&self, call: Call, entry: &WindowPeer, from: u64, to: u64, bytes: u64) -> Flow<Transfer> {
        let from = self.source(call, from, bytes)?;
        Ok(Transfer { from, to: RemoteMemory { address: to, key: entry.data_key } })
    }

    /// The registered memory that a source lies in.
    #[inline(always)]
    fn source(&self, call: Call, address: u64, bytes: u64) -> Flow<LocalMemory> {
        let within =
            |start: u64, len: u64| address >= start && len >= bytes && address - start <= len - bytes;
        let own = |key| Ok(LocalMemory { address, bytes, key, reserved: 0 });
        if within(self.device.parts.data, self.device.parts.data_bytes) {
            return own(self.device.parts.data_key);
        }
        let mut k = 0;
        while k < self.device.parts.sources_len {
            // SAFETY: the table has `sources_len` entries, written before any launch and kept as long as launches run.
            let entry = unsafe { (self.device.parts.sources as *const LocalMemory).add(k as usize).read() };
            if within(entry.address, entry.bytes) {
                return own(entry.key);
            }
            k += 1;
        }
        Err(self.refuse(call, kind::UNREGISTERED, bytes, address))
    }
}

#[inline(always)]
fn signal_of(entry: &WindowPeer, id: usize, value: u64) -> Add {
    let word = RemoteMemory { address: entry.signals_out + LINE * id as u64, key: entry.inbox_key };
    Add { word, value }
}
