//! What has reached a rank, and where it waits for it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::proto::{Event, OpKey};
use crate::error::PeerError;
use crate::group::APART_GROUP;
use crate::sync::{after, lock, wait_for};
use crate::wire::{self, Bytes};
use crate::{Error, LostCallback, NoticeCallback, Rank, Result};

/// The most messages of one rank that may wait to be received.
const MOST_MESSAGES: usize = 1 << 14;
/// The most notices that may wait to be told: the oldest go first.
const MOST_NOTICES: usize = 1 << 10;
/// The tag of notices. The world's own tags, and those of groups, never have all bits set.
pub(crate) const NOTICE: u64 = u64::MAX;
/// The most groups whose teardown one rank may have announced.
const MOST_GROUPS: usize = 1 << 16;

pub(crate) struct Inbox {
    me: Rank,
    size: usize,
    /// The most bytes of one rank that may wait to be received.
    most_bytes: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
pub(crate) struct State {
    /// Collectives that somebody waits for; the outcome, once there is one.
    results: HashMap<OpKey, Option<Outcome>>,
    mail: HashMap<Rank, Mail>,
    /// Teardowns by rank, then by group.
    done: HashMap<Rank, HashMap<u64, u64>>,
    gone: BTreeMap<Rank, Gone>,
    /// The dead in the order of the news.
    lost: Vec<(Rank, String)>,
    /// Notices that have not been told yet: topic, sender, text.
    notices: VecDeque<(u64, Rank, String)>,
    /// By topic. A thread tells them as soon as there is one.
    listeners: HashMap<u64, NoticeCallback>,
    listening: bool,
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

/// What one rank has sent and this one has not received.
#[derive(Default)]
struct Mail {
    by_tag: HashMap<u64, VecDeque<Vec<u8>>>,
    messages: usize,
    bytes: usize,
}

enum Gone {
    Lost(String),
    Left,
}

/// Starts a thread that ends by itself.
fn thread(name: &str, what: &'static str, run: impl FnOnce() + Send + 'static) -> Result<()> {
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    spawned.map(drop).map_err(|e| Error::fabric(what, e, "raise the limit on threads"))
}

impl State {
    /// Says that a collective's outcome is wanted; any other is dropped.
    pub fn expect(&mut self, op: OpKey) {
        self.results.insert(op, None);
    }

    pub fn result(&mut self, op: OpKey) -> Option<Outcome> {
        self.results.get_mut(&op)?.take()
    }

    /// Takes [`expect`](Self::expect) back.
    pub fn forget(&mut self, op: OpKey) {
        self.results.remove(&op);
    }

