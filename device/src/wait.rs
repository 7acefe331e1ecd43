//! Waiting with a deadline, and what is left behind when it expires.
//!
//! The first thread of a rank that gives up claims the rank's abort word, fills the [`AbortRecord`] and raises the abort words of
//! all peers. Every other wait sees its abort word within [`LOOK_NS`] and leaves. A loop that gave up does no further `put` or
//! `signal`: otherwise the fault would look like success to a peer. The abort word stays set, so kernels launched later leave at
//! once, until the transport is agreed anew.

// By path, since the model checker's test compiles this file from elsewhere.
#[path = "wait/prologue.rs"]
mod prologue;
#[path = "wait/record.rs"]
mod record;
#[path = "wait/report.rs"]
mod report;

use crate::arch;
use crate::atomic::{self, Acquire, Relaxed, System};
use crate::group::Group;
use crate::ops::{Line, Ops};

pub(crate) use prologue::{Ahead, Armed, Arrive, Behind, FirstTurn, LateWatch};
pub use record::{AbortRecord, Control, FILLED, abort_code, kind, operation, read_abort_code};
pub use report::{expire, give_up_here, record_panic};
use report::{give_up, give_up_at, pass_on_panic};

/// How often a spinning thread looks at the clock and the abort word, in nanoseconds: a look costs a read of device memory.
pub const LOOK_NS: u64 = 10_000;

/// Looks at a word between two looks at the clock, which is slow to read on a GPU.
const LOOKS: u32 = if cfg!(target_arch = "nvptx64") { 8 } else { 1 };

/// The kernel was aborted. Return it from a schedule with `?`; the host knows the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

/// Outcome of everything that may wait.
pub type Flow<T = ()> = Result<T, Stopped>;

/// What a wait is about, for the record.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// The rank waited for.
    pub peer: u32,
    /// Channel or signal.
    pub channel: u32,
    /// See [`operation`].
    pub operation: u32,
}

/// What ended a wait. Plain values, so that it stays in registers.
#[derive(Clone, Copy)]
pub(crate) struct Fault {
    /// 0: nothing; [`ABORTED`]; or see [`kind`].
    pub kind: u32,
    /// See [`operation`].
    pub operation: u32,
    /// As in the record.
    pub expected: u64,
    /// As in the record.
    pub seen: u64,
    /// As in the record.
    pub age_ns: u64,
}

/// The abort word was raised by somebody else.
pub(crate) const ABORTED: u32 = u32::MAX;

impl Fault {
    pub(crate) const NONE: Self = Fault { kind: 0, operation: 0, expected: 0, seen: 0, age_ns: 0 };
}

/// A block's view of the kernel's control words.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    control: Control,
    rank: u32,
    block: u32,
    /// The abort word's lower half (never 0 in a raised word) at the start; the leader's alone unless begun by [`Watch::begin_all`].
    /// It lives as long as the block: half a word is one register less.
    poison: u32,
    behind: Behind,
}

impl Watch {
    /// Starts a block, behind what precedes its kernel on the stream. Whether the transport is poisoned comes out at the first wait, or by
    /// [`Watch::enter`]: the look at the abort word is under way meanwhile.
    ///
    /// # Safety
    /// `control` names live words; called by all threads of the block, once, before any access to memory.
    #[inline(always)]
    pub unsafe fn begin<G: Group>(group: &G, control: Control, rank: u32, block: u32) -> Self {
        // SAFETY: the caller's contract.
        unsafe { Armed::new(group, control, rank, block) }.led(group)
    }

    /// As [`Watch::begin`]; every thread looks at the abort word for itself.
    ///
    /// # Safety
    /// As for [`Watch::begin`].
    #[inline(always)]
    pub unsafe fn begin_all<G: Group>(group: &G, control: Control, rank: u32, block: u32) -> Self {
        // SAFETY: the caller's contract.
        unsafe { Armed::new(group, control, rank, block) }.looked()
    }

    /// The kernel in front is done: see [`Armed`].
    #[inline(always)]
    pub(crate) fn behind(&self) -> Behind {
        self.behind
    }

    /// `Err` if the transport was poisoned when the block began.
    #[inline(always)]
    pub fn enter<G: Group>(&self, group: &G) -> Flow {
        if group.any(self.poison != 0) { Err(Stopped) } else { Ok(()) }
    }

