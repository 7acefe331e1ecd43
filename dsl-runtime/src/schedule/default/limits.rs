//! From where on what is faster.

use std::ops::Range;

/// Bytes of a rank alone's longest input whose output the L2 cache holds, but not the input beside it: so much is read past the cache, which a copy gains a twentieth from and
/// what adds to its output a fifth. Less stays there whole, from one launch to the next; more does not help. Measured on H200s, whose cache has 50 MiB.
pub(in crate::schedule) const READ_PAST: Range<u64> = 22 << 20..40 << 20;

/// Bytes that a rank sends in all up to which LL128 is faster than stores into the peers' outputs.
pub(in crate::schedule) const LL128_MOST: usize = 1 << 20;

/// The same of hooks with work of their own, which hold more blocks by LL128.
pub(in crate::schedule) const LL128_MOST_WORK: usize = 3 << 20;

/// The same where what arrives is staged otherwise: LL128 is faster as long as few blocks' buffers hold the call.
pub(in crate::schedule) const LL128_MOST_STAGED: usize = 12 << 20;

/// The same of folds of several peers: both take as long there on 4 GPUs; of twice as much on 4 it is 84 us by LL128 and 55 through staging.
pub(in crate::schedule) const LL128_MOST_FOLDED: usize = 6 << 20;

/// The same of two ranks' folds: 12 MiB take 44 us, and 50 through staging.
pub(in crate::schedule) const LL128_MOST_FOLDED_OF_TWO: usize = 12 << 20;

/// The same of transposes, by tiles.
pub(in crate::schedule) const LL128_MOST_TILED: usize = 2 << 20;

/// Bytes that a rank sends in all up to which LL128 is faster, of transposes that they produce without tiles.
pub(in crate::schedule) const LL128_MOST_GATHERED: usize = 48 << 10;

/// Bytes that a rank sends in all from which on tiles are faster than single elements from afar.
pub(in crate::schedule) const TILES_LEAST: usize = 40 << 10;

/// Bytes that a rank sends in all up to which LL is faster than staging, between GPUs without LL128, and of rows in place: on 2 GPUs as many as its buffers hold.
pub(in crate::schedule) const LL_MOST: usize = 2 << 20;
/// The same of hooks by rows between GPUs with NVLink, if they are not in place. Two H200s, an all-reduce of 1 MiB: 10.9 us by LL and 11.0 through staging, of 2 MiB 18.8 and 16.1.
pub(in crate::schedule) const LL_MOST_ROWS: usize = 1 << 20;

/// Bytes that a rank sends, and its own, from which on rows have as many blocks through staging as find places.
pub(in crate::schedule) const MANY_ROWS: usize = 256 << 10;

/// Blocks of a call by LL at most, of which half bring a rank's own chunk. With one row each 64 blocks are faster than 32 with two: on 2 GPUs 9.5 us and 10.3.
pub(in crate::schedule) const LL_BLOCKS: u32 = 128;

/// Packs of a block by LL, where hooks do not work by rows: a guess, which nothing has measured.
pub(in crate::schedule) const LL_PACKS: u32 = 512;

/// Bytes that a rank sends from which on two steps are faster where they send as many: measured on two GPUs.
pub(in crate::schedule) const TWICE_LEAST: usize = 7 << 20;

/// Bytes that two steps save from which on they are faster than one: what a GPU's links carry in 6 us, where a flight through staging takes three. On 4 GPUs
/// one step of 1 MiB takes 17.3 us and two 23.0; of 2 MiB 33.4 and 29.6.
pub(in crate::schedule) const SAVED: usize = 2 << 20;

/// The same of a reduce: its first step takes as long as one of an all-reduce, but one step of it far less. On 4 GPUs one step of 4 MiB takes 35.2 us and two 36.3,
/// of 8 MiB 66.9 and 61.4.
pub(in crate::schedule) const SAVED_REDUCED: usize = 10 << 20;

/// The same by LL128 for each rank, since a second flight to more peers takes longer: on 4 GPUs one step of 256 KiB takes 6.0 us and two 5.7, of 512 KiB 9.3 and 7.3; on 8
/// GPUs of 64 KiB 5.6 and 7.0, of 128 KiB 7.8 and 7.5.
pub(in crate::schedule) const LINES_SAVED: usize = 75 << 10;

/// Bytes sent in two steps up to which lines are faster than staging: on 4 GPUs 8 MiB take 56 us and 60, 16 MiB 115 and 112.
pub(in crate::schedule) const LINES_TWICE_MOST: usize = 14 << 20;

/// Packs of a block that does both steps by LL128, where there may be more: a row for each of its warps in every step.
pub(in crate::schedule) const LINES_TWICE_PACKS: u32 = 512;

