//! [`World`]: who is here.

mod agree;
mod collectives;
mod teardown;
mod threads;

pub use teardown::Teardown;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::bootstrap::Bootstrap;
use crate::fds::Carrier;
use crate::fds::sockets::{Address, Mailbox};
use crate::fds::threads::Table;
use crate::group::Group;
use crate::host::host_id;
use crate::store::hub::Hub;
use crate::store::member::Member;
use crate::store::proto::MAX_RANKS;
use crate::sync::{after, lock};
use crate::tcp::{client, server};
use crate::text::Printable;
use crate::{Error, Options, Rank, Result, UniqueId, wire};

/// How the ranks of a [`World`] reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// There is just one rank.
    Single,
    /// Threads of one process.
    Threads,
    /// The TCP store.
    Tcp,
    /// A [`Bootstrap`] of the caller's.
    Custom,
}

/// This rank's place among the ranks of a job, and the set-up traffic between them. See the [crate's docs](crate).
///
/// Cheap to clone; clones may be used from several threads. Dropping the last clone says goodbye to the other ranks
/// (unless the thread is panicking: then the others learn that this rank is lost).
///
/// Methods called **collective** must be called by every rank of the world (or of the [subgroup](Self::subgroup)), in
/// the same order, from one thread at a time. Each takes at most [`Options::timeout`].
#[derive(Clone)]
pub struct World {
    core: Arc<Core>,
    group: Arc<Group>,
    timeout: Duration,
}

struct Core {
    bootstrap: Arc<dyn Bootstrap>,
    kind: Kind,
    peers: Vec<PeerInfo>,
    local_rank: Option<usize>,
    carrier: Carrier,
    /// Exchanges of descriptors so far, by group.
    exchanges: Counts,
    /// Splits so far, by group.
    splits: Counts,
    /// Set once the goodbye is said, or must not be.
    ended: std::sync::atomic::AtomicBool,
}

/// What ranks tell about themselves when they meet.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PeerInfo {
    host_id: String,
    hostname: String,
    mailbox: Option<Address>,
}

#[cfg(feature = "fuzzing")]
impl PeerInfo {
    pub(crate) fn hostname(&self) -> &str {
        &self.hostname
    }
}

impl World {
    /// A world of just this rank.
    ///
    /// # Errors
    /// None are known; the signature is that of the other ways to meet.
    pub fn single() -> Result<Self> {
        Self::alone(&Options::default())
    }

    fn alone(options: &Options) -> Result<Self> {
        let member = Member::local(&Arc::new(Hub::new(1, options.max_message)), 0)?;
        Self::new(Arc::new(member), Kind::Single, Some(Arc::new(Table::default())), options)
    }

    /// Meets `size` ranks that all have the same `id`. Collective. The first call in the process that made the id holds
    /// the store.
    ///
    /// # Errors
    /// Ranks that do not arrive, a rank that is taken or out of range, or a world size that differs from the store's.
    pub fn connect(id: &UniqueId, rank: Rank, size: usize, options: &Options) -> Result<Self> {
        check_rank(rank, size)?;
        let member = match id.take_listener() {
            Some(listener) => server::host(listener, id.token(), rank, size, options)?,
            None => client::join(&mut id.clone(), rank, size, options)?,
        };
        Self::over_tcp(member, options)
    }

    pub(crate) fn over_tcp(member: Member, options: &Options) -> Result<Self> {
        Self::new(Arc::new(member), Kind::Tcp, None, options)
    }

    pub(crate) fn lone_process(options: &Options) -> Result<Self> {
        Self::alone(options)
    }

    /// A world over the caller's own way to exchange bytes. Collective.
    ///
    /// # Errors
    /// What the bootstrap's first all-gather returns.
    pub fn with_bootstrap(bootstrap: Box<dyn Bootstrap>) -> Result<Self> {
        Self::with_bootstrap_and(bootstrap, &Options::default())
    }

    /// As [`with_bootstrap`](Self::with_bootstrap), with options; of these, `timeout` and `local_rank` count.
    ///
    /// # Errors
    /// As [`with_bootstrap`](Self::with_bootstrap).
    pub fn with_bootstrap_and(bootstrap: Box<dyn Bootstrap>, options: &Options) -> Result<Self> {
        check_rank(bootstrap.rank(), bootstrap.size())?;
        Self::new(Arc::from(bootstrap), Kind::Custom, None, options)
    }

    fn new(
        bootstrap: Arc<dyn Bootstrap>,
        kind: Kind,
        table: Option<Arc<Table>>,
        options: &Options,
    ) -> Result<Self> {
        let met = Self::meet(&bootstrap, kind, table, options);
        if let Err(error) = &met {
            // The others need not wait for this rank.
            bootstrap.abort(&format!("it failed to join ({error})"));
        }
        met
    }

