//! The seam: how ranks reach each other before there is a fabric.

use std::time::Instant;

use crate::{Error, Rank, Result};

/// How ranks exchange bytes at set-up. Three methods are enough; the rest have defaults that are made from these,
/// or say that they cannot be had.
///
/// The thread world and the TCP store implement it, and so can a caller who has an all-gather already (MPI,
/// `torch.distributed`, a job's own control plane): see [`World::with_bootstrap`](crate::World::with_bootstrap).
///
/// # Contract
/// - Methods may be called from several threads, but collectives of one set of ranks come in the same order on
///   every rank.
/// - Every method returns by its deadline, with [`Error::timeout`] naming the ranks that had not arrived.
/// - Ranks are numbered in the whole world, `0..size`.
pub trait Bootstrap: Send + Sync {
    /// This rank, below [`size`](Self::size).
    fn rank(&self) -> Rank;

    /// How many ranks there are; at least one.
    fn size(&self) -> usize;

    /// Collective: gives `bytes`, returns every rank's, by rank. Lengths may differ, and may be zero.
    ///
    /// # Errors
    /// A deadline that passed, or a rank that is lost.
    fn all_gather(&self, bytes: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>>;

    /// Collective: returns when every rank is here.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather).
    fn barrier(&self, deadline: Instant) -> Result<()> {
        self.all_gather(&[], deadline).map(drop)
    }

    /// Sends to one rank; need not wait for the receiver. Messages with the same sender, receiver and tag arrive in
    /// order. Default: an error.
    ///
    /// # Errors
    /// The peer is lost, or this bootstrap has no point-to-point messages.
    fn send(&self, peer: Rank, tag: u64, bytes: &[u8], deadline: Instant) -> Result<()> {
        let _ = (peer, tag, bytes, deadline);
        Err(no_messages())
    }

    /// Receives what `peer` sent with `tag`. Default: an error.
    ///
    /// # Errors
    /// A deadline that passed, a lost peer, or this bootstrap has no point-to-point messages.
    fn recv(&self, peer: Rank, tag: u64, deadline: Instant) -> Result<Vec<u8>> {
        let _ = (peer, tag, deadline);
        Err(no_messages())
    }

    /// Collective over `members` (distinct, this rank among them): like [`all_gather`](Self::all_gather), in the
    /// order of `members`. Default: the first member collects and hands out, by [`send`](Self::send) and
    /// [`recv`](Self::recv).
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather), and as `send`.
    fn group_gather(&self, members: &[Rank], bytes: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>> {
        group_gather_by_messages(self, members, bytes, deadline)
    }

    /// Collective over `members`: returns when each of them has called it **or is known to be dead**. Default: an
    /// all-gather, which cannot do without the dead.
    ///
    /// # Errors
    /// A deadline that passed.
    fn settle(&self, members: &[Rank], deadline: Instant) -> Result<()> {
        if members.len() == self.size() {
            self.barrier(deadline)
        } else {
            self.group_gather(members, &[], deadline).map(drop)
        }
    }

    /// [`group_gather`](Self::group_gather) of one of several groups of the same members, which `context` tells apart; all ranks in order
    /// may be among them. Default: takes them for one group, so that what happens in them must come in one order.
    ///
    /// # Errors
    /// As [`group_gather`](Self::group_gather).
    fn gather_in(
        &self,
        context: u64,
        members: &[Rank],
        bytes: &[u8],
        deadline: Instant,
    ) -> Result<Vec<Vec<u8>>> {
        let _ = context;
        if members.iter().copied().eq(0..self.size()) {
            self.all_gather(bytes, deadline)
        } else {
            self.group_gather(members, bytes, deadline)
        }
    }

    /// [`settle`](Self::settle) of one of several groups of the same members. Default: takes them for one group.
    ///
    /// # Errors
    /// As [`settle`](Self::settle).
    fn settle_in(&self, context: u64, members: &[Rank], deadline: Instant) -> Result<()> {
        let _ = context;
        self.settle(members, deadline)
    }

    /// The ranks known to be dead, ascending. Default: none are known.
    fn lost(&self) -> Vec<Rank> {
        Vec::new()
    }

    /// Fails where one of `members` is dead or gone, so that waiting for them is in vain. Default: looks at
    /// [`lost`](Self::lost).
    ///
    /// # Errors
    /// [`PeerError::Lost`](crate::PeerError::Lost) or [`PeerError::Left`](crate::PeerError::Left).
    fn check(&self, members: &[Rank]) -> Result<()> {
        match self.lost().into_iter().find(|rank| members.contains(rank)) {
            Some(rank) => Err(Error::peer_lost(rank, "its connection to the world ended")),
            None => Ok(()),
        }
    }

    /// Calls back once for each rank that is lost or was already, on a thread of the bootstrap's own. Default: never.
    fn on_lost(&self, callback: LostCallback) {
        drop(callback);
    }

    /// Sends `text` to `members`, none of whom waits for it, by [`on_notice`](Self::on_notice). Waits for none of them. Default: an error.
    ///
    /// # Errors
    /// The store is out of reach, or this bootstrap has no notices.
    fn notify(&self, members: &[Rank], topic: u64, text: &str) -> Result<()> {
        let _ = (members, topic, text);
        Err(Error::misuse(
            "this bootstrap has no notices, so the other ranks are not told",
            "implement `Bootstrap::notify` and `Bootstrap::on_notice`",
        ))
    }

    /// Calls back for each notice with this topic, on a thread of the bootstrap's own, until [`off_notice`](Self::off_notice). Default:
    /// never.
    fn on_notice(&self, topic: u64, callback: NoticeCallback) {
        let _ = (topic, callback);
    }

    /// Ends [`on_notice`](Self::on_notice); a call that is under way goes on.
    fn off_notice(&self, topic: u64) {
        let _ = topic;
    }

    /// Says goodbye: this rank's silence from now on is not a death. Called once, last, and must not block for long.
    fn leave(&self) {}

    /// Ends without a goodbye, as after a panic: peers should learn that this rank is lost.
    fn abort(&self, why: &str) {
        let _ = why;
    }
}

/// What is called with each lost rank and with how it was noticed.
pub type LostCallback = Box<dyn Fn(Rank, &str) + Send>;

/// What is called with the rank that sent a notice and with its text.
pub type NoticeCallback = std::sync::Arc<dyn Fn(Rank, &str) + Send + Sync>;

fn no_messages() -> Error {
    Error::misuse(
        "this bootstrap has no point-to-point messages",
        "implement `Bootstrap::send` and `Bootstrap::recv` (subgroups need them too)",
    )
}

/// The tag of the default group gather; the world never uses tags with the top bit set.
const GROUP_TAG: u64 = 1 << 63;

fn group_gather_by_messages<B: Bootstrap + ?Sized>(
    bootstrap: &B,
    members: &[Rank],
    bytes: &[u8],
    deadline: Instant,
) -> Result<Vec<Vec<u8>>> {
    let me = bootstrap.rank();
    let Some((&first, others)) = members.split_first() else { return Ok(Vec::new()) };
    let tag = GROUP_TAG | (crate::group::group_id(0, members) >> 1);
    if me == first {
        let mut parts = vec![bytes.to_vec()];
        for &peer in others {
            parts.push(bootstrap.recv(peer, tag, deadline)?);
        }
        let all = postcard::to_stdvec(&parts)
            .map_err(|e| Error::misuse(format!("cannot encode a group's parts ({e})"), "report this"))?;
        for &peer in others {
            bootstrap.send(peer, tag, &all, deadline)?;
        }
        Ok(parts)
    } else {
        bootstrap.send(first, tag, bytes, deadline)?;
        let all = bootstrap.recv(first, tag, deadline)?;
        crate::wire::decode(first, "a group's parts", &all)
    }
}
