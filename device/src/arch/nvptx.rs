//! Inline PTX. Names of instructions and qualifiers: PTX ISA, chapters "Memory Consistency Model" and "Instruction Set".

use crate::atomic::{AcqRel, Acquire, Block, Device, Load, Modify, Relaxed, Release, Store, System};
use crate::schedule::tiles;
use core::arch::{asm, nvptx};

/// Index of this block in the grid (one-dimensional grids only).
#[inline(always)]
pub fn block_index() -> u32 {
    // SAFETY: reads a special register.
    unsafe { nvptx::_block_idx_x() as u32 }
}

/// Blocks in the grid.
#[inline(always)]
pub fn block_count() -> u32 {
    // SAFETY: reads a special register.
    unsafe { nvptx::_grid_dim_x() as u32 }
}

/// Index of this thread in its block.
#[inline(always)]
pub fn lane_index() -> u32 {
    // SAFETY: reads a special register.
    unsafe { nvptx::_thread_idx_x() as u32 }
}

/// Threads in a block.
#[inline(always)]
pub fn lane_count() -> u32 {
    // SAFETY: reads a special register.
    unsafe { nvptx::_block_dim_x() as u32 }
}

/// Begins a kernel. Where it was launched so that it may be set up while the kernel before it on its stream still runs, this waits until
/// that one is done and all it wrote is visible; and what follows this kernel may be set up from here on, since all blocks of this one
/// have their place.
///
/// For images of GPUs that cannot do this, it stands there as a comment, which a launcher takes away on a GPU that can.
#[inline(always)]
pub fn follow() {
    // SAFETY: orders this kernel behind another; no effect in a plain launch.
    unsafe {
        asm!(
            "// sm_90: griddepcontrol.launch_dependents;",
            "// sm_90: griddepcontrol.wait;",
            options(nostack)
        );
    }
}

/// Nanoseconds of a clock that all blocks of this GPU share (`%globaltimer`).
#[inline(always)]
pub fn now_ns() -> u64 {
    let t: u64;
    // SAFETY: reads a special register.
    unsafe { asm!("mov.u64 {0}, %globaltimer;", out(reg64) t, options(nostack, nomem)) };
    t
}

/// Called once per turn of a spin loop that found nothing. After some turns it sleeps a little now and then, so that lanes of the same
/// warp that are elsewhere (in a panic, say) get their turn: spinning alone may starve them.
#[inline(always)]
pub fn relax(turn: u32) {
    if turn & 63 == 63 {
        // SAFETY: touches nothing.
        unsafe { asm!("nanosleep.u32 32;", options(nostack)) };
    }
}

// Barriers are LLVM's intrinsics, not inline PTX: those are `convergent`, so no pass copies one into both sides of a branch. Inline
// assembly is not, and a `bar.sync` that half a warp executes in one place and half in another counts twice.
#[allow(improper_ctypes)]
unsafe extern "C" {
    #[link_name = "llvm.nvvm.barrier.cta.sync.aligned.all"]
    fn barrier_sync(barrier: i32);
    #[link_name = "llvm.nvvm.barrier.cta.red.or.aligned.all"]
    fn barrier_or(barrier: i32, value: bool) -> bool;
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    fn warp_sync(lanes: i32);
    #[link_name = "llvm.nvvm.vote.any.sync"]
    fn warp_any(lanes: i32, value: bool) -> bool;
}

/// All threads of the block wait for each other; memory accesses before it are performed before those after it, for this block.
#[inline(always)]
pub fn sync_block() {
    // SAFETY: every thread of the block that has not exited reaches it, as schedules keep their control flow uniform.
    unsafe { barrier_sync(0) };
}

/// As [`sync_block`], and whether any thread gave `true`.
#[inline(always)]
pub fn sync_block_any(value: bool) -> bool {
    // SAFETY: as for `sync_block`.
    unsafe { barrier_or(0, value) }
}

/// The threads of the warp wait for each other.
#[inline(always)]
pub fn sync_warp() {
    // SAFETY: called by all lanes of the warp.
    unsafe { warp_sync(-1) };
}