    fn meet(
        bootstrap: &Arc<dyn Bootstrap>,
        kind: Kind,
        table: Option<Arc<Table>>,
        options: &Options,
    ) -> Result<Self> {
        let (rank, size) = (bootstrap.rank(), bootstrap.size());
        let carrier = match table {
            Some(table) => Carrier::Threads(table),
            None => Carrier::Sockets(Mailbox::new()?),
        };
        let mailbox = match &carrier {
            Carrier::Sockets(mailbox) => Some(mailbox.address().clone()),
            Carrier::Threads(_) => None,
        };
        let own = PeerInfo { host_id: host_id(), hostname: crate::host::hostname(), mailbox };
        let deadline = after(options.timeout);
        let infos = bootstrap
            .all_gather(&wire::encode(&own)?, deadline)
            .map_err(|e| e.during(&format!("meeting of {size} ranks")))?;
        let peers = infos.iter().enumerate().map(|(rank, info)| wire::decode(rank, "its particulars", info));
        let mut peers = peers.collect::<Result<Vec<PeerInfo>>>()?;
        for peer in &mut peers {
            peer.hostname = Printable(&peer.hostname).to_string();
        }
        if peers.len() != size {
            return Err(Error::misuse(
                format!("the bootstrap's all-gather returned {} parts for {size} ranks", peers.len()),
                "return one part a rank, by rank",
            ));
        }
        let core = Core {
            bootstrap: Arc::clone(bootstrap),
            kind,
            peers,
            local_rank: options.local_rank,
            carrier,
            exchanges: Counts::default(),
            splits: Counts::default(),
            ended: false.into(),
        };
        Ok(Self { core: Arc::new(core), group: Arc::new(Group::whole(rank, size)), timeout: options.timeout })
    }

    /// This rank, in `0..size()`.
    pub fn rank(&self) -> Rank {
        self.group.me
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.group.members.len()
    }

    /// The world of all ranks of the job, of which this may be a group.
    #[must_use]
    pub fn whole(&self) -> Self {
        let (rank, size) = (self.core.bootstrap.rank(), self.core.bootstrap.size());
        Self { group: Arc::new(Group::whole(rank, size)), ..self.clone() }
    }

    /// This rank's number among the ranks of its host: what to choose a device by. The launcher's word if it gave one,
    /// else counted in rank order.
    pub fn local_rank(&self) -> usize {
        match self.core.local_rank {
            Some(given) if self.group.whole => given,
            _ => self.local_ranks().iter().position(|&rank| rank == self.rank()).unwrap_or(0),
        }
    }

    /// How many ranks share this one's host, itself included.
    pub fn local_size(&self) -> usize {
        self.local_ranks().len()
    }

    /// The ranks that share this one's host, ascending, itself included.
    pub fn local_ranks(&self) -> Vec<Rank> {
        (0..self.size()).filter(|&rank| self.is_local(rank)).collect()
    }

    /// True when memory can be shared with `peer`: same kernel, same namespaces, same user. False for a rank that does
    /// not exist.
    pub fn is_local(&self, peer: Rank) -> bool {
        self.peer_host_id(peer) == Some(self.host_id())
    }

    /// Equal exactly for ranks that can share memory. Opaque.
    pub fn host_id(&self) -> &str {
        &self.info(self.rank()).host_id
    }

    /// The [`host_id`](Self::host_id) of a peer.
    pub fn peer_host_id(&self, peer: Rank) -> Option<&str> {
        (peer < self.size()).then(|| self.info(peer).host_id.as_str())
    }

    /// The name of the host a peer runs on, for people.
    pub fn peer_hostname(&self, peer: Rank) -> Option<&str> {
        (peer < self.size()).then(|| self.info(peer).hostname.as_str())
    }

    /// How the ranks reach each other.
    pub fn kind(&self) -> Kind {
        self.core.kind
    }

