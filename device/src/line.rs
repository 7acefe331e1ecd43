//! Flag-in-line exchange: small chunks without a fence, a barrier or a flag's own flight.
//!
//! A line is 16 bytes: 8 of data, then an 8-byte flag. It is stored and loaded by one 16-byte access, which NVLink carries as one
//! transaction, so whoever sees the flag sees the data (NCCL's LL and LL128 rest on the same fact). On the host the flag is stored
//! after the data, with release order.
//!
//! A flag is the channel's call number in the low 48 bits and a digest of kernel and size above. Numbers never return within the life
//! of a transport (2^48 calls), so a stale line is never taken for a fresh one, however long it was not written.
//!
//! There are two buffers for each (writer, channel), used in turn, and two sets of channels:
//!
//! - All-to-alls need no credit: a rank that writes call `e + 2` has finished call `e + 1`, hence has received what the peer sent in
//!   `e + 1`, hence the peer had finished `e`, which last read this buffer.
//! - `sendrecv` may go one way, so its receivers write the number of the last call they are done with into the sender's memory (behind
//!   the header of the buffer that goes the other way), and a sender waits for call `e` before it writes call `e + 2`.

use crate::arch;
#[cfg(target_arch = "nvptx64")]
use crate::atomic::Relaxed;
#[cfg(not(target_arch = "nvptx64"))]
use crate::atomic::Release;
use crate::atomic::{self, System};
use crate::channel::Call;
use crate::ctx::{Consume, Ctx};
use crate::element::Element;
use crate::hooks::Hooks;
use crate::ops::Direct;
use crate::pack::{Pack, unroll};
use crate::schedule::span::{self, Sink, Team, WARP};
use crate::wait::{About, LOOK_NS, Watch, kind, operation};

/// Most packs of one channel in one call.
pub const PACKS: u64 = 2048;
/// Offset of a buffer's header line: the chunk's bytes, and the kernel in its flag. Read only to say what differs.
const HEADER: u64 = PACKS * 32;
/// Offset of the number of the last `sendrecv` call that the writer is done with; in the first buffer alone.
const DONE: u64 = HEADER + 64;
/// Bytes of one buffer: two lines for each pack, and the header.
pub const BUFFER: u64 = HEADER + 128;
/// Bytes of both buffers of a channel.
pub const BUFFERS: u64 = 2 * BUFFER;

/// Offset of a pack's first line; the second stands [`HALF`] behind it. 32 packs, a warp's, have their first lines side by side, then
/// their second ones, so that one access of a warp covers 512 bytes without gaps.
#[inline(always)]
const fn pack_at(s: u32) -> usize {
    16 * ((s & !31) * 2 + (s & 31)) as usize
}

/// Offset of the pack `k` warps behind `s`: at a constant distance where a warp has 32 threads.
#[inline(always)]
const fn ahead(s: u32, k: usize) -> usize {
    if WARP == 32 { pack_at(s) + k * 1024 } else { pack_at(span::nth(s, k)) }
}

/// From a pack's first line to its second.
const HALF: usize = 512;

/// The flag of call number `number`: a digest of `kernel` and `payload` above it.
#[inline(always)]
const fn flag(number: u64, kernel: u64, payload: u64) -> u64 {
    let mix = (kernel ^ payload.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (number & 0xffff_ffff_ffff) | (mix >> 48) << 48
}

/// A team's work with one peer in one call: packs `first .. first + packs` of the chunk at `place`, by the line channel `channel`.
pub(crate) struct Line<'k, O> {
    pub ops: &'k O,
    pub watch: &'k Watch,
    pub team: Team,
    pub place: Ctx,
    pub first: usize,
    pub packs: u32,
    pub channel: u32,
    /// Number of the call.
    pub number: u64,
    pub call: Call,
}

