//! An adapter of threads and sockets.
//!
//! A pair has two Unix stream sockets, one for its own requests and their answers, and one for the peer's. Three threads serve it:
//! one takes posted requests, gathers their bytes and sends them; one reads the answers; one carries out the peer's requests, in
//! order, against the table of registered memory, and answers. So requests proceed while the program computes, as on an adapter,
//! and the bytes of a request are gathered after it was posted, not by it. The bytes of a write may be in the peer's memory only after
//! the write is acknowledged, if the adapter is a late one.

mod late;
mod memory;
mod pair;
mod protocol;

use super::{Access, Adapter, Pair, PairOptions, Registration, Result};
use memory::Table;
use std::sync::Arc;

/// An adapter for ranks of one host, carried out by threads.
#[derive(Debug, Default)]
pub struct Emulated {
    table: Arc<Table>,
    late: bool,
}

impl Emulated {
    /// One with no memory registered.
    pub fn new() -> Self {
        Self::default()
    }

    /// One whose pairs acknowledge writes before their bytes are in memory, as adapters may: they are there before the same pair carries out
    /// anything but a write.
    pub fn late() -> Self {
        Self { late: true, ..Self::default() }
    }
}

// SAFETY: requests are compared with the registered memory, which is held while they run.
unsafe impl Adapter for Emulated {
    fn name(&self) -> &str {
        "emulated"
    }

    unsafe fn register(&self, start: *mut u8, bytes: usize, access: Access) -> Result<Box<dyn Registration>> {
        // SAFETY: the caller's contract.
        Ok(Box::new(unsafe { Table::register(&self.table, start, bytes, access) }))
    }

    fn pair(&self, options: &PairOptions) -> Result<Box<dyn Pair>> {
        Ok(Box::new(pair::SocketPair::new(&self.table, self.late, options)?))
    }
}
