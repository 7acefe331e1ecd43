//! Bytes, values and file descriptors between the ranks of a [`World`].

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{World, next};
use crate::error::{DifferingField, Disagreement, PeerError};
use crate::fds::{Carrier, Exchange};
use crate::sync::lock;
use crate::text::Printable;
use crate::{Error, Rank, Result, wire};

impl World {
    /// Collective: gives `bytes`, returns every rank's, by rank. Lengths may differ, and may be zero.
    ///
    /// # Errors
    /// A rank that is lost or has left, ranks that have not arrived when the deadline passes (named), ranks that are in
    /// another collective (named, with it), or more bytes than [`Options::max_message`](crate::Options::max_message).
    pub fn all_gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.gather("all_gather", bytes)
    }

    /// Collective: as [`all_gather`](Self::all_gather), for values.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather), or a value that postcard cannot carry.
    pub fn all_gather_as<T: Serialize + DeserializeOwned>(&self, value: &T) -> Result<Vec<T>> {
        let name = std::any::type_name::<T>();
        let parts = self.gather(&format!("all_gather of {name}"), &wire::encode(value)?)?;
        let decode = |(rank, part): (Rank, &Vec<u8>)| wire::decode(self.group.members[rank], name, part);
        parts.iter().enumerate().map(decode).collect()
    }

    /// Collective: returns `root`'s `bytes` on every rank; those of the others do not count.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather), or a root that does not exist.
    pub fn broadcast(&self, root: Rank, bytes: &[u8]) -> Result<Vec<u8>> {
        self.world_peer(root)?;
        let own = if root == self.rank() { bytes } else { &[] };
        let mut parts = self.gather(&format!("broadcast from rank {root}"), own)?;
        Ok(parts.swap_remove(root))
    }

    /// Collective: returns `root`'s value on every rank; the root gives `Some`, and what the others give does not count.
    ///
    /// # Errors
    /// As [`broadcast`](Self::broadcast); a root that gives `None`.
    pub fn broadcast_as<T: Serialize + DeserializeOwned>(&self, root: Rank, value: Option<&T>) -> Result<T> {
        let own = match value {
            Some(value) if root == self.rank() => wire::encode(value)?,
            None if root == self.rank() => {
                return Err(Error::misuse(
                    "the root of a broadcast gave no value",
                    "give `Some(&value)` on the root",
                ));
            }
            _ => Vec::new(),
        };
        let bytes = self.broadcast(root, &own)?;
        wire::decode(self.group.members[root], std::any::type_name::<T>(), &bytes)
    }

    /// Collective: returns when every rank is here.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather).
    pub fn barrier(&self) -> Result<()> {
        self.gather("barrier", &[]).map(drop)
    }

    /// Sends to one rank (itself too). Does not wait for it to receive.
    ///
    /// # Errors
    /// A peer that does not exist, is lost or has left; too many bytes; a bootstrap without messages.
    pub fn send(&self, peer: Rank, tag: u32, bytes: &[u8]) -> Result<()> {
        let to = self.world_peer(peer)?;
        let call = || format!("send to rank {to} with tag {tag}");
        self.core.bootstrap.send(to, self.tag(tag), bytes, self.deadline()).map_err(|e| e.during(&call()))
    }

    /// Receives what `peer` sent with `tag`: in the order sent, and apart from other tags and groups.
    ///
    /// # Errors
    /// Nothing came before the deadline; a peer that does not exist, or is lost or gone with nothing left to receive.
    pub fn recv(&self, peer: Rank, tag: u32) -> Result<Vec<u8>> {
        let from = self.world_peer(peer)?;
        let call = || format!("recv from rank {from} with tag {tag}");
        self.core.bootstrap.recv(from, self.tag(tag), self.deadline()).map_err(|e| e.during(&call()))
    }

    /// Collective: groups the ranks by `color`; in a group they are numbered by `key`, then by rank. Each split makes groups of their own,
    /// also of members that are a group already: what happens in them may happen at the same time, on other threads. (Not so over a
    /// [`Bootstrap`](crate::Bootstrap) of the caller's that does not tell them apart.)
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather).
    pub fn split(&self, color: u64, key: u64) -> Result<Self> {
        let done = || lock(&self.core.splits);
        // Each rank counts for itself, and one may have counted a split that the others refused: the largest number is everybody's.
        let number = done().get(&self.group.id).map_or(1, |done| done + 1);
        let parts = self.gather("split", &wire::encode(&(number, color, key))?)?;
        let decode = |(rank, part): (Rank, &Vec<u8>)| {
            wire::decode::<(u64, u64, u64)>(self.group.members[rank], "a split", part)
        };
        let all: Vec<_> = parts.iter().enumerate().map(decode).collect::<Result<_>>()?;
        let number = all.iter().fold(number, |most, part| most.max(part.0));
        done().insert(self.group.id, number);
        let mut members: Vec<Rank> = (0..all.len()).filter(|&rank| all[rank].1 == color).collect();
        members.sort_by_key(|&rank| all[rank].2);
        self.subgroup_in(self.group.split(number), &members)
    }

    /// Collective over the ranks of **this host**: gives `fds`, returns every rank's as descriptors of this process, by
    /// rank; empty for ranks of other hosts (which may call it too, for their own). The descriptors are close-on-exec.
    ///
    /// # Errors
    /// A rank of this host that is lost, or has not arrived when the deadline passes; a system that refuses, mostly for
    /// a limit on open files.
    pub fn exchange_fds(&self, fds: &[BorrowedFd<'_>]) -> Result<Vec<Vec<OwnedFd>>> {
        let places = self.local_ranks();
        let locals: Vec<Rank> = places.iter().map(|&rank| self.group.members[rank]).collect();
        // Of the whole group, not of its local part: the same ranks may meet in several groups.
        let group = self.group.id;
        let check = |ranks: &[Rank]| self.core.bootstrap.check(ranks);
        let exchange = Exchange {
            key: (group, next(&self.core.exchanges, group)),
            me: self.group.members[self.rank()],
            locals: &locals,
            check: &check,
            deadline: self.deadline(),
        };
        let received = match &self.core.carrier {
            Carrier::Threads(table) => table.exchange(&exchange, fds),
            Carrier::Sockets(mailbox) => {
                let addresses = places.iter().map(|&rank| self.info(rank).mailbox.as_ref());
                let addresses: Option<Vec<_>> = addresses.collect();
                let addresses = addresses.ok_or_else(|| {
                    Error::misuse(
                        "a rank of this host has no socket for descriptors",
                        "run the same build everywhere",
                    )
                })?;
                mailbox.exchange(&exchange, &addresses, fds)
            }
        };
        let mut by_rank: Vec<Vec<OwnedFd>> = (0..self.size()).map(|_| Vec::new()).collect();
        for (place, fds) in places.into_iter().zip(received.map_err(|e| e.during("exchange_fds"))?) {
            by_rank[place] = fds;
        }
        Ok(by_rank)
    }

    /// Collective: returns when every rank has called it **or is known to be dead or gone**. For the end of a program; what ranks made
    /// together ends by [`World::teardown`].
    ///
    /// # Errors
    /// The deadline passed (the error names who has not said that it is done), or the rank that holds the store died, so
    /// that nothing more can be learnt of the others.
    pub fn teardown_barrier(&self) -> Result<()> {
        self.settle(self.deadline()).map_err(|e| e.during("teardown_barrier"))
    }

    fn settle(&self, deadline: Instant) -> Result<()> {
        match self.group.context {
            0 => self.core.bootstrap.settle(&self.group.members, deadline),
            context => self.core.bootstrap.settle_in(context, &self.group.members, deadline),
        }
    }

    /// An all-gather under a name, which must be the same on every rank.
    pub(super) fn gather(&self, call: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let framed = wire::encode(&(call, wire::Bytes(bytes.to_vec())))?;
        let (bootstrap, deadline) = (&self.core.bootstrap, self.deadline());
        let parts = match self.group.context {
            0 if self.group.whole => bootstrap.all_gather(&framed, deadline),
            0 => bootstrap.group_gather(&self.group.members, &framed, deadline),
            context => bootstrap.gather_in(context, &self.group.members, &framed, deadline),
        };
        let parts = parts.map_err(|e| e.during(call))?;
        if parts.len() != self.size() {
            return Err(Error::misuse(
                format!(
                    "the bootstrap's all-gather returned {} parts for {} ranks",
                    parts.len(),
                    self.size()
                ),
                "return one part a rank, by rank",
            ));
        }
        let decode = |(place, part): (Rank, &Vec<u8>)| {
            wire::decode::<(String, wire::Bytes)>(self.group.members[place], "a part of a collective", part)
        };
        let parts: Vec<_> = parts.iter().enumerate().map(decode).collect::<Result<_>>()?;
        if parts.iter().any(|(name, _)| name != call) {
            let names = parts.into_iter().map(|(name, _)| Some(name)).collect();
            let field = self.differing("called", names);
            let topic = "which collective this is".to_owned();
            return Err(PeerError::from(Disagreement { topic, fields: vec![field] }).into());
        }
        Ok(parts.into_iter().map(|(_, bytes)| bytes.0).collect())
    }

    /// `values` by place in the group, sorted into who has what; fewest first, so that the odd one out leads.
    pub(super) fn differing(&self, name: &str, values: Vec<Option<String>>) -> DifferingField {
        let mut by_value: Vec<(Option<String>, Vec<Rank>)> = Vec::new();
        for (place, value) in values.into_iter().enumerate() {
            let rank = self.group.members[place];
            match by_value.iter_mut().find(|(known, _)| *known == value) {
                Some((_, ranks)) => ranks.push(rank),
                None => by_value.push((value, vec![rank])),
            }
        }
        // With equally many on each side, rank 0's is the one to compare with.
        by_value.sort_by_key(|(_, ranks)| (ranks.len(), std::cmp::Reverse(ranks[0])));
        let shown =
            |(value, ranks): (Option<String>, _)| (value.map(|text| Printable(&text).to_string()), ranks);
        DifferingField { name: name.to_owned(), values: by_value.into_iter().map(shown).collect() }
    }

    fn world_peer(&self, peer: Rank) -> Result<Rank> {
        self.world_rank(peer).ok_or_else(|| {
            let what = format!("there is no rank {peer} in a world of {}", self.size());
            Error::misuse(what, "name a rank below `size()`")
        })
    }

    /// The top bit stays clear: it is the bootstrap's own.
    fn tag(&self, tag: u32) -> u64 {
        self.group.tag_space << 32 | u64::from(tag)
    }
}
