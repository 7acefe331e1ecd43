//! Rows: what a warp stores, or loads, by one access of 16 bytes a lane.
//!
//! A row has 512 bytes, four lines of 128: 120 bytes of data, then an 8-byte flag. It carries 30 packs. Seven lanes of eight hold a
//! whole one; of the eighth lanes, two neighbours share a pack, half each, beside their flags. A CPU thread does the work of all lanes.

#[cfg(target_arch = "nvptx64")]
use crate::arch;

/// Packs of a row.
pub const PACKS: u32 = 30;
/// Bytes of a row.
pub const BYTES: usize = 512;

/// Offset of number `number` of a row's four flags.
#[cfg(not(target_arch = "nvptx64"))]
const fn flag_at(number: usize) -> usize {
    128 * number + 120
}

/// The packs of a row that this thread carries, one for each lane that it stands for; [`PACKS`] for the two lanes that carry none.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub fn slots() -> impl Iterator<Item = u32> {
    let lane = arch::lane_index() & 31;
    let (line, place) = (lane / 8, lane % 8);
    core::iter::once(match (place, line & 1) {
        (7, 0) => 28 + line / 2,
        (7, _) => PACKS,
        _ => 7 * line + place,
    })
}

/// As for the other target.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
pub fn slots() -> impl Iterator<Item = u32> {
    0..PACKS
}

/// Calls `f` for each of [`slots`]. All lanes of a warp call it together, and `f` may have them exchange what they hold.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub fn each_lane(mut f: impl FnMut(u32)) {
    slots().for_each(&mut f);
}

/// As for the other target.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
pub fn each_lane(mut f: impl FnMut(u32)) {
    (0..PACKS).for_each(&mut f);
}

/// Whether every lane of this warp still is there; a hook's panic ends its lane. The lanes converge.
#[inline(always)]
pub fn whole() -> bool {
    #[cfg(target_arch = "nvptx64")]
    return arch::warp_is_whole();
    #[cfg(not(target_arch = "nvptx64"))]
    true
}

/// What the lane of `slot` stores where it carries the pack `words`.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub fn dressed(words: [u32; 4], flag: u64) -> [u32; 4] {
    let upper = [arch::across_lines(words[2]), arch::across_lines(words[3])];
    let lane = arch::lane_index() & 31;
    match (lane % 8, lane & 8) {
        (7, 0) => [words[0], words[1], flag as u32, (flag >> 32) as u32],
        (7, _) => [upper[0], upper[1], flag as u32, (flag >> 32) as u32],
        _ => words,
    }
}

/// As for the other target: flags are stored last, by [`seal`].
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
pub fn dressed(words: [u32; 4], _flag: u64) -> [u32; 4] {
    words
}

/// Stores what [`dressed`] gave into the row at `at`: whole lines, as one transaction each.
///
/// # Safety
/// The row is this warp's to write, and read concurrently by [`Loaded`] only.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub unsafe fn store(at: *mut u8, _slot: u32, words: [u32; 4]) {
    // SAFETY: the caller's contract.
    unsafe { arch::store_16_live(at.add(16 * (arch::lane_index() & 31) as usize), words) };
}

/// As for the other target.
///
/// # Safety
/// As there.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
pub unsafe fn store(at: *mut u8, slot: u32, words: [u32; 4]) {
    let (low, high) = halves(slot);
    // SAFETY: the caller's contract; both places lie in the row.
    unsafe {
        at.add(low).cast::<[u32; 2]>().write([words[0], words[1]]);
        at.add(high).cast::<[u32; 2]>().write([words[2], words[3]]);
    }
}

/// Offsets of the halves of a pack.
#[cfg(not(target_arch = "nvptx64"))]
const fn halves(slot: u32) -> (usize, usize) {
    let slot = slot as usize;
    if slot < 28 {
        let at = 128 * (slot / 7) + 16 * (slot % 7);
        (at, at + 8)
    } else {
        let at = 256 * (slot - 28) + 112;
        (at, at + 128)
    }
}

/// Ends the row at `at`: on a CPU its flags, behind the data.
///
/// # Safety
/// As for [`store`].
#[inline(always)]
#[cfg_attr(target_arch = "nvptx64", allow(unused_variables))]
pub unsafe fn seal(at: *mut u8, flag: u64) {
    #[cfg(not(target_arch = "nvptx64"))]
    for number in 0..4 {
        // SAFETY: the caller's contract; the row's flags, which are accessed by atomics alone.
        unsafe {
            let word = at.add(flag_at(number)).cast();
            crate::atomic::store::<crate::atomic::System, crate::atomic::Release, u64>(word, flag);
        }
    }
}

