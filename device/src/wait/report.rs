//! The way out of a kernel: the first fault of a rank claims the abort word, fills the record, and tells the peers.

use super::{AbortRecord, About, Control, FILLED, abort_code, kind, operation};
use crate::arch;
use crate::atomic::{self, AcqRel, Modify, Relaxed, Release, System};
use crate::ops::Ops;

/// Ends the kernel that this thread runs from inside an operation of its transport: as [`Watch::give_up`](super::Watch::give_up), where no
/// [`Watch`](super::Watch) is at hand.
#[inline(always)]
pub fn give_up_here<O: Ops>(ops: &O, kind: u32, about: About, expected: u64, seen: u64, age_ns: u64) {
    if let Some((Control { abort, record, .. }, rank, block)) = arch::armed() {
        let About { peer, channel, operation } = about;
        give_up(ops, abort, record, rank, block, kind, peer, channel, operation, expected, seen, age_ns);
    }
}

/// As [`Watch::give_up`](super::Watch::give_up), for an operation of a transport that waits by itself: the wait has expired.
///
/// # Safety
/// `control` names live words.
pub unsafe fn expire<O: Ops>(
    ops: &O,
    control: &Control,
    about: About,
    expected: u64,
    seen: u64,
    age_ns: u64,
) {
    let (Control { abort, record, .. }, About { peer, channel, operation }) = (*control, about);
    let (rank, block) = (ops.rank(), arch::block_index());
    give_up(ops, abort, record, rank, block, kind::EXPIRED, peer, channel, operation, expected, seen, age_ns);
}

#[cold]
#[inline(never)]
#[allow(clippy::too_many_arguments)] // see the caller
pub(super) fn give_up<O: Ops>(
    ops: &O,
    abort: u64,
    record: u64,
    rank: u32,
    block: u32,
    kind: u32,
    peer: u32,
    channel: u32,
    operation: u32,
    expected: u64,
    seen: u64,
    age_ns: u64,
) {
    report(ops, abort, record, rank, block, kind, peer, channel, operation, expected, seen, age_ns, |_| {});
}

#[cold]
#[inline(never)]
#[allow(clippy::too_many_arguments)] // as for `give_up`
pub(super) fn give_up_at<O: Ops>(
    ops: &O,
    abort: u64,
    record: u64,
    rank: u32,
    block: u32,
    kind: u32,
    peer: u32,
    channel: u32,
    operation: u32,
    expected: u64,
    seen: u64,
    age_ns: u64,
    at: &'static core::panic::Location<'static>,
) {
    // SAFETY: called with the record's only writer.
    let place = |record| unsafe { write_place(record, at.file(), at.line(), at.column(), b"") };
    report(ops, abort, record, rank, block, kind, peer, channel, operation, expected, seen, age_ns, place);
}

/// Claims the abort word, fills the record, its place by `place`, and tells the peers; only the first of all callers does.
#[inline(always)]
#[allow(clippy::too_many_arguments)] // see the callers
fn report<O: Ops>(
    ops: &O,
    abort: u64,
    record: u64,
    rank: u32,
    block: u32,
    kind: u32,
    peer: u32,
    channel: u32,
    operation: u32,
    expected: u64,
    seen: u64,
    age_ns: u64,
    place: impl FnOnce(*mut AbortRecord),
) {
    let code = abort_code(rank, kind);
    if !claim(abort, code) {
        return;
    }
    let record = record as *mut AbortRecord;
    // SAFETY: the claim makes this thread the record's only writer; it is live by the contract of `Watch::begin`.
    unsafe {
        (&raw mut (*record).kind).write_volatile(kind);
        (&raw mut (*record).rank).write_volatile(rank);
        (&raw mut (*record).peer).write_volatile(peer);
        (&raw mut (*record).block).write_volatile(block);
        (&raw mut (*record).channel).write_volatile(channel);
        (&raw mut (*record).operation).write_volatile(operation);
        (&raw mut (*record).expected).write_volatile(expected);
        (&raw mut (*record).seen).write_volatile(seen);
        (&raw mut (*record).age_ns).write_volatile(age_ns);
        place(record);
        atomic::store::<System, Release, u32>(&raw mut (*record).state, FILLED);
    }
    raise_peers(ops, rank, code);
}