/// Whether any lane of the warp gave `true`; also orders memory accesses among the warp's lanes.
#[inline(always)]
pub fn sync_warp_any(value: bool) -> bool {
    // SAFETY: as for `sync_warp`.
    let any = unsafe { warp_any(-1, value) };
    sync_warp();
    any
}

/// Makes every access before it visible to the whole system before any access after it (`fence.acq_rel.sys`).
#[inline(always)]
pub fn fence_system() {
    // SAFETY: orders memory accesses, touches none.
    unsafe { asm!("fence.acq_rel.sys;", options(nostack)) };
}

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

/// Rounds to binary16.
#[inline(always)]
pub fn f16_from_f32(value: f32) -> u16 {
    let bits: u16;
    // SAFETY: arithmetic.
    unsafe {
        asm!("cvt.rn.f16.f32 {0}, {1};", out(reg16) bits, in(reg32) value, options(pure, nomem, nostack))
    };
    bits
}

/// Widens binary16.
#[inline(always)]
pub fn f16_to_f32(bits: u16) -> f32 {
    let value: f32;
    // SAFETY: arithmetic.
    unsafe { asm!("cvt.f32.f16 {0}, {1};", out(reg32) value, in(reg16) bits, options(pure, nomem, nostack)) };
    value
}

// rustc derives the `sm_` features from `target-cpu`, but knows none for `sm_103` and `sm_121`: whoever compiles for those gives
// `--cfg fusewire_sm="80"` and `--cfg fusewire_sm="89"`. Without them the result is the same, only slower.
#[cfg(not(any(target_feature = "sm_80", fusewire_sm = "80")))]
pub use crate::element::soft::{bf16_from_f32, bf16x2_from_f32};
#[cfg(not(any(target_feature = "sm_89", fusewire_sm = "89")))]
pub use crate::element::soft::{e4m3_from_f32, e4m3_to_f32, e4m3x2_from_f32, e4m3x2_to_f32, e5m2_from_f32};

/// Rounds to bfloat16.
#[cfg(any(target_feature = "sm_80", fusewire_sm = "80"))]
#[inline(always)]
pub fn bf16_from_f32(value: f32) -> u16 {
    let bits: u16;
    // SAFETY: arithmetic.
    unsafe {
        asm!("cvt.rn.bf16.f32 {0}, {1};", out(reg16) bits, in(reg32) value, options(pure, nomem, nostack))
    };
    bits
}

/// Rounds two to bfloat16, the first into the low half.
#[cfg(any(target_feature = "sm_80", fusewire_sm = "80"))]
#[inline(always)]
pub fn bf16x2_from_f32(low: f32, high: f32) -> u32 {
    let bits: u32;
    // SAFETY: arithmetic.
    unsafe {
        asm!("cvt.rn.bf16x2.f32 {0}, {1}, {2};",
            out(reg32) bits, in(reg32) high, in(reg32) low, options(pure, nomem, nostack))
    };
    bits
}

/// Widens an 8-bit float with 5 exponent bits, the upper half of a binary16.
#[inline(always)]
pub fn e5m2_to_f32(bits: u8) -> f32 {
    f16_to_f32(u16::from(bits) << 8)
}

#[cfg(any(target_feature = "sm_89", fusewire_sm = "89"))]
mod fp8 {
    use super::asm;

    /// Rounds to an 8-bit float with 4 exponent bits.
    #[inline(always)]
    pub fn e4m3_from_f32(value: f32) -> u8 {
        let bits: u16;
        // SAFETY: arithmetic.
        unsafe {
            asm!("cvt.rn.satfinite.e4m3x2.f32 {0}, 0f00000000, {1};",
                out(reg16) bits, in(reg32) value, options(pure, nomem, nostack))
        };
        bits as u8
    }

    /// Rounds two to 8-bit floats with 4 exponent bits, the first into the low half.
    #[inline(always)]
    pub fn e4m3x2_from_f32(low: f32, high: f32) -> u16 {
        let bits: u16;
        // SAFETY: arithmetic.
        unsafe {
            asm!("cvt.rn.satfinite.e4m3x2.f32 {0}, {1}, {2};",
                out(reg16) bits, in(reg32) high, in(reg32) low, options(pure, nomem, nostack))
        };
        bits
    }

