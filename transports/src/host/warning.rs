//! Warnings before a deadline: a program that has waited long for kernels is told which ranks have not launched.
//!
//! Hosts know who waits for a stream and what each rank of the host launched last. That needs nothing of the device, which a capture on another
//! thread could forbid at any time.

use super::{Launched, Link};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

/// A host thread has waited for kernels for longer than [`Options::warn`](super::Options::warn).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warning {
    /// The transport.
    pub transport: &'static str,
    /// The rank that waits.
    pub rank: usize,
    /// For how long.
    pub waited: Duration,
    /// After how long a wait in a kernel stops, where the launch has no deadline of its own.
    pub deadline: Duration,
    /// What the rank launched last.
    pub launched: Launched,
    /// The ranks of this host that have launched less, and what each launched last: the rank waits for these.
    pub late: Vec<(usize, Launched)>,
    /// Ranks of other hosts: what they have launched is not known here.
    pub unknown: usize,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Warning { transport, rank, waited, deadline, launched, late, unknown } = self;
        write!(
            f,
            "rank {rank} has waited {waited:.1?} for kernels on {transport}. It launched last: {launched}."
        )?;
        for (peer, last) in late {
            match (last.left, last.number) {
                (true, n) => write!(f, " Rank {peer} let its transport go after {n} launches.")?,
                (false, 0) => write!(f, " Rank {peer} has launched nothing.")?,
                (false, _) => write!(f, " Rank {peer} has launched less: {last}.")?,
            }
        }
        if late.is_empty() {
            f.write_str(
                " Every rank of this host has launched as much: one is slower, or other work keeps a stream.",
            )?;
        }
        match unknown {
            0 => {}
            1 => f.write_str(" One rank is on another host; what it launched is not known here.")?,
            n => write!(f, " {n} ranks are on other hosts; what they launched is not known here.")?,
        }
        write!(f, " A wait for a peer stops after {deadline:?}")
    }
}

type Hook = Arc<dyn Fn(&Warning) + Send + Sync>;
static HOOK: RwLock<Option<Hook>> = RwLock::new(None);

/// Gives the warnings of this process's transports to `hook`, on a thread of the transport's. The last hook counts; before the first, a warning is a
/// line on standard error.
pub fn on_warning(hook: impl Fn(&Warning) + Send + Sync + 'static) {
    *HOOK.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(hook));
}

fn tell(warning: &Warning) {
    let hook = HOOK.read().unwrap_or_else(PoisonError::into_inner).clone();
    match hook {
        Some(hook) => hook(warning),
        None => eprintln!("fusewire: warning: {warning}"),
    }
}

/// The threads that wait for kernels of a link.
#[derive(Default)]
pub(super) struct Waits(Mutex<Vec<Arc<Instant>>>);

/// A thread waits for kernels of a link, until this is dropped.
pub struct Waiting {
    link: Arc<Link>,
    since: Arc<Instant>,
}

impl Waiting {
    /// `None` where nobody is to be warned.
    pub fn on(link: &Arc<Link>) -> Option<Self> {
        link.options().warn?;
        let since = Arc::new(Instant::now());
        link.waits.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&since));
        Some(Waiting { link: Arc::clone(link), since })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waits = self.link.waits.0.lock().unwrap_or_else(PoisonError::into_inner);
        waits.retain(|since| !Arc::ptr_eq(since, &self.since));
    }
}

/// Warns of waits on `link` that last longer than `warn`, and again each time that the time doubles, as long as the link lives.
pub(super) fn watch(link: &Arc<Link>, warn: Duration) -> std::io::Result<()> {
    let weak = Arc::downgrade(link);
    let thread = std::thread::Builder::new().name("fusewire-warn".to_owned());
    thread.spawn(move || watching(&weak, warn)).map(drop)
}

fn watching(link: &Weak<Link>, warn: Duration) {
    let pause = (warn / 8).clamp(Duration::from_millis(1), Duration::from_secs(1));
    // The wait that was warned of, and from what age on it is warned of again.
    let mut told: Option<(Arc<Instant>, Duration)> = None;
    while let Some(link) = link.upgrade() {
        let oldest = link.waits.0.lock().unwrap_or_else(PoisonError::into_inner).first().cloned();
        if let Some(since) = oldest {
            let waited = since.elapsed();
            let again =
                told.as_ref().filter(|(wait, _)| Arc::ptr_eq(wait, &since)).map_or(warn, |told| told.1);
            if waited >= again {
                told = Some((since, 2 * waited));
                link.warning(waited).iter().for_each(tell);
            }
        }
        drop(link);
        std::thread::sleep(pause);
    }
}

impl Link {
    /// What is to be said of a wait; `None` while this rank's own notes change.
    fn warning(&self, waited: Duration) -> Option<Warning> {
        let (rank, size) = (self.world().rank(), self.world().size());
        let launched = self.launched(rank)?;
        let peers = (0..size).filter(|peer| *peer != rank);
        let known: Vec<_> = peers.filter_map(|peer| Some((peer, self.launched(peer)?))).collect();
        let unknown = size - 1 - known.len();
        let late = known.into_iter().filter(|(_, last)| last.number < launched.number).collect();
        let deadline = self.options().deadline;
        Some(Warning { transport: self.name(), rank, waited, deadline, launched, late, unknown })
    }
}
