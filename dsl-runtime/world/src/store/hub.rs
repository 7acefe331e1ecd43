//! The router under a lock, with a way to reach each rank.

use std::collections::VecDeque;
use std::net::Shutdown;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::inbox::Inbox;
use super::proto::{Event, Request, encode};
use super::router::{Outgoing, Router, Violation};
use crate::Rank;
use crate::sync::{after, lock};
use crate::tcp::session::Sender;

/// A peer that takes longer than this to take in what it is sent is given up: others wait behind it.
const WRITE_LIMIT: Duration = Duration::from_secs(5);
/// Of the time that a peer has kept the others waiting, one part in so many of the time that passes is forgiven.
const FORGIVEN: u32 = 10;

/// How events reach a rank.
pub(crate) enum Sink {
    /// A rank of this process.
    Local(Arc<Inbox>),
    /// A rank at the other end of a connection.
    Tcp(Remote),
}

pub(crate) struct Remote {
    sender: Sender,
    who: String,
    limit: Duration,
    /// How long it has kept the others waiting, and as of when.
    debt: Duration,
    as_of: Instant,
}

impl Remote {
    /// `silence`: when the others take the store for dead, which must not be for this rank's sake.
    pub fn new(sender: Sender, who: String, silence: Option<Duration>) -> Self {
        let limit = silence.map_or(WRITE_LIMIT, |silence| WRITE_LIMIT.min(silence / 2));
        Self { sender, who, limit, debt: Duration::ZERO, as_of: Instant::now() }
    }

    fn hang_up(&self) {
        let _ = self.sender.stream().shutdown(Shutdown::Both);
    }

    fn send(&mut self, frame: &[u8]) -> std::io::Result<()> {
        let started = Instant::now();
        self.debt = self.debt.saturating_sub((started - self.as_of) / FORGIVEN);
        let sent = self.sender.send(frame, self.limit.saturating_sub(self.debt));
        self.as_of = Instant::now();
        self.debt += self.as_of - started;
        if sent.is_err() {
            self.hang_up();
        }
        sent
    }
}

/// Events are delivered under the lock, so that all ranks see them in one order: a rank's farewell can never overtake
/// the result of the collective that it left after. A peer that does not drain its socket is given up after
/// [`WRITE_LIMIT`] in all, which bounds how long it can hold the others up.
pub(crate) struct Hub {
    state: Mutex<State>,
    changed: Condvar,
    size: usize,
    max_message: usize,
}

struct State {
    router: Router,
    sinks: Vec<Option<Sink>>,
}

impl State {
    fn is_empty(&self) -> bool {
        self.sinks.iter().all(Option::is_none)
    }
}

/// Why a rank that has shown the token is not let in.
#[derive(Debug, PartialEq)]
pub(crate) enum Occupied {
    /// Who has the rank already.
    By(String),
    /// The rank was there, and is gone.
    Gone,
}

impl Hub {
    pub fn new(size: usize, max_message: usize) -> Self {
        let state =
            State { router: Router::new(size, max_message), sinks: (0..size).map(|_| None).collect() };
        Self { state: Mutex::new(state), changed: Condvar::new(), size, max_message }
    }

    pub fn max_message(&self) -> usize {
        self.max_message
    }

    pub fn size(&self) -> usize {
        self.size
    }

    /// Lets `rank` in; `admit` runs under the lock, before any event can reach the sink.
    ///
    /// A second claim to a rank ends the first one too as long as the world has not formed: one of the two processes
    /// was started wrongly, and which one cannot be known.
    pub fn register(&self, rank: Rank, who: &str, admit: impl FnOnce() -> std::io::Result<Sink>) -> Register {
        let mut state = lock(&self.state);
        if state.router.is_gone(rank) {
            return Register::Occupied(Occupied::Gone);
        }
        if let Some(holder) = &state.sinks[rank] {
            let holder = match holder {
                Sink::Local(_) => "the process of the store".to_owned(),
                Sink::Tcp(remote) => remote.who.clone(),
            };
            if !state.router.formed() {
                let why = format!("rank {rank} is claimed twice, by {holder} and by {who}");
                self.end(&mut state, rank, &why);
            }
            return Register::Occupied(Occupied::By(holder));
        }
        match admit() {
            Ok(mut sink) => {
                for event in state.router.news() {
                    // A failure shows when the connection is read.
                    let _ = sink.deliver(event, &mut None);
                }
                state.sinks[rank] = Some(sink);
                Register::Admitted
            }
            // The connection broke in the middle of its welcome.
            Err(_) => Register::Failed,
        }
    }

