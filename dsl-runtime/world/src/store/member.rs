//! A rank's side of the store, as a [`Bootstrap`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::hub::{Hub, Register, Sink};
use super::inbox::{Inbox, NOTICE, Outcome};
use super::proto::{Few, OpKey, Request};
use crate::bootstrap::{Bootstrap, LostCallback, NoticeCallback};
use crate::error::Timeout;
use crate::group::{APART, ONCE, group_id};
use crate::list::Ranks;
use crate::sync::{after, lock};
use crate::tcp::client::Connection;
use crate::wire::{self, Bytes};
use crate::{Error, Rank, Result};

/// How long to wait, after a deadline has passed, for the store to say who was missing.
const GRACE: Duration = Duration::from_secs(1);

/// How requests reach the store.
pub(crate) enum Link {
    /// The store is in this process.
    Local(Arc<Hub>),
    Tcp(Connection),
}

pub(crate) struct Member {
    rank: Rank,
    size: usize,
    max_message: usize,
    link: Link,
    inbox: Arc<Inbox>,
    /// Collectives and teardowns so far, by group.
    counts: Mutex<HashMap<u64, (u64, u64)>>,
}

impl Member {
    pub fn new(rank: Rank, size: usize, max_message: usize, link: Link, inbox: Arc<Inbox>) -> Self {
        Self { rank, size, max_message, link, inbox, counts: Mutex::default() }
    }

    /// A rank in the store's own process.
    pub fn local(hub: &Arc<Hub>, rank: Rank) -> Result<Self> {
        let max_message = hub.max_message();
        let inbox = Arc::new(Inbox::new(rank, hub.size(), max_message));
        match hub.register(rank, "another thread of it", || Ok(Sink::Local(Arc::clone(&inbox)))) {
            Register::Admitted => {
                Ok(Self::new(rank, hub.size(), max_message, Link::Local(Arc::clone(hub)), inbox))
            }
            _ => Err(Error::misuse(
                format!("rank {rank} is taken already"),
                "give each process a rank of its own",
            )),
        }
    }

    fn post(&self, request: Request) -> Result<()> {
        match &self.link {
            Link::Local(hub) => {
                hub.handle(self.rank, request);
                Ok(())
            }
            Link::Tcp(connection) => connection.post(&request),
        }
    }

    fn check_size(&self, bytes: &[u8]) -> Result<()> {
        if bytes.len() <= self.max_message {
            return Ok(());
        }
        Err(Error::misuse(
            format!("{} bytes in one message, where {} are allowed", bytes.len(), self.max_message),
            "the store is for set-up: send less, or raise `Options::max_message` on every rank",
        ))
    }

    fn gather(
        &self,
        (context, members): (u64, &[Rank]),
        all: bool,
        bytes: &[u8],
        deadline: Instant,
    ) -> Result<Vec<Vec<u8>>> {
        self.check_size(bytes)?;
        let started = Instant::now();
        let group = group_id(context, members);
        let op = (group, count(&mut lock(&self.counts).entry(group).or_default().0));
        if let Some(error) = self.inbox.with(|state| state.broken(members)) {
            return Err(error);
        }
        let named = if all { Vec::new() } else { members.to_vec() };
        self.inbox.with(|state| state.expect(op));
        let outcome = self.outcome(
            op,
            Request::Gather { op, members: Few(named), part: Bytes(bytes.to_vec()) },
            members,
            deadline,
        );
        self.inbox.with(|state| state.forget(op));
        let unknown = |note: &str| Timeout {
            what: "all_gather".to_owned(),
            waited: started.elapsed(),
            missing: Vec::new(),
            given_up_by: None,
            note: note.to_owned(),
        };
        match outcome {
            Ok(Outcome::Parts(parts)) => Ok(parts.into_iter().map(|part| part.0).collect()),
            Ok(Outcome::Unknown) => {
                Err(unknown("and the store does not answer: is the rank that holds it stopped?").into())
            }
            Ok(Outcome::GivenUp { by, missing }) => {
                let given_up_by = (by != self.rank).then_some(by);
                let own = |group| lock(&self.counts).get(&group).map_or(0, |counts| counts.1);
                let done = |rank: &Rank| self.inbox.with(|state| state.is_ahead(*rank, own));
                let done: Vec<Rank> = missing.iter().copied().filter(done).collect();
                let note = match done.as_slice() {
                    [] => String::new(),
                    done => format!(
                        "{} waits for the end of something instead: it called `teardown_barrier`, or dropped a transport or a window",
                        Ranks(done)
                    ),
                };
                Err(Timeout { missing, given_up_by, ..unknown(&note) }.into())
            }
            Err(error) => Err(error),
        }
    }

