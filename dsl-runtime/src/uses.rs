//! Which streams use the memory of a buffer: one that writes it, or any number that read.
//!
//! Work enters in an order: whoever uses memory claims it ([`Claims`]), has its stream wait for those whose work comes first, queues its own
//! (or waits and copies, on the host) and lets go. Nobody is between the waiting and the queueing of somebody whose work must not overlap.

use crate::buffer::Memory;
use crate::stream::Queue;
use crate::{Error, Result, Stream};
use std::cmp::Reverse;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLockReadGuard, Weak};

/// What streams are in order for, in errors.
const BUFFER: &str = "buffer";

/// What work does with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    /// Nothing on the stream: the host reads it once the stream is idle.
    Look,
    Read,
    /// Perhaps reading as well.
    Write,
}

/// Who uses a buffer's memory.
#[derive(Default)]
pub(crate) struct Uses {
    state: Mutex<State>,
    turn: Condvar,
}

#[derive(Default)]
struct State {
    turns: Turns,
    /// Whose work wrote it last, and the number of that use on its stream. Kept: a fault of that work is a matter of all who read the
    /// results.
    wrote: Option<(Arc<Queue>, u64)>,
    /// Who has read it since, and the number of the last such use; 0 if it was the host that read. One that is gone has run to its end.
    /// All of them run behind the one that wrote.
    read: Vec<(Weak<Queue>, u64)>,
    /// Uses that captures recorded, of which nothing runs, and whether they write. Gone with the capture.
    recorded: Vec<(Weak<Capture>, bool)>,
}

/// The number of a use that is over when all is that the stream has been given, by whomever: whoever comes next has an event recorded for itself.
pub(crate) const HANDED: u64 = u64::MAX;

/// What a capture holds while it is under way.
#[derive(Default)]
pub(crate) struct Capture;

/// Turns in the order in which they were asked for, so that nobody is passed by for ever: one that writes alone, others together.
#[derive(Default)]
struct Turns {
    next: u64,
    now: u64,
    sharing: u32,
    waiting: u32,
}

/// The right to use memory, until the work is queued or the host has copied.
///
/// Nobody waits in a circle: memory is claimed in the order of its addresses, all of it before a stream is waited for. Only the host's copies
/// wait under a claim, for what was queued before; kernels among it may wait for peers, and who wants the memory meanwhile comes behind.
pub(crate) struct Claims<'m> {
    all: Vec<(&'m Uses, Access)>,
    /// Of how many the turns were taken.
    held: usize,
    /// Whose uses these are once everybody else was waited for.
    entered: Option<&'m Arc<Queue>>,
    /// Whether others queue work with it behind this, which has no number.
    handed: bool,
    /// What is queued on the stream is recorded, or is not, as it was when this was made.
    _mode: Option<RwLockReadGuard<'m, ()>>,
    /// Queues of which this may be the last end, which can wait for peers: let go of when nothing is held any more.
    known: Vec<(Arc<Queue>, u64)>,
}

