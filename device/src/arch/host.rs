//! The same operations on CPU threads, by `core::sync::atomic` and `std`.

mod atomics;
mod bulk;
mod math;
pub mod teams;

use crate::atomic::{AcqRel, Acquire, Block, Device, Load, Modify, Relaxed, Release, Store, System};
pub use crate::element::soft::{
    bf16_from_f32, bf16x2_from_f32, e4m3_from_f32, e4m3_to_f32, e4m3x4_from_f32, e4m3x4_to_f32,
    e5m2_from_f32, e5m2_to_f32, f16_from_f32, f16_to_f32,
};
use crate::tile::transpose;
pub use atomics::*;
pub use bulk::SharedStages;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
pub use math::*;
use std::time::{Duration, Instant};

/// Nanoseconds of the monotonic clock.
pub fn now_ns() -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// The block that this thread runs, if it has begun one; else 0.
pub fn block_index() -> u32 {
    ARMED.get().map_or(0, |(_, _, block)| block)
}

/// Called once per turn of a spin loop that found nothing: spins a little, then gives the processor away, then sleeps, so that
/// many more block threads than cores still make progress.
#[inline]
pub fn relax(turn: u32) {
    if turn < 64 {
        core::hint::spin_loop();
    } else if turn < 4096 {
        std::thread::yield_now();
    } else {
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Makes every access before it visible before any access after it.
#[inline(always)]
pub fn fence_system() {
    fence(Ordering::SeqCst);
}

/// Loads 16 bytes.
///
/// # Safety
/// `at` is 16-byte aligned, valid for reads, not written concurrently.
#[inline(always)]
pub unsafe fn load_16(at: *const u8) -> [u32; 4] {
    // A GPU faults there; this processor would not.
    debug_assert!(at.addr().is_multiple_of(16), "a 16-byte load that is not aligned");
    // SAFETY: the caller's contract.
    unsafe { at.cast::<[u32; 4]>().read() }
}

/// Loads 16 bytes that are read once.
///
/// # Safety
/// As for [`load_16`].
#[inline(always)]
pub unsafe fn load_16_once(at: *const u8) -> [u32; 4] {
    // SAFETY: the caller's contract.
    unsafe { load_16(at) }
}

/// None: caches decide.
#[inline(always)]
pub fn cache_policy(_stays: bool) -> u64 {
    0
}

/// Loads 16 bytes.
///
/// # Safety
/// As for [`load_16`].
#[inline(always)]
pub unsafe fn load_16_by(at: *const u8, _policy: u64) -> [u32; 4] {
    // SAFETY: the caller's contract.
    unsafe { load_16(at) }
}

/// Nothing: no block of this target's takes rows in order with others.
#[inline(always)]
pub fn prefetch(_at: *const u8) {}

/// Stores 16 bytes.
///
/// # Safety
/// `at` is 16-byte aligned, valid for writes, not accessed concurrently.
#[inline(always)]
pub unsafe fn store_16(at: *mut u8, v: [u32; 4]) {
    debug_assert!(at.addr().is_multiple_of(16), "a 16-byte store that is not aligned");
    // SAFETY: the caller's contract.
    unsafe { at.cast::<[u32; 4]>().write(v) }
}

/// Stores 16 bytes at `at` and 16 behind them.
///
/// # Safety
/// As for [`store_16`], of both.
#[inline(always)]
pub unsafe fn store_32<const PACKS: usize>(at: *mut u8, [a, b]: [[u32; 4]; 2]) {
    // SAFETY: the caller's contract.
    unsafe {
        store_16(at, a);
        store_16(at.add(16), b);
    }
}

/// Stores 8 bytes.
///
/// # Safety
/// `at` is 8-byte aligned, valid for writes, not accessed concurrently.
#[inline(always)]
pub unsafe fn store_8(at: *mut u8, value: u64) {
    debug_assert!(at.addr().is_multiple_of(8), "an 8-byte store that is not aligned");
    // SAFETY: the caller's contract.
    unsafe { at.cast::<u64>().write(value) }
}

/// Nothing; see the other target.
#[inline(always)]
pub fn follow() {}

/// Nothing; see the other target.
#[inline(always)]
pub fn follow_in<const BRANCH: u32>() {}

/// The same number; see the other target.
#[inline(always)]
pub fn late(number: u64) -> u64 {
    number
}

/// Whether this code is for two ranks alone: where the world is of two. On GPUs a launcher decides it.
#[inline(always)]
pub fn of_two(world: u32) -> bool {
    world == 2
}

/// The same number; see the other target.
#[inline(always)]
pub fn opaque(number: usize) -> usize {
    number
}

/// A thread's scratch memory.
#[derive(Debug)]
pub struct Scratch {
    bytes: Box<core::cell::UnsafeCell<[u8; transpose::SCRATCH as usize]>>,
}

impl Scratch {
    /// That of this thread.
    pub fn of_warp() -> Self {
        Scratch { bytes: Box::new(core::cell::UnsafeCell::new([0; transpose::SCRATCH as usize])) }
    }

    /// The same for the scales of a row of `N` elements, which this thread has to itself.
    pub fn of_scales<const N: usize>(_half: u32) -> Self {
        const { assert!(crate::row::MOST_TAIL <= transpose::SCRATCH) };
        Scratch::of_warp()
    }

    /// Where an offset is.
    fn at(&self, offset: u32, bytes: u32) -> *mut u8 {
        debug_assert!(offset + bytes <= transpose::SCRATCH, "past the scratch memory");
        // SAFETY: the caller of each method promises an offset inside.
        unsafe { self.bytes.get().cast::<u8>().add(offset as usize) }
    }

    /// Stores one byte.
    ///
    /// # Safety
    /// `offset` lies inside.
    #[inline(always)]
    pub unsafe fn store_1(&self, offset: u32, value: u8) {
        // SAFETY: the caller's contract.
        unsafe { self.at(offset, 1).write(value) }
    }

    /// Stores two bytes.
    ///
    /// # Safety
    /// They lie inside.
    #[inline(always)]
    pub unsafe fn store_2(&self, offset: u32, value: u16) {
        // SAFETY: the caller's contract.
        unsafe { self.at(offset, 2).cast::<u16>().write_unaligned(value) }
    }

    /// Stores four bytes.
    ///
    /// # Safety
    /// They lie inside.
    #[inline(always)]
    pub unsafe fn store_4(&self, offset: u32, value: u32) {
        // SAFETY: the caller's contract.
        unsafe { self.at(offset, 4).cast::<u32>().write_unaligned(value) }
    }

    /// Loads 16 bytes.
    ///
    /// # Safety
    /// They lie inside.
    #[inline(always)]
    pub unsafe fn load_16(&self, offset: u32) -> [u32; 4] {
        // SAFETY: the caller's contract.
        unsafe { self.at(offset, 16).cast::<[u32; 4]>().read_unaligned() }
    }
}

/// Loads a line of 8 bytes of data and an 8-byte flag that a peer may be storing.
///
/// # Safety
/// `at` is 16-byte aligned, valid for reads, written concurrently by [`store_line`] only.
#[inline(always)]
pub unsafe fn load_line(at: *const u8) -> ([u32; 2], u64) {
    // SAFETY: the caller's contract.
    let (data, flag) = unsafe {
        (AtomicU64::from_ptr(at.cast_mut().cast()), AtomicU64::from_ptr(at.add(8).cast_mut().cast()))
    };
    let flag = flag.load(Ordering::Acquire);
    let data = data.load(Ordering::Relaxed);
    ([data as u32, (data >> 32) as u32], flag)
}

/// As [`load_line`], which acquires here.
///
/// # Safety
/// As for [`load_line`].
#[inline(always)]
pub unsafe fn acquire_line(at: *const u8) -> ([u32; 2], u64) {
    // SAFETY: the caller's contract.
    unsafe { load_line(at) }
}

/// Stores a line: the data, then the flag.
///
/// # Safety
/// `at` is 16-byte aligned, valid for writes, read concurrently by [`load_line`] only.
#[inline(always)]
pub unsafe fn store_line(at: *mut u8, data: [u32; 2], flag: u64) {
    // SAFETY: the caller's contract.
    let (word, mark) = unsafe { (AtomicU64::from_ptr(at.cast()), AtomicU64::from_ptr(at.add(8).cast())) };
    word.store(u64::from(data[0]) | u64::from(data[1]) << 32, Ordering::Relaxed);
    mark.store(flag, Ordering::Release);
}

/// Loads two words of 8 bytes that a peer may be storing, each of them whole, relaxed.
///
/// # Safety
/// `at` is 16-byte aligned, valid for reads, written concurrently by [`store_words`] only.
#[inline(always)]
pub unsafe fn load_words(at: *const u8) -> [u64; 2] {
    let word = |k: usize| {
        // SAFETY: the caller's contract.
        unsafe { AtomicU64::from_ptr(at.cast_mut().cast::<u64>().add(k)) }.load(Ordering::Relaxed)
    };
    [word(0), word(1)]
}

/// Stores two words of 8 bytes that a peer may be loading, each of them whole, relaxed.
///
/// # Safety
/// `at` is 16-byte aligned, valid for writes, read concurrently by [`load_words`] only.
#[inline(always)]
pub unsafe fn store_words(at: *mut u8, words: [u64; 2]) {
    for (k, word) in words.into_iter().enumerate() {
        // SAFETY: the caller's contract.
        unsafe { AtomicU64::from_ptr(at.cast::<u64>().add(k)) }.store(word, Ordering::Relaxed);
    }
}

/// Reads `bytes` at address `from` of process `id`, one of this host's; whether the system let it and all of it is there.
///
/// # Safety
/// `to` is valid for writes of `bytes`, and not accessed concurrently.
pub unsafe fn read_process(id: u64, from: u64, to: *mut u8, bytes: usize) -> bool {
    let mut done = 0;
    while done < bytes {
        // SAFETY: in bounds by the caller's contract.
        let local = libc::iovec { iov_base: unsafe { to.add(done) }.cast(), iov_len: bytes - done };
        let remote =
            libc::iovec { iov_base: (from as usize + done) as *mut libc::c_void, iov_len: bytes - done };
        // SAFETY: `local` is valid by the caller's contract; the kernel checks the other process's addresses.
        let read = unsafe { libc::process_vm_readv(id as libc::pid_t, &local, 1, &remote, 1, 0) };
        if read <= 0 {
            return false;
        }
        done += read as usize;
    }
    true
}

/// Adds to a word that may be a peer's, after every access before it.
///
/// # Safety
/// `at` is aligned, valid for reads and writes, and accessed concurrently by atomic operations only.
#[inline(always)]
pub unsafe fn add_release(at: *mut u64, value: u64) {
    // SAFETY: the caller's contract.
    unsafe { AtomicU64::from_ptr(at) }.fetch_add(value, Ordering::Release);
}

macro_rules! words {
    ($t:ty, $atomic:ty) => {
        words!(@scope $t, $atomic, System);
        words!(@scope $t, $atomic, Device);
        words!(@scope $t, $atomic, Block);
    };
    (@scope $t:ty, $atomic:ty, $scope:ty) => {
        words!(@load $t, $atomic, $scope, Relaxed);
        words!(@load $t, $atomic, $scope, Acquire);
        words!(@store $t, $atomic, $scope, Relaxed);
        words!(@store $t, $atomic, $scope, Release);
        words!(@modify $t, $atomic, $scope, Relaxed);
        words!(@modify $t, $atomic, $scope, Acquire);
        words!(@modify $t, $atomic, $scope, Release);
        words!(@modify $t, $atomic, $scope, AcqRel);
    };
    (@load $t:ty, $atomic:ty, $scope:ty, $order:ident) => {
        impl Load<$scope, $order> for $t {
            #[inline(always)]
            unsafe fn load(at: *const Self) -> Self {
                // SAFETY: the caller's contract.
                unsafe { <$atomic>::from_ptr(at.cast_mut()) }.load(Ordering::$order)
            }
        }
    };
    (@store $t:ty, $atomic:ty, $scope:ty, $order:ident) => {
        impl Store<$scope, $order> for $t {
            #[inline(always)]
            unsafe fn store(at: *mut Self, value: Self) {
                // SAFETY: the caller's contract.
                unsafe { <$atomic>::from_ptr(at) }.store(value, Ordering::$order)
            }
        }
    };
    (@modify $t:ty, $atomic:ty, $scope:ty, $order:ident) => {
        impl Modify<$scope, $order> for $t {
            #[inline(always)]
            unsafe fn fetch_add(at: *mut Self, value: Self) -> Self {
                // SAFETY: the caller's contract.
                unsafe { <$atomic>::from_ptr(at) }.fetch_add(value, Ordering::$order)
            }
            #[inline(always)]
            unsafe fn exchange(at: *mut Self, value: Self) -> Self {
                // SAFETY: the caller's contract.
                unsafe { <$atomic>::from_ptr(at) }.swap(value, Ordering::$order)
            }
            #[inline(always)]
            unsafe fn compare_exchange(at: *mut Self, old: Self, new: Self) -> Self {
                // SAFETY: the caller's contract.
                let word = unsafe { <$atomic>::from_ptr(at) };
                match word.compare_exchange(old, new, Ordering::$order, Ordering::Relaxed) {
                    Ok(v) | Err(v) => v,
                }
            }
            #[inline(always)]
            unsafe fn fetch_max(at: *mut Self, value: Self) -> Self {
                // SAFETY: the caller's contract.
                unsafe { <$atomic>::from_ptr(at) }.fetch_max(value, Ordering::$order)
            }
        }
    };
}
words!(u32, AtomicU32);
words!(u64, AtomicU64);

std::thread_local! {
    static ARMED: core::cell::Cell<Option<(crate::wait::Control, u32, u32)>> = const { core::cell::Cell::new(None) };
}

/// Prepares the block's thread for a panic; see [`take_armed`].
pub fn arm_panic<G: crate::group::Group>(_group: &G, control: &crate::wait::Control, rank: u32, block: u32) {
    ARMED.set(Some((*control, rank, block)));
}

/// Rows are one thread's.
pub fn arm_rows() {}

/// Control words, rank and block of the kernel that this thread began last, for the runner that catches its panic.
pub fn take_armed() -> Option<(crate::wait::Control, u32, u32)> {
    ARMED.take()
}

/// Control words, rank and block of the kernel that this thread began last and has not left.
pub fn armed() -> Option<(crate::wait::Control, u32, u32)> {
    ARMED.get()
}

/// A panic on the host unwinds past every later operation, so whoever asks has not panicked.
pub fn block_panicked() -> bool {
    false
}
