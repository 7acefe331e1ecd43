//! An abort record as the host reads it.

mod tell;

use super::ledger::Launched;
use fusewire_device::print::filled;
use fusewire_device::protocol::simple::channel::{KernelWord, LengthWord, SizeWord};
use fusewire_device::wait::{AbortRecord, kind, operation};
use fusewire_device::window::operation as window;
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
    /// Where in the source the operation was called; `None` for those of shipped schedules.
    pub at: Option<Place>,
    /// Where a peer did not come or runs something else: what the rank that gave up and that peer have launched last, when this was
    /// read. `None` where they are not all of one host.
    pub launched: Option<Box<[Launched; 2]>>,
    /// Bytes that a channel stages, where a wait for room in it expired.
    pub staging: Option<u64>,
}

/// A place in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// File, the end of it if its name is long.
    pub file: String,
    /// Line.
    pub line: u32,
    /// Column.
    pub column: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// What the rank that gave up was doing, or why it launched nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// A wait expired.
    Expired {
        /// What for: "data", "room in staging", "permission to write the output", "a signal"..
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
    /// The rank's program called [`Transport::abort`](super::Transport::abort).
    Aborted {
        /// What it gave as the reason.
        reason: String,
    },
    /// The rank refused a launch, since a rank of its host has launched another as the collective launch of that number.
    Disagreed {
        /// Both ranks, and field by field what each launched.
        reason: String,
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
        /// What the panic said, as far as it fits: on GPUs, with the numbers in it.
        message: String,
    },
    /// The peer launched another kernel, or the same with another size.
    Mismatch {
        /// The peer.
        peer: usize,
        /// Channel.
        channel: usize,
        /// What differs.
        field: CallField,
        /// This side's value.
        expected: u64,
        /// The peer's.
        seen: u64,
    },
    /// The peer launched the same kernel with as many bytes on this channel, but cuts its chunks in another way.
    Cut {
        /// The peer.
        peer: usize,
        /// Channel.
        channel: usize,
        /// Bytes that both name: of the channel where bytes go through staging, else of the whole chunk.
        bytes: u64,
    },
    /// The peer sends a chunk or a tile of another length, as kernels on CPU threads know it: for each side, bytes in packs of 16, and elements of
    /// the last pack, or 0 if it is whole.
    Length {
        /// The peer.
        peer: usize,
        /// Channel.
        channel: usize,
        /// This side's.
        expected: (u64, u64),
        /// The peer's.
        seen: (u64, u64),
    },
    /// An adapter ended a work queue entry with an error.
    Adapter {
        /// The operation that found out.
        what: &'static str,
        /// Block in its grid.
        block: usize,
        /// Peer of the queue pair.
        peer: usize,
        /// Syndrome of the completion.
        syndrome: u8,
        /// Index of the entry.
        entry: u64,
    },
    /// An RDMA adapter could not carry out what a kernel had asked for.
    Fabric {
        /// "write", "signal", "put" or "get".
        what: &'static str,
        /// The peer.
        peer: usize,
        /// Channel or signal number, where it is about one.
        channel: usize,
        /// How the request ended.
        status: fusewire_verbs::Status,
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
        /// What `given` and `limit` are.
        bound: Bound,
        /// What was given.
        given: u64,
        /// It must be below this.
        limit: u64,
    },
    /// A window's operation that cannot be; [`Fault::at`] says which line called it.
    Refused {
        /// The operation.
        what: &'static str,
        /// Block in its grid.
        block: usize,
        /// Peer that was named.
        peer: usize,
        /// Why not.
        why: Refusal,
    },
}

/// What differs between two ends of a channel that launched other calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallField {
    /// Payload bytes.
    Bytes,
    /// The kernel: its types, its schedule or its number among the kernels of the transport.
    Kernel,
    /// The same, by 16 bits of a digest, which are all that LL128 lines have of it; or the length or the type of a tile.
    Digest,
    /// The elements of the last pack.
    Rest,
    /// The wire type of a tile, and maybe the elements of its last pack.
    Type,
}

