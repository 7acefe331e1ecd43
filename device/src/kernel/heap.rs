//! The symmetric heap in a schedule of one's own.

use super::Kernel;
use crate::args::{Lent, Out, RawSlice};
use crate::element::Element;
use crate::group::Block;
use crate::ops::{Get, Ops, Put};
use crate::wait::{Flow, kind, operation};

impl<O: Ops> Kernel<O> {
    /// Elements of `T` in the symmetric heap.
    #[inline(always)]
    pub fn heap_len<T: Element>(&self) -> usize {
        self.ops.heap_bytes() as usize / T::SIZE
    }

    /// Element `index` of this rank's own heap.
    ///
    /// # Safety
    /// No peer writes it meanwhile: it was signalled, and not yet signalled back.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn heap_get<T: Element>(&self, index: usize) -> T {
        assert!(index < self.heap_len::<T>(), "index past the end of the heap");
        // SAFETY: in bounds by the assertion; not written by the caller's contract.
        unsafe { self.ops.heap().cast::<T>().add(index).read_volatile() }
    }

    /// `len` elements of this rank's own heap from element `start` on, as an output: for a team's closures to be written by [`Out::write`].
    ///
    /// # Safety
    /// Nothing but this kernel accesses them while the output lives.
    ///
    /// # Panics
    /// If they do not lie within the heap, or do not begin at a multiple of 16 bytes.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn heap_out<T: Element>(&self, start: usize, len: usize) -> Out<'_, T> {
        let have = self.heap_len::<T>();
        assert!(start <= have && len <= have - start, "elements past the end of the heap");
        let address = self.ops.heap() as u64 + (start * T::SIZE) as u64;
        assert!(address.is_multiple_of(16), "this part of the heap does not begin at a multiple of 16 bytes");
        // SAFETY: in bounds and aligned by the assertions; exclusive by the caller's contract.
        unsafe { Out::from_raw(RawSlice::new(address, len), Lent::while_borrowed(self)) }
    }

    /// Sets element `index` of this rank's own heap: for [`Kernel::heap_slice`] to be put from, say.
    ///
    /// # Safety
    /// Nobody else accesses it meanwhile.
    ///
    /// # Panics
    /// If `index` is not below `heap_len()`.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn heap_set<T: Element>(&self, index: usize, value: T) {
        assert!(index < self.heap_len::<T>(), "index past the end of the heap");
        // SAFETY: in bounds by the assertion; exclusive by the caller's contract.
        unsafe { self.ops.heap().cast::<T>().add(index).write_volatile(value) };
    }

    /// `len` elements of this rank's own heap from element `start` on: as a source of [`Kernel::put`], or for a team's closures.
    ///
    /// # Safety
    /// Nobody writes them while the slice lives.
    ///
    /// # Panics
    /// If they do not lie within the heap.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn heap_slice<T: Element>(&self, start: usize, len: usize) -> &[T] {
        let have = self.heap_len::<T>();
        assert!(start <= have && len <= have - start, "elements past the end of the heap");
        if len == 0 {
            return &[];
        }
        // SAFETY: in bounds by the assertion, aligned as every heap is; not written by the caller's contract.
        unsafe { core::slice::from_raw_parts(self.ops.heap().cast::<T>().cast_const().add(start), len) }
    }

    /// Copies `from` to element `to` of the heap of `peer`.
    ///
    /// # Safety
    /// Nobody else accesses that part of the peer's heap before this block's next signal to the peer.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn put<T: Element>(&self, peer: usize, to: usize, from: &[T]) -> Flow
    where
        O: Put,
    {
        self.check_peer(peer, 0, operation::PUT)?;
        self.check(
            kind::BEYOND,
            to.saturating_add(from.len()) as u64,
            self.heap_len::<T>() as u64 + 1,
            peer,
            0,
            operation::PUT,
        )?;
        // SAFETY: in range by the checks, exclusive by the caller's contract.
        unsafe {
            self.ops.put(
                &Block,
                peer as u32,
                (to * T::SIZE) as u64,
                from.as_ptr().cast(),
                size_of_val(from) as u64,
            )
        };
        Ok(())
    }

    /// Copies `len` elements from element `from` of the heap of `peer` to element `to` of this rank's own heap.
    ///
    /// # Safety
    /// Nobody writes the one part, and nobody else accesses the other, meanwhile. Visible to the block after [`Kernel::sync`].
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get<T: Element>(&self, peer: usize, from: usize, to: usize, len: usize) -> Flow
    where
        O: Get,
    {
        self.check_peer(peer, 0, operation::GET)?;
        self.check(
            kind::BEYOND,
            from.max(to).saturating_add(len) as u64,
            self.heap_len::<T>() as u64 + 1,
            peer,
            0,
            operation::GET,
        )?;
        // SAFETY: in range by the checks, exclusive by the caller's contract.
        unsafe {
            let to = self.ops.heap().add(to * T::SIZE);
            self.ops.get(&Block, peer as u32, (from * T::SIZE) as u64, to, (len * T::SIZE) as u64);
        }
        Ok(())
    }
}