/// Blocks of folds by LL128 at most: a transport has so many LL128 channels, and each block holds a multiprocessor.
pub(in crate::schedule) const FOLDING_BLOCKS: u32 = 80;

/// The same of two ranks' folds whose warps take all their rows at once, in blocks of 256 threads: so many if they suffice. On 2 GPUs 1 MiB takes 6.2 us with 56 blocks, 6.8 with 80
/// and as much with 40.
pub(in crate::schedule) const FOLDING_FEW: u32 = 56;

/// The same if those do not suffice: the next call's blocks still have places beside them.
pub(in crate::schedule) const FOLDING_AT_ONCE: u32 = 64;

/// The same where they send and fold in turn. 8 MiB take 28.9 us with 55 blocks, 30.5 with 64.
pub(in crate::schedule) const FOLDING_IN_TURN: u32 = 57;

/// Rows that a warp folds at once, of two ranks.
pub(in crate::schedule) const FOLDED_ROWS: u32 = 5;

/// Bytes of a copy that one peer sends or gets by LL128 from which on more blocks are faster.
pub(in crate::schedule) const COPIED_FEW: usize = 128 << 10;

/// The same from which on fewer blocks with more warps each are.
pub(in crate::schedule) const COPIED_LONG: usize = 1 << 20;

/// The same from which on [`COPYING_BLOCKS`] are.
pub(in crate::schedule) const COPIED_LONGEST: usize = (3 << 20) + (1 << 19);

/// Blocks of such copies at most. With 64 an all-gather of 8 MiB takes 15.8 us, with 32 it takes 16.6.
pub(in crate::schedule) const COPYING_BLOCKS: u32 = 64;

/// The same of CPU threads: a guess, which nothing has measured.
pub(in crate::schedule) const HOST_SAVED: usize = 256 << 10;

/// Bytes to other domains that steps by domains save from which on they are taken. They have two more flights within a domain, 6 us through staging, in which an adapter of
/// 400 Gb/s carries 300 KB. Not yet measured: no adapter was there to do so.
pub(in crate::schedule) const FABRIC_SAVED: usize = 256 << 10;

/// Packs that a rank sends by LL128 while *go* is under way: 330 KiB, a microsecond of a GPU's links.
pub(in crate::schedule) const FIRST: u64 = 21120;

/// Threads of the blocks that send them: with eight blocks, eight rows for each warp but the first.
pub(in crate::schedule) const FIRST_THREADS: u32 = 384;

/// Blocks of bulk copies that fill a GPU's links.
pub(in crate::schedule) const BULK_BLOCKS: u32 = 8;

/// Blocks of a rank alone, as far as a GPU holds them, and packs of each at least, but of rows: two for each thread.
pub(in crate::schedule) const ALONE_BLOCKS: u32 = 1024;
pub(in crate::schedule) const ALONE_PACKS: u32 = 1024;

/// Packs of a block of a rank alone where there are more blocks than a GPU holds: so many that the start of one is nothing beside them.
pub(in crate::schedule) const NEAR_PACKS: usize = 4096;

/// Bytes on the wire from which on a rank alone whose hooks work by pack or element has a block for each part: of any hooks, of those that copy or compute, of
/// those that compute what is stored as it arrives, and two of those that narrow to 8-bit floats: from the larger on a thread has one pack, from the smaller on eight.
/// Of 16 MiB GELU takes 8.6 us with blocks of four packs a thread, 9.9 with 512 of 256 threads; a sum into the output takes 10.2 and 8.6. fp8 there and back of 16 MiB
/// takes 10.1 us with one pack a thread and 8.7 with eight, of 32 MiB 19.7 and 21.4.
pub(in crate::schedule) const LOCAL_LONG: usize = 64 << 20;
pub(in crate::schedule) const LOCAL_LONG_PACKS: usize = 24 << 20;
pub(in crate::schedule) const LOCAL_LONG_WORK: usize = 12 << 20;
pub(in crate::schedule) const LOCAL_LONG_NARROW: usize = 12 << 20;
pub(in crate::schedule) const LOCAL_NARROW: usize = 8 << 20;
pub(in crate::schedule) const LOCAL_THREADS: u32 = 128;

/// Below that, of hooks by pack: threads of a block, and blocks before any thread has a second pack. Of 512 KiB 128 blocks take 1.5 us and 32 take 1.9. A copy has
/// so many packs in flight that a quarter of what the GPU holds takes less time than all: 2.2 us and 2.6 of 4 MiB.
pub(in crate::schedule) const LOCAL_SHORT_THREADS: u32 = 256;
pub(in crate::schedule) const LOCAL_BLOCKS: u32 = 128;

/// Bytes that a rank sends in all from which on the copy engine is faster than any kernel.
pub(in crate::schedule) const COPY_LEAST: usize = 96 << 20;