    /// Widens two 8-bit floats with 4 exponent bits, the low one first.
    #[inline(always)]
    pub fn e4m3x2_to_f32(bits: u16) -> [f32; 2] {
        let halves: u32;
        // SAFETY: arithmetic.
        unsafe {
            asm!("cvt.rn.f16x2.e4m3x2 {0}, {1};",
                out(reg32) halves, in(reg16) bits, options(pure, nomem, nostack))
        };
        [super::f16_to_f32(halves as u16), super::f16_to_f32((halves >> 16) as u16)]
    }

    /// Rounds to an 8-bit float with 5 exponent bits.
    #[inline(always)]
    pub fn e5m2_from_f32(value: f32) -> u8 {
        let bits: u16;
        // SAFETY: arithmetic.
        unsafe {
            asm!("cvt.rn.satfinite.e5m2x2.f32 {0}, 0f00000000, {1};",
                out(reg16) bits, in(reg32) value, options(pure, nomem, nostack))
        };
        bits as u8
    }

    /// Widens an 8-bit float with 4 exponent bits.
    #[inline(always)]
    pub fn e4m3_to_f32(bits: u8) -> f32 {
        let half: u32;
        // SAFETY: arithmetic.
        unsafe {
            asm!("cvt.rn.f16x2.e4m3x2 {0}, {1};",
                out(reg32) half, in(reg16) u16::from(bits), options(pure, nomem, nostack))
        };
        super::f16_to_f32(half as u16)
    }
}
#[cfg(any(target_feature = "sm_89", fusewire_sm = "89"))]
pub use fp8::{e4m3_from_f32, e4m3_to_f32, e4m3x2_from_f32, e4m3x2_to_f32, e5m2_from_f32};

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

// What the panic handler finds: flag, rank, block, then a copy of `Control`. Shared memory, since a panic has no arguments.
core::arch::global_asm!(".shared .align 8 .b8 fusewire_panic[48];");

/// The same number, of which the compiler no longer knows where it comes from.
#[inline(always)]
pub fn opaque(number: usize) -> usize {
    let mut number = number;
    // SAFETY: does nothing.
    unsafe { asm!("// {0}", inout(reg64) number, options(pure, nomem, nostack)) };
    number
}

// A tile for each of eight warps. Kernels that name it alone have it.
core::arch::global_asm!(".shared .align 16 .b8 fusewire_tiles[33792];");
const _: () = assert!(33792 == tiles::WARPS * tiles::SCRATCH);

/// A warp's part of the block's scratch memory.
#[derive(Clone, Copy)]
pub struct Scratch {
    at: u32,
}

impl Scratch {
    /// That of the running warp, one of the block's first [`tiles::WARPS`].
    #[inline(always)]
    pub fn of_warp() -> Self {
        let start: u32;
        // SAFETY: an address.
        unsafe { asm!("mov.u32 {0}, fusewire_tiles;", out(reg32) start, options(pure, nomem, nostack)) };
        Scratch { at: start + lane_index() / 32 * tiles::SCRATCH }
    }

    /// Stores one byte.
    ///
    /// # Safety
    /// `offset` lies inside the warp's part, which no other lane accesses there before the warp's next sync.
    #[inline(always)]
    pub unsafe fn store_1(&self, offset: u32, value: u8) {
        // SAFETY: the caller's contract.
        unsafe {
            asm!("st.shared.b8 [{0}], {1};",
                in(reg32) self.at + offset, in(reg32) u32::from(value), options(nostack));
        }
    }

    /// Stores two bytes.
    ///
    /// # Safety
    /// As for [`Scratch::store_1`]; `offset` is a multiple of 2.
    #[inline(always)]
    pub unsafe fn store_2(&self, offset: u32, value: u16) {
        // SAFETY: the caller's contract.
        unsafe {
            asm!("st.shared.b16 [{0}], {1};", in(reg32) self.at + offset, in(reg16) value, options(nostack));
        }
    }

