//! An abort record in words.

use fusewire_device::wait::{AbortRecord, kind, operation};
use std::fmt;
use std::time::Duration;

/// Why a kernel ended before its work was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The transport.
    pub transport: &'static str,
    /// The rank that reads this.
    pub reader: usize,
    /// The rank that gave up first, as far as the reader knows.
    pub rank: usize,
    /// What it was doing; `None` if its record did not reach the reader.
    pub operation: Option<Operation>,
}

/// What the rank that gave up was doing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// A wait expired.
    Expired {
        /// "data", "room in staging" or "signal".
        what: &'static str,
        /// The rank waited for.
        peer: usize,
        /// Block in its grid.
        block: usize,
        /// Channel or signal number.
        channel: usize,
        /// Value waited for.
        expected: u64,
        /// Value last seen.
        seen: u64,
        /// How long it waited.
        waited: Duration,
    },
    /// A hook or schedule panicked.
    Panicked {
        /// Block in its grid.
        block: usize,
        /// File, as far as it fits.
        file: String,
        /// Line.
        line: u32,
        /// Column.
        column: u32,
    },
    /// The peer launched another kernel, or the same with another size.
    Mismatch {
        /// The peer.
        peer: usize,
        /// Channel.
        channel: usize,
        /// Whether payload bytes differ (else the kernels do).
        bytes: bool,
        /// This side's value.
        expected: u64,
        /// The peer's.
        seen: u64,
    },
    /// The peer's symmetric output is not the one that this rank's is.
    Elsewhere {
        /// The peer.
        peer: usize,
        /// This rank's: number of the symmetric allocation on the transport, and the output's first byte in it.
        own: (usize, usize),
        /// The peer's.
        theirs: (usize, usize),
    },
    /// A raw operation named a rank, signal or range that does not exist.
    OutOfRange {
        /// The operation.
        what: &'static str,
        /// Block in its grid.
        block: usize,
        /// Peer that was named.
        peer: usize,
        /// What was given.
        given: u64,
        /// It must be below this.
        limit: u64,
    },
}

impl Fault {
    /// Reads a filled record.
    pub(crate) fn read(transport: &'static str, reader: usize, r: &AbortRecord) -> Fault {
        let (peer, block, channel) = (r.peer as usize, r.block as usize, r.channel as usize);
        let operation = match r.kind {
            kind::PANIC => {
                let bytes = &r.file[..(r.file_len as usize).min(r.file.len())];
                let file = String::from_utf8_lossy(bytes).into_owned();
                Operation::Panicked { block, file, line: r.line, column: r.column }
            }
            kind::MISMATCH if r.operation == operation::OUTPUT => {
                let place = |word: u64| ((word >> 44) as usize, (word & ((1 << 44) - 1)) as usize);
                Operation::Elsewhere { peer, own: place(r.expected), theirs: place(r.seen) }
            }
            kind::MISMATCH => Operation::Mismatch {
                peer,
                channel,
                bytes: r.operation == operation::HEADER,
                expected: r.expected,
                seen: r.seen,
            },
            kind::RANGE => Operation::OutOfRange {
                what: name(r.operation),
                block,
                peer,
                given: r.seen,
                limit: r.expected,
            },
            _ => Operation::Expired {
                what: match r.operation {
                    operation::RECEIVE => "data",
                    operation::SEND => "room in staging",
                    _ => "a signal",
                },
                peer,
                block,
                channel,
                expected: r.expected,
                seen: r.seen,
                waited: Duration::from_nanos(r.age_ns),
            },
        };
        Fault { transport, reader, rank: r.rank as usize, operation: Some(operation) }
    }
}

fn name(op: u32) -> &'static str {
    match op {
        operation::RECEIVE => "recv_tile",
        operation::SEND => "send_tile",
        operation::WAIT => "wait",
        operation::PUT => "put",
        operation::GET => "get",
        operation::SIGNAL => "signal",
        _ => "hook",
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { transport, reader, rank, .. } = self;
        if reader != rank {
            write!(f, "rank {reader} was stopped by rank {rank}: ")?;
        }
        match &self.operation {
            None => write!(f, "a kernel on {transport} was aborted; that rank's own error says why")?,
            Some(Operation::Expired { what, peer, block, channel, expected, seen, waited }) => write!(
                f,
                "rank {rank} waited {waited:.3?} for {what} of rank {peer} on {transport} (block {block}, channel {channel}, \
                 expected {expected}, seen {seen}); did rank {peer} launch the same kernel?"
            )?,
            Some(Operation::Panicked { block, file, line, column }) => {
                write!(f, "a hook panicked on rank {rank} at {file}:{line}:{column} (block {block})")?;
            }
            Some(Operation::Elsewhere { peer, own, theirs }) => write!(
                f,
                "{transport}: rank {rank}'s output is byte {} of symmetric buffer {}, rank {peer}'s is byte {} of symmetric buffer {}: give every rank the same part of the same buffer",
                own.1, own.0, theirs.1, theirs.0
            )?,
            Some(Operation::Mismatch { peer, channel, bytes: true, expected, seen }) => write!(
                f,
                "rank {peer} sends {seen} bytes on channel {channel} of {transport} where rank {rank} expects {expected}: \
                 all ranks must launch with the same number of elements and the same options"
            )?,
            Some(Operation::Mismatch { peer, channel, expected, seen, .. }) => write!(
                f,
                "rank {peer} runs another kernel on channel {channel} of {transport} ({seen:#x}) than rank {rank} ({expected:#x}): \
                 all ranks must launch the same kernels in the same order"
            )?,
            Some(Operation::OutOfRange { what, block, peer, given, limit }) => write!(
                f,
                "`{what}` on rank {rank} (block {block}, peer {peer}) was given {given}, which must be below {limit}"
            )?,
        }
        write!(f, ". The transport is poisoned until all ranks call `renew`")
    }
}

impl std::error::Error for Fault {}