    /// Whether this thread saw the transport poisoned when the block began.
    #[inline(always)]
    pub fn poisoned(&self) -> bool {
        self.poison != 0
    }

    /// Whether the kernel has been aborted: a read of device memory.
    #[inline(always)]
    pub fn aborted(&self) -> bool {
        self.abort_word() != 0
    }

    /// The kernel's control words.
    #[inline(always)]
    pub(crate) fn control(&self) -> Control {
        self.control
    }

    /// How long a wait may last.
    #[inline(always)]
    pub fn deadline_ns(&self) -> u64 {
        self.control.deadline_ns
    }

    #[inline(always)]
    fn abort_word(&self) -> u64 {
        // SAFETY: a live word, by the contract of `begin`.
        unsafe { atomic::load::<System, Relaxed, u64>(self.control.abort as *const u64) }
    }

    /// Whether this block may go on to publish: no thread of it has panicked. Called by the leader, after a group sync.
    #[inline(always)]
    pub fn sound(&self) -> bool {
        !arch::block_panicked()
    }

    /// Waits until the word at `at` has reached `target` (compared as signed difference, so that counters may wrap).
    /// Called by all threads of the group; memory that the signalling peer wrote before is visible to all of them afterwards.
    ///
    /// # Safety
    /// `at` is a live signal line of this rank.
    #[inline(always)]
    pub unsafe fn until<O: Ops, G: Group>(
        &self,
        group: &G,
        ops: &O,
        at: *const u64,
        target: u64,
        about: About,
    ) -> Flow {
        let mut fault = Fault::NONE;
        if group.leads() {
            // SAFETY: the caller's contract.
            fault = unsafe { self.poll(at, target, about.operation) }.1;
        }
        self.settle(group, ops, about, fault)
    }

    /// Polls until the word at `at` has reached `target`: the leader's part of [`Watch::until`]. What it saw, and what ended the wait.
    ///
    /// # Safety
    /// As for [`Watch::until`].
    #[inline(always)]
    pub(crate) unsafe fn poll(&self, at: *const u64, target: u64, operation: u32) -> (u64, Fault) {
        // SAFETY: the caller's contract.
        self.poll_by(|| unsafe { atomic::load::<System, Acquire, u64>(at) }, target, operation)
    }

    /// As [`Watch::poll`], of what `load` gives.
    #[inline(always)]
    pub(crate) fn poll_by(&self, mut load: impl FnMut() -> u64, target: u64, operation: u32) -> (u64, Fault) {
        let mut seen = load();
        // Not before, or the compiler asks for it where the look at the abort word is still under way.
        if arch::late(u64::from(self.poison)) != 0 {
            return (seen, Fault { kind: ABORTED, operation, expected: target, seen, age_ns: 0 });
        }
        if seen.wrapping_sub(target) as i64 >= 0 {
            return (seen, Fault::NONE);
        }
        let (mut start, mut look, mut turn) = (0, 0, 0u32);
        loop {
            let mut looks = 0;
            while looks < LOOKS {
                seen = load();
                if seen.wrapping_sub(target) as i64 >= 0 {
                    return (seen, Fault::NONE);
                }
                looks += 1;
            }
            arch::relax(turn);
            turn = turn.saturating_add(1);
            let now = arch::now_ns();
            if turn == 1 {
                // Not before: most waits are over by now.
                (start, look) = (now, now);
            } else if now.wrapping_sub(look) >= LOOK_NS {
                look = now;
                let age_ns = now.wrapping_sub(start);
                let fault = |kind| (seen, Fault { kind, operation, expected: target, seen, age_ns });
                if self.abort_word() != 0 {
                    return fault(ABORTED);
                }
                if age_ns >= self.control.deadline_ns {
                    return fault(kind::EXPIRED);
                }
            }
        }
    }

    /// Ends the kernel if the leader found a fault. Called by all threads of the group.
    ///
    /// The fault is reported after the group knows of it: nothing but the way out follows the report, so no register has to
    /// survive it.
    #[inline(always)]
    pub(crate) fn settle<O: Ops, G: Group>(&self, group: &G, ops: &O, about: About, fault: Fault) -> Flow {
        if !group.any(fault.kind != 0) {
            return Ok(());
        }
        self.leave(ops, about, fault)
    }

