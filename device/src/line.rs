//! Flag-in-line exchange: small chunks without a fence, a barrier or a flag's own flight.
//!
//! A line is 16 bytes: 8 of data, then an 8-byte flag. It is stored and loaded by one 16-byte access, which NVLink carries as one
//! transaction, so whoever sees the flag sees the data (NCCL's LL and LL128 rest on the same fact). On the host the flag is stored
//! after the data, with release order.
//!
//! A flag is the channel's call number in the low 48 bits and a digest of kernel and size above. Numbers never return within the life
//! of a transport (2^48 calls), so a stale line is never taken for a fresh one, however long it was not written.
//!
//! There are two buffers for each (writer, channel), used in turn. No credit is needed **in an all-to-all**: a rank that writes call
//! `e + 2` has finished call `e + 1`, hence has received what the peer sent in `e + 1`, hence the peer had finished `e`, which last
//! read this buffer.

use crate::arch;
use crate::channel::Call;
use crate::ctx::{Consume, Ctx, Produce};
use crate::element::Element;
use crate::group::Group;
use crate::hooks::Hooks;
use crate::ops::Direct;
use crate::pack::Pack;
use crate::wait::{About, Flow, LOOK_NS, Stopped, Watch, kind, operation};

/// Most packs of one channel in one call.
pub const PACKS: u64 = 512;
/// Offset of a buffer's header line: the chunk's bytes, and the kernel in its flag. Read only to say what differs.
const HEADER: u64 = PACKS * 32;
/// Bytes of one buffer: two lines for each pack, and the header.
pub const BUFFER: u64 = HEADER + 128;
/// Bytes of both buffers of a channel.
pub const BUFFERS: u64 = 2 * BUFFER;

/// The flag of call number `number`: a digest of `kernel` and `payload` above it.
#[inline(always)]
const fn flag(number: u64, kernel: u64, payload: u64) -> u64 {
    let mix = (kernel ^ payload.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (number & 0xffff_ffff_ffff) | (mix >> 48) << 48
}

/// One block's part of an all-to-all: packs `first .. first + packs` of the chunk at `to` go out, as many for the chunk at `from` come
/// in. Both contexts carry the channel.
///
/// # Safety
/// This group alone works both ends of the channel; all its threads call.
#[inline(always)]
#[allow(clippy::too_many_arguments)] // one block's whole work
pub unsafe fn exchange<O: Direct, H: Hooks, G: Group>(
    group: &G,
    ops: &O,
    watch: &Watch,
    call: Call,
    to: &Ctx,
    from: &Ctx,
    first: usize,
    packs: usize,
    args: &H::Args<'_>,
) -> Flow {
    let channel = to.channel as u32;
    let (to_state, from_state) =
        (ops.line_state(to.peer as u32, channel), ops.line_state(from.peer as u32, channel));
    // SAFETY: live state, written last by the previous kernel on this channel.
    let (sent, received) = unsafe {
        (
            (&raw const (*to_state).sent).read_volatile() + 1,
            (&raw const (*from_state).received).read_volatile() + 1,
        )
    };
    if watch.poisoned() {
        return Err(Stopped);
    }
    let lanes = Pack::<H::Wire>::LANES;
    let (lane, step) = (group.lane() as usize, group.lanes() as usize);
    // SAFETY: the two buffers of the channel.
    let out = unsafe { ops.lines_out(to.peer as u32, channel).add(((sent & 1) * BUFFER) as usize) };
    let fresh = flag(sent, call.kernel, call.payload);
    if group.leads() {
        let size = [call.payload as u32, (call.payload >> 32) as u32];
        // SAFETY: the buffer's header, free as the module says.
        unsafe { arch::store_line(out.add(HEADER as usize), size, flag(sent, call.kernel, 0)) };
    }
    let mut s = lane;
    while s < packs {
        let words = H::produce(&Produce(at(to, lanes, first + s)), args).words();
        // SAFETY: pack `s` of the buffer, free as the module says; each pack is one thread's.
        unsafe {
            arch::store_line(out.add(32 * s), [words[0], words[1]], fresh);
            arch::store_line(out.add(32 * s + 16), [words[2], words[3]], fresh);
        }
        s += step;
    }
    // SAFETY: the two buffers of the channel.
    let input = unsafe { ops.lines_in(from.peer as u32, channel).add(((received & 1) * BUFFER) as usize) };
    let fresh = flag(received, call.kernel, call.payload);
    let about = About { peer: from.peer as u32, channel, operation: operation::RECEIVE };
    let mut whole = true;
    let mut s = lane;
    while s < packs {
        // SAFETY: pack `s` of the buffer.
        let Some(pack) = (unsafe { take::<O, H::Wire>(ops, watch, input.add(32 * s), fresh, about) }) else {
            whole = false;
            // SAFETY: the buffer's header.
            unsafe { compare::<O>(ops, watch, input.add(HEADER as usize), received, call, about) };
            break;
        };
        H::consume(&Consume(at(from, lanes, first + s)), args, pack);
        s += step;
    }
    let stopped = group.any(!whole);
    // First: the lanes that left may have done so because of a panic of this block, which the peers do not know of.
    watch.check_panic(ops)?;
    if stopped {
        return Err(Stopped);
    }
    if group.leads() {
        // SAFETY: live state, this block's own; all threads have read it before the sync above.
        unsafe {
            (&raw mut (*to_state).sent).write_volatile(sent);
            (&raw mut (*from_state).received).write_volatile(received);
        }
    }
    Ok(())
}

#[inline(always)]
fn at(place: &Ctx, lanes: usize, pack: usize) -> Ctx {
    let pos = pack * lanes;
    let valid = lanes.min(place.chunk_len - pos);
    place.at(pos, valid, valid == lanes && place.chunk_start.is_multiple_of(lanes))
}

/// A lane that found another call's flag: says what differs, unless somebody else has said something before.
///
/// # Safety
/// `header` is the header line of a live buffer.
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
    if (seen ^ expected) << 16 != 0 {
        return; // the peer's call has not begun: the wait expired
    }
    if seen != expected {
        watch.give_up(ops, kind::MISMATCH, about, expected >> 48, seen >> 48, 0);
    } else if payload != call.payload {
        let about = About { operation: operation::HEADER, ..about };
        watch.give_up(ops, kind::MISMATCH, about, call.payload, payload, 0);
    }
}

/// Waits for both lines of a pack.
///
/// # Safety
/// `at` is 32 bytes of a live buffer, aligned.
#[inline(always)]
unsafe fn take<O: Direct, W: Element>(
    ops: &O,
    watch: &Watch,
    at: *const u8,
    fresh: u64,
    about: About,
) -> Option<Pack<W>> {
    let (mut start, mut look, mut turn) = (0, 0, 0u32);
    loop {
        // SAFETY: the caller's contract.
        let ((a, f), (b, g)) = unsafe { (arch::load_line(at), arch::load_line(at.add(16))) };
        if f == fresh && g == fresh {
            return Some(Pack::from_words([a[0], a[1], b[0], b[1]]));
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
            if watch.aborted() {
                return None;
            }
            if (f ^ fresh) << 16 == 0 && f != fresh {
                return None; // another kernel's, or another size's
            }
            let age = now.wrapping_sub(start);
            if age >= watch.deadline_ns() {
                watch.give_up(ops, kind::EXPIRED, about, fresh & 0xffff_ffff_ffff, f & 0xffff_ffff_ffff, age);
                return None;
            }
        }
    }
}