    fn outcome(&self, op: OpKey, request: Request, members: &[Rank], deadline: Instant) -> Result<Outcome> {
        let ended = |state: &mut super::inbox::State| {
            state.result(op).map(Ok).or_else(|| state.broken(members).map(Err))
        };
        self.post(request)?;
        if let Some(outcome) = self.inbox.wait(deadline, ended) {
            return outcome;
        }
        // The deadline has passed: tell the store, and learn from it who was missing.
        self.post(Request::GiveUp { op })?;
        self.inbox.wait(after(GRACE), ended).unwrap_or(Ok(Outcome::Unknown))
    }

    fn check_peer(&self, peer: Rank) -> Result<()> {
        if peer < self.size {
            return Ok(());
        }
        Err(Error::misuse(
            format!("there is no rank {peer} in a world of {}", self.size),
            "name a rank below `size()`",
        ))
    }
}

fn count(counter: &mut u64) -> u64 {
    *counter += 1;
    *counter
}

impl Bootstrap for Member {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn all_gather(&self, bytes: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>> {
        let members: Vec<_> = (0..self.size).collect();
        self.gather((0, &members), true, bytes, deadline)
    }

    fn group_gather(&self, members: &[Rank], bytes: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>> {
        self.gather_in(0, members, bytes, deadline)
    }

    fn gather_in(
        &self,
        context: u64,
        members: &[Rank],
        bytes: &[u8],
        deadline: Instant,
    ) -> Result<Vec<Vec<u8>>> {
        self.gather((context, members), false, bytes, deadline)
    }

    fn send(&self, peer: Rank, tag: u64, bytes: &[u8], _deadline: Instant) -> Result<()> {
        self.check_peer(peer)?;
        self.check_size(bytes)?;
        if let Some(error) = self.inbox.with(|state| state.broken(&[peer])) {
            return Err(error);
        }
        self.post(Request::Send { to: peer, tag, bytes: Bytes(bytes.to_vec()) })
    }

    fn recv(&self, peer: Rank, tag: u64, deadline: Instant) -> Result<Vec<u8>> {
        self.check_peer(peer)?;
        let started = Instant::now();
        self.inbox
            .wait(deadline, |state| {
                state.take_message(peer, tag).map(Ok).or_else(|| state.broken(&[peer]).map(Err))
            })
            .unwrap_or_else(|| Err(Error::timeout("recv", started.elapsed(), vec![peer])))
    }

    fn settle(&self, members: &[Rank], deadline: Instant) -> Result<()> {
        self.settle_in(0, members, deadline)
    }

    fn settle_in(&self, context: u64, members: &[Rank], deadline: Instant) -> Result<()> {
        let started = Instant::now();
        let group = group_id(context, members);
        let op @ (_, nth) = (group, count(&mut lock(&self.counts).entry(group).or_default().1));
        // Where the connection is gone, what is known of the others still decides.
        let posted = self.post(Request::Done { op, members: Few(members.to_vec()) });
        let missing = |state: &mut super::inbox::State| -> Vec<Rank> {
            members.iter().copied().filter(|&r| r != self.rank && !state.settled(group, nth, r)).collect()
        };
        let once = context & ONCE != 0;
        let stops = once && context & APART == 0;
        let own = |group| lock(&self.counts).get(&group).map_or(0, |counts| counts.1);
        let settled = self.inbox.wait(deadline, |state| {
            let missing = missing(state);
            if missing.is_empty() {
                return Some(Ok(()));
            }
            // A rank that ends things in another order waits for this one meanwhile.
            let crossing = missing.into_iter().find(|rank| stops && state.is_ahead(*rank, own));
            let crossing =
                crossing.map(|rank| Err(Error::timeout("teardown", started.elapsed(), vec![rank])));
            crossing.or_else(|| state.closed().cloned().map(Err))
        });
        let late = settled.is_none().then(|| self.inbox.with(missing));
        if once {
            // Whatever came of it, nobody asks again.
            lock(&self.counts).remove(&group);
            self.inbox.with(|state| state.forget_group(group));
        }
        match settled {
            Some(settled) => settled,
            None => {
                posted?;
                let what = if once { "teardown" } else { "teardown_barrier" };
                Err(Error::timeout(what, started.elapsed(), late.unwrap_or_default()))
            }
        }
    }

    fn check(&self, members: &[Rank]) -> Result<()> {
        self.inbox.with(|state| state.broken(members)).map_or(Ok(()), Err)
    }

    fn lost(&self) -> Vec<Rank> {
        self.inbox.lost()
    }

    fn on_lost(&self, callback: LostCallback) {
        // Without a thread there is no callback; the collectives still tell.
        let _ = self.inbox.on_lost(callback);
    }

    fn notify(&self, members: &[Rank], topic: u64, text: &str) -> Result<()> {
        let notice = wire::encode(&(topic, text))?;
        self.check_size(&notice)?;
        let mut others = members.iter().filter(|rank| **rank != self.rank);
        others.try_for_each(|&to| self.post(Request::Send { to, tag: NOTICE, bytes: Bytes(notice.clone()) }))
    }

    fn on_notice(&self, topic: u64, callback: NoticeCallback) {
        // As for `on_lost`.
        let _ = self.inbox.on_notice(topic, callback);
    }

    fn off_notice(&self, topic: u64) {
        self.inbox.off_notice(topic);
    }

    fn leave(&self) {
        if self.inbox.leave() {
            match &self.link {
                Link::Local(hub) => hub.handle(self.rank, Request::Leave),
                Link::Tcp(connection) => connection.leave(),
            }
        }
    }

    fn abort(&self, why: &str) {
        if self.inbox.leave() {
            match &self.link {
                Link::Local(hub) => hub.lost(self.rank, why),
                Link::Tcp(connection) => connection.abort(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_leave_nothing_behind() {
        let hub = Arc::new(Hub::new(2, 1000));
        let members = [0, 1].map(|rank| Member::local(&hub, rank).unwrap());
        std::thread::scope(|scope| {
            for member in &members {
                scope.spawn(|| {
                    for name in 0..100 {
                        member.settle_in(name | ONCE, &[0, 1], after(Duration::from_secs(5))).unwrap();
                    }
                });
            }
        });
        for member in &members {
            assert!(lock(&member.counts).is_empty());
            // Nobody is done with anything that is still known.
            assert!((0..2).all(|rank| !member.inbox.with(|state| state.is_ahead(rank, |_| 0))));
        }
    }

    /// Ranks come to two ends on threads of their own, in opposite orders, and to an ordinary end before that: none is given up.
    #[test]
    fn ends_apart_wait_beside_others() {
        let hub = Arc::new(Hub::new(2, 1000));
        let members = [0, 1].map(|rank| Member::local(&hub, rank).unwrap());
        let soon = || after(Duration::from_secs(20));
        let end = |rank: usize, name: u64| members[rank].settle_in(name | ONCE, &[0, 1], soon());
        std::thread::scope(|scope| {
            let apart = [0, 1].map(|rank| scope.spawn(move || end(rank, APART | (7 + rank as u64))));
            std::thread::sleep(Duration::from_millis(30));
            // Each is ahead with an end that the other has not come to.
            let ordinary = [0, 1].map(|rank| {
                std::thread::sleep(Duration::from_millis(30));
                scope.spawn(move || end(rank, 3))
            });
            ordinary.into_iter().for_each(|ended| ended.join().unwrap().unwrap());
            [0, 1].iter().for_each(|rank| end(*rank, APART | (8 - *rank as u64)).unwrap());
            apart.into_iter().for_each(|ended| ended.join().unwrap().unwrap());
        });
    }
}