/// Writes a place in the source, and behind a zero what is said there: of a long name of a file the end, of a long message the beginning.
///
/// # Safety
/// `record` is live, and this thread is its only writer.
#[inline(always)]
unsafe fn write_place(record: *mut AbortRecord, file: &str, line: u32, column: u32, message: &[u8]) {
    const MOST: usize = AbortRecord::EMPTY.file.len();
    let name = file.len().min(if message.is_empty() { MOST } else { 96 });
    // SAFETY: the caller's contract; both parts, and the zero between them, are at most `MOST` bytes.
    unsafe {
        (&raw mut (*record).line).write_volatile(line);
        (&raw mut (*record).column).write_volatile(column);
        let to = (&raw mut (*record).file).cast::<u8>();
        write_bytes(to, file.as_ptr().add(file.len() - name), name);
        let mut len = name;
        if !message.is_empty() {
            to.add(name).write_volatile(0);
            let said = message.len().min(MOST - name - 1);
            write_bytes(to.add(name + 1), message.as_ptr(), said);
            len += 1 + said;
        }
        (&raw mut (*record).file_len).write_volatile(len as u32);
    }
}

/// # Safety
/// `len` bytes at `from` are valid for reading, at `to` for writing.
#[inline(always)]
unsafe fn write_bytes(to: *mut u8, from: *const u8, len: usize) {
    let mut i = 0;
    while i < len {
        // SAFETY: the caller's contract.
        unsafe { to.add(i).write_volatile(from.add(i).read()) };
        i += 1;
    }
}

/// Tells the peers if it is a panic of this rank that stops it: the thread that panicked could not.
#[cold]
#[inline(never)]
pub(super) fn pass_on_panic<O: Ops>(ops: &O, abort: u64, rank: u32) {
    // SAFETY: a live word, by the contract of `Watch::begin`.
    let code = unsafe { atomic::load::<System, Relaxed, u64>(abort as *const u64) };
    if code == abort_code(rank, kind::PANIC) {
        raise_peers(ops, rank, code);
    }
}

#[inline(always)]
fn raise_peers<O: Ops>(ops: &O, rank: u32, code: u64) {
    for peer in 0..ops.world() {
        if peer != rank {
            ops.raise_abort(peer, code);
        }
    }
}

/// Sets the abort word to `code` if nobody has; whether this call did.
#[inline(always)]
fn claim(abort: u64, code: u64) -> bool {
    // SAFETY: a live word, by the contract of `Watch::begin`.
    unsafe { <u64 as Modify<System, AcqRel>>::compare_exchange(abort as *mut u64, 0, code) == 0 }
}

/// Fills the record for a panic that says `message`, or the format `message` with `values`, if this is the first fault of the rank; whether it
/// was. Only then peers may be told of this rank: it has no record else.
///
/// # Safety
/// `control` names live words and a live record.
#[allow(clippy::too_many_arguments)] // as for `give_up`
pub unsafe fn record_panic(
    control: &Control,
    rank: u32,
    block: u32,
    file: &str,
    line: u32,
    column: u32,
    message: &[u8],
    values: &[u64],
) -> bool {
    if !claim(control.abort, abort_code(rank, kind::PANIC)) {
        return false;
    }
    let record = control.record as *mut AbortRecord;
    // SAFETY: the claim makes this thread the record's only writer; it is live by the contract of `Watch::begin`. `count` is no more than there are values, and
    // places for them.
    unsafe {
        (&raw mut (*record).kind).write_volatile(kind::PANIC);
        (&raw mut (*record).rank).write_volatile(rank);
        (&raw mut (*record).peer).write_volatile(rank);
        (&raw mut (*record).block).write_volatile(block);
        (&raw mut (*record).operation).write_volatile(operation::HOOK);
        write_place(record, file, line, column, message);
        let to = (&raw mut (*record).values).cast::<u64>();
        let count = values.len().min(AbortRecord::EMPTY.values.len());
        let mut i = 0;
        while i < count {
            to.add(i).write_volatile(values.as_ptr().add(i).read());
            i += 1;
        }
        (&raw mut (*record).value_count).write_volatile(count as u32);
        atomic::store::<System, Release, u32>(&raw mut (*record).state, FILLED);
    }
    true
}
