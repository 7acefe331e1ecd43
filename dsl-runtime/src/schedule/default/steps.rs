//! When what is folded is passed on: in two steps, or by domains.

use super::{
    FABRIC_SAVED, HOST_SAVED, LINES_SAVED, LINES_TWICE_MOST, SAVED, SAVED_REDUCED, TWICE_LEAST, Work,
};
use crate::schedule::Protocol;

impl Work {
    /// Whether two steps are faster than sending to every peer at once: where those send much less, or of long chunks no more, since each rank
    /// then folds a part.
    pub(super) fn in_two_steps(&self) -> bool {
        let [sent, twice] = self.sent_in_steps();
        // CPU threads copy as many bytes either way, but each folds a part of them.
        let (saved, least) = match (self.on_host, self.pattern.folds) {
            (true, true) => (HOST_SAVED, usize::MAX),
            (true, false) => return false,
            (false, true) if !self.pattern.mutual || self.rows => (SAVED_REDUCED, usize::MAX),
            (false, _) => (SAVED, TWICE_LEAST),
        };
        let pays = twice + saved <= sent || twice <= sent && sent >= least;
        self.relays > 0 && !self.pattern.passes_nothing_on() && pays
    }

    /// The same by LL128.
    pub(super) fn in_two_steps_by_ll128(&self) -> bool {
        let [sent, twice] = self.sent_in_steps();
        let saved = LINES_SAVED * self.world as usize;
        self.relays > 0 && !self.on_host && twice + saved <= sent && twice <= LINES_TWICE_MOST
    }

    /// Bytes that a rank sends in one step, and in two; or receives, if it is the root and that is more.
    fn sent_in_steps(&self) -> [usize; 2] {
        let sent = self.wire_bytes * self.pattern.peers as usize;
        let twice = match self.pattern.mutual {
            true => sent / self.world.max(1) as usize * (1 + self.relays) as usize,
            false => self.wire_bytes * self.relays as usize,
        };
        [sent, twice]
    }

    /// Whether steps by domains are faster than whichever of the others sends fewer bytes to other domains: where they send much less.
    pub(super) fn by_domains(&self) -> bool {
        let [one, two, by_domains] = self.sent_across();
        let otherwise = if self.relays > 0 { one.min(two) } else { one };
        let splits = self.relays > 0 && (self.partials > 0 || !self.pattern.folds);
        self.domain > 0 && splits && by_domains + FABRIC_SAVED <= otherwise
    }

    /// Bytes that a rank sends to ranks of other domains in one step, in two where there are two, and by domains: the one that sends or receives most.
    fn sent_across(&self) -> [usize; 3] {
        let [world, domain] = [self.world, self.domain.max(1)].map(|ranks| ranks as usize);
        let one = self.wire_bytes * (world - domain);
        // A root sends all parts itself, or gets them folded.
        let two = match self.pattern.pairs {
            true => one,
            false => {
                let [parts, times] =
                    [self.pattern.parts(self.world), u32::from(self.pattern.mutual) + self.relays];
                one / parts as usize * times as usize
            }
        };
        let times = if self.pattern.folds { self.partials as usize } else { 1 };
        // Of a chunk a part for each rank of a domain, where it is not one rank's.
        let crosses = self.wire_bytes / self.parts(Protocol::Hierarchical) as usize;
        [one, two, crosses * (world / domain - 1) * times]
    }

    /// Chunks in one stream at most.
    pub(in crate::schedule) fn streamed(&self, protocol: Protocol) -> u32 {
        match protocol {
            Protocol::Hierarchical if self.pattern.pairs => self.world / self.domain.max(1) - 1,
            _ => 1,
        }
    }

    /// Parts of a chunk, of which each is folded by one rank, or by one of each domain.
    pub(in crate::schedule) fn parts(&self, protocol: Protocol) -> u32 {
        match protocol {
            Protocol::Hierarchical if self.pattern.pairs => 1,
            Protocol::Hierarchical => self.domain.max(1),
            _ => self.pattern.parts(self.world),
        }
    }
}
