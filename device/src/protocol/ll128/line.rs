//! Flag-in-line exchange: small chunks without a fence, a barrier or a flag's own flight.
//!
//! A line is 128 bytes: 120 of data, then an 8-byte flag. Eight lanes store it, and load it, by one 16-byte access each, which NVLink
//! carries as one transaction, so whoever sees the flag sees the data (NCCL's LL128 rests on the same fact). A warp handles four lines at
//! a time, a row. On the host flags are stored after the data, with release order.
//!
//! A flag is the channel's call number in the low 48 bits and a digest of kernel and size above. Numbers never return within the life
//! of a transport (2^48 calls), so a stale line is never taken for a fresh one, however long it was not written; what stands where a
//! flag belongs was never data.
//!
//! Packs travel in the chunk's order, but those of `layout(transposed)` tile by tile where rows are whole packs: nine rows hold a
//! [tile](crate::tile::transpose) of up to 256, and channels take the tiles in turn. What both ends must agree on for that stands in the
//! flags' digest beside the size: [`Call::cut`].
//!
//! There are two buffers for each (writer, channel), used in turn, and two sets of channels:
//!
//! - Mutual schedules need no credit: a rank that writes call `e + 2` has finished call `e + 1`, hence has received what the peer sent in
//!   `e + 1`, hence the peer had finished `e`, which last read this buffer.
//! - Others may go one way, so receivers write the number of the last call they are done with into the sender's memory (behind
//!   the header of the buffer that goes the other way), and a sender waits for call `e` before it writes call `e + 2`.

use super::load::{Load, rows};
use super::row;
use crate::arch;
#[cfg(target_arch = "nvptx64")]
use crate::atomic::Relaxed;
#[cfg(not(target_arch = "nvptx64"))]
use crate::atomic::Release;
use crate::atomic::{self, System};
use crate::ctx::{Consume, Ctx, Produce};
use crate::element::Element;
use crate::group::{Group, Warp};
use crate::hooks::Hooks;
use crate::ops::Direct;
use crate::pack::{Pack, unroll};
use crate::protocol::simple::channel::Call;
use crate::tile::{self, Sink, Source, Team, WARP, transpose};
use crate::wait::{About, Watch, kind, operation};

/// Most packs of one channel in one call.
pub const PACKS: u64 = 12240;
/// Packs of a row: what a warp stores at once.
pub const ROW_PACKS: u32 = row::PACKS;
/// Offset of a buffer's header: 8 bytes of the chunk's size and cut, then a flag, the kernel in it. Read only to say what differs.
pub(super) const HEADER: u64 = PACKS / row::PACKS as u64 * row::BYTES as u64;
/// Offset of the number of the last call with credits that the writer is done with; in the first buffer alone.
const DONE: u64 = HEADER + 64;
/// Bytes of one buffer: the rows, and the header.
pub const BUFFER: u64 = HEADER + 128;
/// Bytes of both buffers of a channel.
pub const BUFFERS: u64 = 2 * BUFFER;

const _: () = assert!(PACKS.is_multiple_of(row::PACKS as u64), "a buffer's rows are whole");

/// The flag of call number `number`: a digest of `kernel` and `size` above it.
#[inline(always)]
pub(super) const fn flag(number: u64, kernel: u64, size: u64) -> u64 {
    let mix = (kernel ^ size.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (number & 0xffff_ffff_ffff) | (mix >> 48) << 48
}

/// A team's work with one peer in one call: part of the chunk at `place`, by the LL128 channel `channel`.
pub(crate) struct Line<'k, O> {
    pub ops: &'k O,
    pub watch: &'k Watch,
    pub team: Team,
    pub place: Ctx,
    pub load: Load,
    pub channel: u32,
    /// Calls before this one: a load that may be under way.
    pub calls: u64,
    pub call: Call,
}

/// Where a rank's rows go.
pub(crate) trait Outlet<W: Element> {
    /// Whether this rank keeps what it produces as well.
    const KEEPS: bool = false;
    /// Calls `f` for each peer: where its region is, and the calls before this one.
    fn each(&self, f: impl FnMut(u64, u64));
    /// Keeps what was produced at `ctx`.
    #[inline(always)]
    fn keep(&self, _ctx: Ctx, _pack: Pack<W>) {}
}

