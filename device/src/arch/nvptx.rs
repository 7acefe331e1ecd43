//! Inline PTX. Names of instructions and qualifiers: PTX ISA, chapters "Memory Consistency Model" and "Instruction Set".

mod bulk;
mod convert;
mod math;
pub mod meeting;
mod memory;
pub mod rows;
pub mod teams;

pub use rows::arm_rows;

use crate::tile::transpose;
use core::arch::{asm, nvptx};
use core::panic::Location;

pub use bulk::*;
pub use convert::*;
pub use math::*;
pub use memory::*;

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

/// Waits until the kernel before this one on its stream is done and all it wrote is visible, if this one was set up meanwhile: before any
/// access to memory. What needs none is worked out before this.
///
/// Then lets the kernel behind this one be set up, once all blocks are here. Not earlier: followers of followers would fill the GPU while
/// the first still waits for a peer, and that peer might wait for a kernel that finds no place then.
///
/// For images of GPUs that cannot do this, both stand there as comments, which a launcher takes away on a GPU that can.
#[inline(always)]
pub fn follow() {
    follow_in::<0>();
}

/// As [`follow`], in a branch of its own: what is worked out before the branch stays before it, while the assembler moves what stands in the
/// same block behind it. Two branches name themselves, or the compiler makes one block of them.
#[inline(always)]
pub fn follow_in<const BRANCH: u32>() {
    // SAFETY: orders this kernel behind another, and lets a third begin, which waits for this one to end; no effect in plain launches.
    unsafe {
        asm!(
            "// sm_90: griddepcontrol.wait; // {0}",
            "// sm_90: griddepcontrol.launch_dependents;",
            const BRANCH,
            options(nostack)
        )
    };
}

/// Whether this code is for two ranks alone: no, unless a launcher has said so in the text. Then the assembler leaves out what is for others.
/// On the host the size of the world tells it.
#[inline(always)]
pub fn of_two(_world: u32) -> bool {
    let two: u32;
    // SAFETY: a constant.
    unsafe {
        asm!("mov.u32 {0}, 0;", "// two: mov.u32 {0}, 1;", out(reg32) two, options(pure, nomem, nostack));
    }
    two != 0
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
    #[link_name = "llvm.nvvm.vote.ballot.sync"]
    fn warp_ballot(lanes: i32, value: bool) -> i32;
    #[link_name = "llvm.nvvm.shfl.sync.bfly.i32"]
    fn warp_exchange(lanes: i32, value: i32, distance: i32, clamp: i32) -> i32;
    #[link_name = "llvm.nvvm.shfl.sync.up.i32"]
    fn warp_up(lanes: i32, value: i32, distance: i32, clamp: i32) -> i32;
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

/// Whether all lanes of the warp are there: none has panicked. The warp converges.
#[inline(always)]
pub fn warp_is_whole() -> bool {
    // SAFETY: called by all lanes that are left; those that are gone do not count.
    unsafe { warp_ballot(-1, true) == -1 }
}

/// The `word` of the lane that stands eight before this one, or behind it: lanes 0 to 7 and 8 to 15 exchange theirs, as do 16 to 23 and 24
/// to 31. The warp converges.
#[inline(always)]
pub fn across_lines(word: u32) -> u32 {
    exchange(word, 8)
}

/// The `word` of the lane whose number differs from this one's by `distance`, a power of two below 32. The warp converges.
#[inline(always)]
pub fn exchange(word: u32, distance: u32) -> u32 {
    // SAFETY: called by all lanes of the warp that are left.
    unsafe { warp_exchange(-1, word as i32, distance as i32, 31) as u32 }
}

/// The `word` of the lane `distance` below this one; its own where there is none. The warp converges.
#[inline(always)]
pub fn from_below(word: u32, distance: u32) -> u32 {
    // SAFETY: as for `exchange`.
    unsafe { warp_up(-1, word as i32, distance as i32, 0) as u32 }
}

/// Makes every access before it visible to the whole system before any access after it (`fence.acq_rel.sys`).
#[inline(always)]
pub fn fence_system() {
    // SAFETY: orders memory accesses, touches none.
    unsafe { asm!("fence.acq_rel.sys;", options(nostack)) };
}

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

/// The same number, worked out by now: what is made of it stays behind this. The processor stops at what needs a load that is under way, so
/// loads that do not need each other must be asked for before that.
#[inline(always)]
pub fn late(number: u64) -> u64 {
    let mut number = number;
    // SAFETY: does nothing.
    unsafe { asm!("// {0}", inout(reg64) number, options(nostack)) };
    number
}

// A tile for each of eight warps. Kernels that name it alone have it.
core::arch::global_asm!(".shared .align 16 .b8 fusewire_tiles[33792];");
const _: () = assert!(33792 == transpose::WARPS * transpose::SCRATCH);

/// A warp's part of the block's scratch memory, or that of those who share a row.
#[derive(Clone, Copy)]
pub struct Scratch {
    at: u32,
}

impl Scratch {
    /// That of the running warp, one of the block's first [`transpose::WARPS`].
    #[inline(always)]
    pub fn of_warp() -> Self {
        let start: u32;
        // SAFETY: an address.
        unsafe { asm!("mov.u32 {0}, fusewire_tiles;", out(reg32) start, options(pure, nomem, nostack)) };
        Scratch { at: start + lane_index() / 32 * transpose::SCRATCH }
    }

    /// Stores one byte.
    ///
    /// # Safety
    /// `offset` lies inside the part, which no other thread accesses there before the next sync of those who have it.
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
    /// `offset`, a multiple of 4, lies inside the part, which no other thread writes there before the next sync.
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

unsafe extern "C" {
    /// The driver's own, which modules find where they are loaded.
    fn vprintf(format: *const u8, values: *const u64) -> i32;
}

/// Prints a line.
///
/// # Safety
/// `format` ends in a zero, and has no more conversions than there are values, each of 64 bits.
#[inline(always)]
pub unsafe fn print(format: &[u8], values: &[u64]) {
    // SAFETY: the caller's contract. What it returns is the number of values.
    let _ = unsafe { vprintf(format.as_ptr(), values.as_ptr()) };
}

/// Names file, line, column and a message in the abort record, and ends the thread. The others of its block pass the barriers it no longer
/// reaches, see the flag and stop before they publish anything.
#[inline(always)]
fn end_with(at: Option<&Location<'_>>, message: &[u8], values: &[u64]) -> ! {
    // SAFETY: armed at the start of the block.
    let (who, abort, record) = unsafe {
        shared_store_u64(0, 1);
        (shared_load_u64(8), shared_load_u64(16), shared_load_u64(24))
    };
    let control = crate::wait::Control { abort, record, deadline_ns: 0 };
    if let Some(at) = at {
        let (rank, block) = (who as u32, (who >> 32) as u32);
        let (file, line, column) = (at.file(), at.line(), at.column());
        // SAFETY: the words that the kernel began with.
        unsafe { crate::wait::record_panic(&control, rank, block, file, line, column, message, values) };
    }
    // SAFETY: ends this thread.
    unsafe { asm!("exit;", options(noreturn, nostack)) }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    // What is formatted is not written: that would cost every thread stack and registers. See `panics`.
    end_with(info.location(), info.message().as_str().unwrap_or("").as_bytes(), &[])
}

/// A panic whose message is a format of [`print`](crate::print) with values for it.
#[cold]
#[inline(never)]
pub fn panic_with(at: &Location<'_>, format: &[u8], values: &[u64; crate::print::MOST]) -> ! {
    end_with(Some(at), format, values)
}
