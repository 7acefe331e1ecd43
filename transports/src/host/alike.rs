//! Whether the ranks of a host launch the same collectives: each notes what its launches must have in common with its peers', and looks at
//! theirs before a kernel is queued. Kernels cannot tell, where they wait on other channels than those that the peer writes.
//!
//! What counts is a launch that every rank of the transport makes, in the same order: launches are numbered, and those of a number are
//! compared. A rank whose launches the host does not see any more, since others replay them, stops to note and to look.

use super::abort::cut;
use super::{Cut, Error, Fault, Link, Operation, Result};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A collective launch, or the replay of several, as the ranks of a host compare it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collective {
    /// Of all that the ranks' launches must have in common.
    pub digest: u64,
    /// Launches that it stands for: 1, or those of a graph.
    pub launches: u32,
    /// Number of the kernel: [`Link::next_kernel`]. As all that follows, of one launch alone.
    pub kernel: u64,
    /// Elements of one peer's chunk.
    pub elements: u64,
    /// Of rooted schedules.
    pub root: Option<u32>,
    /// How bytes travel, by a number of whoever launches.
    pub protocol: u8,
    /// How chunks are cut.
    pub cut: Cut,
}

/// Bytes travel by the protocol of that number: in words.
pub type Protocols = fn(u8) -> &'static str;

/// Of digests of several launches: odd, so that none is lost.
const DIGIT: u64 = 0x9e37_79b9_7f4a_7c15;

impl Collective {
    /// Both, one behind the other, as one replay makes them.
    #[must_use]
    pub fn then(self, next: &Collective) -> Self {
        if self.launches == 0 {
            return *next;
        }
        // As a number of so many digits: what graphs are nested in makes no difference.
        let digits = DIGIT.wrapping_pow(next.launches);
        let digest = self.digest.wrapping_mul(digits).wrapping_add(next.digest);
        Collective { digest, launches: self.launches.saturating_add(next.launches), ..Self::default() }
    }

    fn words(&self) -> [u64; WORDS - 1] {
        let Collective { digest, launches, kernel, elements, root, protocol, cut } = self;
        let root = root.map_or(0, |root| 1 + u64::from(root));
        let way = u64::from(*protocol) << 32 | cut.parts & 0xffff_ffff;
        [*digest, kernel << 32 | u64::from(*launches), *elements, root, way, cut.cols, cut.first]
    }

    fn of([digest, kernel, elements, root, way, cols, first]: [u64; WORDS - 1]) -> Self {
        Collective {
            digest,
            launches: kernel as u32,
            kernel: kernel >> 32,
            elements,
            root: root.checked_sub(1).map(|root| root as u32),
            protocol: (way >> 32) as u8,
            cut: Cut { parts: way & 0xffff_ffff, cols, first },
        }
    }
}

/// Launches that a rank's ring has. Another rank that is as many behind finds none to compare with.
const RING: u64 = 256;
/// Words of one: a cache line. The number comes first, or 0 while the others are written.
const WORDS: usize = 8;
/// Bytes of a ring on a rank's page of the board, and where they begin: behind the notes.
pub(super) const BYTES: usize = 8 * WORDS * RING as usize;
pub(super) const AT: usize = 4096;

/// A rank's collective launches. Its host writes them, under its board's lock; the other ranks' hosts read.
#[derive(Clone, Copy)]
pub(super) struct Ring<'a>(pub(super) &'a [AtomicU64]);

