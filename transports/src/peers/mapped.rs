//! Memory of peers, mapped.

use super::{Inner, LinkKind, PeersError, Sharable};
use crate::host::{Error, Foreign, Machine, Refused, Result};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Memory of the peers that this rank has mapped, and its own.
#[derive(Debug)]
pub struct MappedPeers {
    peers: Vec<Option<Arc<Sharable>>>,
    bytes: Vec<u64>,
    rank: usize,
    foreign: bool,
}

impl MappedPeers {
    /// Address of the memory of `rank` as this rank's kernels see it.
    ///
    /// # Errors
    /// [`PeersError::NoSuchRank`], [`PeersError::NotMapped`].
    pub fn address(&self, rank: usize) -> Result<u64, PeersError> {
        let Some(peer) = self.peers.get(rank) else {
            return Err(PeersError::NoSuchRank { rank, world: self.peers.len() });
        };
        peer.as_ref().map(|m| m.address()).ok_or(PeersError::NotMapped { peer: rank })
    }

    /// Bytes that `rank` shares, mapped here or not.
    ///
    /// # Errors
    /// [`PeersError::NoSuchRank`].
    pub fn bytes(&self, rank: usize) -> Result<u64, PeersError> {
        let world = self.peers.len();
        self.bytes.get(rank).copied().ok_or(PeersError::NoSuchRank { rank, world })
    }

    /// This rank's own memory.
    pub fn own(&self) -> Option<&Arc<Sharable>> {
        self.peers[self.rank].as_ref()
    }

    /// Whether some rank's is memory of others, which goes when its owner says so. The same on all ranks.
    pub fn has_foreign(&self) -> bool {
        self.foreign
    }
}

impl Inner {
    pub(super) fn exchange_mapped(&self, own: &Arc<Sharable>) -> Result<MappedPeers> {
        self.ready("`exchange_mapped`")?;
        let fd = match (&self.machine, &**own) {
            (Machine::Host, Sharable::Host(_)) | (Machine::Cuda(_), Sharable::Cuda(_)) => {
                own.export().map(Some)
            }
            (_, Sharable::Foreign(_)) => Ok(None),
            _ => {
                let what = "memory of another device than the transport's".into();
                Err(PeersError::Foreign { what }.into())
            }
        };
        // Every rank learns of one that has nothing to share: nobody waits for it.
        let own_said = fd.as_ref().map(|fd| (own.bytes() as u64, fd.is_none())).map_err(ToString::to_string);
        let said: Vec<Result<(u64, bool), String>> = self.world.all_gather_as(&own_said)?;
        let fd = fd?;
        if let Some((rank, why)) = said.iter().enumerate().find_map(|(r, s)| Some((r, s.as_ref().err()?))) {
            return Err(Error::Misuse { what: format!("rank {rank} could not share its memory: {why}") });
        }
        let said: Vec<(u64, bool)> = said.into_iter().flatten().collect();
        let foreign = said.iter().any(|(_, foreign)| *foreign);
        let mut peers = match foreign {
            true => self.map_foreign(own)?,
            false => self.map_descriptors(fd.as_ref(), &said)?,
        };
        peers[self.world.rank()] = Some(Arc::clone(own));
        let bytes = said.into_iter().map(|(bytes, _)| bytes).collect();
        Ok(MappedPeers { peers, bytes, rank: self.world.rank(), foreign })
    }

    fn map_descriptors(
        &self,
        own: Option<&OwnedFd>,
        said: &[(u64, bool)],
    ) -> Result<Vec<Option<Arc<Sharable>>>> {
        let fds = self.world.exchange_fds(own.map(AsFd::as_fd).as_slice())?;
        let map = |(rank, theirs): (usize, Vec<OwnedFd>)| match (
            self.topology.kind(rank),
            theirs.into_iter().next(),
        ) {
            (Some(LinkKind::Mapped), Some(fd)) => {
                Ok(Some(Arc::new(Sharable::import(&self.machine, fd, said[rank].0 as usize)?)))
            }
            (Some(LinkKind::Mapped), None) => {
                Err(Error::Misuse { what: format!("rank {rank} passed no memory") })
            }
            _ => Ok(None),
        };
        fds.into_iter().enumerate().map(map).collect()
    }

    fn map_foreign(&self, own: &Sharable) -> Result<Vec<Option<Arc<Sharable>>>> {
        // SAFETY: as long as `own`, which the caller keeps with what is mapped.
        let own = unsafe { Foreign::new(own.address(), own.bytes()) };
        let mapped = |rank| self.topology.kind(rank) == Some(LinkKind::Mapped);
        let made = Foreign::map_all(&self.world, &self.machine, Ok(&own), mapped, |_| Ok(()))?;
        let (peers, ()) = made.map_err(|Refused(error)| error)?;
        Ok(peers.into_iter().map(|peer| Some(Arc::new(Sharable::Foreign(peer?)))).collect())
    }
}
