//! What both ends of a call have in common.

use crate::wait::{Fault, kind, operation};

/// What both ends of a call must have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Identifies kernel, types and schedule; agreed when the kernel was set up.
    pub kernel: u64,
    /// Payload bytes of this call on this channel, or of the whole chunk where all channels name that: below [`CUT`].
    pub payload: u64,
    /// How chunks are cut, a multiple of [`CUT`]: [`Shape::cut`](crate::launch::Shape::cut), or 0 where nothing is.
    pub cut: u64,
}

/// Sizes of calls are below it, names of cuts are multiples of it: both are told to the peer in one word.
pub const CUT: u64 = 1 << 40;

impl Call {
    /// `kernel` with so many elements in the chunk's last pack, if that is not whole, in the upper four bits. Sizes on the wire are whole
    /// packs, so they do not tell lengths apart that differ by less.
    #[inline(always)]
    pub const fn ended(kernel: u64, rest: u32) -> u64 {
        kernel << 4 >> 4 | (rest as u64) << 60
    }

    /// The kernel as it stands in headers of the stream position `at`.
    #[inline(always)]
    pub(crate) const fn kernel_at(&self, at: u64) -> u64 {
        self.kernel.wrapping_add(at.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Size and cut as they are told to the peer.
    #[inline(always)]
    pub(crate) const fn size(&self) -> u64 {
        self.payload | self.cut
    }

    /// What differs in a header of position `at` that names `kernel` and `size`.
    #[inline(always)]
    pub(crate) fn compare(&self, at: u64, kernel: u64, size: u64) -> Fault {
        let mismatch =
            |operation, expected, seen| Fault { kind: kind::MISMATCH, operation, expected, seen, age_ns: 0 };
        let own = self.kernel_at(at);
        if kernel != own {
            // The kernel that a peer at the same position names.
            let theirs = kernel.wrapping_sub(own).wrapping_add(self.kernel);
            // With both sizes, for which GPUs have no registers to spare.
            #[cfg(not(target_arch = "nvptx64"))]
            if (theirs ^ self.kernel) << 4 == 0 {
                let length = |kernel: u64, size: u64| (kernel >> 60 << 60) | (size % CUT);
                let [own, theirs] = [length(self.kernel, self.payload), length(theirs, size)];
                return mismatch(operation::LENGTH, own, theirs);
            }
            mismatch(operation::RECEIVE, self.kernel, theirs)
        } else if size != self.size() {
            mismatch(operation::HEADER, self.size(), size)
        } else {
            Fault::NONE
        }
    }

    /// The first 16 bytes of a stream that begins at `at`; the other 112 of the header are not used.
    #[inline(always)]
    pub(crate) const fn header(&self, at: u64) -> [u32; 4] {
        let (kernel, size) = (self.kernel_at(at), self.size());
        [kernel as u32, (kernel >> 32) as u32, size as u32, (size >> 32) as u32]
    }
}
