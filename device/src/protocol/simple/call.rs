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
        KernelWord::new(kernel, rest).0
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
            if KernelWord(theirs).is_like(KernelWord(self.kernel)) {
                let length = |kernel, size| LengthWord::new(KernelWord(kernel), SizeWord(size)).0;
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

/// The word of a header that names kernel, types and schedule, and how full the last pack is: written by kernels, and read by hosts that tell
/// which field differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelWord(pub u64);

impl KernelWord {
    /// `kernel`, whose upper four bits are left out, with so many elements in the chunk's last pack, if that is not whole.
    #[inline(always)]
    pub const fn new(kernel: u64, rest: u32) -> Self {
        KernelWord(kernel << 4 >> 4 | (rest as u64) << 60)
    }

    /// Elements of the last pack; 0 if it is whole.
    #[inline(always)]
    pub const fn rest(self) -> u64 {
        self.0 >> 60
    }

    /// Of a tile, the wire type's number; of a shipped schedule eight bits more of the kernel.
    #[inline(always)]
    pub const fn wire_type(self) -> u64 {
        self.0 & 0xff
    }

    /// A digest of kernel, types and schedule, and the kernel's number.
    #[inline(always)]
    pub const fn kernel(self) -> u64 {
        self.0 << 4 >> 12
    }

    /// Whether all but the last pack's elements is the same.
    #[inline(always)]
    pub const fn is_like(self, other: Self) -> bool {
        (self.0 ^ other.0) << 4 == 0
    }
}

/// The word of a header that names size and cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeWord(pub u64);

impl SizeWord {
    /// Payload bytes on the wire, in whole packs.
    #[inline(always)]
    pub const fn bytes(self) -> u64 {
        self.0 % CUT
    }

    /// How chunks are cut.
    #[inline(always)]
    pub const fn cut(self) -> u64 {
        self.0 / CUT
    }
}

/// Of a report alone: bytes in whole packs, and elements of the last pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthWord(pub u64);

impl LengthWord {
    /// Of the two words of a header.
    #[inline(always)]
    pub const fn new(kernel: KernelWord, size: SizeWord) -> Self {
        LengthWord(kernel.rest() << 60 | size.bytes())
    }

    /// Payload bytes on the wire, in whole packs.
    #[inline(always)]
    pub const fn bytes(self) -> u64 {
        self.0 % CUT
    }

    /// Elements of the last pack; 0 if it is whole.
    #[inline(always)]
    pub const fn rest(self) -> u64 {
        self.0 >> 60
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back() {
        let word = KernelWord::new(0xff12_3456_789a_bcde, 5);
        assert_eq!((word.rest(), word.kernel(), word.wire_type()), (5, 0xf_1234_5678_9abc, 0xde));
        assert!(
            word.is_like(KernelWord::new(0x0f12_3456_789a_bcde, 7)) && !word.is_like(KernelWord(word.0 ^ 1))
        );
        let size = SizeWord(3 * CUT + 640);
        assert_eq!((size.bytes(), size.cut()), (640, 3));
        let length = LengthWord::new(word, size);
        assert_eq!((length.bytes(), length.rest()), (640, 5));
    }
}