    pub fn handle(&self, from: Rank, request: Request) {
        let mut state = lock(&self.state);
        let leaves = matches!(request, Request::Leave);
        let mut out = Vec::new();
        let handled = state.router.handle(from, request, &mut out);
        if leaves {
            state.sinks[from] = None;
        }
        self.deliver(&mut state, out);
        if let Err(Violation(why)) = handled {
            self.end(&mut state, from, &format!("the store put it out: {why}"));
        }
    }

    pub fn lost(&self, rank: Rank, why: &str) {
        self.end(&mut lock(&self.state), rank, why);
    }

    fn end(&self, state: &mut State, rank: Rank, why: &str) {
        let mut out = Vec::new();
        state.router.lost(rank, why, &mut out);
        self.deliver(state, out);
        if let Some(Sink::Tcp(remote)) = state.sinks[rank].take() {
            remote.hang_up();
        }
        self.tell_if_empty(state);
    }

    /// Says "still here" to every connection.
    pub fn ping(&self) {
        let mut state = lock(&self.state);
        let to = (0..self.size).filter(|&r| matches!(state.sinks[r], Some(Sink::Tcp(_)))).collect();
        self.deliver(&mut state, vec![Outgoing { to, event: Event::Ping }]);
    }

    /// Waits until nobody is left to serve, or for `limit`; true when so. Ranks that never came do not count.
    pub fn wait_until_empty(&self, limit: Duration) -> bool {
        let until = after(limit);
        let mut state = lock(&self.state);
        while !state.is_empty() {
            let now = Instant::now();
            if now >= until {
                return false;
            }
            state = crate::sync::wait(&self.changed, state, until - now);
        }
        true
    }

    fn tell_if_empty(&self, state: &State) {
        if state.is_empty() {
            self.changed.notify_all();
        }
    }

    fn deliver(&self, state: &mut State, out: Vec<Outgoing>) {
        let mut queue = VecDeque::from(out);
        while let Some(Outgoing { to, event }) = queue.pop_front() {
            let mut encoded = None;
            // Connections first: when a rank of this process goes on, and perhaps ends the process, the others'
            // copies are already in the kernel's hands.
            for remote in [true, false] {
                for &rank in &to {
                    let Some(sink) = &mut state.sinks[rank] else { continue };
                    if matches!(sink, Sink::Tcp(_)) != remote {
                        continue;
                    }
                    if let Err(error) = sink.deliver(&event, &mut encoded) {
                        state.sinks[rank] = None;
                        let mut more = Vec::new();
                        state.router.lost(rank, &format!("it could not be written to ({error})"), &mut more);
                        queue.extend(more);
                    }
                }
            }
        }
        self.tell_if_empty(state);
    }
}

/// What came of [`Hub::register`].
pub(crate) enum Register {
    Admitted,
    Occupied(Occupied),
    Failed,
}

impl Sink {
    fn deliver(&mut self, event: &Event, encoded: &mut Option<Vec<u8>>) -> std::io::Result<()> {
        match self {
            Self::Local(inbox) => inbox.deliver(event.clone()),
            Self::Tcp(remote) => {
                let bytes = match encoded {
                    Some(bytes) => bytes,
                    None => encoded.insert(encode(event)?),
                };
                return remote.send(bytes);
            }
        }
        Ok(())
    }
}
