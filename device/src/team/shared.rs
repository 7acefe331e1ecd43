//! Memory that the threads of a block share.

use super::{SHARED_BYTES, small};
use crate::arch::teams;
use crate::args::{Atomic, operations};
use crate::element::Element;
use crate::group::{Block, Group};
use crate::kernel::Kernel;
use crate::ops::Ops;
use core::marker::PhantomData;

/// Elements in memory that the threads of a block share: on a GPU its shared memory. [`Kernel::shared`] lends it.
///
/// Each access is whole and relaxed: what a thread sets, the others see behind the next sync of both. So an element that several threads set between
/// two syncs has the value of one of them, and which one differs from run to run; [`Shared::fetch_add`] and its like are for that.
#[derive(Debug)]
pub struct Shared<'s, T> {
    memory: teams::Shared,
    len: usize,
    life: PhantomData<&'s [T]>,
}

// SAFETY: every access is relaxed and atomic.
unsafe impl<T: Element> Sync for Shared<'_, T> {}

impl<O: Ops> Kernel<O> {
    /// Lends `f` memory of `N` elements that the block's threads share, which are all bits zero. What is lent at a time has 32 KiB together.
    ///
    /// # Panics
    /// If it is more. Within a tile's hook, or within [`Kernel::teams`].
    #[inline(always)]
    #[track_caller]
    pub fn shared<T: Element, const N: usize, R>(&self, f: impl FnOnce(&Shared<'_, T>) -> R) -> R {
        const {
            small::<T>();
            assert!(T::SIZE.is_power_of_two(), "elements of shared memory have 1, 2, 4 or 8 bytes");
            assert!(N.saturating_mul(T::SIZE) <= SHARED_BYTES as usize, "a block shares at most 32 KiB");
        }
        self.whole();
        let (from, bytes) = (self.lent().get(), (N * T::SIZE).next_multiple_of(16) as u32);
        assert!(bytes <= SHARED_BYTES - from, "a block shares at most 32 KiB, of all that is lent at a time");
        self.lent().set(from + bytes);
        // What was lent before may still be looked at.
        Block.sync();
        let shared = Shared { memory: teams::Shared::new(from, bytes), len: N, life: PhantomData };
        let mut word = Block.lane();
        while word < bytes / 8 {
            // SAFETY: inside, and whole words from a multiple of 16 on.
            unsafe { shared.memory.store::<8>(8 * word, 0) };
            word += Block.lanes();
        }
        Block.sync();
        let result = f(&shared);
        self.lent().set(from);
        result
    }
}

impl<T: Element> Shared<'_, T> {
    /// Elements.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline(always)]
    #[track_caller]
    fn inside(&self, index: usize) -> u32 {
        assert!(index < self.len, "index past the end of shared memory");
        (index * T::SIZE) as u32
    }

    /// Element `index`.
    ///
    /// # Panics
    /// If `index` is not below `len()`.
    #[inline(always)]
    #[track_caller]
    pub fn get(&self, index: usize) -> T {
        let at = self.inside(index);
        // SAFETY: inside; the sizes that `Kernel::shared` lets in.
        T::from_bits64(unsafe {
            match T::SIZE {
                1 => self.memory.load::<1>(at),
                2 => self.memory.load::<2>(at),
                4 => self.memory.load::<4>(at),
                _ => self.memory.load::<8>(at),
            }
        })
    }

    /// Sets element `index`.
    ///
    /// # Panics
    /// If `index` is not below `len()`.
    #[inline(always)]
    #[track_caller]
    pub fn set(&self, index: usize, value: T) {
        let (at, bits) = (self.inside(index), value.to_bits64());
        // SAFETY: as for `get`.
        unsafe {
            match T::SIZE {
                1 => self.memory.store::<1>(at, bits),
                2 => self.memory.store::<2>(at, bits),
                4 => self.memory.store::<4>(at, bits),
                _ => self.memory.store::<8>(at, bits),
            }
        }
    }
}

impl<T: Atomic> Shared<'_, T> {
    /// As for outputs that any thread changes.
    #[inline(always)]
    #[track_caller]
    fn elements(&self, index: usize) -> (*mut T, usize) {
        self.inside(index);
        (self.memory.pointer().cast(), self.len)
    }
}
operations!(Shared);
