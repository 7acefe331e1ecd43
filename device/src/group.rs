//! Thread groups: who takes part in an operation is a type.
//!
//! Every group has a leader (lane 0). `sync` orders the group's memory accesses; `any` also tells whether any lane said yes.
//! On the host a group has one lane and both are free.
//!
//! What groups compute together is in [`team`](crate::team).

/// Threads that work together.
///
/// # Safety
/// `lane` is below `lanes`, and each is one thread's of those that call together; `sync` and `any` order their memory accesses.
pub unsafe trait Group: Copy {
    /// Whether it is always all threads of a block.
    const WHOLE: bool = false;
    /// This thread's index in the group.
    fn lane(&self) -> u32;
    /// Threads in the group.
    fn lanes(&self) -> u32;
    /// All threads of the group wait for each other.
    fn sync(&self);
    /// As `sync`; whether any thread of the group gave `true`, the same answer in each.
    fn any(&self, value: bool) -> bool;
    /// Whether this thread is lane 0.
    #[inline(always)]
    fn leads(&self) -> bool {
        self.lane() == 0
    }
}

/// A group of one.
#[derive(Clone, Copy, Debug)]
pub struct Thread;

// SAFETY: one thread.
unsafe impl Group for Thread {
    #[inline(always)]
    fn lane(&self) -> u32 {
        0
    }
    #[inline(always)]
    fn lanes(&self) -> u32 {
        1
    }
    #[inline(always)]
    fn sync(&self) {}
    #[inline(always)]
    fn any(&self, value: bool) -> bool {
        value
    }
}

/// The 32 threads of a warp; one on the host.
#[derive(Clone, Copy, Debug)]
pub struct Warp;

/// All threads of a block; one on the host.
#[derive(Clone, Copy, Debug)]
pub struct Block;

/// `W` neighbouring warps of a block, of which the first is number `0`, `W`, `2 * W` and so on; one thread on the host.
/// [`Kernel::teams`](crate::kernel::Kernel::teams) makes them.
#[derive(Clone, Copy, Debug)]
pub struct Warps<const W: u32>(());

impl<const W: u32> Warps<W> {
    /// Those that this thread is one of.
    ///
    /// # Safety
    /// The block has at least `W` warps, and this one is among a whole `W` of them, or it has fewer; where they meet has been armed
    /// ([`arch::teams::arm`](crate::arch::teams::arm)).
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Warps(())
    }
}

#[cfg(target_arch = "nvptx64")]
mod sides {
    use super::{Block, Group, Warp, Warps};
    use crate::arch;

    // SAFETY: the hardware's numbers and barriers.
    unsafe impl Group for Warp {
        #[inline(always)]
        fn lane(&self) -> u32 {
            arch::lane_index() & 31
        }
        #[inline(always)]
        fn lanes(&self) -> u32 {
            32
        }
        #[inline(always)]
        fn sync(&self) {
            arch::sync_warp();
        }
        #[inline(always)]
        fn any(&self, value: bool) -> bool {
            arch::sync_warp_any(value)
        }
    }

    // SAFETY: the hardware's numbers and barriers.
    unsafe impl Group for Block {
        const WHOLE: bool = true;
        #[inline(always)]
        fn lane(&self) -> u32 {
            arch::lane_index()
        }
        #[inline(always)]
        fn lanes(&self) -> u32 {
            arch::lane_count()
        }
        #[inline(always)]
        fn sync(&self) {
            arch::sync_block();
        }
        #[inline(always)]
        fn any(&self, value: bool) -> bool {
            arch::sync_block_any(value)
        }
    }

    // SAFETY: numbers within whole warps; `meet` is a barrier.
    unsafe impl<const W: u32> Group for Warps<W> {
        #[inline(always)]
        fn lane(&self) -> u32 {
            arch::lane_index() % (32 * W)
        }
        #[inline(always)]
        fn lanes(&self) -> u32 {
            arch::lane_count().min(32 * W)
        }
        #[inline(always)]
        fn sync(&self) {
            if W == 1 { arch::sync_warp() } else { arch::teams::meet(W) }
        }
        #[inline(always)]
        fn any(&self, value: bool) -> bool {
            if W == 1 { arch::sync_warp_any(value) } else { arch::teams::any(W, value) }
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
mod sides {
    use super::{Block, Group, Thread, Warp, Warps};

    macro_rules! single {
        ($t:ty, $whole:literal $(, $w:ident)?) => {
            // SAFETY: one thread.
            unsafe impl$(<const $w: u32>)? Group for $t {
                const WHOLE: bool = $whole;
                fn lane(&self) -> u32 {
                    Thread.lane()
                }
                fn lanes(&self) -> u32 {
                    Thread.lanes()
                }
                fn sync(&self) {}
                fn any(&self, value: bool) -> bool {
                    value
                }
            }
        };
    }
    single!(Warp, false);
    single!(Block, true);
    single!(Warps<W>, false, W);
}
