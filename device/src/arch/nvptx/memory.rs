//! Accesses of global memory: 16 bytes, lines, and atomic words.

use crate::atomic::{AcqRel, Acquire, Block, Device, Load, Modify, Relaxed, Release, Store, System};
use core::arch::asm;

/// Loads 16 bytes.
///
/// # Safety
/// `at` is 16-byte aligned global memory, valid for reads, not written concurrently.
#[inline(always)]
pub unsafe fn load_16(at: *const u8) -> [u32; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "{{ .reg .b64 g; cvta.to.global.u64 g, {4}; ld.global.v4.b32 {{{0}, {1}, {2}, {3}}}, [g]; }}",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg64) at,
            options(nostack, readonly)
        )
    };
    [a, b, c, d]
}

/// Loads 16 bytes that are read once: they are not kept in the L1 cache.
///
/// # Safety
/// As for [`load_16`].
#[inline(always)]
pub unsafe fn load_16_once(at: *const u8) -> [u32; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "{{ .reg .b64 g; cvta.to.global.u64 g, {4}; ld.global.L1::no_allocate.v4.b32 {{{0}, {1}, {2}, {3}}}, [g]; }}",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg64) at,
            options(nostack, readonly)
        )
    };
    [a, b, c, d]
}

/// How the L2 cache keeps what is loaded: as anything else, or to be replaced first.
#[inline(always)]
pub fn cache_policy(stays: bool) -> u64 {
    let policy: u64;
    // SAFETY: makes a number.
    unsafe {
        asm!(
            "{{ .reg .pred p; .reg .b64 n, f; setp.ne.u32 p, {1}, 0; createpolicy.fractional.L2::evict_normal.b64 n, 1.0; \
             createpolicy.fractional.L2::evict_first.b64 f, 1.0; selp.b64 {0}, n, f, p; }}",
            out(reg64) policy, in(reg32) u32::from(stays), options(pure, nomem, nostack)
        )
    };
    policy
}

/// Loads 16 bytes, which the L2 cache keeps by `policy`, from [`cache_policy`].
///
/// # Safety
/// As for [`load_16`].
#[inline(always)]
pub unsafe fn load_16_by(at: *const u8, policy: u64) -> [u32; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "{{ .reg .b64 g; cvta.to.global.u64 g, {4}; ld.global.L2::cache_hint.v4.b32 {{{0}, {1}, {2}, {3}}}, [g], {5}; }}",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg64) at, in(reg64) policy,
            options(nostack, readonly)
        )
    };
    [a, b, c, d]
}

/// Has the L2 cache fetch the 32 bytes at `at`, which is in global memory.
#[inline(always)]
pub fn prefetch(at: *const u8) {
    // SAFETY: changes no value; of memory that is not there nothing is fetched.
    unsafe {
        asm!("{{ .reg .b64 g; cvta.to.global.u64 g, {0}; prefetch.global.L2 [g]; }}", in(reg64) at, options(nostack))
    };
}

/// Stores 16 bytes.
///
/// # Safety
/// `at` is 16-byte aligned global memory, valid for writes, not accessed concurrently.
#[inline(always)]
pub unsafe fn store_16(at: *mut u8, v: [u32; 4]) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "{{ .reg .b64 g; cvta.to.global.u64 g, {0}; st.global.v4.b32 [g], {{{1}, {2}, {3}, {4}}}; }}",
            in(reg64) at, in(reg32) v[0], in(reg32) v[1], in(reg32) v[2], in(reg32) v[3],
            options(nostack)
        )
    };
}

