//! Between threads of one process a descriptor is duplicated.

use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use super::{Exchange, ExchangeKey, Received};
use crate::sync::{lock, wait};
use crate::{Error, Rank, Result};

/// How often a waiting rank looks whether a peer is lost.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(crate) struct Table {
    exchanges: Mutex<HashMap<ExchangeKey, Slot>>,
    changed: Condvar,
}

#[derive(Default)]
struct Slot {
    given: HashMap<Rank, Vec<OwnedFd>>,
    taken: usize,
}

impl Table {
    pub fn exchange(&self, exchange: &Exchange<'_>, fds: &[BorrowedFd<'_>]) -> Result<Received> {
        let started = Instant::now();
        let own = fds
            .iter()
            .map(|fd| fd.try_clone_to_owned())
            .collect::<Result<Vec<_>, _>>()
            .map_err(duplicating)?;
        let mut table = lock(&self.exchanges);
        table.entry(exchange.key).or_default().given.insert(exchange.me, own);
        self.changed.notify_all();
        loop {
            let slot = table.entry(exchange.key).or_default();
            let missing: Vec<_> =
                exchange.locals.iter().copied().filter(|r| !slot.given.contains_key(r)).collect();
            if missing.is_empty() {
                let copy =
                    |fds: &Vec<OwnedFd>| fds.iter().map(OwnedFd::try_clone).collect::<Result<Vec<_>, _>>();
                let received: Result<Received, _> =
                    exchange.locals.iter().map(|rank| copy(&slot.given[rank])).collect();
                slot.taken += 1;
                if slot.taken == exchange.locals.len() {
                    table.remove(&exchange.key);
                }
                return received.map_err(duplicating);
            }
            (exchange.check)(&missing)?;
            let left = exchange.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::timeout("exchange_fds", started.elapsed(), missing));
            }
            table = wait(&self.changed, table, left.min(LOOK));
        }
    }
}

fn duplicating(error: std::io::Error) -> Error {
    Error::fabric("duplicating file descriptors", error, "raise the limit on open files (`ulimit -n`)")
}
