//! Ends of what ranks made together.

use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::World;
use crate::Result;
use crate::group::{APART, ONCE, first_8};
use crate::tcp::token::random;

/// Names the end of one thing that all ranks made together: a transport, a window. See [`World::name_teardown`].
///
/// Ranks let go of their things in any order, and of some never: ends that were only counted would be taken for each other.
#[derive(Debug, PartialEq, Eq)]
pub struct Teardown {
    context: u64,
}

impl Teardown {
    /// A number that the ranks share, and that no other end has: the topic of notices about what they made.
    pub fn topic(&self) -> u64 {
        self.context
    }

    /// The same end, for ranks that wait for it on a thread of its own, beside other ends and as long as it takes. All ranks say so, or none.
    #[must_use]
    pub fn apart(self) -> Self {
        Teardown { context: self.context | APART }
    }
}

/// Longer than any job runs.
const YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

impl World {
    /// Collective: a name for the end of what the ranks make now.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather).
    pub fn name_teardown(&self) -> Result<Teardown> {
        let parts = self.gather("name_teardown", &random::<16>()?)?;
        let hash = parts.iter().fold(Sha256::new(), |hash, part| hash.chain_update(part));
        Ok(Teardown { context: first_8(hash) & !APART | ONCE })
    }

    /// Returns when every rank is done with what has this name, **or is known to be dead or gone**: whether that is so. Where it is not,
    /// peers may still write: keep the memory mapped. Then the deadline has passed; or a rank that is not done with this waits for the end
    /// of something else, to which this rank has not come: two ranks that end two things in opposite orders do not wait for each other.
    ///
    /// Call it once for each name. Under a [`Bootstrap`](crate::Bootstrap) of the caller's without `settle_in`, names count for nothing.
    ///
    /// On a thread that panics it says that this rank is done, and does not wait: peers that wait for the rank elsewhere are to hear of the
    /// panic, not of a deadline.
    #[must_use = "memory that peers may write to stays mapped"]
    pub fn teardown(&self, name: Teardown) -> bool {
        self.end(name).is_ok()
    }

    /// As [`teardown`](Self::teardown), and says who is not done.
    ///
    /// # Errors
    /// The deadline passed, or a rank waits for the end of something else: the error names the ranks. The store is gone.
    pub fn end(&self, name: Teardown) -> Result<()> {
        let deadline = match name.context & APART != 0 {
            _ if std::thread::panicking() => Instant::now(),
            true => Instant::now() + YEARS,
            false => self.deadline(),
        };
        self.core.bootstrap.settle_in(name.context, &self.group.members, deadline)
    }
}