/// Stores 16 bytes at `at` and 16 behind them, of each lane. Where the places of a warp's lanes are so many packs of 16 bytes apart, in order, pairs of lanes exchange halves first,
/// so that each store writes whole sectors of 32 bytes: halves of sectors cost the L2 cache as much as wholes.
///
/// # Safety
/// `at` is 16-byte aligned global memory, valid for writes of 32 bytes, not accessed by others than the lanes of this warp, of which each accesses its own
/// alone.
#[inline(always)]
pub unsafe fn store_32<const PACKS: usize>(at: *mut u8, [a, b]: [[u32; 4]; 2]) {
    // SAFETY: the caller's contract. Lanes that are here together vote and exchange together. What a lane accessed before, or will behind this, is ordered with
    // its neighbour's store by the meetings of the warp.
    unsafe {
        asm!(
            "{{ .reg .b64 g, d; .reg .b32 o, m, t; .reg .pred odd, pair, second, first; \
             cvta.to.global.u64 g, {0}; activemask.b32 m; mov.u32 o, %laneid; and.b32 o, o, 1; setp.ne.u32 odd, o, 0; \
             shr.u64 d, g, 32; cvt.u32.u64 o, d; shfl.sync.bfly.b32 t, o, 1, 31, m; setp.eq.s32 pair, t, o; \
             cvt.u32.u64 o, g; shfl.sync.bfly.b32 t, o, 1, 31, m; sub.s32 t, t, o; selp.b32 o, {10}, {9}, odd; \
             setp.eq.and.s32 pair, t, o, pair; setp.eq.and.u32 pair, m, -1, pair; \
             and.pred second, pair, odd; not.pred first, odd; and.pred first, pair, first; \
             selp.b32 t, {1}, {5}, odd; shfl.sync.bfly.b32 t, t, 1, 31, m; @second mov.b32 {1}, t; @first mov.b32 {5}, t; \
             selp.b32 t, {2}, {6}, odd; shfl.sync.bfly.b32 t, t, 1, 31, m; @second mov.b32 {2}, t; @first mov.b32 {6}, t; \
             selp.b32 t, {3}, {7}, odd; shfl.sync.bfly.b32 t, t, 1, 31, m; @second mov.b32 {3}, t; @first mov.b32 {7}, t; \
             selp.b32 t, {4}, {8}, odd; shfl.sync.bfly.b32 t, t, 1, 31, m; @second mov.b32 {4}, t; @first mov.b32 {8}, t; \
             selp.b64 d, {11}, 0, second; sub.s64 g, g, d; \
             bar.warp.sync m; st.global.v4.b32 [g], {{{1}, {2}, {3}, {4}}}; \
             selp.b64 d, {9}, 16, pair; add.s64 g, g, d; \
             st.global.v4.b32 [g], {{{5}, {6}, {7}, {8}}}; bar.warp.sync m; }}",
            in(reg64) at, inout(reg32) a[0] => _, inout(reg32) a[1] => _, inout(reg32) a[2] => _, inout(reg32) a[3] => _,
            inout(reg32) b[0] => _, inout(reg32) b[1] => _, inout(reg32) b[2] => _, inout(reg32) b[3] => _,
            const 16 * PACKS as i32, const -16 * PACKS as i32, const 16 * PACKS as i32 - 16,
            options(nostack)
        )
    };
}

/// Stores 8 bytes.
///
/// # Safety
/// `at` is 8-byte aligned global memory, valid for writes, not accessed concurrently.
#[inline(always)]
pub unsafe fn store_8(at: *mut u8, value: u64) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "{{ .reg .b64 g; cvta.to.global.u64 g, {0}; st.global.b64 [g], {1}; }}",
            in(reg64) at, in(reg64) value, options(nostack)
        )
    };
}

/// Loads 16 bytes that a peer may be storing, relaxed.
///
/// # Safety
/// `at` is 16-byte aligned global memory, written concurrently by [`store_16_live`] only.
#[inline(always)]
pub unsafe fn load_16_live(at: *const u8) -> [u32; 4] {
    // SAFETY: the caller's contract.
    let ([a, b], flag) = unsafe { load_line(at) };
    [a, b, flag as u32, (flag >> 32) as u32]
}

/// Stores 16 bytes that a peer may be loading, relaxed. Lanes of a warp that do so together, side by side, store whole lines of 128 bytes
/// in one transaction each.
///
/// # Safety
/// `at` is 16-byte aligned global memory, read concurrently by [`load_16_live`] only.
#[inline(always)]
pub unsafe fn store_16_live(at: *mut u8, [a, b, c, d]: [u32; 4]) {
    // SAFETY: the caller's contract.
    unsafe { store_line(at, [a, b], u64::from(c) | u64::from(d) << 32) };
}