impl<O: Direct> Line<'_, O> {
    fn peer(&self) -> u32 {
        self.place.peer as u32
    }

    /// Stores what `produce` gives.
    ///
    /// # Safety
    /// The peer is done with the call before the last; this block alone sends on the channel.
    #[inline(always)]
    pub unsafe fn send<H: Hooks>(&self, args: &H::Args<'_>) {
        let Call { kernel, payload } = self.call;
        // SAFETY: the two buffers of the channel.
        let out = unsafe {
            self.ops.lines_out(self.peer(), self.channel).add(((self.number & 1) * BUFFER) as usize)
        };
        if self.team.lane == 0 {
            let size = [payload as u32, (payload >> 32) as u32];
            // SAFETY: the buffer's header, free by the caller's contract.
            unsafe { arch::store_line(out.add(HEADER as usize), size, flag(self.number, kernel, 0)) };
        }
        let fresh = flag(self.number, kernel, payload);
        let hooks = span::Module::<H>(args);
        span::produce::<span::FourOrOne<H>, _, _>(
            self.team,
            &self.place,
            self.first,
            self.packs,
            &hooks,
            |s, _, pack| {
                let words = pack.words();
                // SAFETY: pack `s` of the buffer, free by the caller's contract; each pack is one thread's.
                unsafe {
                    arch::store_line(out.add(pack_at(s)), [words[0], words[1]], fresh);
                    arch::store_line(out.add(pack_at(s) + HALF), [words[2], words[3]], fresh);
                }
            },
        );
    }

    /// Hands what arrives to `consume`; whether all of it came.
    ///
    /// # Safety
    /// This block alone receives on the channel.
    #[inline(always)]
    pub unsafe fn receive<H: Hooks>(&self, args: &H::Args<'_>) -> bool {
        let lanes = Pack::<H::Wire>::LANES;
        let whole = span::whole_until(&self.place, lanes, self.first, self.packs);
        // SAFETY: the two buffers of the channel.
        let input = unsafe {
            self.ops.lines_in(self.peer(), self.channel).add(((self.number & 1) * BUFFER) as usize)
        };
        let hooks = span::Module::<H>(args);
        let mut s = self.team.lane;
        if <span::FourOrOne<H> as span::Unroll>::PACKS == 4 {
            let end = span::bundled::<4>(self.team, self.packs, whole);
            // SAFETY: the buffer above.
            if !unsafe { self.take_unrolled::<4, H::Wire>(end, input, &hooks) } {
                return false;
            }
            s += end;
        }
        while s < self.packs {
            // SAFETY: pack `s` of the buffer.
            let Some([pack]) = (unsafe { self.poll::<1, H::Wire>(input, s, self.packs) }) else {
                return false;
            };
            let ctx = span::any(&self.place, lanes, self.first + s as usize, s < whole);
            hooks.take(&Consume(ctx), pack);
            s += self.team.lanes;
        }
        true
    }

    /// Takes whole packs, `U` at a time; whether they came.
    ///
    /// # Safety
    /// `input` is the channel's buffer of this call.
    #[inline(always)]
    unsafe fn take_unrolled<const U: usize, W: Element>(
        &self,
        end: u32,
        input: *const u8,
        sink: &impl Sink<W>,
    ) -> bool {
        let at = |s: u32, k: usize| {
            span::whole(&self.place, Pack::<W>::LANES, self.first + s as usize + k * WARP as usize)
        };
        let mut s = self.team.bundle::<U>();
        while s < end {
            // SAFETY: packs of the buffer.
            let Some(packs) = (unsafe { self.poll::<U, W>(input, s, end) }) else { return false };
            if span::nth(s, U - 1) < end {
                // The last one first: where that is inside, all are, and what hooks load is loaded together.
                let last = at(s, U - 1).index();
                unroll!(U, |K| sink.take(&Consume(at(s, U - 1 - K).before(last)), packs[U - 1 - K]));
            } else {
                unroll!(U, |K| if span::nth(s, K) < end {
                    sink.take(&Consume(at(s, K)), packs[K]);
                });
            }
            s += self.team.stride::<U>();
        }
        true
    }

    /// Waits for `U` packs from `s` on, a warp's width apart, as far as they lie before `end`.
    ///
    /// # Safety
    /// They lie in the buffer `input`.
    #[inline(always)]
    unsafe fn poll<const U: usize, W: Element>(
        &self,
        input: *const u8,
        s: u32,
        end: u32,
    ) -> Option<[Pack<W>; U]> {
        let fresh = flag(self.number, self.call.kernel, self.call.payload);
        let (mut start, mut look, mut turn) = (0, 0, 0u32);
        loop {
            let mut packs = [Pack::<W>::ZERO; U];
            let mut odd = fresh;
            unroll!(U, |K| if span::nth(s, K) < end {
                // SAFETY: the caller's contract.
                let ((a, f), (b, g)) = unsafe {
                    let at = input.add(ahead(s, K));
                    (arch::load_line(at), arch::load_line(at.add(HALF)))
                };
                odd = if f != fresh {
                    f
                } else if g != fresh {
                    g
                } else {
                    odd
                };
                packs[K] = Pack::from_words([a[0], a[1], b[0], b[1]]);
            });
            if odd == fresh {
                return Some(packs);
            }
            arch::relax(turn);
            turn = turn.saturating_add(1);
            if !turn.is_multiple_of(64) {
                continue;
            }
            let now = arch::now_ns();
            if start == 0 {
                (start, look) = (now, now);
            }
            if now.wrapping_sub(look) >= LOOK_NS {
                look = now;
                // SAFETY: the buffer's header.
                if unsafe { self.gives_up(input.add(HEADER as usize), odd, now.wrapping_sub(start)) } {
                    return None;
                }
            }
        }
    }

    /// Whether a wait that found the flag `odd` ends: aborted, expired, or another call's line. Says why, unless somebody has.
    ///
    /// # Safety
    /// `header` is the header line of a live buffer.
    #[inline(always)]
    unsafe fn gives_up(&self, header: *const u8, odd: u64, age: u64) -> bool {
        if self.watch.aborted() {
            return true;
        }
        let fresh = flag(self.number, self.call.kernel, self.call.payload);
        let about = About { peer: self.peer(), channel: self.channel, operation: operation::RECEIVE };
        if (odd ^ fresh) << 16 == 0 && odd != fresh {
            // SAFETY: the caller's contract.
            unsafe { compare(self.ops, self.watch, header, self.number, self.call, about) };
            return true;
        }
        let expired = age >= self.watch.deadline_ns();
        if expired {
            let (expected, seen) = (fresh & 0xffff_ffff_ffff, odd & 0xffff_ffff_ffff);
            self.watch.give_up(self.ops, kind::EXPIRED, about, expected, seen, age);
        }
        expired
    }

    /// Waits until the peer is done with the call before the last one; whether it is.
    ///
    /// # Safety
    /// The channel is one of `sendrecv`.
    #[inline(always)]
    pub unsafe fn credit(&self) -> bool {
        let needed = self.number.wrapping_sub(2);
        // SAFETY: the credit's word in the first buffer of the other direction.
        let at = unsafe { self.ops.lines_in(self.peer(), self.channel).add(DONE as usize) }.cast::<u64>();
        // SAFETY: a live word that the peer writes by atomics alone.
        let (_, fault) = unsafe { self.watch.poll(at, needed, operation::SEND) };
        if fault.kind == kind::EXPIRED {
            let about = About { peer: self.peer(), channel: self.channel, operation: operation::SEND };
            self.watch.give_up(self.ops, fault.kind, about, fault.expected, fault.seen, fault.age_ns);
        }
        fault.kind == 0
    }

    /// Tells the peer that this call's lines have been read. Called by one thread, after the block's sync.
    ///
    /// # Safety
    /// The channel is one of `sendrecv`.
    #[inline(always)]
    pub unsafe fn give_credit(&self) {
        // SAFETY: the credit's word; this rank alone writes it.
        unsafe {
            let at = self.ops.lines_out(self.peer(), self.channel).add(DONE as usize).cast::<u64>();
            // On a GPU no fence: what must come first are loads, and every thread had their values before the block's sync. A fence
            // would wait for the output's stores, which are none of the peer's business. (NCCL's LL tells its head so, too.)
            #[cfg(target_arch = "nvptx64")]
            atomic::store::<System, Relaxed, u64>(at, self.number);
            #[cfg(not(target_arch = "nvptx64"))]
            atomic::store::<System, Release, u64>(at, self.number);
        }
    }
}

/// A lane that found another call's flag: says what differs, unless somebody else has said something before.
///
/// # Safety
/// `header` is the header line of a live buffer.
#[cold]
#[inline(always)]
unsafe fn compare<O: Direct>(
    ops: &O,
    watch: &Watch,
    header: *const u8,
    number: u64,
    call: Call,
    about: About,
) {
    // SAFETY: the caller's contract.
    let (size, seen) = unsafe { arch::load_line(header) };
    let expected = flag(number, call.kernel, 0);
    let payload = u64::from(size[0]) | u64::from(size[1]) << 32;
    if seen != expected {
        watch.give_up(ops, kind::MISMATCH, about, expected >> 48, seen >> 48, 0);
    } else {
        let about = About { operation: operation::HEADER, ..about };
        watch.give_up(ops, kind::MISMATCH, about, call.payload, payload, 0);
    }
}