    pub fn take_message(&mut self, from: Rank, tag: u64) -> Option<Vec<u8>> {
        let mail = self.mail.get_mut(&from)?;
        let queue = mail.by_tag.get_mut(&tag)?;
        let message = queue.pop_front()?;
        if queue.is_empty() {
            mail.by_tag.remove(&tag);
        }
        mail.messages -= 1;
        mail.bytes -= message.len();
        Some(message)
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

    /// Forgets who is done with a group that ends once.
    pub fn forget_group(&mut self, group: u64) {
        for groups in self.done.values_mut() {
            groups.remove(&group);
        }
    }

    /// Whether `rank` is done with an end that this rank, done with `own` of each group's, has not come to; but for those that nobody stops for.
    pub fn is_ahead(&self, rank: Rank, own: impl Fn(u64) -> u64) -> bool {
        let ahead = |(group, count): (&u64, &u64)| group & APART_GROUP == 0 && *count > own(*group);
        self.done.get(&rank).is_some_and(|groups| groups.iter().any(ahead))
    }

    /// True when `rank` is done with the group's `count`th teardown, or gone.
    pub fn settled(&self, group: u64, count: u64, rank: Rank) -> bool {
        let done = self.done.get(&rank).and_then(|groups| groups.get(&group));
        self.gone.contains_key(&rank) || done.is_some_and(|&n| n >= count)
    }
}

impl Inbox {
    pub fn new(me: Rank, size: usize, max_message: usize) -> Self {
        let most_bytes = max_message.saturating_mul(3);
        Self { me, size, most_bytes, state: Mutex::default(), changed: Condvar::new() }
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
        let (Event::Message { from: of, .. }
        | Event::Done { rank: of, .. }
        | Event::Lost { rank: of, .. }
        | Event::Left { rank: of }
        | Event::GivenUp { by: of, .. }) = event
        else {
            if let Event::Gathered { op, parts } = event {
                lock(&self.state).finish(op, Outcome::Parts(parts.0));
                self.changed.notify_all();
            }
            return;
        };
        // Of ranks that there are not, there is no news.
        if of >= self.size {
            return;
        }
        let mut state = lock(&self.state);
        match event {
            Event::GivenUp { op, by, missing } => {
                state.finish(op, Outcome::GivenUp { by, missing: missing.0 })
            }
            Event::Message { from, tag: NOTICE, bytes } => {
                let Ok((topic, text)) = wire::decode(from, "a notice", &bytes.0) else { return };
                if state.notices.len() == MOST_NOTICES {
                    state.notices.pop_front();
                }
                state.notices.push_back((topic, from, text));
            }
            Event::Message { from, tag, bytes } => {
                if state.gone.contains_key(&from) {
                    return;
                }
                let mail = state.mail.entry(from).or_default();
                mail.messages += 1;
                mail.bytes += bytes.0.len();
                if mail.messages > MOST_MESSAGES || mail.bytes > self.most_bytes {
                    let why = format!(
                        "it sent {} messages with {} bytes that this rank has not received, where {MOST_MESSAGES} and {} \
                         are allowed",
                        mail.messages, mail.bytes, self.most_bytes
                    );
                    state.give_up_on(from, why);
                } else {
                    mail.by_tag.entry(tag).or_default().push_back(bytes.0);
                }
            }
            Event::Done { rank, .. } if rank == self.me => {}
            Event::Done { op: (group, count), rank } => {
                let groups = state.done.entry(rank).or_default();
                if groups.len() == MOST_GROUPS && !groups.contains_key(&group) {
                    let why = format!("it tore more than {MOST_GROUPS} groups down");
                    state.give_up_on(rank, why);
                } else {
                    let done = groups.entry(group).or_default();
                    *done = count.max(*done);
                }
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
            Event::Gathered { .. } | Event::Ping => return,
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
        thread("fusewire-on-lost", "starting the thread for `on_lost`", move || {
            let mut told = 0;
            while let Some((rank, why)) = inbox.news(|state| state.lost.get(told).cloned()) {
                callback(rank, &why);
                told += 1;
            }
        })
    }

    /// Tells `callback` of each notice of this topic, from one thread for all topics that ends with the inbox.
    pub fn on_notice(self: &Arc<Self>, topic: u64, callback: NoticeCallback) -> Result<()> {
        let mut state = lock(&self.state);
        state.listeners.insert(topic, callback);
        if std::mem::replace(&mut state.listening, true) {
            return Ok(());
        }
        drop(state);
        let inbox = Arc::clone(self);
        let started = thread("fusewire-notices", "starting the thread for notices", move || {
            let next = |state: &mut State| {
                let (topic, from, text) = state.notices.pop_front()?;
                Some((state.listeners.get(&topic).cloned(), from, text))
            };
            while let Some((callback, from, text)) = inbox.news(next) {
                // Else nobody listens to the topic any more.
                if let Some(callback) = callback {
                    callback(from, &text);
                }
            }
        });
        started.inspect_err(|_| lock(&self.state).listening = false)
    }

    /// What `next` finds, however long that takes; `None` when nothing more will come.
    fn news<T>(&self, mut next: impl FnMut(&mut State) -> Option<T>) -> Option<T> {
        loop {
            let found = self.wait(after(Duration::from_secs(3600)), |state| match next(state) {
                Some(news) => Some(Some(news)),
                None => state.closed.is_some().then_some(None),
            });
            if let Some(found) = found {
                return found;
            }
        }
    }

    /// Forgets a topic.
    pub fn off_notice(&self, topic: u64) {
        // What a callback holds goes behind the lock.
        let _gone = lock(&self.state).listeners.remove(&topic);
    }
}

impl State {
    fn finish(&mut self, op: OpKey, outcome: Outcome) {
        if let Some(wanted) = self.results.get_mut(&op) {
            *wanted = Some(outcome);
        }
    }

    /// This rank, for itself, takes `rank` for dead: it asks for more than is kept for anybody.
    fn give_up_on(&mut self, rank: Rank, why: String) {
        self.mail.remove(&rank);
        self.done.remove(&rank);
        self.lose(rank, why);
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

#[cfg(test)]
mod tests {
    use super::super::proto::Few;
    use super::*;

    fn message(bytes: usize, tag: u64) -> Event {
        Event::Message { from: 1, tag, bytes: Bytes(vec![0; bytes]) }
    }

    fn why_lost(inbox: &Inbox) -> String {
        assert_eq!(inbox.lost(), [1]);
        inbox.with(|state| state.broken(&[1])).unwrap().to_string()
    }

    #[test]
    fn what_one_rank_has_sent_and_nobody_received_is_bounded() {
        let inbox = Inbox::new(0, 3, 1000);
        for nth in 0..10 * MOST_MESSAGES {
            inbox.deliver(message(100, 7));
            assert_eq!(inbox.with(|state| state.take_message(1, 7)).map(|m| m.len()), Some(100), "{nth}");
        }
        for bytes in [1000; 3] {
            inbox.deliver(message(bytes, 8));
        }
        assert!(inbox.lost().is_empty());
        inbox.deliver(message(1, 9));
        assert!(why_lost(&inbox).contains("4 messages with 3001 bytes that this rank has not received"));
        inbox.deliver(message(1, 9));
        assert!(inbox.with(|state| state.mail.is_empty()));

        let inbox = Inbox::new(0, 3, 1000);
        (0..=MOST_MESSAGES as u64).for_each(|tag| inbox.deliver(message(0, tag)));
        assert!(why_lost(&inbox).contains("16385 messages"));
    }

    #[test]
    fn notices_that_nobody_tells_are_bounded_and_the_last_ones_stay() {
        let notice = |n: usize| Event::Message {
            from: 1,
            tag: NOTICE,
            bytes: Bytes(wire::encode(&(7u64, n.to_string())).unwrap()),
        };
        let inbox = Arc::new(Inbox::new(0, 3, 1000));
        (0..2 * MOST_NOTICES).for_each(|n| inbox.deliver(notice(n)));
        inbox.deliver(Event::Message { from: 1, tag: NOTICE, bytes: Bytes(vec![0xff; 3]) });
        assert!(inbox.lost().is_empty() && inbox.with(|state| state.notices.len()) == MOST_NOTICES);
        let (tell, told) = std::sync::mpsc::channel();
        let callback = Arc::new(move |from: Rank, text: &str| tell.send((from, text.to_owned())).unwrap());
        inbox.on_notice(7, callback).unwrap();
        for n in MOST_NOTICES..2 * MOST_NOTICES {
            assert_eq!(told.recv_timeout(Duration::from_secs(10)), Ok((1, n.to_string())));
        }
        inbox.off_notice(7);
        inbox.deliver(notice(0));
        // The callback is gone, and its channel with it.
        assert!(told.recv_timeout(Duration::from_secs(10)).is_err());
        inbox.leave();
    }

    #[test]
    fn the_groups_that_one_rank_tears_down_are_bounded() {
        let inbox = Inbox::new(0, 3, 1000);
        for _ in 0..2 {
            (0..MOST_GROUPS as u64).for_each(|group| inbox.deliver(Event::Done { op: (group, 1), rank: 1 }));
        }
        assert!(inbox.lost().is_empty());
        inbox.deliver(Event::Done { op: (u64::MAX, 1), rank: 1 });
        assert!(why_lost(&inbox).contains("tore more than 65536 groups down"));
    }

    #[test]
    fn outcomes_that_nobody_waits_for_and_ranks_that_there_are_not_leave_nothing() {
        let inbox = Inbox::new(0, 3, 1000);
        inbox.deliver(Event::Gathered { op: (1, 1), parts: Few::default() });
        inbox.deliver(Event::Lost { rank: 3, why: String::new() });
        inbox.deliver(Event::Message { from: 9, tag: 0, bytes: Bytes::default() });
        inbox.with(|state| {
            assert!(state.results.is_empty() && state.gone.is_empty() && state.mail.is_empty());
            state.expect((1, 1));
        });
        inbox.deliver(Event::Gathered { op: (1, 1), parts: Few::default() });
        inbox.with(|state| {
            assert!(matches!(state.result((1, 1)), Some(Outcome::Parts(_))));
            state.forget((1, 1));
            assert!(state.results.is_empty());
        });
    }
}
