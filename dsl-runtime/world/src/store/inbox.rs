//! What has reached a rank, and where it waits for it.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::proto::{Event, OpKey};
use crate::error::PeerError;
use crate::sync::{lock, wait_for};
use crate::wire::Bytes;
use crate::{Error, LostCallback, Rank, Result};

pub(crate) struct Inbox {
    me: Rank,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
pub(crate) struct State {
    results: HashMap<OpKey, Outcome>,
    /// Collectives that nobody waits for any more.
    abandoned: HashSet<OpKey>,
    mail: HashMap<(Rank, u64), VecDeque<Vec<u8>>>,
    done: HashMap<(u64, Rank), u64>,
    gone: BTreeMap<Rank, Gone>,
    /// The dead in the order of the news.
    lost: Vec<(Rank, String)>,
    /// Nothing more will come, and why.
    closed: Option<Error>,
    /// This rank said goodbye itself.
    left: bool,
    /// The connection's reader has ended.
    hung_up: bool,
}

/// How a collective ended.
pub(crate) enum Outcome {
    Parts(Vec<Bytes>),
    GivenUp {
        by: Rank,
        missing: Vec<Rank>,
    },
    /// The deadline passed and the store did not say why.
    Unknown,
}

enum Gone {
    Lost(String),
    Left,
}

impl State {
    pub fn take_result(&mut self, op: OpKey) -> Option<Outcome> {
        self.results.remove(&op)
    }

    pub fn abandon(&mut self, op: OpKey) {
        if self.results.remove(&op).is_none() {
            self.abandoned.insert(op);
        }
    }

    pub fn take_message(&mut self, from: Rank, tag: u64) -> Option<Vec<u8>> {
        let queue = self.mail.get_mut(&(from, tag))?;
        let message = queue.pop_front();
        if queue.is_empty() {
            self.mail.remove(&(from, tag));
        }
        message
    }

    /// Why nothing more can come of `members`, if so. The dead come before the departed.
    pub fn broken(&self, members: &[Rank]) -> Option<Error> {
        let mut left = None;
        for rank in members {
            match self.gone.get(rank) {
                Some(Gone::Lost(why)) => return Some(Error::peer_lost(*rank, why.clone())),
                Some(Gone::Left) => left = left.or(Some(*rank)),
                None => {}
            }
        }
        match left {
            Some(rank) => Some(PeerError::Left { rank, during: String::new() }.into()),
            None => self.closed.clone(),
        }
    }

    pub fn closed(&self) -> Option<&Error> {
        self.closed.as_ref()
    }

    pub fn hung_up(&self) -> bool {
        self.hung_up
    }

    /// True when `rank` is done with the group's `count`th teardown, or gone.
    pub fn settled(&self, group: u64, count: u64, rank: Rank) -> bool {
        self.gone.contains_key(&rank) || self.done.get(&(group, rank)).is_some_and(|&n| n >= count)
    }
}

impl Inbox {
    pub fn new(me: Rank) -> Self {
        Self { me, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Waits until `ready` gives something; `None` when the deadline passes first.
    pub fn wait<R>(&self, deadline: Instant, ready: impl FnMut(&mut State) -> Option<R>) -> Option<R> {
        wait_for(&self.state, &self.changed, deadline, ready)
    }

    /// Looks at, or changes, the state at once.
    pub fn with<R>(&self, look: impl FnOnce(&mut State) -> R) -> R {
        look(&mut lock(&self.state))
    }

    pub fn deliver(&self, event: Event) {
        let mut state = lock(&self.state);
        match event {
            Event::Gathered { op, parts } => state.finish(op, Outcome::Parts(parts)),
            Event::GivenUp { op, by, missing } => state.finish(op, Outcome::GivenUp { by, missing }),
            Event::Message { from, tag, bytes } => {
                state.mail.entry((from, tag)).or_default().push_back(bytes.0)
            }
            Event::Done { op: (group, count), rank } => {
                let done = state.done.entry((group, rank)).or_default();
                *done = count.max(*done);
            }
            Event::Lost { rank, why } => {
                if rank == self.me {
                    state
                        .closed
                        .get_or_insert(Error::peer_lost(rank, format!("the others gave it up: {why}")));
                } else {
                    state.lose(rank, why);
                }
            }
            Event::Left { rank } => {
                state.gone.entry(rank).or_insert(Gone::Left);
            }
            Event::Ping => return,
        }
        self.changed.notify_all();
    }

    /// Nothing more will come, since the store on `host` is out of reach.
    pub fn close(&self, host: Rank, why: &str) {
        let mut state = lock(&self.state);
        if !state.left && !state.gone.contains_key(&host) && state.closed.is_none() {
            state.lose(host, why.to_owned());
        }
        let error = match state.gone.get(&host) {
            Some(Gone::Lost(why)) => Error::peer_lost(host, format!("{why}; it held the store")),
            _ if state.left => left_already(),
            _ => {
                PeerError::Left { rank: host, during: "what needs the store that it held".to_owned() }.into()
            }
        };
        state.closed.get_or_insert(error);
        self.changed.notify_all();
    }

    /// The store's connection has ended.
    pub fn hung_up(&self, host: Rank, why: &str) {
        lock(&self.state).hung_up = true;
        self.close(host, why);
    }

    /// This rank says goodbye; false if it had already.
    pub fn leave(&self) -> bool {
        let mut state = lock(&self.state);
        let first = !std::mem::replace(&mut state.left, true);
        state.closed.get_or_insert_with(left_already);
        self.changed.notify_all();
        first
    }

    pub fn lost(&self) -> Vec<Rank> {
        let mut ranks: Vec<_> = lock(&self.state).lost.iter().map(|(rank, _)| *rank).collect();
        ranks.sort_unstable();
        ranks
    }

    /// Tells `callback` of each dead rank, from a thread of its own that ends with the inbox: a callback may then use
    /// the world, and cannot hold up the store.
    pub fn on_lost(self: &Arc<Self>, callback: LostCallback) -> Result<()> {
        let inbox = Arc::clone(self);
        let watch = move || {
            let mut told = 0;
            let far = Duration::from_secs(3600);
            loop {
                let news = inbox.wait(Instant::now() + far, |state| match state.lost.get(told) {
                    Some(news) => Some(Some(news.clone())),
                    None => state.closed.is_some().then_some(None),
                });
                match news {
                    Some(Some((rank, why))) => callback(rank, &why),
                    Some(None) => return,
                    None => continue,
                }
                told += 1;
            }
        };
        std::thread::Builder::new()
            .name("fusewire-on-lost".to_owned())
            .spawn(watch)
            .map(drop)
            .map_err(|e| Error::fabric("starting the thread for `on_lost`", e, "raise the limit on threads"))
    }
}

impl State {
    fn finish(&mut self, op: OpKey, outcome: Outcome) {
        if !self.abandoned.remove(&op) {
            self.results.insert(op, outcome);
        }
    }

    fn lose(&mut self, rank: Rank, why: String) {
        if !self.gone.contains_key(&rank) {
            self.lost.push((rank, why.clone()));
            self.gone.insert(rank, Gone::Lost(why));
        }
    }
}

fn left_already() -> Error {
    Error::misuse("this rank has left the world already", "keep the `World` until its last use")
}