/// What is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bound {
    /// A rank, or the number of a signal.
    Number,
    /// The end of a range of elements; the limit is one more than that may be.
    Elements,
    /// A tile's packs.
    Packs,
    /// The packs of a tile by LL128.
    Ll128Packs,
    /// A tile's first element, whose other elements then have no index.
    Start,
    /// The channel of a block's tiles: that of its number, or one that it took.
    Channel,
}

impl Bound {
    /// Of the [`kind`] in a record.
    fn of(kind: u32) -> Self {
        match kind {
            kind::BEYOND => Bound::Elements,
            kind::LONG_TILE => Bound::Packs,
            kind::LONG_LL128_TILE => Bound::Ll128Packs,
            kind::TILE_END => Bound::Start,
            kind::NO_CHANNEL => Bound::Channel,
            _ => Bound::Number,
        }
    }
}

const ROOM: &str = "room in staging";

/// Why a window's operation was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// There is no such rank.
    NoSuchRank {
        /// Ranks are below it.
        world: u64,
        /// What was given.
        given: u64,
    },
    /// There is no such signal, barrier or counter.
    NoSuchId {
        /// Ids are below it.
        limit: u64,
        /// What was given.
        given: u64,
    },
    /// It names this rank itself.
    OwnRank,
    /// The link to the peer has no such operation: a signal is added to over an adapter, never set.
    Link,
    /// The source is not registered with the adapter.
    Unregistered {
        /// Its address.
        address: u64,
        /// Its bytes.
        bytes: u64,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NoSuchRank { world, given } => {
                write!(f, "there is no rank {given} in a world of {world}")
            }
            Refusal::NoSuchId { limit: 0, given } => {
                write!(f, "there is no number {given}: the window's `WindowConfig` has none")
            }
            Refusal::NoSuchId { limit, given } => {
                write!(
                    f,
                    "there is no number {given}: the window's `WindowConfig` has {limit}, counted from 0"
                )
            }
            Refusal::OwnRank => write!(f, "it names this rank itself, and needs a peer"),
            Refusal::Link => write!(f, "a signal cannot be set over an adapter: add to it"),
            Refusal::Unregistered { address, bytes } => write!(
                f,
                "its source, {bytes} bytes at {address:#x}, is not registered: put from the window's own buffer, or register it with \
                 the window"
            ),
        }
    }
}