impl<'m> Claims<'m> {
    /// For work that is queued on `stream` next: `stream` waits for the others whose work must come first, the host does not. Faults of
    /// kernels that wrote what is there, which their stream has not reported yet, are then `stream`'s to report, too. A capture notes the
    /// uses and keeps the memory; its replays claim it.
    ///
    /// # Errors
    /// [`Error::Misuse`] if a capture on another stream uses the memory, or a stream that must come first is capturing.
    pub(crate) fn of(
        stream: &'m Stream,
        memory: impl IntoIterator<Item = (&'m Arc<Memory>, Access)>,
    ) -> Result<Self> {
        let mode = stream.queue().mode()?;
        let Some(capture) = stream.queue().capture() else { return Self::enter(stream, mode, memory) };
        let all = in_order(memory.into_iter().collect(), |memory| Arc::as_ptr(memory));
        // All or none: who is refused has recorded nothing.
        let mut states: Vec<_> =
            all.iter().map(|(memory, access)| (memory.uses().state(), *access)).collect();
        if states.iter().any(|(state, access)| state.is_recorded(&capture, *access)) {
            return Err(Error::misuse("a buffer is used by two captures at once, and one of them writes it"));
        }
        states.iter_mut().for_each(|(state, access)| state.record(&capture, *access));
        drop(states);
        stream
            .captured(|c| c.memory.extend(all.iter().map(|(memory, access)| (Arc::clone(memory), *access))));
        Ok(Claims {
            all: Vec::new(),
            held: 0,
            entered: None,
            handed: false,
            known: Vec::new(),
            _mode: Some(mode),
        })
    }

    /// As [`Claims::of`], for `what` cannot be captured. To look at memory, the host waits.
    ///
    /// # Errors
    /// As for [`Claims::of`], and [`Error::Misuse`] if `stream` is capturing.
    pub(crate) fn uncaptured(
        stream: &'m Stream,
        what: &str,
        memory: impl IntoIterator<Item = (&'m Arc<Memory>, Access)>,
    ) -> Result<Self> {
        let mode = stream.queue().mode()?;
        stream.not_capturing(what)?;
        Self::enter(stream, mode, memory)
    }

    fn enter(
        stream: &'m Stream,
        mode: RwLockReadGuard<'m, ()>,
        memory: impl IntoIterator<Item = (&'m Arc<Memory>, Access)>,
    ) -> Result<Self> {
        let queue = stream.queue();
        let all = memory.into_iter().map(|(memory, access)| (memory.uses(), access)).collect();
        let all = in_order(all, |uses| std::ptr::from_ref(*uses));
        let mut claims =
            Claims { all, held: 0, entered: None, handed: false, known: Vec::new(), _mode: Some(mode) };
        let (mut before, mut answers, mut recorded) = (Vec::new(), Vec::new(), false);
        let looks = claims.all.iter().all(|(_, access)| *access == Access::Look);
        for &(uses, access) in &claims.all {
            let state = uses.take_turn(access);
            claims.held += 1;
            recorded |= state.is_recorded(&Weak::new(), access);
            before.extend(state.before(queue, access));
            answers.extend(state.answers(queue, access));
        }
        if recorded {
            claims.known.extend(before.into_iter().chain(answers));
            return Err(Error::misuse(
                "a buffer is used on a stream while a capture on another uses it; end the capture first",
            ));
        }
        let waited = match looks {
            true => wait(&before),
            false => before.iter().try_for_each(|(other, number)| queue.follow(other, *number, BUFFER)),
        };
        claims.known.extend(before);
        if waited.is_ok() {
            // Behind the waiting, on the host or on the stream: whoever waits for the stream from the next use on has waited for them.
            let last = if looks { 0 } else { queue.last_use() + 1 };
            answers.iter().for_each(|(writer, number)| stream.answer_for(writer, *number, last));
            claims.entered = Some(queue);
        }
        claims.known.extend(answers);
        waited.map(|()| claims)
    }

    /// For the host, which writes all of the memory: waits for every stream that uses it, and forgets them. `what` is refused while a
    /// capture uses it.
    ///
    /// # Errors
    /// [`Error::Misuse`] while one of the streams is capturing; the driver's.
    pub(crate) fn to_fill(memory: &'m Memory, what: &str) -> Result<Self> {
        let uses = memory.uses();
        let mut claims = Claims::alone(uses);
        if uses.state().is_recorded(&Weak::new(), Access::Write) {
            return Err(Error::misuse(format!(
                "`{what}` of a buffer that a stream is capturing work with: it would not be part of the graph; end the capture first"
            )));
        }
        let all = uses.state().others(std::ptr::null());
        let waited = wait(&all);
        claims.known.extend(all);
        waited?;
        let mut state = uses.state();
        state.read.clear();
        claims.known.extend(state.wrote.take());
        drop(state);
        Ok(claims)
    }

    /// Leaves the memory to whoever queues work on the stream next.
    pub(crate) fn hand_over(mut self) {
        self.handed = true;
    }

    fn alone(uses: &'m Uses) -> Self {
        drop(uses.take_turn(Access::Write));
        Claims {
            all: vec![(uses, Access::Write)],
            held: 1,
            entered: None,
            handed: false,
            known: Vec::new(),
            _mode: None,
        }
    }
}

impl Drop for Claims<'_> {
    fn drop(&mut self) {
        // Behind the queueing: whoever sees this number and waits for the stream then has waited for the work.
        let by = self.entered.map(|queue| (queue, queue.next_use()));
        let by = by.map(|(queue, number)| (queue, if self.handed { HANDED } else { number }));
        for &(uses, access) in &self.all[..self.held] {
            let mut state = uses.state();
            self.known.extend(by.and_then(|(queue, number)| state.enter(queue, number, access)));
            state.turns.end(access);
            if state.turns.waiting > 0 {
                uses.turn.notify_all();
            }
        }
    }
}

impl Uses {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turn of a use.
    fn take_turn(&self, access: Access) -> MutexGuard<'_, State> {
        let mut state = self.state();
        let ticket = state.turns.next;
        state.turns.next += 1;
        while !state.turns.begin(ticket, access) {
            state.turns.waiting += 1;
            state = self.turn.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.turns.waiting -= 1;
        }
        // Whoever comes next may share.
        if access != Access::Write && state.turns.waiting > 0 {
            self.turn.notify_all();
        }
        state
    }

    /// The streams that use the memory, and the last use of each.
    pub(crate) fn users(&self) -> Vec<(Arc<Queue>, u64)> {
        self.state().others(std::ptr::null())
    }

    /// Waits for all streams that use the memory, whatever comes of one.
    ///
    /// # Errors
    /// [`Error::Misuse`] if one is capturing; the driver's.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        let mut claims = Claims::alone(self);
        let all = self.users();
        let waited = wait(&all);
        claims.known.extend(all);
        waited
    }
}

