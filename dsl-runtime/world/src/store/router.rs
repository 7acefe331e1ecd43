//! The store's logic as a plain state machine: a request in, events out.

use std::collections::HashMap;

use super::proto::{Event, OpKey, Request};
use crate::Rank;
use crate::wire::Bytes;

/// An event and the ranks that it goes to.
#[derive(Debug, PartialEq)]
pub(crate) struct Outgoing {
    pub to: Vec<Rank>,
    pub event: Event,
}

pub(crate) struct Router {
    size: usize,
    pending: HashMap<OpKey, Pending>,
    gone: HashMap<Rank, Event>,
    /// True as soon as one collective of all ranks is complete.
    formed: bool,
}

struct Pending {
    members: Vec<Rank>,
    parts: Vec<Option<Bytes>>,
    /// The rank that gave up first, and who was missing then.
    given_up: Option<(Rank, Vec<Rank>)>,
}

impl Pending {
    fn arrived(&self, yes: bool) -> Vec<Rank> {
        self.members
            .iter()
            .zip(&self.parts)
            .filter(|(_, part)| part.is_some() == yes)
            .map(|(&rank, _)| rank)
            .collect()
    }
}

impl Router {
    pub fn new(size: usize) -> Self {
        Self { size, pending: HashMap::new(), gone: HashMap::new(), formed: false }
    }

    pub fn formed(&self) -> bool {
        self.formed
    }

    pub fn is_gone(&self, rank: Rank) -> bool {
        self.gone.contains_key(&rank)
    }

    /// What a rank that arrives now has missed.
    pub fn news(&self) -> impl Iterator<Item = &Event> {
        self.gone.values()
    }

    pub fn handle(&mut self, from: Rank, request: Request, out: &mut Vec<Outgoing>) {
        if self.is_gone(from) {
            return;
        }
        match request {
            Request::Gather { op, members, part } => self.gather(from, op, members, part, out),
            Request::GiveUp { op } => self.give_up(from, op, out),
            Request::Send { to, tag, bytes } => {
                if to < self.size && !self.is_gone(to) {
                    out.push(Outgoing { to: vec![to], event: Event::Message { from, tag, bytes } });
                }
            }
            Request::Done { op, members } => {
                let to = self.members(members);
                out.push(Outgoing { to, event: Event::Done { op, rank: from } });
            }
            Request::Ping => {}
            Request::Leave => self.end(from, Event::Left { rank: from }, out),
        }
    }

    /// `rank` died.
    pub fn lost(&mut self, rank: Rank, why: &str, out: &mut Vec<Outgoing>) {
        if !self.is_gone(rank) {
            self.end(rank, Event::Lost { rank, why: why.to_owned() }, out);
        }
    }

    fn members(&self, members: Vec<Rank>) -> Vec<Rank> {
        if members.is_empty() {
            (0..self.size).collect()
        } else {
            members.into_iter().filter(|&rank| rank < self.size).collect()
        }
    }

    fn gather(&mut self, from: Rank, op: OpKey, members: Vec<Rank>, part: Bytes, out: &mut Vec<Outgoing>) {
        let members = self.members(members);
        // Who is gone has been told to everybody: each member fails by itself.
        if members.iter().any(|&rank| self.is_gone(rank)) {
            return;
        }
        let pending = self.pending.entry(op).or_insert_with(|| {
            let parts = vec![None; members.len()];
            Pending { members, parts, given_up: None }
        });
        let Some(place) = pending.members.iter().position(|&rank| rank == from) else { return };
        pending.parts[place] = Some(part);
        if let Some((by, missing)) = &pending.given_up {
            out.push(Outgoing {
                to: vec![from],
                event: Event::GivenUp { op, by: *by, missing: missing.clone() },
            });
        }
        if pending.parts.iter().any(Option::is_none) {
            return;
        }
        let Some(Pending { members, parts, given_up }) = self.pending.remove(&op) else { return };
        if given_up.is_none() {
            self.formed |= members.len() == self.size;
            let parts = parts.into_iter().flatten().collect();
            out.push(Outgoing { to: members, event: Event::Gathered { op, parts } });
        }
    }

