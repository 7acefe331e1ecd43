//! Aborts by a program: one rank's host ends the kernels of all ranks, and says why.
//!
//! Every rank raises its own abort word: no host reaches the memory of every transport's peers. The word of it comes by a notice of the world,
//! on a thread that waits for nothing else. A notice says how often the transport had been renewed, so that one that comes late stops nothing
//! that was launched behind a `renew`.
//!
//! A rank whose launch is not that of its peers ends the kernels of all ranks in the same way.

use super::{Error, Fault, Link, Operation, Result};
use fusewire_device::wait::{abort_code, kind};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Bytes of a reason that travel.
const LONGEST: usize = 1024;

/// Aborts a transport's kernels from any thread, whoever owns the transport; see [`Transport::abort`](super::Transport::abort). It keeps
/// nothing alive.
#[derive(Clone)]
pub struct AbortHandle(Weak<Link>);

impl AbortHandle {
    pub(super) fn new(link: &Arc<Link>) -> Self {
        AbortHandle(Arc::downgrade(link))
    }

    /// As [`Transport::abort`](super::Transport::abort); does nothing where the transport is gone.
    ///
    /// # Errors
    /// As for [`Transport::abort`](super::Transport::abort).
    pub fn abort(&self, reason: &str) -> Result<()> {
        self.0.upgrade().map_or(Ok(()), |link| link.abort(reason))
    }
}

impl fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AbortHandle of {:?}", self.0.upgrade())
    }
}

/// A link's aborts, from one `renew` to the next.
pub(super) struct Aborts {
    /// Of notices: the same on all ranks.
    topic: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Times that the transport was renewed: the same on all ranks.
    renewals: u64,
    /// Words are being cleared: what comes now counts behind that.
    renewing: bool,
    reasons: BTreeMap<usize, Reason>,
    /// What came too early, the first of each rank: the renewals that it saw, and why.
    early: BTreeMap<usize, (u64, Reason)>,
}

/// Why a rank has its peers stop.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reason {
    /// Its program says.
    Program(String),
    /// It launches something else than its peers.
    Disagrees(String),
}

impl Reason {
    /// As a notice has it.
    fn letter_and_text(&self) -> (char, &str) {
        match self {
            Reason::Program(text) => ('p', text),
            Reason::Disagrees(text) => ('d', text),
        }
    }

    /// Of the words of a notice behind the renewals.
    fn parse(text: &str) -> Option<Self> {
        let (letter, text) = text.split_once(' ')?;
        let text = cut(text, LONGEST).to_owned();
        match letter {
            "p" => Some(Reason::Program(text)),
            "d" => Some(Reason::Disagrees(text)),
            _ => None,
        }
    }
}

impl State {
    fn keep(&mut self, rank: usize, renewals: u64, reason: Reason) {
        self.early.entry(rank).or_insert((renewals, reason));
    }
}

/// As much of a text as has `most` bytes.
pub(super) fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