/// Each memory once, with the most that is done with it, in the order of their addresses.
pub(crate) fn in_order<M, A>(mut all: Vec<(M, Access)>, at: impl Fn(&M) -> *const A) -> Vec<(M, Access)> {
    all.sort_unstable_by_key(|(memory, access)| (at(memory), Reverse(*access)));
    all.dedup_by_key(|(memory, _)| at(memory));
    all
}

impl State {
    /// What streams but `own` use the memory for, as far as there may be a need to wait for it.
    fn others(&self, own: *const Queue) -> Vec<(Arc<Queue>, u64)> {
        let readers = self.read.iter().filter(|(queue, number)| queue.as_ptr() != own && *number > 0);
        let readers = readers.filter_map(|(queue, number)| Some((queue.upgrade()?, *number)));
        readers.chain(self.wrote.iter().filter(|(queue, _)| Arc::as_ptr(queue) != own).cloned()).collect()
    }

    /// What must come before a use by `own`.
    fn before(&self, own: &Arc<Queue>, access: Access) -> Vec<(Arc<Queue>, u64)> {
        match access {
            Access::Write => self.others(Arc::as_ptr(own)),
            // Whoever has read behind the writer has waited for it.
            _ if self.reads(own) => Vec::new(),
            _ => {
                let writer = self.wrote.iter().filter(|(queue, _)| !Arc::ptr_eq(queue, own));
                writer.filter(|(queue, number)| !queue.is_past(*number)).cloned().collect()
            }
        }
    }

    /// Whose faults are to be reported by `own` as well, and up to which of its uses.
    fn answers(&self, own: &Arc<Queue>, access: Access) -> Option<(Arc<Queue>, u64)> {
        let known = access != Access::Write && self.reads(own);
        self.wrote.as_ref().filter(|(writer, _)| !known && !Arc::ptr_eq(writer, own)).cloned()
    }

    fn reads(&self, own: &Arc<Queue>) -> bool {
        self.read.iter().any(|(queue, _)| queue.as_ptr() == Arc::as_ptr(own))
    }

    /// Notes a use; returns the writer before, if that was another.
    fn enter(&mut self, queue: &Arc<Queue>, number: u64, access: Access) -> Option<(Arc<Queue>, u64)> {
        if access == Access::Write {
            self.read.clear();
            return match &mut self.wrote {
                Some((writer, last)) if Arc::ptr_eq(writer, queue) => {
                    // What was handed over may be in other hands still.
                    *last = number.max(*last);
                    None
                }
                writer => writer.replace((Arc::clone(queue), number)),
            };
        }
        let number = if access == Access::Read { number } else { 0 };
        match self.read.iter_mut().find(|(q, _)| q.as_ptr() == Arc::as_ptr(queue)) {
            Some((_, last)) => *last = number.max(*last),
            None => {
                self.read.retain(|(q, _)| q.strong_count() > 0);
                self.read.push((Arc::downgrade(queue), number));
            }
        }
        None
    }

    /// Whether a capture that is under way, other than `own`, uses the memory, such that one of the two writes.
    fn is_recorded(&self, own: &Weak<Capture>, access: Access) -> bool {
        let written = access == Access::Write;
        let mut others = self.recorded.iter().filter(|(capture, _)| !capture.ptr_eq(own));
        others.any(|(capture, writes)| (*writes || written) && capture.strong_count() > 0)
    }

    /// Notes a use by a capture.
    fn record(&mut self, capture: &Weak<Capture>, access: Access) {
        let written = access == Access::Write;
        self.recorded.retain(|(other, _)| other.strong_count() > 0);
        match self.recorded.iter_mut().find(|(other, _)| other.ptr_eq(capture)) {
            Some((_, writes)) => *writes |= written,
            None => self.recorded.push((Weak::clone(capture), written)),
        }
    }
}

impl Turns {
    /// Begins the turn of a ticket, if it is that one's.
    fn begin(&mut self, ticket: u64, access: Access) -> bool {
        let alone = access == Access::Write;
        if self.now != ticket || alone && self.sharing > 0 {
            return false;
        }
        if !alone {
            self.now += 1;
            self.sharing += 1;
        }
        true
    }

    fn end(&mut self, access: Access) {
        match access {
            Access::Write => self.now += 1,
            _ => self.sharing -= 1,
        }
    }
}

/// Waits for these uses, whatever comes of one.
fn wait(uses: &[(Arc<Queue>, u64)]) -> Result<()> {
    uses.iter().map(|(queue, number)| queue.wait_use(*number, BUFFER)).fold(Ok(()), Result::and)
}