/// One peer: where its region is, and the calls before this one.
pub(crate) struct Single {
    pub base: u64,
    pub calls: u64,
}

impl<W: Element> Outlet<W> for Single {
    #[inline(always)]
    fn each(&self, mut f: impl FnMut(u64, u64)) {
        f(self.base, self.calls);
    }
}

/// Rows of a bundle.
pub(super) const BUNDLE: usize = 4;

/// Whether hooks leave registers for bundles.
pub(crate) const fn bundles<H: Hooks>() -> bool {
    !H::TRANSPOSED && <tile::FourOrOne<H> as tile::Unroll>::PACKS == BUNDLE
}

impl<O: Direct> Line<'_, O> {
    pub(crate) fn peer(&self) -> u32 {
        self.place.peer as u32
    }

    /// Offset of the buffer of call `number` in the channel's two.
    #[inline(always)]
    pub(super) const fn buffer(number: u64) -> usize {
        ((number & 1) * BUFFER) as usize
    }

    /// Rows that are taken in bundles, if any `may` be: those of whole packs, where there are more rows than warps.
    #[inline(always)]
    fn bundled<W: Element>(&self, may: bool) -> u32 {
        if !may {
            return 0;
        }
        let whole = tile::whole_until(&self.place, Pack::<W>::LANES, self.load.first, self.load.packs);
        if rows(self.load.packs) <= self.team.lanes / WARP { 0 } else { whole / row::PACKS }
    }

    /// The context of the pack in `slot` of the `k`th row from `row` on, which is whole.
    #[inline(always)]
    pub(super) fn whole<W: Element>(&self, row: u32, k: usize, slot: u32) -> Ctx {
        // Widened before `k` is added, so that a thread's packs keep constant distances.
        let pack = self.load.first + (row * row::PACKS + slot) as usize + k * row::PACKS as usize;
        tile::whole(&self.place, Pack::<W>::LANES, pack)
    }

    /// The context of pack `s`, whole or not.
    #[inline(always)]
    pub(super) fn any<W: Element>(&self, s: u32) -> Ctx {
        let lanes = Pack::<W>::LANES;
        let whole = s < tile::whole_until(&self.place, lanes, self.load.first, self.load.packs);
        tile::any(&self.place, lanes, self.load.first + s as usize, whole)
    }

    /// Stores what `produce` gives.
    ///
    /// # Safety
    /// The peer is done with the call before the last; this block alone sends on the channel.
    #[inline(always)]
    pub unsafe fn send<H: Hooks>(&self, args: &H::Args<'_>) {
        // Nothing of this is looked at before the first packs are asked for.
        let to = Single { base: self.ops.peer_base(self.peer()), calls: self.calls };
        // SAFETY: the caller's contract.
        unsafe { self.send_to::<H, _>(args, &to) };
    }

    /// As [`Line::send`], to wherever `to` says.
    ///
    /// # Safety
    /// As there, of each peer.
    #[inline(always)]
    pub unsafe fn send_to<H: Hooks, T: Outlet<H::Wire>>(&self, args: &H::Args<'_>, to: &T) {
        let hooks = tile::Module::<H>(args);
        // SAFETY: the caller's contract.
        unsafe {
            match H::TRANSPOSED && self.load.tiles > 0 {
                true => self.send_tiles(to, &hooks),
                false => self.send_rows(to, &hooks, bundles::<H>()),
            }
        }
    }

    /// Stores row by row what `source` gives, in `bundles` where hooks can work so.
    ///
    /// # Safety
    /// As for [`Line::send_to`].
    #[inline(always)]
    pub unsafe fn send_rows<W: Element, S: Source<W>, T: Outlet<W>>(
        &self,
        to: &T,
        source: &S,
        bundles: bool,
    ) {
        let (warp, warps) = (self.team.lane / WARP, self.team.lanes / WARP);
        let bundled = self.bundled::<W>(bundles);
        let mut row = warp * BUNDLE as u32;
        while row < bundled {
            // SAFETY: as for one row.
            unsafe { self.send_bundle::<W>(to, row, bundled, source) };
            row += warps * BUNDLE as u32;
        }
        // The last warps have the fewest bundles.
        row = bundled + (warps - 1 - warp);
        while row < rows(self.load.packs) {
            // SAFETY: the caller's contract; each row is one warp's.
            unsafe { self.send_row::<W, S, T>(to, row, source) };
            row += warps;
        }
    }

    /// Stores row `row`, whole or not.
    ///
    /// # Safety
    /// The buffer of this call is free; the row is this warp's.
    #[inline(always)]
    pub(super) unsafe fn send_row<W: Element, S: Source<W>, T: Outlet<W>>(
        &self,
        to: &T,
        row: u32,
        source: &S,
    ) {
        row::each_lane(|slot| {
            let s = row * row::PACKS + slot;
            let mut pack = Pack::ZERO;
            if slot < row::PACKS && s < self.load.packs {
                let ctx = self.any::<W>(s);
                pack =
                    if S::TRANSPOSED { transpose::gather(&ctx, source) } else { source.pack(&Produce(ctx)) };
            }
            // SAFETY: the caller's contract.
            unsafe { self.put::<1, _, _>(to, row, row + 1, slot, [pack.words()]) };
            // Peers wait for theirs.
            if T::KEEPS && slot < row::PACKS && s < self.load.packs {
                to.keep(self.any::<W>(s), pack);
            }
        });
        // SAFETY: as above.
        unsafe { self.seal::<1, _, _>(to, row, row + 1) };
    }

    /// Stores the rows of whole packs from `row` on that lie before `end`, up to [`BUNDLE`].
    ///
    /// # Safety
    /// The buffer of this call is free; these rows are this warp's.
    #[inline(always)]
    pub(super) unsafe fn send_bundle<W: Element>(
        &self,
        to: &impl Outlet<W>,
        row: u32,
        end: u32,
        source: &impl Source<W>,
    ) {
        row::each_lane(|slot| {
            // Constant indices alone: an array that is indexed in a loop goes to local memory when the hook is long.
            let mut packs = [Pack::<W>::ZERO; BUNDLE];
            if slot < row::PACKS {
                if row + BUNDLE as u32 <= end {
                    // The last one first: where that is inside, all are, and what hooks load is loaded together.
                    let last = self.whole::<W>(row, BUNDLE - 1, slot).index();
                    unroll!(BUNDLE = 4, |K| packs[BUNDLE - 1 - K] =
                        source.pack(&Produce(self.whole::<W>(row, BUNDLE - 1 - K, slot).before(last))));
                } else {
                    unroll!(BUNDLE = 4, |K| if row + (K as u32) < end {
                        packs[K] = source.pack(&Produce(self.whole::<W>(row, K, slot)));
                    });
                }
            }
            // SAFETY: the caller's contract.
            unsafe { self.put::<BUNDLE, _, _>(to, row, end, slot, packs.map(Pack::words)) };
            // Peers wait for theirs.
            self.keep(to, row, end, slot, packs);
        });
        // SAFETY: the caller's contract.
        unsafe { self.seal::<BUNDLE, _, _>(to, row, end) };
    }

    /// Keeps whole packs of the lane of `slot`, of the rows from `row` on that lie before `end`.
    #[inline(always)]
    fn keep<W: Element, T: Outlet<W>>(
        &self,
        to: &T,
        row: u32,
        end: u32,
        slot: u32,
        packs: [Pack<W>; BUNDLE],
    ) {
        if T::KEEPS && slot < row::PACKS {
            unroll!(BUNDLE = 4, |K| if row + (K as u32) < end {
                to.keep(self.whole::<W>(row, K, slot), packs[K]);
            });
        }
    }

    /// Stores what the lane of `slot` has for the `U` rows from `row` on, as far as they lie before `end`; and before the first row what
    /// says whose call this is. All lanes of a warp together.
    ///
    /// # Safety
    /// The buffer of this call is free; these rows are this warp's.
    #[inline(always)]
    pub(super) unsafe fn put<const U: usize, W: Element, T: Outlet<W>>(
        &self,
        to: &T,
        row: u32,
        end: u32,
        slot: u32,
        packs: [[u32; 4]; U],
    ) {
        let (kernel, size) = (self.call.kernel, self.call.size());
        to.each(|base, calls| {
            let number = arch::late(calls) + 1;
            // SAFETY: the two buffers of the channel.
            let out = unsafe { self.ops.lines_out(arch::late(base), self.channel).add(Self::buffer(number)) };
            if row == 0 && slot == 0 {
                let words = [size as u32, (size >> 32) as u32];
                // SAFETY: the buffer's header, free by the caller's contract.
                unsafe { arch::store_line(out.add(HEADER as usize), words, flag(number, kernel, 0)) };
            }
            let mut words = [[0; 4]; U];
            unroll!(U <= 8, |K| words[K] = row::dressed(packs[K], flag(number, kernel, size)));
            // Without a lane's pack there must be no flags.
            let end = if row::whole() { end } else { row };
            unroll!(U <= 8, |K| if row + (K as u32) < end {
                // SAFETY: a row of the buffer, by the caller's contract.
                unsafe { row::store(out.add(row as usize * row::BYTES + K * row::BYTES), slot, words[K]) };
            });
        });
    }

    /// Ends the rows that [`Line::put`] stored.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(super) unsafe fn seal<const U: usize, W: Element, T: Outlet<W>>(&self, to: &T, row: u32, end: u32) {
        if cfg!(target_arch = "nvptx64") {
            return;
        }
        let (kernel, size) = (self.call.kernel, self.call.size());
        to.each(|base, calls| {
            let number = calls + 1;
            unroll!(U <= 8, |K| if row + (K as u32) < end {
                // SAFETY: as there.
                unsafe {
                    let out = self.ops.lines_out(base, self.channel).add(Self::buffer(number));
                    let at = out.add(row as usize * row::BYTES + K * row::BYTES);
                    row::seal(at, flag(number, kernel, size));
                }
            });
        });
    }

    /// Hands what arrives to `consume`; whether all of it came.
    ///
    /// # Safety
    /// This block alone receives on the channel.
    #[inline(always)]
    pub unsafe fn receive<H: Hooks>(&self, args: &H::Args<'_>) -> bool {
        let hooks = tile::Module::<H>(args);
        if H::TRANSPOSED && self.load.tiles > 0 {
            let input = self.input();
            // As many rows at a time as otherwise.
            let many = <tile::FourOrOne<H> as tile::Unroll>::PACKS == BUNDLE
                && self.load.rows() > self.team.lanes / WARP;
            // SAFETY: the channel's buffer.
            return unsafe {
                match many {
                    true => self.receive_tiles::<BUNDLE, _>(input, &hooks),
                    false => self.receive_tiles::<1, _>(input, &hooks),
                }
            };
        }
        // SAFETY: the caller's contract.
        unsafe { self.receive_rows(&hooks, bundles::<H>()) }
    }

    /// The buffer of this call.
    #[inline(always)]
    pub(super) fn input(&self) -> *const u8 {
        self.input_of(self.peer())
    }

    /// That of `peer`.
    #[inline(always)]
    pub(super) fn input_of(&self, peer: u32) -> *const u8 {
        // SAFETY: one of the channel's two.
        unsafe { self.ops.lines_in(peer, self.channel).add(Self::buffer(self.calls + 1)) }
    }

    /// Hands what arrives row by row to `sink`, in `bundles` where hooks can work so; whether all of it came.
    ///
    /// # Safety
    /// As for [`Line::receive`].
    #[inline(always)]
    pub unsafe fn receive_rows<W: Element>(&self, sink: &impl Sink<W>, bundles: bool) -> bool {
        let (warp, warps, input) = (self.team.lane / WARP, self.team.lanes / WARP, self.input());
        let bundled = self.bundled::<W>(bundles);
        let mut row = warp * BUNDLE as u32;
        while row < bundled {
            // SAFETY: rows of the buffer.
            if !unsafe { self.take_bundle::<W>(input, row, bundled, sink) } {
                return false;
            }
            row += warps * BUNDLE as u32;
        }
        // The last warps have the fewest bundles.
        row = bundled + (warps - 1 - warp);
        while row < rows(self.load.packs) {
            // SAFETY: a row of the buffer.
            let Some([found]) = (unsafe { self.poll::<1>(input, row, row + 1) }) else { return false };
            row::each_lane(|slot| {
                let (s, words) = (row * row::PACKS + slot, found.pack(slot));
                if slot < row::PACKS && s < self.load.packs {
                    sink.take(&Consume(self.any::<W>(s)), Pack::from_words(words));
                }
            });
            row += warps;
        }
        true
    }

    /// Takes the rows of whole packs from `row` on that lie before `end`, up to [`BUNDLE`]; whether they came.
    ///
    /// # Safety
    /// `input` is the channel's buffer of this call.
    #[inline(always)]
    unsafe fn take_bundle<W: Element>(
        &self,
        input: *const u8,
        row: u32,
        end: u32,
        sink: &impl Sink<W>,
    ) -> bool {
        // SAFETY: rows of the buffer.
        let Some(found) = (unsafe { self.poll::<BUNDLE>(input, row, end) }) else { return false };
        row::each_lane(|slot| {
            let mut packs = [Pack::<W>::ZERO; BUNDLE];
            unroll!(BUNDLE = 4, |K| packs[K] = Pack::from_words(found[K].pack(slot)));
            if slot < row::PACKS && row + BUNDLE as u32 <= end {
                let last = self.whole::<W>(row, BUNDLE - 1, slot).index();
                unroll!(BUNDLE = 4, |K| {
                    let ctx = self.whole::<W>(row, BUNDLE - 1 - K, slot).before(last);
                    sink.take(&Consume(ctx), packs[BUNDLE - 1 - K]);
                });
            } else if slot < row::PACKS {
                unroll!(BUNDLE = 4, |K| if row + (K as u32) < end {
                    sink.take(&Consume(self.whole::<W>(row, K, slot)), packs[K]);
                });
            }
        });
        true
    }

    /// Waits until the peer is done with the call before the last one; whether it is.
    ///
    /// # Safety
    /// The channel is one of those with credits.
    #[inline(always)]
    pub unsafe fn credit(&self) -> bool {
        let needed = self.calls.wrapping_sub(1);
        // SAFETY: the credit's word in the first buffer of the other direction.
        let at = unsafe { self.ops.lines_in(self.peer(), self.channel).add(DONE as usize) }.cast::<u64>();
        // SAFETY: a live word that the peer writes by atomics alone.
        let (_, fault) = unsafe { self.watch.poll(at, needed, operation::SEND) };
        if fault.kind == kind::EXPIRED {
            let about = About { peer: self.peer(), channel: self.channel, operation: operation::SEND };
            self.watch.give_up(self.ops, fault.kind, about, fault.expected, fault.seen, fault.age_ns);
        }
        // Each lane has looked for itself, and one may have been the last before the deadline: a warp sends as a whole or not at all.
        !Warp.any(fault.kind != 0)
    }

    /// Tells the peer that this call's lines have been read. Called by one thread, after the block's sync.
    ///
    /// # Safety
    /// The channel is one of those with credits.
    #[inline(always)]
    pub unsafe fn give_credit(&self) {
        // SAFETY: the credit's word; this rank alone writes it.
        unsafe {
            let base = self.ops.peer_base(self.peer());
            let at = self.ops.lines_out(base, self.channel).add(DONE as usize).cast::<u64>();
            // On a GPU no fence: what must come first are loads, and every thread had their values before the block's sync. A fence
            // would wait for the output's stores, which are none of the peer's business. (NCCL's LL tells its head so, too.)
            #[cfg(target_arch = "nvptx64")]
            atomic::store::<System, Relaxed, u64>(at, self.calls + 1);
            #[cfg(not(target_arch = "nvptx64"))]
            atomic::store::<System, Release, u64>(at, self.calls + 1);
        }
    }
}