impl Aborts {
    pub(super) fn new(topic: u64) -> Self {
        Aborts { topic, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault of an abort by `rank`.
    pub(super) fn fault(&self, transport: &'static str, reader: usize, rank: usize) -> Fault {
        let reason = self.state().reasons.get(&rank).cloned();
        let operation = reason.map(|reason| match reason {
            Reason::Program(reason) => Operation::Aborted { reason },
            Reason::Disagrees(reason) => Operation::Disagreed { reason },
        });
        Fault { transport, reader, rank, operation, at: None, launched: None, staging: None }
    }
}

impl Link {
    /// Has notices of this link's peers told to it.
    pub(super) fn listen(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        self.world().on_notice(self.aborts.topic, move |rank, text| {
            if let Some(link) = weak.upgrade()
                && let Some((renewals, reason)) = text.split_once(' ')
                && let (Ok(renewals), Some(reason)) = (renewals.parse(), Reason::parse(reason))
            {
                link.aborted(rank, renewals, reason);
            }
        });
    }

    pub(super) fn stop_listening(&self) {
        self.world().off_notice(self.aborts.topic);
    }

    /// See [`Transport::abort`](super::Transport::abort).
    ///
    /// # Errors
    /// If the abort word cannot be written, or the peers cannot be told.
    pub fn abort(&self, reason: &str) -> Result<()> {
        if self.has_ended() {
            return Ok(());
        }
        self.stop_all(Reason::Program(cut(reason, LONGEST).to_owned()))
    }

    /// Ends the waits of all ranks since this one's launch is not a peer's; the fault of that. Peers that cannot be told end at their deadline.
    pub(super) fn disagree(&self, reason: &str) -> Fault {
        let (me, reason) = (self.world().rank(), cut(reason, LONGEST).to_owned());
        let _ = self.stop_all(Reason::Disagrees(reason.clone()));
        Fault::disagreed(self.name(), me, me, reason)
    }

    fn stop_all(&self, reason: Reason) -> Result<()> {
        let (me, mut state) = (self.world().rank(), self.aborts.state());
        if state.renewing {
            let renewals = state.renewals + 1;
            state.keep(me, renewals, reason);
            return Ok(());
        }
        self.stop(&mut state, me, reason)
    }

    /// A peer has aborted, behind so many renewals.
    fn aborted(&self, rank: usize, renewals: u64, reason: Reason) {
        let mut state = self.aborts.state();
        if renewals > state.renewals {
            state.keep(rank, renewals, reason);
        } else if renewals == state.renewals && !state.renewing {
            // A context that is lost has no kernels to stop.
            let _ = self.stop(&mut state, rank, reason);
        }
    }

    /// Stops this rank's kernels for `rank`, and has the peers stop theirs if that is this rank. Under the lock, so that no `renew` comes
    /// between the word and its notice.
    fn stop(&self, state: &mut State, rank: usize, reason: Reason) -> Result<()> {
        if state.reasons.contains_key(&rank) {
            return Ok(());
        }
        let (letter, text) = reason.letter_and_text();
        let notice = format!("{} {letter} {text}", state.renewals);
        // Before the word: whoever sees that asks for the reason.
        state.reasons.insert(rank, reason);
        let raised = self.region().raise_abort(abort_code(rank as u32, kind::ABORT));
        if rank == self.world().rank() {
            self.world().notify(self.aborts.topic, &notice).map_err(Error::from).and(raised)
        } else {
            raised
        }
    }

    /// Clears the words by `clear`: aborts from before are over with it, others come behind it. Between two barriers of all ranks.
    pub(super) fn renew_aborts(&self, clear: impl FnOnce() -> Result<()>) -> Result<()> {
        self.aborts.state().renewing = true;
        let cleared = clear();
        let mut state = self.aborts.state();
        state.renewing = false;
        if cleared.is_ok() {
            state.renewals += 1;
            state.reasons.clear();
        }
        let renewals = state.renewals;
        // Where clearing failed, ranks differ in what they count, and the transport is of no more use.
        for (rank, (of, reason)) in std::mem::take(&mut state.early) {
            if of <= renewals || cleared.is_err() {
                let _ = self.stop(&mut state, rank, reason);
            } else {
                state.keep(rank, of, reason);
            }
        }
        cleared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_early_abort_of_each_rank_is_kept() {
        let mut state = State::default();
        for (rank, reason) in [(3, "first"), (3, "second"), (1, "another")] {
            state.keep(rank, 1, Reason::Program(reason.to_owned()));
        }
        // Whatever a peer sends, and within no character.
        state.keep(2, 1, Reason::parse(&format!("d {}", "\u{e4}".repeat(LONGEST))).unwrap());
        let long = "\u{e4}".repeat(LONGEST / 2);
        let kept: Vec<_> =
            state.early.iter().map(|(rank, (_, reason))| (*rank, reason.letter_and_text())).collect();
        assert_eq!(kept, [(1, ('p', "another")), (2, ('d', long.as_str())), (3, ('p', "first"))]);
        assert_eq!([Reason::parse("x what"), Reason::parse("p")], [None, None]);
        assert_eq!(cut(&format!("x{long}"), LONGEST).len(), LONGEST - 1);
    }
}
