//! The router under a lock, with a way to reach each rank.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::inbox::Inbox;
use super::proto::{Event, Request, frame};
use super::router::{Outgoing, Router};
use crate::Rank;
use crate::sync::lock;

/// How events reach a rank.
pub(crate) enum Sink {
    /// A rank of this process.
    Local(Arc<Inbox>),
    /// A rank at the other end of a connection that has a write timeout.
    Tcp { stream: TcpStream, who: String },
}

/// Events are delivered under the lock, so that all ranks see them in one order: a rank's farewell can never overtake
/// the result of the collective that it left after. A peer that does not drain its socket is given up after the
/// connection's write timeout, which bounds how long it can hold the others up.
pub(crate) struct Hub {
    state: Mutex<State>,
    changed: Condvar,
    size: usize,
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
    pub fn new(size: usize) -> Self {
        let sinks = (0..size).map(|_| None).collect();
        Self { state: Mutex::new(State { router: Router::new(size), sinks }), changed: Condvar::new(), size }
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
                Sink::Tcp { who, .. } => who.clone(),
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
        state.router.handle(from, request, &mut out);
        if leaves {
            state.sinks[from] = None;
        }
        self.deliver(&mut state, out);
    }

    pub fn lost(&self, rank: Rank, why: &str) {
        self.end(&mut lock(&self.state), rank, why);
    }

    fn end(&self, state: &mut State, rank: Rank, why: &str) {
        let mut out = Vec::new();
        state.router.lost(rank, why, &mut out);
        self.deliver(state, out);
        if let Some(Sink::Tcp { stream, .. }) = state.sinks[rank].take() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.tell_if_empty(state);
    }

    /// Says "still here" to every connection.
    pub fn ping(&self) {
        let mut state = lock(&self.state);
        let to = (0..self.size).filter(|&r| matches!(state.sinks[r], Some(Sink::Tcp { .. }))).collect();
        self.deliver(&mut state, vec![Outgoing { to, event: Event::Ping }]);
    }

    /// Waits until nobody is left to serve, or for `limit`; true when so. Ranks that never came do not count.
    pub fn wait_until_empty(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
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
                    if matches!(sink, Sink::Tcp { .. }) != remote {
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
            Self::Tcp { stream, .. } => {
                let bytes = match encoded {
                    Some(bytes) => bytes,
                    None => encoded.insert(frame(event)?),
                };
                let written = stream.write_all(bytes);
                if written.is_err() {
                    let _ = stream.shutdown(Shutdown::Both);
                }
                return written;
            }
        }
        Ok(())
    }
}
