//! What a rendezvous is asked for; equal on all ranks.

use crate::host::{Error, Options, Result};

/// Geometry of the transport and of its queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IbgdaOptions {
    /// Geometry and deadline; LL128 channels are left out, since adapters do not store line by line.
    pub transport: Options,
    /// Queue pairs to each peer. Blocks are spread over them; each has a companion.
    pub queue_pairs: u32,
    /// Entries of a queue; a power of two from 4 to 32,768.
    pub depth: u32,
}

impl IbgdaOptions {
    /// Queues as they are by default: 2 queue pairs of 1,024 entries to each peer.
    pub fn new(transport: impl Into<Options>) -> Self {
        IbgdaOptions { transport: transport.into(), queue_pairs: 2, depth: 1024 }
    }

    /// Sets the number of queue pairs to each peer.
    #[must_use]
    pub fn queue_pairs(mut self, count: u32) -> Self {
        self.queue_pairs = count;
        self
    }

    /// Sets the entries of a queue.
    #[must_use]
    pub fn depth(mut self, entries: u32) -> Self {
        self.depth = entries;
        self
    }

    pub(super) fn check(&self) -> Result<()> {
        let misuse = |what: String| Err(Error::Misuse { what });
        if self.queue_pairs == 0 || self.queue_pairs > 64 {
            return misuse(format!("{} queue pairs to each peer; a transport has 1 to 64", self.queue_pairs));
        }
        if !self.depth.is_power_of_two() || !(4..=32_768).contains(&self.depth) {
            return misuse(format!(
                "queues of {} entries; a depth is a power of two from 4 to 32,768",
                self.depth
            ));
        }
        Ok(())
    }
}

impl<T: Into<Options>> From<T> for IbgdaOptions {
    fn from(transport: T) -> Self {
        IbgdaOptions::new(transport)
    }
}
