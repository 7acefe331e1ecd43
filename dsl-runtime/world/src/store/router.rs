//! The store's logic as a plain state machine: a request in, events out.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::proto::{Event, Few, OpKey, Request};
use crate::Rank;
use crate::wire::Bytes;

/// The most collectives that a rank may have begun and others not joined.
const MOST_PENDING: usize = 1024;
/// The most failed collectives of which late ranks are told who gave up; the oldest are forgotten.
const MOST_GIVEN_UP: usize = 4096;
/// What keeping a collective, or a part of one, costs beside its bytes.
const OVERHEAD: usize = 64;

/// An event and the ranks that it goes to.
#[derive(Debug, PartialEq)]
pub(crate) struct Outgoing {
    pub to: Vec<Rank>,
    pub event: Event,
}

/// A request that no rank of this crate makes: whoever made it is to be put out.
#[derive(Debug, PartialEq)]
pub(crate) struct Violation(pub String);

pub(crate) struct Router {
    size: usize,
    /// The most bytes that a rank may keep the store from letting go.
    most_bytes: usize,
    /// Usually one each: ranks that disagree on the members do not meet.
    pending: HashMap<OpKey, Vec<Pending>>,
    held: HashMap<Rank, Held>,
    /// Failed collectives, oldest first; some may be complete by now.
    given_up: VecDeque<OpKey>,
    gone: HashMap<Rank, Event>,
    /// True as soon as one collective of all ranks is complete.
    formed: bool,
}

/// What a rank keeps the store from letting go.
#[derive(Default)]
struct Held {
    parts: usize,
    bytes: usize,
}

struct Pending {
    /// None means all.
    members: Vec<Rank>,
    begun_by: Rank,
    parts: BTreeMap<Rank, Bytes>,
    /// The rank that gave up first, and who was missing then.
    given_up: Option<(Rank, Vec<Rank>)>,
}

impl Pending {
    fn ranks(&self, size: usize) -> Vec<Rank> {
        all_or(&self.members, size)
    }

    fn has(&self, rank: Rank) -> bool {
        self.members.is_empty() || self.members.contains(&rank)
    }

    fn is_complete(&self, size: usize) -> bool {
        self.parts.len() == if self.members.is_empty() { size } else { self.members.len() }
    }

    /// Who no longer holds what, when this is let go.
    fn release(&self, held: &mut HashMap<Rank, Held>) {
        if self.given_up.is_some() {
            return;
        }
        let list = self.members.len() * size_of::<Rank>();
        for (&rank, part) in &self.parts {
            let begun = if rank == self.begun_by { list } else { 0 };
            let held = held.entry(rank).or_default();
            held.parts -= 1;
            held.bytes -= OVERHEAD + part.0.len() + begun;
        }
    }
}

fn all_or(members: &[Rank], size: usize) -> Vec<Rank> {
    if members.is_empty() { (0..size).collect() } else { members.to_vec() }
}