impl Ring<'_> {
    fn entry(&self, number: u64) -> &[AtomicU64] {
        let at = (number % RING) as usize * WORDS;
        &self.0[at..at + WORDS]
    }

    /// Notes launch `number`. What is read from other rings behind it is no older than what a rank wrote that does not see this: of two
    /// ranks that launch at once, one finds the other's.
    fn write(&self, number: u64, launch: &Collective) {
        let entry = self.entry(number);
        entry[0].store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        entry[1..].iter().zip(launch.words()).for_each(|(at, word)| at.store(word, Ordering::Relaxed));
        entry[0].store(number, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    fn take_back(&self, number: u64) {
        self.entry(number)[0].store(0, Ordering::Relaxed);
    }

    pub(super) fn clear(&self) {
        self.0.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Launch `number`, if it is there and differs from `own`.
    fn other(&self, number: u64, own: &Collective) -> Option<Collective> {
        let entry = self.entry(number);
        if entry[0].load(Ordering::Acquire) != number {
            return None;
        }
        let words = std::array::from_fn(|index| entry[1 + index].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let whole = entry[0].load(Ordering::Relaxed) == number;
        let theirs = Collective::of(words);
        // A replay against launches one by one: nobody knows which of them differ.
        let differs = theirs.digest != own.digest && theirs.launches == own.launches;
        (whole && differs).then_some(theirs)
    }
}

/// What a rank's host knows of its own collective launches; under the board's lock.
#[derive(Debug, Default)]
pub(super) struct Count {
    /// Since the rendezvous or the last `renew`.
    launches: u64,
    /// Others replay some: for as long as the transport lives, since their graphs outlast a `renew`.
    unseen: bool,
    /// One was not that of another rank. None goes before a `renew`.
    stopped: bool,
}

/// What a look at the other ranks' launches found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Looked {
    /// None that differs.
    Alike,
    /// One that does.
    Differs(Differs),
    /// An earlier launch differed.
    Stopped,
}

/// Launch `number` of `peer` is not this rank's.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Differs {
    pub(super) number: u64,
    pub(super) peer: usize,
    pub(super) theirs: Collective,
}

impl Count {
    /// Counts a launch, notes it, and compares it with those of the same number of the other ranks.
    pub(super) fn launch<'r>(
        &mut self,
        launch: &Collective,
        own: Ring<'_>,
        others: impl Iterator<Item = (usize, Ring<'r>)>,
    ) -> Option<Differs> {
        if self.unseen || launch.launches == 0 {
            return None;
        }
        let number = self.launches + 1;
        self.launches += u64::from(launch.launches);
        own.write(number, launch);
        let mut differing = others.filter_map(|(peer, ring)| Some((peer, ring.other(number, launch)?)));
        differing.next().map(|(peer, theirs)| Differs { number, peer, theirs })
    }

    /// What becomes of a launch that was looked at. Behind one that differs there is none that goes, whatever it is.
    pub(super) fn looked(&mut self, differs: Option<Differs>) -> Looked {
        match differs {
            _ if self.stopped => Looked::Stopped,
            None => Looked::Alike,
            Some(differs) => {
                self.stopped = true;
                Looked::Differs(differs)
            }
        }
    }

    /// The launch that was counted last was not queued.
    pub(super) fn take_back(&mut self, launch: &Collective, own: Ring<'_>) {
        if self.unseen || launch.launches == 0 {
            return;
        }
        self.launches = self.launches.saturating_sub(launch.launches.into());
        own.take_back(self.launches + 1);
    }

    pub(super) fn has_unseen(&mut self) {
        self.unseen = true;
    }

    pub(super) fn clear(&mut self) {
        self.launches = 0;
        self.stopped = false;
    }
}

/// How long an abort word may take behind a record.
const RAISED: Duration = Duration::from_secs(1);

/// Bytes of what differs that a message has at most.
const MOST_TOLD: usize = 800;

/// What ranks agreed on when they prepared a kernel: fields, as they are told, and values.
pub type Agreed = Vec<(&'static str, String)>;

/// The kernels of a link, by number: the same on all ranks.
#[derive(Default)]
pub(super) struct Kernels {
    next: AtomicU64,
    agreed: Mutex<Vec<(u64, Agreed)>>,
}

impl Kernels {
    fn agreed(&self, number: u64) -> Agreed {
        let all = self.agreed.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|(known, _)| *known == number).map(|(_, agreed)| agreed.clone()).unwrap_or_default()
    }

    /// What differs between two launches, field by field.
    fn differences(&self, me: usize, own: &Collective, with: &Differs, how: Protocols) -> String {
        let (peer, theirs) = (with.peer, &with.theirs);
        let mut fields: Vec<(&str, [String; 2])> = Vec::new();
        let mut field = |name, theirs: String, own: String| {
            if theirs != own {
                fields.push((name, [theirs, own]));
            }
        };
        let number = |n: u64| if n == 0 { "none".to_owned() } else { n.to_string() };
        if own.launches == 1 {
            let (first, second) = (self.agreed(theirs.kernel), self.agreed(own.kernel));
            let same = first == second;
            let found = |name| second.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value);
            first.iter().for_each(|(name, value)| field(name, value.clone(), found(*name).to_owned()));
            if same {
                let made = |n: u64| format!("number {} that was prepared", n + 1);
                field("kernel", made(theirs.kernel), made(own.kernel));
            }
            let root = |of: Option<u32>| of.map_or("none".to_owned(), |root| root.to_string());
            field("root", root(theirs.root), root(own.root));
            field("elements to a peer", theirs.elements.to_string(), own.elements.to_string());
            field("protocol", how(theirs.protocol).to_owned(), how(own.protocol).to_owned());
            field("channels", number(theirs.cut.parts), number(own.cut.parts));
            field("elements of a row", number(theirs.cut.cols), number(own.cut.cols));
            field("first bytes by LL128", number(16 * theirs.cut.first), number(16 * own.cut.first));
        }
        let told = fields
            .iter()
            .map(|(name, [theirs, own])| format!("{name}: {theirs} on rank {peer}, {own} on rank {me}"));
        let mut told = told.collect::<Vec<_>>().join("; ");
        if fields.is_empty() {
            told = match own.launches {
                1 => "they cut chunks in another way: shape, channels or chunk of the options differ"
                    .to_owned(),
                n => format!("both replay graphs of {n} collective launches, which are not the same"),
            };
        }
        // What to do is told behind it, of a reason that is not cut.
        if told.len() > MOST_TOLD {
            told = format!("{} ..", cut(&told, MOST_TOLD));
        }
        format!(
            "its collective launch number {} is not that of rank {peer} ({told}). All ranks must launch the same kernels, with the same root, \
             number of elements and options, in the same order",
            with.number
        )
    }
}

