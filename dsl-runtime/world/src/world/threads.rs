//! Ranks as threads of one process.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use super::{Kind, World};
use crate::error::PeerError;
use crate::fds::threads::Table;
use crate::store::hub::Hub;
use crate::store::member::Member;
use crate::sync::lock;
use crate::{Error, Options, Rank, Result};

impl World {
    /// Runs `body` on `n` threads, each with its rank of one world, and returns what they return, by rank. No network
    /// is used.
    ///
    /// ```
    /// # use fusewire_world::World;
    /// let ranks = World::threads(3, |world| world.rank())?;
    /// assert_eq!(ranks, [0, 1, 2]);
    /// # Ok::<(), fusewire_world::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`PeerError::Panicked`] names the rank that panicked first. The other ranks do not hang for it: their collectives
    /// fail with [`PeerError::Lost`].
    pub fn threads<R: Send>(n: usize, body: impl Fn(World) -> R + Sync) -> Result<Vec<R>> {
        Self::threads_with(n, &Options::default(), body)
    }

    /// As [`threads`](Self::threads), with options.
    ///
    /// # Errors
    /// As [`threads`](Self::threads).
    pub fn threads_with<R: Send>(
        n: usize,
        options: &Options,
        body: impl Fn(World) -> R + Sync,
    ) -> Result<Vec<R>> {
        if n == 0 {
            return Err(Error::misuse("a world of no ranks", "ask for at least one"));
        }
        let hub = Arc::new(Hub::new(n, options.max_message));
        let table = Arc::new(Table::default());
        let failed = Mutex::new(None);
        let run = |rank| {
            let fail = |error| {
                lock(&failed).get_or_insert(error);
            };
            let joined = Member::local(&hub, rank).and_then(|member| {
                Self::new(Arc::new(member), Kind::Threads, Some(Arc::clone(&table)), options)
            });
            let world = match joined {
                Ok(world) => world,
                Err(error) => {
                    fail(error);
                    return None;
                }
            };
            // This clone outlives the body: a panic must not look like a goodbye.
            let kept = world.clone();
            match catch_unwind(AssertUnwindSafe(|| body(world))) {
                Ok(result) => {
                    kept.leave();
                    Some(result)
                }
                Err(panic) => {
                    let message = panic_message(&*panic);
                    // Noted before the others can fail for it.
                    fail(PeerError::Panicked { rank, message: message.clone() }.into());
                    kept.core.end(|bootstrap| bootstrap.abort(&format!("it panicked: {message}")));
                    None
                }
            }
        };
        let results: Vec<Option<R>> = std::thread::scope(|scope| {
            let run = &run;
            let spawn = |rank: Rank| {
                let thread = std::thread::Builder::new().name(format!("rank {rank}"));
                let spawned = thread.spawn_scoped(scope, move || run(rank));
                if let Err(error) = &spawned {
                    hub.lost(rank, &format!("its thread could not be started ({error})"));
                }
                spawned
            };
            let threads: Vec<_> = (0..n).map(spawn).collect();
            threads.into_iter().map(|thread| thread.ok()?.join().ok().flatten()).collect()
        });
        if let Some(error) = lock(&failed).take() {
            return Err(error);
        }
        results.into_iter().collect::<Option<Vec<R>>>().ok_or_else(|| {
            let limit = std::io::Error::from(std::io::ErrorKind::OutOfMemory);
            Error::fabric(format!("starting {n} threads"), limit, "raise the limit on threads")
        })
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