    /// How long a collective may take.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The same world with another deadline for what is called on it.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { timeout, ..self.clone() }
    }

    /// This rank of the group, or of the whole world: what errors and the launcher's log call it.
    pub fn world_rank(&self, rank: Rank) -> Option<Rank> {
        self.group.members.get(rank).copied()
    }

    /// The group of these ranks (of this world or group), renumbered in the order given. Not collective: no rank needs
    /// to hear of it until the group's first collective. Every member must give the same list. A group that is made twice is one (all ranks
    /// in order are the world itself): what happens in it must not happen at the same time. [`split`](Self::split) makes others.
    ///
    /// # Errors
    /// A rank that does not exist or is named twice, or a list that this rank is not in.
    pub fn subgroup(&self, ranks: &[Rank]) -> Result<Self> {
        self.subgroup_in(self.group.context, ranks)
    }

    fn subgroup_in(&self, context: u64, ranks: &[Rank]) -> Result<Self> {
        let mut members = Vec::with_capacity(ranks.len());
        for &rank in ranks {
            let world = self.world_rank(rank).ok_or_else(|| {
                let what = format!("there is no rank {rank} in a world of {}", self.size());
                Error::misuse(what, "name ranks below `size()`")
            })?;
            if members.contains(&world) {
                return Err(Error::misuse(
                    format!("rank {rank} is named twice in a group"),
                    "name each rank once",
                ));
            }
            members.push(world);
        }
        let Some(me) = ranks.iter().position(|&rank| rank == self.rank()) else {
            let what = format!("rank {} is not in the group {ranks:?} that it asks for", self.rank());
            return Err(Error::misuse(what, "only the members of a group make it"));
        };
        let group = Group::of(members, me, self.core.bootstrap.size(), context);
        Ok(Self { core: Arc::clone(&self.core), group: Arc::new(group), timeout: self.timeout })
    }

    /// The ranks known to be dead, ascending.
    pub fn lost(&self) -> Vec<Rank> {
        let dead = self.core.bootstrap.lost();
        (0..self.size()).filter(|&rank| dead.contains(&self.group.members[rank])).collect()
    }

    /// Calls back once for each rank that dies, or is dead already, with how it was noticed; on a thread of its own, until
    /// the world ends. A callback must not keep a clone of the world: it would keep the world from ending.
    ///
    /// A world [with the caller's bootstrap](Self::with_bootstrap) calls back if that does.
    pub fn on_lost(&self, callback: impl Fn(Rank, &str) + Send + 'static) {
        let group = Arc::clone(&self.group);
        self.core.bootstrap.on_lost(Box::new(move |rank, why| {
            if let Some(place) = group.members.iter().position(|&member| member == rank) {
                callback(place, why);
            }
        }));
    }

    /// Sends `text` to the other ranks, which are called back if they listen by [`on_notice`](Self::on_notice), whatever they are doing. Waits
    /// for none of them.
    ///
    /// # Errors
    /// The store is out of reach, or the [caller's bootstrap](Self::with_bootstrap) has no notices.
    pub fn notify(&self, topic: u64, text: &str) -> Result<()> {
        let sent = self.core.bootstrap.notify(&self.group.members, topic, text);
        sent.map_err(|error| error.during("notify"))
    }

    /// Calls back with rank and text (fit for a terminal) of each notice with this topic, on a thread of the world's, until [`off_notice`](Self::off_notice) or the
    /// end of the world. One callback a topic. Callbacks share the thread: one that waits holds up the others. As for
    /// [`on_lost`](Self::on_lost), it must not keep a clone of the world.
    ///
    /// A world [with the caller's bootstrap](Self::with_bootstrap) calls back if that does.
    pub fn on_notice(&self, topic: u64, callback: impl Fn(Rank, &str) + Send + Sync + 'static) {
        let group = Arc::clone(&self.group);
        let call = move |rank, text: &str| {
            if let Some(place) = group.members.iter().position(|&member| member == rank) {
                callback(place, &Printable(text).to_string());
            }
        };
        self.core.bootstrap.on_notice(topic, Arc::new(call));
    }

    /// Ends [`on_notice`](Self::on_notice) for this topic; a call that is under way goes on.
    pub fn off_notice(&self, topic: u64) {
        self.core.bootstrap.off_notice(topic);
    }

    /// Says goodbye now, for all clones: later calls on them fail. Dropping the last clone does the same.
    pub fn leave(&self) {
        self.core.end(|bootstrap| bootstrap.leave());
    }

    fn info(&self, rank: Rank) -> &PeerInfo {
        &self.core.peers[self.group.members[rank]]
    }

    fn deadline(&self) -> Instant {
        after(self.timeout)
    }
}

/// How often something was done, by group.
type Counts = Mutex<std::collections::HashMap<u64, u64>>;

/// The number of what a group does next, from 1 on.
fn next(counts: &Counts, group: u64) -> u64 {
    let mut counts = lock(counts);
    let next = counts.entry(group).or_default();
    *next += 1;
    *next
}

impl Core {
    fn end(&self, how: impl FnOnce(&dyn Bootstrap)) {
        if !self.ended.swap(true, std::sync::atomic::Ordering::AcqRel) {
            how(&*self.bootstrap);
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let panicking = std::thread::panicking();
        self.end(
            |bootstrap| if panicking { bootstrap.abort("its thread panicked") } else { bootstrap.leave() },
        );
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("rank", &self.rank())
            .field("size", &self.size())
            .field("kind", &self.kind())
            .field("local_ranks", &self.local_ranks())
            .finish_non_exhaustive()
    }
}

pub(crate) fn check_rank(rank: Rank, size: usize) -> Result<()> {
    if size > MAX_RANKS {
        let what = format!("a world of {size} ranks");
        return Err(Error::misuse(what, format!("there may be {MAX_RANKS} at most")));
    }
    if rank < size {
        return Ok(());
    }
    Err(Error::misuse(
        format!("rank {rank} in a world of {size}"),
        "ranks are numbered from 0 to one below the world size",
    ))
}