macro_rules! line_load {
    ($(#[$doc:meta])* $name:ident, $order:literal) => {
        $(#[$doc])*
        #[inline(always)]
        pub unsafe fn $name(at: *const u8) -> ([u32; 2], u64) {
            let (a, b, c, d): (u32, u32, u32, u32);
            // SAFETY: the caller's contract.
            unsafe {
                asm!(
                    concat!("{{ .reg .b64 g; cvta.to.global.u64 g, {4}; ld.", $order, ".sys.global.v4.b32 {{{0}, {1}, {2}, {3}}}, [g]; }}"),
                    out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg64) at,
                    options(nostack)
                )
            };
            ([a, b], c as u64 | (d as u64) << 32)
        }
    };
}
line_load! {
    /// Loads a line of 8 bytes of data and an 8-byte flag that a peer may be storing.
    ///
    /// # Safety
    /// `at` is 16-byte aligned global memory, written concurrently by [`store_line`] only.
    load_line, "relaxed"
}
line_load! {
    /// As [`load_line`]; what the writer did before it stored what is seen, and told so by a fence, is visible from here on.
    ///
    /// # Safety
    /// As for [`load_line`].
    acquire_line, "acquire"
}

/// Stores a line in one transaction.
///
/// # Safety
/// `at` is 16-byte aligned global memory, read concurrently by [`load_line`] only.
#[inline(always)]
pub unsafe fn store_line(at: *mut u8, data: [u32; 2], flag: u64) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "{{ .reg .b64 g; cvta.to.global.u64 g, {0}; st.relaxed.sys.global.v4.b32 [g], {{{1}, {2}, {3}, {4}}}; }}",
            in(reg64) at, in(reg32) data[0], in(reg32) data[1], in(reg32) flag as u32, in(reg32) (flag >> 32) as u32,
            options(nostack)
        )
    };
}

/// Loads two words of 8 bytes that a peer may be storing, each of them whole, relaxed.
///
/// # Safety
/// `at` is 16-byte aligned global memory, written concurrently by [`store_words`] only.
#[inline(always)]
pub unsafe fn load_words(at: *const u8) -> [u64; 2] {
    let (a, b): (u64, u64);
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "{{ .reg .b64 g; cvta.to.global.u64 g, {2}; ld.relaxed.sys.global.v2.b64 {{{0}, {1}}}, [g]; }}",
            out(reg64) a, out(reg64) b, in(reg64) at,
            options(nostack)
        )
    };
    [a, b]
}

/// Stores two words of 8 bytes that a peer may be loading, each of them whole, relaxed.
///
/// # Safety
/// `at` is 16-byte aligned global memory, read concurrently by [`load_words`] only.
#[inline(always)]
pub unsafe fn store_words(at: *mut u8, words: [u64; 2]) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "{{ .reg .b64 g; cvta.to.global.u64 g, {0}; st.relaxed.sys.global.v2.b64 [g], {{{1}, {2}}}; }}",
            in(reg64) at, in(reg64) words[0], in(reg64) words[1],
            options(nostack)
        )
    };
}

/// Adds to an `f32` in memory, relaxed, visible to this GPU.
///
/// # Safety
/// `at` is aligned global memory, valid for reads and writes, accessed concurrently by atomic operations only.
#[inline(always)]
pub unsafe fn add_f32(at: *mut f32, value: f32) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!("{{ .reg .b64 g; cvta.to.global.u64 g, {0}; red.relaxed.gpu.global.add.f32 [g], {1}; }}",
            in(reg64) at, in(reg32) value, options(nostack))
    };
}

/// Adds to an `f64` in memory, relaxed, visible to this GPU.
///
/// # Safety
/// As for [`add_f32`].
#[inline(always)]
pub unsafe fn add_f64(at: *mut f64, value: f64) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!("{{ .reg .b64 g; cvta.to.global.u64 g, {0}; red.relaxed.gpu.global.add.f64 [g], {1}; }}",
            in(reg64) at, in(reg64) value, options(nostack))
    };
}