    /// Stores four bytes.
    ///
    /// # Safety
    /// As for [`Scratch::store_1`]; `offset` is a multiple of 4.
    #[inline(always)]
    pub unsafe fn store_4(&self, offset: u32, value: u32) {
        // SAFETY: the caller's contract.
        unsafe {
            asm!("st.shared.b32 [{0}], {1};", in(reg32) self.at + offset, in(reg32) value, options(nostack));
        }
    }

    /// Loads 16 bytes, word by word: rows are not aligned to more.
    ///
    /// # Safety
    /// `offset`, a multiple of 4, lies inside the warp's part, which no other lane writes before the warp's next sync.
    #[inline(always)]
    pub unsafe fn load_16(&self, offset: u32) -> [u32; 4] {
        let (a, b, c, d): (u32, u32, u32, u32);
        // SAFETY: the caller's contract.
        unsafe {
            asm!(
                "ld.shared.b32 {0}, [{4}]; ld.shared.b32 {1}, [{4}+4]; ld.shared.b32 {2}, [{4}+8]; ld.shared.b32 {3}, [{4}+12];",
                out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) self.at + offset,
                options(nostack, readonly)
            )
        };
        [a, b, c, d]
    }
}

#[inline(always)]
unsafe fn shared_store_u64(offset: u32, value: u64) {
    // SAFETY: inside the 48 bytes above.
    unsafe {
        asm!("{{ .reg .b32 a; mov.u32 a, fusewire_panic; add.u32 a, a, {0}; st.volatile.shared.b64 [a], {1}; }}",
            in(reg32) offset, in(reg64) value, options(nostack));
    }
}

#[inline(always)]
unsafe fn shared_load_u64(offset: u32) -> u64 {
    let v: u64;
    // SAFETY: inside the 48 bytes above.
    unsafe {
        asm!("{{ .reg .b32 a; mov.u32 a, fusewire_panic; add.u32 a, a, {1}; ld.volatile.shared.b64 {0}, [a]; }}",
            out(reg64) v, in(reg32) offset, options(nostack));
    }
    v
}

/// Prepares the block for a panic of one of its threads.
#[inline(always)]
pub fn arm_panic<G: crate::group::Group>(group: &G, control: &crate::wait::Control, rank: u32, block: u32) {
    if group.leads() {
        // SAFETY: one thread writes; readers come after the next group sync.
        unsafe {
            shared_store_u64(0, 0);
            shared_store_u64(8, u64::from(rank) | u64::from(block) << 32);
            shared_store_u64(16, control.abort);
            shared_store_u64(24, control.record);
            shared_store_u64(32, control.deadline_ns);
        }
    }
}

/// Control words, rank and block of the running kernel; after the group sync that follows the block's start.
#[inline(always)]
pub fn armed() -> Option<(crate::wait::Control, u32, u32)> {
    // SAFETY: written by `arm_panic`.
    let (who, abort, record, deadline_ns) =
        unsafe { (shared_load_u64(8), shared_load_u64(16), shared_load_u64(24), shared_load_u64(32)) };
    Some((crate::wait::Control { abort, record, deadline_ns }, who as u32, (who >> 32) as u32))
}

/// Whether a thread of this block has panicked; meaningful after a group sync.
#[inline(always)]
pub fn block_panicked() -> bool {
    // SAFETY: written by `arm_panic` and the panic handler.
    unsafe { shared_load_u64(0) != 0 }
}

/// Names file, line and column in the abort record and ends the thread. The others of its block pass the barriers it no longer
/// reaches, see the flag and stop before they publish anything.
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: armed at the start of the block.
    let (who, abort, record) = unsafe {
        shared_store_u64(0, 1);
        (shared_load_u64(8), shared_load_u64(16), shared_load_u64(24))
    };
    let control = crate::wait::Control { abort, record, deadline_ns: 0 };
    if let Some(at) = info.location() {
        let (file, line, column) = (at.file(), at.line(), at.column());
        // SAFETY: the words that the kernel began with.
        unsafe { crate::wait::record_panic(&control, who as u32, (who >> 32) as u32, file, line, column) };
    }
    // SAFETY: ends this thread.
    unsafe { asm!("exit;", options(noreturn, nostack)) }
}
