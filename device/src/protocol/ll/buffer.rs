//! Buffers of words.
//!
//! A flag is the lower half of the channel's call number. It comes again after 2^32 calls, so two calls in a row out of [`REFRESH`] write their whole buffers:
//! no word's flag is older than that, and a stale one is never taken for a fresh one.
//!
//! There are two buffers for each (writer, channel), used in turn, and two sets of channels:
//!
//! - Mutual schedules need no credit: a rank that writes call `e + 2` has finished call `e + 1`, hence has received what the peer sent in
//!   `e + 1`, hence the peer had finished `e`, which last read this buffer.
//! - Others may go one way, so receivers write the number of the last call they are done with into the sender's memory (behind the buffers that go
//!   the other way), and a sender waits for call `e` before it writes call `e + 2`.

use crate::arch;

/// Most packs of one channel in one call.
pub const PACKS: u64 = 2048;

/// Calls of which two write their whole buffers.
pub const REFRESH: u64 = 1 << 24;

/// Offset of the packs, behind the header, which is a pack too. Halves of packs lie side by side, so that neighbouring threads store whole lines.
const FIRST: usize = 128;

/// From a pack's first half to its second.
const HALF: usize = 16 * PACKS as usize;

/// Bytes of one buffer.
const BUFFER: usize = FIRST + 2 * HALF;

/// Offset of the number of the last call with credits that the writer is done with.
pub(super) const DONE: usize = 2 * BUFFER;

/// Bytes of both buffers of a channel, and of that number's line.
pub const BUFFERS: u64 = DONE as u64 + 128;

/// One of a channel's buffers, in one call.
#[derive(Clone, Copy)]
pub(super) struct Buffer {
    at: u64,
    flag: u32,
}

impl Buffer {
    pub(super) const NONE: Self = Buffer { at: 0, flag: 0 };

    /// That of call `number`, of the channel whose buffers are at `at`.
    #[inline(always)]
    pub(super) fn of(at: *const u8, number: u64) -> Self {
        Buffer { at: at as u64 + (number & 1) * BUFFER as u64, flag: number as u32 }
    }

    /// Where the first halves of pack `s` are, and from there to the second.
    #[inline(always)]
    fn pack(&self, s: u32) -> (u64, usize) {
        (self.at + FIRST as u64 + 16 * u64::from(s), HALF)
    }

    #[inline(always)]
    fn header(&self) -> (u64, usize) {
        (self.at, 16)
    }

    /// # Safety
    /// The place of a pack in a live buffer; this thread alone writes it.
    #[inline(always)]
    unsafe fn put(&self, (at, half): (u64, usize), [a, b, c, d]: [u32; 4]) {
        let word = |data: u32| u64::from(data) | u64::from(self.flag) << 32;
        let at = at as *mut u8;
        // SAFETY: the caller's contract.
        unsafe {
            arch::store_words(at, [word(a), word(b)]);
            arch::store_words(at.add(half), [word(c), word(d)]);
        }
    }

    /// # Safety
    /// The place of a pack in a live buffer.
    #[inline(always)]
    unsafe fn look(&self, (at, half): (u64, usize)) -> Loaded {
        let at = at as *const u8;
        // SAFETY: the caller's contract.
        let ([a, b], [c, d]) = unsafe { (arch::load_words(at), arch::load_words(at.add(half))) };
        Loaded([a, b, c, d])
    }

    /// Stores pack `s`.
    ///
    /// # Safety
    /// A peer's buffer of this call, which is free; `s` is below [`PACKS`], and this thread's.
    #[inline(always)]
    pub(super) unsafe fn store(&self, s: u32, words: [u32; 4]) {
        // SAFETY: the caller's contract.
        unsafe { self.put(self.pack(s), words) };
    }

    /// Stores the header.
    ///
    /// # Safety
    /// As for [`Buffer::store`].
    #[inline(always)]
    pub(super) unsafe fn store_header(&self, words: [u32; 4]) {
        // SAFETY: the caller's contract.
        unsafe { self.put(self.header(), words) };
    }

    /// What stands for pack `s`.
    ///
    /// # Safety
    /// A buffer of this rank; `s` is below [`PACKS`].
    #[inline(always)]
    pub(super) unsafe fn load(&self, s: u32) -> Loaded {
        // SAFETY: the caller's contract.
        unsafe { self.look(self.pack(s)) }
    }

    /// What stands for the header.
    ///
    /// # Safety
    /// A buffer of this rank.
    #[inline(always)]
    pub(super) unsafe fn load_header(&self) -> Loaded {
        // SAFETY: the caller's contract.
        unsafe { self.look(self.header()) }
    }

    /// How many calls the oldest flag is behind this one; 0 if all are this call's.
    #[inline(always)]
    pub(super) fn behind(&self, Loaded(words): Loaded) -> u32 {
        let [a, b, c, d] = words.map(|word| self.flag.wrapping_sub((word >> 32) as u32));
        a.max(b).max(c.max(d))
    }
}

/// Words of a pack, as they stand in a buffer.
#[derive(Clone, Copy)]
pub(super) struct Loaded([u64; 4]);

impl Loaded {
    pub(super) const NONE: Self = Loaded([0; 4]);

    /// The data.
    #[inline(always)]
    pub(super) fn words(self) -> [u32; 4] {
        self.0.map(|word| word as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(128))]
    struct Memory([u8; BUFFERS as usize]);

    #[test]
    fn a_pack_is_fresh_with_all_four_flags() {
        let memory = Box::new(Memory([0; BUFFERS as usize]));
        let (old, new) = (
            Buffer::of(&raw const memory.0 as *const u8, 5),
            Buffer::of(&raw const memory.0 as *const u8, 7),
        );
        assert_eq!(old.at, new.at);
        let s = PACKS as u32 - 1;
        // SAFETY: this test's memory.
        unsafe {
            old.store(s, [1, 2, 3, 4]);
            assert_eq!((old.behind(old.load(s)), old.load(s).words()), (0, [1, 2, 3, 4]));
            assert_eq!(new.behind(new.load(s)), 2);
            // One word after another, in any order.
            for late in 0..4 {
                old.store(s, [1, 2, 3, 4]);
                for k in (0..4).filter(|k| *k != late) {
                    let at = new.pack(s).0 as usize + k / 2 * HALF + k % 2 * 8;
                    (at as *mut u64).write(7 << 32);
                }
                assert_eq!(new.behind(new.load(s)), 2, "word {late}");
            }
        }
    }

    #[test]
    fn nothing_overlaps() {
        let last = Buffer::of(core::ptr::null(), 1).pack(PACKS as u32 - 1);
        assert!(last.0 as usize + last.1 + 16 == DONE && HALF == 16 * PACKS as usize);
        assert!(16 + 16 <= FIRST && BUFFERS.is_multiple_of(128));
    }
}