/// A row as one look at it found it.
#[derive(Clone, Copy)]
#[cfg(target_arch = "nvptx64")]
pub struct Loaded {
    words: [u32; 4],
}

#[cfg(target_arch = "nvptx64")]
impl Loaded {
    /// Nothing.
    pub const NONE: Loaded = Loaded { words: [0; 4] };

    /// Looks at the row at `at`. All lanes of a warp together, and converged: a line is then one transaction.
    ///
    /// # Safety
    /// A live row, written concurrently by [`store`] only.
    #[inline(always)]
    pub unsafe fn look(at: *const u8) -> Self {
        // SAFETY: the caller's contract.
        Loaded { words: unsafe { arch::load_16_live(at.add(16 * (arch::lane_index() & 31) as usize)) } }
    }

    /// The bits in which the flag that this lane found is not `fresh`.
    #[inline(always)]
    pub fn differs(&self, fresh: u64) -> u64 {
        let flag = u64::from(self.words[2]) | u64::from(self.words[3]) << 32;
        if arch::lane_index() & 7 == 7 { flag ^ fresh } else { 0 }
    }

    /// The pack of this lane's slot. All lanes of a warp together.
    #[inline(always)]
    pub fn pack(&self, _slot: u32) -> [u32; 4] {
        let words = self.words;
        let upper = [arch::across_lines(words[0]), arch::across_lines(words[1])];
        if arch::lane_index() & 7 == 7 { [words[0], words[1], upper[0], upper[1]] } else { words }
    }
}

/// A row as one look at it found it: where it is, since its data stay as they are once its flags are there.
#[derive(Clone, Copy)]
#[cfg(not(target_arch = "nvptx64"))]
pub struct Loaded {
    at: *const u8,
}

#[cfg(not(target_arch = "nvptx64"))]
impl Loaded {
    /// Nothing.
    pub const NONE: Loaded = Loaded { at: core::ptr::null() };

    /// As for the other target.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub unsafe fn look(at: *const u8) -> Self {
        Loaded { at }
    }

    /// The bits in which a flag is not `fresh`; 0 if all are, and what stands in the row is visible.
    #[inline(always)]
    pub fn differs(&self, fresh: u64) -> u64 {
        let flag = |number| {
            // SAFETY: a flag of a live row, written by atomics alone.
            unsafe {
                let word = self.at.add(flag_at(number)).cast();
                crate::atomic::load::<crate::atomic::System, crate::atomic::Acquire, u64>(word)
            }
        };
        (0..4).map(flag).find(|&flag| flag != fresh).map_or(0, |flag| flag ^ fresh)
    }

    /// The pack of `slot`.
    #[inline(always)]
    pub fn pack(&self, slot: u32) -> [u32; 4] {
        let (low, high) = halves(slot);
        // SAFETY: inside the row, which its writer leaves alone until this call is over.
        let [[a, b], [c, d]] =
            [low, high].map(|offset| unsafe { self.at.add(offset).cast::<[u32; 2]>().read() });
        [a, b, c, d]
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES, Loaded, PACKS, flag_at, halves, seal};

    #[test]
    fn packs_and_flags_fill_a_row() {
        let mut bytes = [0; BYTES];
        let mut mark = |at: usize| bytes[at..at + 8].iter_mut().for_each(|b| *b += 1);
        for slot in 0..PACKS {
            let (low, high) = halves(slot);
            mark(low);
            mark(high);
        }
        (0..4).for_each(|number| mark(flag_at(number)));
        assert_eq!(bytes, [1; BYTES]);
    }

    #[test]
    fn a_row_is_there_with_all_its_flags() {
        let mut row = [0u64; BYTES / 8];
        let at: *mut u8 = row.as_mut_ptr().cast();
        // SAFETY: a row of this test's own.
        let differs = |flag| unsafe { Loaded::look(at).differs(flag) };
        // SAFETY: as above.
        unsafe { seal(at, 7) };
        assert_eq!(differs(7), 0);
        for number in 0..4 {
            // SAFETY: as above; one flag of the row.
            let set = |flag: u64| unsafe { at.add(flag_at(number)).cast::<u64>().write_volatile(flag) };
            set(6);
            assert_eq!(differs(7), 1, "flag {number}");
            set(7);
        }
    }
}