impl Router {
    pub fn new(size: usize, max_message: usize) -> Self {
        Self {
            size,
            most_bytes: max_message.saturating_mul(3).saturating_add(1 << 20),
            pending: HashMap::new(),
            held: HashMap::new(),
            given_up: VecDeque::new(),
            gone: HashMap::new(),
            formed: false,
        }
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

    /// # Errors
    /// A request that puts `from` out; the router itself is as if it had not been made.
    pub fn handle(&mut self, from: Rank, request: Request, out: &mut Vec<Outgoing>) -> Result<(), Violation> {
        if self.is_gone(from) {
            return Ok(());
        }
        match request {
            Request::Gather { op, members, part } => return self.gather(from, op, members.0, part, out),
            Request::GiveUp { op } => self.give_up(from, op, out),
            Request::Send { to, tag, bytes } => {
                if to >= self.size {
                    return Err(Violation(format!("it sent to rank {to} in a world of {}", self.size)));
                }
                if !self.is_gone(to) {
                    out.push(Outgoing { to: vec![to], event: Event::Message { from, tag, bytes } });
                }
            }
            Request::Done { op, members } => {
                self.check(from, &members.0)?;
                let to = all_or(&members.0, self.size);
                out.push(Outgoing { to, event: Event::Done { op, rank: from } });
            }
            Request::Ping => {}
            Request::Leave => self.end(from, Event::Left { rank: from }, out),
        }
        Ok(())
    }

    /// `rank` died.
    pub fn lost(&mut self, rank: Rank, why: &str, out: &mut Vec<Outgoing>) {
        if !self.is_gone(rank) {
            self.end(rank, Event::Lost { rank, why: why.to_owned() }, out);
        }
    }

    /// A list of members names ranks that exist, each once, and the one that gives it.
    fn check(&self, from: Rank, members: &[Rank]) -> Result<(), Violation> {
        if members.is_empty() {
            return Ok(());
        }
        let mut named = vec![false; self.size];
        for &rank in members {
            match named.get_mut(rank) {
                None => {
                    return Err(Violation(format!(
                        "it named rank {rank} as a member in a world of {}",
                        self.size
                    )));
                }
                Some(true) => return Err(Violation(format!("it named rank {rank} twice as a member"))),
                Some(named) => *named = true,
            }
        }
        if named[from] { Ok(()) } else { Err(Violation("it used a group that it is not in".to_owned())) }
    }

    fn gather(
        &mut self,
        from: Rank,
        op: OpKey,
        members: Vec<Rank>,
        part: Bytes,
        out: &mut Vec<Outgoing>,
    ) -> Result<(), Violation> {
        self.check(from, &members)?;
        // Who is gone has been told to everybody: each member fails by itself.
        if all_or(&members, self.size).iter().any(|&rank| self.is_gone(rank)) {
            return Ok(());
        }
        let waiting = self.pending.get(&op).map(Vec::as_slice).unwrap_or_default();
        let place = waiting.iter().position(|pending| pending.members == members);
        let known = place.map(|place| &waiting[place]);
        if known.is_some_and(|pending| pending.parts.contains_key(&from)) {
            return Err(Violation("it gave its part of a collective twice".to_owned()));
        }
        let failed = known.is_some_and(|pending| pending.given_up.is_some());
        let list = if known.is_none() { members.len() * size_of::<Rank>() } else { 0 };
        let part = if failed { Bytes::default() } else { part };
        if !failed {
            let held = self.held.entry(from).or_default();
            let bytes = held.bytes.saturating_add(OVERHEAD + part.0.len() + list);
            if held.parts == MOST_PENDING || bytes > self.most_bytes {
                return Err(Violation(format!(
                    "it began {} collectives with {bytes} bytes that other ranks have not joined, where \
                     {MOST_PENDING} and {} are allowed",
                    held.parts + 1,
                    self.most_bytes
                )));
            }
            *held = Held { parts: held.parts + 1, bytes };
        }
        let waiting = self.pending.entry(op).or_default();
        let place = place.unwrap_or_else(|| {
            waiting.push(Pending { members, begun_by: from, parts: BTreeMap::new(), given_up: None });
            waiting.len() - 1
        });
        let pending = &mut waiting[place];
        pending.parts.insert(from, part);
        if let Some((by, missing)) = &pending.given_up {
            let event = Event::GivenUp { op, by: *by, missing: Few(missing.clone()) };
            out.push(Outgoing { to: vec![from], event });
        }
        if !pending.is_complete(self.size) {
            return Ok(());
        }
        let done = waiting.swap_remove(place);
        if waiting.is_empty() {
            self.pending.remove(&op);
        }
        done.release(&mut self.held);
        if done.given_up.is_none() {
            let to = done.ranks(self.size);
            self.formed |= to.len() == self.size;
            let mut parts = done.parts;
            let parts = to.iter().filter_map(|rank| parts.remove(rank)).collect();
            out.push(Outgoing { to, event: Event::Gathered { op, parts: Few(parts) } });
        }
        Ok(())
    }

    /// One rank's deadline fails the collective for all of them, those yet to come included: never a success here
    /// and a failure there.
    fn give_up(&mut self, from: Rank, op: OpKey, out: &mut Vec<Outgoing>) {
        let Some(waiting) = self.pending.get_mut(&op) else { return };
        // A rank that gave its part of two collectives of one name waits for one of them only.
        let theirs = |pending: &&mut Pending| pending.parts.contains_key(&from);
        for pending in waiting.iter_mut().filter(theirs) {
            if pending.given_up.is_some() {
                continue;
            }
            pending.release(&mut self.held);
            pending.parts.values_mut().for_each(|part| *part = Bytes::default());
            let arrived: Vec<Rank> = pending.parts.keys().copied().collect();
            let mut missing = pending.ranks(self.size);
            missing.retain(|rank| !pending.parts.contains_key(rank));
            pending.given_up = Some((from, missing.clone()));
            self.given_up.push_back(op);
            out.push(Outgoing { to: arrived, event: Event::GivenUp { op, by: from, missing: Few(missing) } });
        }
        while self.given_up.len() > MOST_GIVEN_UP {
            let Some(oldest) = self.given_up.pop_front() else { break };
            self.let_go(oldest, |pending| pending.given_up.is_some());
        }
    }

    /// What is kept is within the limits, and what ranks hold is what is kept of them.
    #[cfg(any(test, feature = "fuzzing"))]
    pub fn assert_bounds(&self) {
        let mut held: HashMap<Rank, (usize, usize)> = HashMap::new();
        for pending in self.pending.values().flatten().filter(|pending| pending.given_up.is_none()) {
            for (&rank, part) in &pending.parts {
                let begun =
                    if rank == pending.begun_by { pending.members.len() * size_of::<Rank>() } else { 0 };
                let held = held.entry(rank).or_default();
                *held = (held.0 + 1, held.1 + OVERHEAD + part.0.len() + begun);
            }
        }
        for (rank, is) in &self.held {
            assert_eq!(held.remove(rank).unwrap_or_default(), (is.parts, is.bytes), "rank {rank}");
            assert!(is.parts <= MOST_PENDING && is.bytes <= self.most_bytes);
        }
        assert!(held.is_empty() && self.given_up.len() <= MOST_GIVEN_UP);
        assert!(self.pending.values().all(|waiting| !waiting.is_empty()));
    }

    fn let_go(&mut self, op: OpKey, which: impl Fn(&Pending) -> bool) {
        if let Some(waiting) = self.pending.get_mut(&op) {
            waiting.retain(|pending| !which(pending));
            if waiting.is_empty() {
                self.pending.remove(&op);
            }
        }
    }

    fn end(&mut self, rank: Rank, event: Event, out: &mut Vec<Outgoing>) {
        let held = &mut self.held;
        self.pending.retain(|_, waiting| {
            waiting.retain(|pending| {
                let ends = pending.has(rank);
                if ends {
                    pending.release(held);
                }
                !ends
            });
            !waiting.is_empty()
        });
        held.remove(&rank);
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
        Request::Gather { op: (1, 0), members: Few::default(), part: Bytes(vec![rank]) }
    }

    fn router(size: usize) -> Router {
        Router::new(size, 1000)
    }

    fn run(router: &mut Router, from: Rank, request: Request) -> Vec<Outgoing> {
        let mut out = Vec::new();
        router.handle(from, request, &mut out).unwrap();
        router.assert_bounds();
        out
    }

    fn violation(router: &mut Router, from: Rank, request: Request) -> String {
        let mut out = Vec::new();
        let Violation(why) = router.handle(from, request, &mut out).unwrap_err();
        assert!(out.is_empty());
        why
    }

    fn nothing_held(router: &Router) -> bool {
        router.pending.is_empty() && router.held.values().all(|held| held.parts == 0 && held.bytes == 0)
    }

    #[test]
    fn the_last_part_completes_a_gather_in_rank_order() {
        let mut router = router(3);
        assert!(run(&mut router, 2, gather(2)).is_empty());
        assert!(run(&mut router, 0, gather(0)).is_empty());
        let out = run(&mut router, 1, gather(1));
        let parts = Few(vec![Bytes(vec![0]), Bytes(vec![1]), Bytes(vec![2])]);
        assert_eq!(out, [Outgoing { to: vec![0, 1, 2], event: Event::Gathered { op: (1, 0), parts } }]);
        assert!(router.formed() && nothing_held(&router));
    }

    #[test]
    fn a_groups_parts_come_in_its_own_order() {
        let mut router = router(3);
        let gather =
            |rank: u8| Request::Gather { op: (5, 1), members: Few(vec![2, 0]), part: Bytes(vec![rank]) };
        run(&mut router, 0, gather(0));
        let out = run(&mut router, 2, gather(2));
        let parts = Few(vec![Bytes(vec![2]), Bytes(vec![0])]);
        assert_eq!(out, [Outgoing { to: vec![2, 0], event: Event::Gathered { op: (5, 1), parts } }]);
        assert!(!router.formed() && nothing_held(&router));
    }

    #[test]
    fn giving_up_fails_those_who_wait_and_those_who_come_late() {
        let mut router = router(3);
        run(&mut router, 0, gather(0));
        run(&mut router, 2, gather(2));
        let event = Event::GivenUp { op: (1, 0), by: 0, missing: Few(vec![1]) };
        assert_eq!(
            run(&mut router, 0, Request::GiveUp { op: (1, 0) }),
            [Outgoing { to: vec![0, 2], event: event.clone() }]
        );
        assert!(run(&mut router, 2, Request::GiveUp { op: (1, 0) }).is_empty());
        assert_eq!(run(&mut router, 1, gather(1)), [Outgoing { to: vec![1], event }]);
        assert!(nothing_held(&router));
    }

    #[test]
    fn the_dead_and_the_departed_are_announced_once() {
        let mut router = router(3);
        run(&mut router, 0, gather(0));
        let mut out = Vec::new();
        router.lost(1, "gone", &mut out);
        router.lost(1, "gone again", &mut out);
        assert_eq!(out.len(), 1);
        assert_eq!(out[0].to, [0, 1, 2]);
        assert!(nothing_held(&router));
        let out = run(&mut router, 2, Request::Leave);
        assert_eq!(out[0].to, [0]);
        assert!(run(&mut router, 2, gather(2)).is_empty());
    }

    #[test]
    fn nonsense_from_a_rank_puts_it_out_by_name() {
        let mut router = router(3);
        let send = Request::Send { to: 9, tag: 0, bytes: Bytes::default() };
        assert!(violation(&mut router, 0, send).contains("sent to rank 9 in a world of 3"));
        assert!(run(&mut router, 0, Request::GiveUp { op: (7, 7) }).is_empty());
        for (members, why) in [
            (vec![0, 55], "named rank 55"),
            (vec![0, 1, 1], "named rank 1 twice"),
            (vec![1, 2], "a group that it is not in"),
        ] {
            let members = Few(members);
            let request = Request::Gather { op: (3, 0), members: members.clone(), part: Bytes::default() };
            assert!(violation(&mut router, 0, request).contains(why));
            assert!(violation(&mut router, 0, Request::Done { op: (3, 0), members }).contains(why));
        }
        run(&mut router, 0, gather(0));
        assert!(violation(&mut router, 0, gather(0)).contains("twice"));
        assert_eq!(router.pending.len(), 1);
    }

    #[test]
    fn a_foreign_list_of_members_keeps_no_group_from_meeting() {
        let mut router = router(3);
        let gather = |members: &[Rank]| Request::Gather {
            op: (3, 1),
            members: Few(members.to_vec()),
            part: Bytes::default(),
        };
        assert!(run(&mut router, 2, gather(&[2, 0])).is_empty());
        assert!(run(&mut router, 1, gather(&[0, 1])).is_empty());
        assert_eq!(run(&mut router, 0, gather(&[0, 1]))[0].to, [0, 1]);
        let out = run(&mut router, 2, Request::GiveUp { op: (3, 1) });
        assert_eq!(out[0].to, [2]);
    }

    #[test]
    fn what_a_rank_leaves_pending_is_bounded() {
        let begin = |n: u64, bytes: usize| Request::Gather {
            op: (1, n),
            members: Few::default(),
            part: Bytes(vec![0; bytes]),
        };
        let mut router = router(2);
        for n in 0..MOST_PENDING as u64 {
            run(&mut router, 0, begin(n, 0));
        }
        let why = violation(&mut router, 0, begin(MOST_PENDING as u64, 0));
        assert!(why.contains("began 1025 collectives"), "{why}");
        // What the other has joined does not count.
        run(&mut router, 1, begin(0, 0));
        run(&mut router, 0, begin(MOST_PENDING as u64, 0));

        let mut router = Router::new(2, 1 << 20);
        for n in 0..3 {
            run(&mut router, 0, begin(n, 1 << 20));
        }
        assert!(
            violation(&mut router, 0, begin(3, 1 << 20)).contains("bytes that other ranks have not joined")
        );
    }

    #[test]
    fn failed_collectives_are_forgotten_in_the_end() {
        let mut router = router(2);
        for n in 0..3 * MOST_GIVEN_UP as u64 {
            let op = (1, n);
            run(&mut router, 0, Request::Gather { op, members: Few::default(), part: Bytes(vec![0; 900]) });
            run(&mut router, 0, Request::GiveUp { op });
        }
        assert_eq!(router.pending.len(), MOST_GIVEN_UP);
        assert!(router.held.values().all(|held| held.parts == 0 && held.bytes == 0));
    }
}
