//! What the planner knows of a schedule.

use super::Cut;
use crate::schedule::Protocol;
use fusewire_device::schedule::{First, Member, NOBODY, Schedule, Second};

/// What a schedule does with its channels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pattern {
    /// Legs each way of the rank that has most.
    pub(crate) peers: u32,
    /// Ends of channels that this rank works: one if it only sends or only receives.
    pub(in crate::schedule) ends: u32,
    /// See [`Schedule::OWN`].
    pub(crate) own: bool,
    /// See [`Schedule::MUTUAL`].
    pub(in crate::schedule) mutual: bool,
    /// See [`Schedule::ONCE`].
    pub(in crate::schedule) once: bool,
    /// See [`Schedule::FOLDS`].
    pub(in crate::schedule) folds: bool,
    /// See [`Schedule::APART`].
    pub(in crate::schedule) apart: bool,
    /// No rank both sends and receives.
    pub(in crate::schedule) rooted: bool,
    /// See [`Schedule::ALL_PAIRS`]; of those that go by domains, each rank's chunk by itself.
    pub(in crate::schedule) pairs: bool,
    /// See [`Schedule::root`].
    pub(in crate::schedule) root: Option<u32>,
    /// Kinds of blocks that this rank has in two steps, and by domains.
    pub(in crate::schedule) kinds: [u32; 2],
    /// So many blocks, whatever they do.
    pub(in crate::schedule) custom: Option<u32>,
}

impl Pattern {
    /// That of rank `me`'s launch of `schedule`.
    pub(in crate::schedule) fn of<S: Schedule>(schedule: &S, me: Member) -> Self {
        // The same on all ranks, of which some may have less to do.
        let legs = |rank| {
            let me = Member { rank, ..me };
            schedule.sends(me).max(schedule.receives(me))
        };
        let peers = if S::MOST_LEGS == 1 { 1 } else { (0..me.world).map(legs).max().unwrap_or(0) };
        let ends = |rank| {
            let me = Member { rank, ..me };
            let [own, sends, receives] =
                [schedule.own(me)[0] != NOBODY, schedule.sends(me) > 0, schedule.receives(me) > 0];
            // What is folded is received, and be it from nobody else.
            let ends = match S::FOLDS {
                true => [sends, own],
                false => [sends || S::ONCE && own, receives],
            };
            ends.map(u32::from).iter().sum::<u32>()
        };
        // Of a schedule of one leg each rank may name other peers.
        let rooted = !S::MUTUAL && S::MOST_LEGS > 1 && (0..me.world).all(|rank| ends(rank) < 2);
        let (own, mutual, once, folds, apart) = (S::OWN, S::MUTUAL, S::ONCE, S::FOLDS, S::APART);
        let (first, second) = (First(*schedule), Second(*schedule));
        let pairs = S::ALL_PAIRS && !S::TWO_STEPS && S::ONCE != S::FOLDS;
        let kinds = match (S::TWO_STEPS, mutual) {
            _ if pairs => [0, 4],
            (false, _) => [0; 2],
            (true, true) => [3; 2],
            _ => {
                let legs = [first.sends(me), first.receives(me), second.receives(me)];
                let root = schedule.root() == Some(me.rank);
                [legs.map(|n| n.min(1)).iter().sum(), 2 + u32::from(folds && root)]
            }
        };
        let root = schedule.root();
        Pattern {
            peers,
            ends: ends(me.rank),
            own,
            mutual,
            once,
            folds,
            apart,
            rooted,
            pairs,
            root,
            kinds,
            custom: None,
        }
    }

    /// That of so many blocks of a schedule function.
    pub(in crate::schedule) fn custom(blocks: u32) -> Self {
        Pattern {
            peers: 1,
            ends: 2,
            own: false,
            mutual: false,
            once: false,
            folds: false,
            apart: false,
            rooted: false,
            pairs: false,
            root: None,
            kinds: [0; 2],
            custom: Some(blocks),
        }
    }

    /// That of a schedule function whose blocks are planned: each works both ends of a channel.
    pub(in crate::schedule) fn tiles() -> Self {
        Pattern { ends: 1, rooted: true, custom: None, ..Pattern::custom(0) }
    }

    /// The same on a rank that both sends and receives, where there may be one.
    pub(in crate::schedule) fn widest(self) -> Self {
        let kinds =
            if self.mutual { self.kinds.map(|kinds| kinds.max(3)) } else { [2, 2 + u32::from(self.folds)] };
        Pattern { ends: if self.rooted { 1 } else { 2 }, kinds, ..self }
    }

    /// Parts of a chunk in two steps among `world` ranks: of a schedule with a root, which takes no part, one less.
    pub(super) fn parts(self, world: u32) -> u32 {
        if self.mutual { world } else { world.saturating_sub(1).max(1) }
    }

    /// Whether two steps are one: nobody is there to pass anything on to.
    pub(in crate::schedule) fn passes_nothing_on(self) -> bool {
        self.peers == 0 || !self.mutual && self.peers < 2
    }

    /// Channels of each step, where the transport has so many: those of both are others only where ranks send to the same peers. By domains some always do.
    pub(in crate::schedule) fn channels_of_a_step(self, protocol: Protocol, channels: u32) -> u32 {
        if self.mutual || protocol == Protocol::Hierarchical { channels / 2 } else { channels }
    }

    /// Kinds of blocks that this rank has in a protocol of several steps.
    pub(super) fn kinds(self, protocol: Protocol) -> u32 {
        self.kinds[usize::from(protocol == Protocol::Hierarchical)]
    }

    /// Bytes of such a `share` that travel together, if staging holds them: an eighth, but as much as hides what it takes to hand it over. (What is
    /// sent first and what is taken last, nothing else travels beside.) `rows`: of rows over fast links half as much does, since each takes longer.
    pub(in crate::schedule) fn enough(self, share: u64, rows: bool) -> u64 {
        let least = if self.folds || self.rooted { 64 << 10 } else { 128 << 10 };
        let least = if rows { least / 2 } else { least };
        (share / 8).clamp(least, 256 << 10)
    }

    /// Whether the blocks that send, or those that receive, do the self copy as well, each for all of its channel's peers.
    pub(in crate::schedule) fn keeps_within(self) -> bool {
        self.once || self.folds
    }

    /// Blocks of a grid: see `fusewire_device::protocol`.
    pub(in crate::schedule) fn blocks(self, protocol: Protocol, cut: Cut, on_host: bool) -> u32 {
        let Cut { channels, self_copy, groups } = cut;
        match protocol {
            _ if self.custom.is_some() => self.custom.unwrap_or(0),
            Protocol::Simple | Protocol::TwoShot | Protocol::Hierarchical if on_host => channels,
            Protocol::TwoShot | Protocol::Hierarchical => self.kinds(protocol) * channels,
            Protocol::Copy => 1,
            Protocol::Local => self_copy,
            // Without a peer too.
            Protocol::Direct if self.once => channels,
            Protocol::Ll128TwoShot => channels,
            Protocol::Ll | Protocol::Ll128 if self.keeps_within() && self.mutual => channels,
            _ if self.keeps_within() && protocol != Protocol::Bulk => self.ends * channels,
            _ if self.peers == 0 => self_copy,
            Protocol::Direct | Protocol::Bulk => channels + self_copy,
            Protocol::Ll | Protocol::Ll128 if self.mutual => channels + self_copy,
            Protocol::Ll | Protocol::Ll128 => self.ends * channels + self_copy,
            Protocol::Simple => self.ends * channels * groups + self_copy,
        }
    }
}