    /// One rank's deadline fails the collective for all of them, those yet to come included: never a success here
    /// and a failure there.
    fn give_up(&mut self, from: Rank, op: OpKey, out: &mut Vec<Outgoing>) {
        let Some(pending) = self.pending.get_mut(&op) else { return };
        if pending.given_up.is_none() {
            let missing = pending.arrived(false);
            pending.given_up = Some((from, missing.clone()));
            out.push(Outgoing { to: pending.arrived(true), event: Event::GivenUp { op, by: from, missing } });
        }
    }

    fn end(&mut self, rank: Rank, event: Event, out: &mut Vec<Outgoing>) {
        self.pending.retain(|_, pending| !pending.members.contains(&rank));
        // A rank that is taken for dead but is not hears it too.
        let tell_it = matches!(event, Event::Lost { .. });
        let to = (0..self.size).filter(|&r| !self.is_gone(r) && (r != rank || tell_it)).collect();
        self.gone.insert(rank, event.clone());
        out.push(Outgoing { to, event });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gather(rank: u8) -> Request {
        Request::Gather { op: (1, 0), members: vec![], part: Bytes(vec![rank]) }
    }

    fn run(router: &mut Router, from: Rank, request: Request) -> Vec<Outgoing> {
        let mut out = Vec::new();
        router.handle(from, request, &mut out);
        out
    }

    #[test]
    fn the_last_part_completes_a_gather_in_rank_order() {
        let mut router = Router::new(3);
        assert!(run(&mut router, 2, gather(2)).is_empty());
        assert!(run(&mut router, 0, gather(0)).is_empty());
        let out = run(&mut router, 1, gather(1));
        let parts = vec![Bytes(vec![0]), Bytes(vec![1]), Bytes(vec![2])];
        assert_eq!(out, [Outgoing { to: vec![0, 1, 2], event: Event::Gathered { op: (1, 0), parts } }]);
        assert!(router.formed() && router.pending.is_empty());
    }

    #[test]
    fn giving_up_fails_those_who_wait_and_those_who_come_late() {
        let mut router = Router::new(3);
        run(&mut router, 0, gather(0));
        run(&mut router, 2, gather(2));
        let event = Event::GivenUp { op: (1, 0), by: 0, missing: vec![1] };
        assert_eq!(
            run(&mut router, 0, Request::GiveUp { op: (1, 0) }),
            [Outgoing { to: vec![0, 2], event: event.clone() }]
        );
        assert!(run(&mut router, 2, Request::GiveUp { op: (1, 0) }).is_empty());
        assert_eq!(run(&mut router, 1, gather(1)), [Outgoing { to: vec![1], event }]);
        assert!(router.pending.is_empty());
    }

    #[test]
    fn the_dead_and_the_departed_are_announced_once() {
        let mut router = Router::new(3);
        run(&mut router, 0, gather(0));
        let mut out = Vec::new();
        router.lost(1, "gone", &mut out);
        router.lost(1, "gone again", &mut out);
        assert_eq!(out.len(), 1);
        assert_eq!(out[0].to, [0, 1, 2]);
        assert!(router.pending.is_empty());
        let out = run(&mut router, 2, Request::Leave);
        assert_eq!(out[0].to, [0]);
        assert!(run(&mut router, 2, gather(2)).is_empty());
    }

    #[test]
    fn nonsense_from_an_authenticated_rank_does_no_harm() {
        let mut router = Router::new(2);
        assert!(run(&mut router, 0, Request::Send { to: 9, tag: 0, bytes: Bytes::default() }).is_empty());
        assert!(run(&mut router, 0, Request::GiveUp { op: (7, 7) }).is_empty());
        let foreign = Request::Gather { op: (3, 0), members: vec![1, 55], part: Bytes::default() };
        assert!(run(&mut router, 0, foreign).is_empty());
    }
}