// Relaxed, for this GPU. The pointer stays generic: elements may lie in shared memory.
macro_rules! fetches {
    ($($name:ident, $t:ty, $reg:ident, $how:literal;)*) => {$(
        /// Changes an element in memory, and returns what it was.
        ///
        /// # Safety
        /// `at` is aligned, valid for reads and writes, accessed concurrently by atomic operations only.
        #[inline(always)]
        pub unsafe fn $name(at: *mut $t, value: $t) -> $t {
            let old: $t;
            // SAFETY: the caller's contract.
            unsafe {
                asm!(concat!("atom.relaxed.gpu.", $how, " {0}, [{1}], {2};"), out($reg) old, in(reg64) at, in($reg) value,
                    options(nostack));
            }
            old
        }
    )*};
}
fetches! {
    fetch_add_i32, i32, reg32, "add.u32";
    fetch_add_i64, i64, reg64, "add.u64";
    fetch_add_f32, f32, reg32, "add.f32";
    fetch_add_f64, f64, reg64, "add.f64";
    fetch_max_i32, i32, reg32, "max.s32";
    fetch_max_i64, i64, reg64, "max.s64";
    fetch_min_u32, u32, reg32, "min.u32";
    fetch_min_u64, u64, reg64, "min.u64";
    fetch_min_i32, i32, reg32, "min.s32";
    fetch_min_i64, i64, reg64, "min.s64";
}

macro_rules! fetch_halves {
    ($($name:ident, $how:literal;)*) => {$(
        /// Adds to an element of two bytes, and returns what it was; `None` on GPUs that have no instruction for that.
        ///
        /// # Safety
        /// As for [`fetch_add_f32`].
        #[inline(always)]
        pub unsafe fn $name(at: *mut u16, value: u16) -> Option<u16> {
            let old: u16;
            // SAFETY: the caller's contract.
            unsafe {
                asm!(concat!("atom.relaxed.gpu.", $how, " {0}, [{1}], {2};"), out(reg16) old, in(reg64) at, in(reg16) value,
                    options(nostack));
            }
            Some(old)
        }
    )*};
}
fetch_halves! { fetch_add_f16, "add.noftz.f16"; }
// As in `convert`: `fusewire_sm` stands for architectures of which rustc knows no features.
#[cfg(any(target_feature = "sm_90", fusewire_sm = "90"))]
fetch_halves! { fetch_add_bf16, "add.noftz.bf16"; }

/// `None`: there is no instruction.
///
/// # Safety
/// None is needed.
#[cfg(not(any(target_feature = "sm_90", fusewire_sm = "90")))]
#[inline(always)]
pub unsafe fn fetch_add_bf16(_: *mut u16, _: u16) -> Option<u16> {
    None
}

/// Loads two bytes, relaxed.
///
/// # Safety
/// `at` is aligned, valid for reads, written concurrently by atomic operations only.
#[inline(always)]
pub unsafe fn load_u16(at: *const u16) -> u16 {
    let v: u16;
    // SAFETY: the caller's contract.
    unsafe { asm!("ld.relaxed.gpu.b16 {0}, [{1}];", out(reg16) v, in(reg64) at, options(nostack)) };
    v
}

/// Stores `new` if two bytes hold `old`, relaxed; returns what they held.
///
/// # Safety
/// `at` is aligned, valid for reads and writes, accessed concurrently by atomic operations only.
#[inline(always)]
pub unsafe fn compare_exchange_u16(at: *mut u16, old: u16, new: u16) -> u16 {
    let v: u16;
    // SAFETY: the caller's contract.
    unsafe {
        asm!("atom.relaxed.gpu.cas.b16 {0}, [{1}], {2}, {3};", out(reg16) v, in(reg64) at, in(reg16) old, in(reg16) new,
            options(nostack));
    }
    v
}

/// Adds to a word that may be a peer's, after every access before it, and does not wait for the old value
/// (`red.release.sys`).
///
/// # Safety
/// `at` is aligned, valid for reads and writes, and accessed concurrently by atomic operations only.
#[inline(always)]
pub unsafe fn add_release(at: *mut u64, value: u64) {
    // SAFETY: the caller's contract.
    unsafe { asm!("red.release.sys.add.u64 [{0}], {1};", in(reg64) at, in(reg64) value, options(nostack)) };
}

