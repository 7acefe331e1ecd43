//! Bulk copies through shared memory (`cp.async.bulk`, the Tensor Memory Accelerator): one thread asks for them, and no register sees the
//! bytes. Instructions of sm_90: comments in images for older GPUs, see [`super::follow`].

use crate::protocol::direct::bulk::{BARRIERS, STAGES, Stages};
use core::arch::asm;

// As many bytes as the launch gives. Kernels that name it alone have it.
core::arch::global_asm!(".extern .shared .align 128 .b8 fusewire_bulk[];");

/// The block's stages in shared memory, and a barrier for each before them.
#[derive(Clone, Copy)]
pub struct SharedStages {
    at: u32,
    /// Of a stage.
    bytes: u32,
}

impl SharedStages {
    /// Those of this block, of `bytes` each.
    #[inline(always)]
    pub fn of_block(bytes: u32) -> Self {
        let at: u32;
        // SAFETY: an address.
        unsafe { asm!("mov.u32 {0}, fusewire_bulk;", out(reg32) at, options(pure, nomem, nostack)) };
        SharedStages { at, bytes }
    }

    /// Prepares the barriers.
    ///
    /// # Safety
    /// The launch gave as many bytes as [`crate::protocol::direct::bulk::shared_bytes`] says. One thread of the block does this, once,
    /// and it alone uses them.
    #[inline(always)]
    pub unsafe fn prepare(&self) {
        for stage in 0..STAGES {
            // SAFETY: inside the barriers' bytes; each awaits this thread once a turn.
            unsafe {
                asm!("// sm_90: mbarrier.init.shared::cta.b64 [{0}], 1;", in(reg32) self.barrier(stage), options(nostack));
            }
        }
        // SAFETY: orders accesses: bulk copies see the barriers from here on.
        unsafe { asm!("// sm_90: fence.mbarrier_init.release.cluster;", options(nostack)) };
    }

    #[inline(always)]
    fn barrier(&self, stage: u32) -> u32 {
        self.at + 8 * stage
    }

    #[inline(always)]
    fn data(&self, stage: u32) -> u32 {
        self.at + BARRIERS + stage * self.bytes
    }
}

impl Stages for SharedStages {
    #[inline(always)]
    unsafe fn load(&mut self, stage: u32, from: u64, bytes: u32) {
        // SAFETY: the caller's contract.
        unsafe {
            asm!(
                "// sm_90: mbarrier.arrive.expect_tx.shared::cta.b64 _, [{0}], {1};",
                "// sm_90: cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{2}], [{3}], {1}, [{0}];",
                in(reg32) self.barrier(stage), in(reg32) bytes, in(reg32) self.data(stage), in(reg64) from,
                options(nostack)
            );
        }
    }

    #[inline(always)]
    fn await_load(&mut self, stage: u32, turn: u32) {
        let mut there = 0u32;
        while there == 0 {
            // SAFETY: a barrier that was prepared; it waits a little at a time.
            unsafe {
                asm!(
                    "mov.u32 {0}, 1;",
                    "// sm_90: {{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [{1}], {2}; selp.u32 {0}, 1, 0, p; }}",
                    out(reg32) there, in(reg32) self.barrier(stage), in(reg32) turn & 1,
                    options(nostack)
                );
            }
        }
    }

    #[inline(always)]
    unsafe fn store(&mut self, stage: u32, to: u64, bytes: u32) {
        // SAFETY: the caller's contract.
        unsafe {
            asm!(
                "// sm_90: cp.async.bulk.global.shared::cta.bulk_group [{0}], [{1}], {2};",
                "// sm_90: cp.async.bulk.commit_group;",
                in(reg64) to, in(reg32) self.data(stage), in(reg32) bytes,
                options(nostack)
            );
        }
    }

    #[inline(always)]
    fn await_reads(&mut self) {
        // SAFETY: waits.
        unsafe { asm!("// sm_90: cp.async.bulk.wait_group.read 2;", options(nostack)) };
    }

    #[inline(always)]
    fn await_stores(&mut self) {
        // SAFETY: waits; what was stored is then visible to this thread.
        unsafe { asm!("// sm_90: cp.async.bulk.wait_group 0;", options(nostack)) };
    }
}