impl Fault {
    /// Reads a filled record.
    pub(crate) fn read(transport: &'static str, reader: usize, r: &AbortRecord) -> Fault {
        let (peer, block, channel) = (r.peer as usize, r.block as usize, r.channel as usize);
        let text = String::from_utf8_lossy(&r.file[..(r.file_len as usize).min(r.file.len())]).into_owned();
        // Either may be cut within a character.
        let (file, message) = text.split_once('\0').unwrap_or((&text, ""));
        let file = file.trim_start_matches(char::REPLACEMENT_CHARACTER).to_owned();
        let message = message.trim_end_matches(char::REPLACEMENT_CHARACTER);
        let values = &r.values[..(r.value_count as usize).min(r.values.len())];
        let message = if values.is_empty() { message.to_owned() } else { filled(message, values) };
        let at = (r.line > 0).then(|| Place { file: file.clone(), line: r.line, column: r.column });
        let refused = |why| Operation::Refused { what: name(r.operation), block, peer, why };
        let (limit, given) = (r.expected, r.seen);
        let operation = match r.kind {
            kind::PANIC => Operation::Panicked { block, file, line: r.line, column: r.column, message },
            kind::NO_RANK => refused(Refusal::NoSuchRank { world: limit, given }),
            kind::NO_ID => refused(Refusal::NoSuchId { limit, given }),
            kind::SELF => refused(Refusal::OwnRank),
            kind::LINK => refused(Refusal::Link),
            kind::UNREGISTERED => refused(Refusal::Unregistered { address: given, bytes: limit }),
            kind::MISMATCH if r.operation == operation::OUTPUT => {
                let place = |word: u64| ((word >> 44) as usize, (word & ((1 << 44) - 1)) as usize);
                Operation::Elsewhere { peer, own: place(r.expected), theirs: place(r.seen) }
            }
            kind::MISMATCH => mismatch(r),
            kind::ADAPTER => Operation::Adapter {
                what: name(r.operation),
                block,
                peer,
                syndrome: r.expected as u8,
                entry: r.seen,
            },
            kind::RANGE
            | kind::BEYOND
            | kind::LONG_TILE
            | kind::LONG_LL128_TILE
            | kind::TILE_END
            | kind::NO_CHANNEL => Operation::OutOfRange {
                what: name(r.operation),
                block,
                peer,
                bound: Bound::of(r.kind),
                given,
                limit,
            },
            kind::FABRIC => Operation::Fabric {
                what: name(r.operation),
                peer,
                channel,
                status: fusewire_verbs::Status::from_code(r.seen as u32),
            },
            _ => Operation::Expired {
                what: match r.operation {
                    operation::POST => "room in the proxy's ring for a command about data",
                    operation::GET => "what was read",
                    operation::PUT | operation::SIGNAL => "the adapter's report of a write to the memory",
                    operation::RECEIVE => "data",
                    operation::SEND => ROOM,
                    operation::LEAVE => "permission to write the output",
                    op if op >= operation::WINDOW => awaited(op),
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
        let (rank, operation) = (r.rank as usize, Some(operation));
        Fault { transport, reader, rank, operation, at, launched: None, staging: None }
    }

    /// Whether a wait for room in staging expired.
    pub(crate) fn no_room(&self) -> bool {
        matches!(self.operation, Some(Operation::Expired { what: ROOM, .. }))
    }

    /// The peer that did not come, or runs something else.
    pub(crate) fn missed(&self) -> Option<usize> {
        match self.operation {
            Some(
                Operation::Expired { peer, .. }
                | Operation::Mismatch { peer, .. }
                | Operation::Cut { peer, .. }
                | Operation::Length { peer, .. },
            ) => (peer != self.rank).then_some(peer),
            _ => None,
        }
    }
}

/// Two calls that differ, by the field that does.
fn mismatch(r: &AbortRecord) -> Operation {
    let (peer, channel, expected, seen) = (r.peer as usize, r.channel as usize, r.expected, r.seen);
    let differs = |field, expected, seen| Operation::Mismatch { peer, channel, field, expected, seen };
    match r.operation {
        operation::LENGTH => {
            let length = |word| (LengthWord(word).bytes(), LengthWord(word).rest());
            Operation::Length { peer, channel, expected: length(expected), seen: length(seen) }
        }
        operation::HEADER => {
            let (own, theirs) = (SizeWord(expected), SizeWord(seen));
            match own.bytes() == theirs.bytes() {
                true => Operation::Cut { peer, channel, bytes: own.bytes() },
                false => differs(CallField::Bytes, own.bytes(), theirs.bytes()),
            }
        }
        operation::DIGEST => differs(CallField::Digest, expected, seen),
        _ => {
            let (own, theirs) = (KernelWord(expected), KernelWord(seen));
            let field = match own.kernel() == theirs.kernel() {
                true if own.wire_type() == theirs.wire_type() => CallField::Rest,
                true => CallField::Type,
                false => CallField::Kernel,
            };
            differs(field, expected, seen)
        }
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
        op if op >= operation::WINDOW => {
            window::NAMES.get((op - operation::WINDOW) as usize).copied().unwrap_or("a window")
        }
        _ => "hook",
    }
}

/// What a window's operation waits for.
fn awaited(op: u32) -> &'static str {
    match name(op) {
        name if name.starts_with("barrier") => "the barrier",
        "wait_counter" => "a counter",
        name if name.starts_with("put") => "room in the adapter's queue",
        _ => "a signal",
    }
}