    /// Waits until the word at `at` has reached `target`, for a leader whose group is busy meanwhile: 0, or the kind of fault, in one
    /// register; [`Watch::settle_late`] tells the group.
    ///
    /// # Safety
    /// As for [`Watch::until`].
    #[inline(always)]
    pub(crate) unsafe fn poll_ahead(&self, at: *const u64, target: u64) -> u32 {
        // SAFETY: the caller's contract.
        unsafe { self.poll(at, target, 0) }.1.kind
    }

    /// As [`Watch::settle`], of what [`Watch::poll_ahead`] found for `at` and `target` before.
    ///
    /// # Safety
    /// As for [`Watch::until`].
    #[inline(always)]
    pub(crate) unsafe fn settle_late<O: Ops, G: Group>(
        &self,
        group: &G,
        ops: &O,
        about: About,
        kind: u32,
        at: *const u64,
        target: u64,
    ) -> Flow {
        if !group.any(kind != 0) {
            return Ok(());
        }
        // SAFETY: the caller's contract.
        let seen = unsafe { atomic::load::<System, Relaxed, u64>(at) };
        let age_ns = self.control.deadline_ns;
        self.leave(ops, about, Fault { kind, operation: about.operation, expected: target, seen, age_ns })
    }

    /// The way out of a wait, for all threads of the group: the one that found a fault reports it.
    #[inline(always)]
    fn leave<O: Ops>(&self, ops: &O, about: About, fault: Fault) -> Flow {
        if fault.kind == ABORTED {
            pass_on_panic(ops, self.control.abort, self.rank);
        } else if fault.kind != 0 {
            let about = About { operation: fault.operation, ..about };
            self.give_up(ops, fault.kind, about, fault.expected, fault.seen, fault.age_ns);
        }
        Err(Stopped)
    }

    /// Ends the kernel if a thread of this block has panicked, and tells the peers. Called by all threads, after a group sync.
    #[inline(always)]
    pub fn check_panic<O: Ops>(&self, ops: &O) -> Flow {
        if self.sound() {
            return Ok(());
        }
        // Every thread that is left, since the leader may be the one that is gone.
        pass_on_panic(ops, self.control.abort, self.rank);
        Err(Stopped)
    }

    /// Claims the abort word, fills the record and tells the peers; only the first of all callers does.
    #[inline(always)]
    pub fn give_up<O: Ops>(&self, ops: &O, kind: u32, about: About, expected: u64, seen: u64, age_ns: u64) {
        // Everything by value: a reference to `self` would put it into local memory on the device.
        let (Control { abort, record, .. }, About { peer, channel, operation }) = (self.control, about);
        give_up(
            ops, abort, record, self.rank, self.block, kind, peer, channel, operation, expected, seen, age_ns,
        );
    }

    /// As [`Watch::give_up`], for an operation that knows where it was called. (A function of its own: the shipped schedules'
    /// registers are counted.)
    #[inline(always)]
    pub(crate) fn give_up_at<O: Ops>(
        &self,
        ops: &O,
        about: About,
        fault: Fault,
        at: &'static core::panic::Location<'static>,
    ) {
        let (Control { abort, record, .. }, About { peer, channel, operation }) = (self.control, about);
        let Fault { kind, expected, seen, age_ns, .. } = fault;
        give_up_at(
            ops, abort, record, self.rank, self.block, kind, peer, channel, operation, expected, seen,
            age_ns, at,
        );
    }

    /// For a wait that found the abort word raised: tells the peers if nobody could.
    #[inline(always)]
    pub(crate) fn pass_on<O: Ops>(&self, ops: &O) {
        pass_on_panic(ops, self.control.abort, self.rank);
    }

    /// Ends the kernel because a raw operation named something that does not exist: `kind` says what.
    #[inline(always)]
    pub fn out_of_range<O: Ops>(&self, ops: &O, kind: u32, about: About, limit: u64, given: u64) -> Stopped {
        self.give_up(ops, kind, about, limit, given, 0);
        Stopped
    }

    /// Waits for `line` of `peer`; see [`Watch::until`].
    #[inline(always)]
    pub fn until_line<O: Ops, G: Group>(
        &self,
        group: &G,
        ops: &O,
        peer: u32,
        line: Line,
        target: u64,
        op: u32,
    ) -> Flow {
        let about = About { peer, channel: line.number(), operation: op };
        // SAFETY: `Ops::line` gives live lines.
        unsafe { self.until(group, ops, ops.line(peer, line), target, about) }
    }
}