impl Link {
    /// Numbers kernels as they are prepared on this transport; equal on all ranks, which prepare them in the same order.
    pub fn next_kernel(&self) -> u64 {
        self.kernels.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Keeps what all ranks agreed on about the kernel of that number.
    pub fn agreed_on(&self, kernel: u64, agreed: Agreed) {
        self.kernels.agreed.lock().unwrap_or_else(PoisonError::into_inner).push((kernel, agreed));
    }

    /// Notes a launch, for the ranks of this host whose waits expire: the path of the kernel's module, schedule and protocol, the elements
    /// of one peer's chunk, and how chunks are cut. If every rank makes it, as the same `collective`, it is compared with what the
    /// other ranks of this host have launched.
    ///
    /// Gives whether it is to be queued: not where the transport has been stopped and theirs is another, nor behind such a launch. Its kernel would do
    /// nothing, but it could send before it looks.
    ///
    /// # Errors
    /// [`Error::Fault`] if theirs is another: the kernels of all ranks are stopped then, and this one's must not be queued.
    pub fn note(
        &self,
        kernel: &str,
        how: [&str; 2],
        elements: Option<u64>,
        cut: Cut,
        collective: Option<&Collective>,
        protocols: Protocols,
    ) -> Result<bool> {
        let looked = self.board.launch(|notes| notes.launched(kernel, how, elements, cut), collective);
        match (looked, collective) {
            (Looked::Differs(differs), Some(own)) => self.differs(own, &differs, protocols),
            (Looked::Stopped, _) => Ok(false),
            _ => Ok(true),
        }
    }

    /// The launch that was noted last, as this, was not queued.
    pub fn take_back(&self, launch: &Collective) {
        self.board.take_back(launch);
    }

    /// Others replay launches of this rank from here on: what it launches is not compared any more.
    pub fn has_unseen(&self) {
        self.board.has_unseen();
    }

    /// Refuses a launch that is not that of another rank, and stops what waits for it. `Ok(false)` if all has been stopped.
    #[cold]
    fn differs(&self, own: &Collective, differs: &Differs, how: Protocols) -> Result<bool> {
        // The first fault counts: this rank may not know of it yet, and who does goes on to something else. Who leaves a record raises the
        // abort words behind it.
        let start = Instant::now();
        while !self.is_aborted() && self.board.has_record() && start.elapsed() < RAISED {
            std::thread::yield_now();
        }
        if self.is_aborted() {
            return Ok(false);
        }
        let me = self.world().rank();
        let fault = self.disagree(&self.kernels.differences(me, own, differs, how));
        Err(Error::Fault(Box::new(fault)))
    }
}

impl Fault {
    /// Of a launch that `rank` refused.
    pub(super) fn disagreed(transport: &'static str, reader: usize, rank: usize, reason: String) -> Fault {
        let operation = Some(Operation::Disagreed { reason });
        Fault { transport, reader, rank, operation, at: None, launched: None, staging: None }
    }
}

#[cfg(test)]
#[path = "alike/tests.rs"]
mod tests;