// One instruction for each (scope, order, width). The pointer stays generic: a protocol word may live in any window.
macro_rules! words {
    ($t:ty, $reg:ident, $w:literal) => {
        words!(@scope $t, $reg, $w, System, "sys");
        words!(@scope $t, $reg, $w, Device, "gpu");
        words!(@scope $t, $reg, $w, Block, "cta");
    };
    (@scope $t:ty, $reg:ident, $w:literal, $scope:ty, $s:literal) => {
        words!(@load $t, $reg, $w, $scope, $s, Relaxed, "relaxed");
        words!(@load $t, $reg, $w, $scope, $s, Acquire, "acquire");
        words!(@store $t, $reg, $w, $scope, $s, Relaxed, "relaxed");
        words!(@store $t, $reg, $w, $scope, $s, Release, "release");
        words!(@modify $t, $reg, $w, $scope, $s, Relaxed, "relaxed");
        words!(@modify $t, $reg, $w, $scope, $s, Acquire, "acquire");
        words!(@modify $t, $reg, $w, $scope, $s, Release, "release");
        words!(@modify $t, $reg, $w, $scope, $s, AcqRel, "acq_rel");
    };
    (@load $t:ty, $reg:ident, $w:literal, $scope:ty, $s:literal, $order:ty, $o:literal) => {
        impl Load<$scope, $order> for $t {
            #[inline(always)]
            unsafe fn load(at: *const Self) -> Self {
                let v: Self;
                // SAFETY: the caller's contract.
                unsafe { asm!(concat!("ld.", $o, ".", $s, ".b", $w, " {0}, [{1}];"), out($reg) v, in(reg64) at, options(nostack)) };
                v
            }
        }
    };
    (@store $t:ty, $reg:ident, $w:literal, $scope:ty, $s:literal, $order:ty, $o:literal) => {
        impl Store<$scope, $order> for $t {
            #[inline(always)]
            unsafe fn store(at: *mut Self, value: Self) {
                // SAFETY: the caller's contract.
                unsafe { asm!(concat!("st.", $o, ".", $s, ".b", $w, " [{0}], {1};"), in(reg64) at, in($reg) value, options(nostack)) };
            }
        }
    };
    (@modify $t:ty, $reg:ident, $w:literal, $scope:ty, $s:literal, $order:ty, $o:literal) => {
        impl Modify<$scope, $order> for $t {
            #[inline(always)]
            unsafe fn fetch_add(at: *mut Self, value: Self) -> Self {
                let v: Self;
                // SAFETY: the caller's contract.
                unsafe { asm!(concat!("atom.", $o, ".", $s, ".add.u", $w, " {0}, [{1}], {2};"), out($reg) v, in(reg64) at, in($reg) value, options(nostack)) };
                v
            }
            #[inline(always)]
            unsafe fn exchange(at: *mut Self, value: Self) -> Self {
                let v: Self;
                // SAFETY: the caller's contract.
                unsafe { asm!(concat!("atom.", $o, ".", $s, ".exch.b", $w, " {0}, [{1}], {2};"), out($reg) v, in(reg64) at, in($reg) value, options(nostack)) };
                v
            }
            #[inline(always)]
            unsafe fn compare_exchange(at: *mut Self, old: Self, new: Self) -> Self {
                let v: Self;
                // SAFETY: the caller's contract.
                unsafe { asm!(concat!("atom.", $o, ".", $s, ".cas.b", $w, " {0}, [{1}], {2}, {3};"), out($reg) v, in(reg64) at, in($reg) old, in($reg) new, options(nostack)) };
                v
            }
            #[inline(always)]
            unsafe fn fetch_max(at: *mut Self, value: Self) -> Self {
                let v: Self;
                // SAFETY: the caller's contract.
                unsafe { asm!(concat!("atom.", $o, ".", $s, ".max.u", $w, " {0}, [{1}], {2};"), out($reg) v, in(reg64) at, in($reg) value, options(nostack)) };
                v
            }
        }
    };
}
words!(u32, reg32, "32");
words!(u64, reg64, "64");
