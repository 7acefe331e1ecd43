//! An abort record in words.

use super::ledger::{Launched, compared};
use fusewire_device::kernel::MOST_PACKS;
use fusewire_device::protocol::simple::channel::CUT;
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

/// What the rank that gave up was doing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// A wait expired.
    Expired {
        /// What for: "data", "room in staging", "leave to write the output", "a signal"..
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
        /// What the panic said, as far as it fits: of CPU threads alone.
        message: String,
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
    /// The peer launched the same kernel with the same size, but cuts its chunks in another way.
    Cut {
        /// The peer.
        peer: usize,
        /// Channel.
        channel: usize,
        /// Bytes that both name: of the channel where bytes go through staging, else of the whole chunk.
        bytes: u64,
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
        let file = String::from_utf8_lossy(&r.file[..(r.file_len as usize).min(r.file.len())]).into_owned();
        let at = (r.line > 0).then(|| Place { file: file.clone(), line: r.line, column: r.column });
        let refused = |why| Operation::Refused { what: name(r.operation), block, peer, why };
        let (limit, given) = (r.expected, r.seen);
        let operation = match r.kind {
            kind::PANIC => {
                let (file, message) = file.split_once('\0').unwrap_or((&file, ""));
                let [file, message] = [file, message].map(str::to_owned);
                Operation::Panicked { block, file, line: r.line, column: r.column, message }
            }
            kind::NO_RANK => refused(Refusal::NoSuchRank { world: limit, given }),
            kind::NO_ID => refused(Refusal::NoSuchId { limit, given }),
            kind::SELF => refused(Refusal::OwnRank),
            kind::LINK => refused(Refusal::Link),
            kind::UNREGISTERED => refused(Refusal::Unregistered { address: given, bytes: limit }),
            kind::MISMATCH if r.operation == operation::OUTPUT => {
                let place = |word: u64| ((word >> 44) as usize, (word & ((1 << 44) - 1)) as usize);
                Operation::Elsewhere { peer, own: place(r.expected), theirs: place(r.seen) }
            }
            kind::MISMATCH
                if r.operation == operation::HEADER && (r.expected ^ r.seen).is_multiple_of(CUT) =>
            {
                Operation::Cut { peer, channel, bytes: r.expected % CUT }
            }
            kind::MISMATCH if r.operation == operation::HEADER => Operation::Mismatch {
                peer,
                channel,
                bytes: true,
                expected: r.expected % CUT,
                seen: r.seen % CUT,
            },
            kind::MISMATCH => {
                Operation::Mismatch { peer, channel, bytes: false, expected: r.expected, seen: r.seen }
            }
            kind::ADAPTER => Operation::Adapter {
                what: name(r.operation),
                block,
                peer,
                syndrome: r.expected as u8,
                entry: r.seen,
            },
            kind::RANGE => Operation::OutOfRange {
                what: name(r.operation),
                block,
                peer,
                given: r.seen,
                limit: r.expected,
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
                    operation::SEND => "room in staging",
                    operation::LEAVE => "leave to write the output",
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
        Fault { transport, reader, rank: r.rank as usize, operation: Some(operation), at, launched: None }
    }

    /// The peer that did not come, or runs something else.
    pub(crate) fn missed(&self) -> Option<usize> {
        match self.operation {
            Some(
                Operation::Expired { peer, .. }
                | Operation::Mismatch { peer, .. }
                | Operation::Cut { peer, .. },
            ) => (peer != self.rank).then_some(peer),
            _ => None,
        }
    }
}

/// File and message of a panic as a record holds both, as far as they fit: of the file the end, of the message the beginning.
pub fn panic_text(file: &str, message: &str) -> String {
    let most = AbortRecord::EMPTY.file.len();
    let from = (file.len().saturating_sub(most / 2)..).find(|at| file.is_char_boundary(*at)).unwrap_or(0);
    let file = &file[from..];
    let to = (most - file.len() - 1).min(message.len());
    format!("{file}\0{}", &message[..message.floor_char_boundary(to)])
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

/// Whether an operation names a range of elements.
fn reaches(what: &str) -> bool {
    what.starts_with("put") || what == "get"
}

/// Whether a number that is out of range is that of the peer: a record has 32 bits for it, `rank - 1` of rank 0 is more.
fn is_peer(given: u64, peer: usize) -> bool {
    given == peer as u64 || (given as i64) < 0 && given as u32 == peer as u32
}

/// A completion's syndrome in words (`mlx5dv.h`, `MLX5_CQE_SYNDROME_*`).
fn syndrome_text(syndrome: u8) -> &'static str {
    match syndrome {
        0x01 => "a wrong local length",
        0x02 => "a malformed entry",
        0x04 => "local memory that is not registered",
        0x05 => "the queue pair in error",
        0x12 => "a request that the peer refuses",
        0x13 => "peer's memory that is not registered, or no longer",
        0x14 => "a failure at the peer",
        0x15 => "no answer from the peer: is its link up, is its process alive?",
        0x16 => "a peer that is not ready",
        _ => "an error of the adapter's",
    }
}

/// So many elements of a pack; 0 is all.
fn rest_text(elements: u64) -> String {
    match elements {
        0 => "as many as fit".to_owned(),
        1 => "1 element".to_owned(),
        some => format!("{some} elements"),
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
            Some(operation) => operation.tell(f, transport, *rank)?,
        }
        if let (Some(at), false) = (&self.at, matches!(self.operation, Some(Operation::Panicked { .. }))) {
            write!(f, " (called at {at})")?;
        }
        let late = matches!(self.operation, Some(Operation::Expired { .. }));
        let compared = match (&self.launched, self.missed()) {
            (Some(both), Some(peer)) => compared(*rank, &both[0], peer, &both[1], late),
            _ => String::new(),
        };
        match self.missed() {
            Some(peer) if late && compared.is_empty() && self.at.is_none() => {
                write!(f, "; did rank {peer} launch the same kernel?")?;
            }
            _ => write!(f, ".{compared}")?,
        }
        write!(f, " The transport is poisoned until all ranks call `renew`")
    }
}

impl Operation {
    /// What happened, without the end of the sentence.
    fn tell(&self, f: &mut fmt::Formatter<'_>, transport: &str, rank: usize) -> fmt::Result {
        match self {
            // For all peers at once, or for the other blocks of this rank.
            Operation::Expired { what, peer, block, channel, expected, seen, waited } if *peer == rank => {
                write!(
                    f,
                    "rank {rank} waited {waited:.3?} for {what} (block {block} of it, number {channel}, expected {expected}, seen {seen}): not \
                 every peer, or not every block of rank {rank}, has come to it"
                )
            }
            Operation::Expired { what, peer, block, channel, expected, seen, waited } => write!(
                f,
                "rank {rank} waited {waited:.3?} for {what} of rank {peer} on {transport} (block {block}, channel {channel}, \
                 expected {expected}, seen {seen})"
            ),
            Operation::Panicked { block, file, line, column, message } => {
                write!(f, "a hook panicked on rank {rank} at {file}:{line}:{column} (block {block})")?;
                if message.is_empty() { Ok(()) } else { write!(f, ": {message}") }
            }
            Operation::Elsewhere { peer, own, theirs } => write!(
                f,
                "{transport}: rank {rank}'s output is byte {} of symmetric buffer {}, rank {peer}'s is byte {} of symmetric buffer {}: \
                 give every rank the same part of the same buffer",
                own.1, own.0, theirs.1, theirs.0
            ),
            Operation::Mismatch { peer, channel, bytes: true, expected, seen } => write!(
                f,
                "rank {peer} sends {seen} bytes on channel {channel} of {transport} where rank {rank} expects {expected}: \
                 all ranks must launch with the same number of elements and the same options"
            ),
            Operation::Cut { peer, channel, bytes } => write!(
                f,
                "rank {peer} cuts the {bytes} bytes on channel {channel} of {transport} in another way than rank {rank}: all ranks must \
                 launch with the same options: protocol, channels, blocks and shape"
            ),
            // The same but for the upper four bits: see `Call::ended`.
            Operation::Mismatch { peer, channel, expected, seen, .. } if seen << 4 == expected << 4 => {
                write!(
                    f,
                    "rank {peer} sends a chunk of another length on channel {channel} of {transport} (its last 16 bytes hold {}) than rank \
                 {rank} expects (there {}): all ranks must launch with the same number of elements, and both ends of a tile give it the same length",
                    rest_text(seen >> 60),
                    rest_text(expected >> 60)
                )
            }
            // A tile's wire type stands in the lowest bits: see `Kernel::send_tile`. (All-to-alls in lines have 16 bits of a digest here.)
            Operation::Mismatch { peer, channel, expected, seen, .. }
                if (seen ^ expected) << 4 >> 12 == 0 && expected >> 16 != 0 =>
            {
                write!(
                    f,
                    "rank {peer} sends a tile of another type on channel {channel} of {transport} than rank {rank} expects: both ends of \
                 a tile give the same type, and take a channel's tiles in the same order"
                )
            }
            Operation::Mismatch { peer, channel, expected, seen, .. } => write!(
                f,
                "rank {peer} runs another kernel on channel {channel} of {transport} ({seen:#x}) than rank {rank} ({expected:#x}), or the \
                 same with another number of elements: all ranks must launch the same kernels in the same order"
            ),
            Operation::Adapter { what, block, peer, syndrome, entry } => write!(
                f,
                "the adapter of rank {rank} ended entry {entry} towards rank {peer} with {} (syndrome {syndrome:#04x}); `{what}` in block \
                 {block} found out",
                syndrome_text(*syndrome)
            ),
            Operation::Fabric { what, peer, channel, status } => write!(
                f,
                "the RDMA adapter of rank {rank} could not carry out a `{what}` to rank {peer} on {transport} (channel {channel}): {}",
                status.describe()
            ),
            // A range, by its end and by one more than that may be; or the peer.
            Operation::OutOfRange { what, block, peer, given, limit }
                if reaches(what) && !is_peer(*given, *peer) =>
            {
                write!(
                    f,
                    "`{what}` on rank {rank} (block {block}, peer {peer}) would reach element {given} of memory that has {}",
                    limit.saturating_sub(1)
                )
            }
            Operation::OutOfRange { what, block, peer, given, limit } if *limit == MOST_PACKS => write!(
                f,
                "`{what}` on rank {rank} (block {block}, peer {peer}) was given a tile of {given} packs of 16 bytes; one has at most {} (64 GiB)",
                limit - 1
            ),
            // No world, channel or memory has so many.
            Operation::OutOfRange { what: what @ ("send_tile" | "recv_tile"), block, peer, given, limit }
                if *limit > MOST_PACKS =>
            {
                write!(
                    f,
                    "`{what}` on rank {rank} (block {block}, peer {peer}) was given a tile that begins at element {given} and has {} elements: its \
                     end is no index",
                    u64::MAX - limit
                )
            }
            // The block's number, or that of a peer.
            Operation::OutOfRange { what: what @ ("send_tile" | "recv_tile"), block, peer, limit, given }
                if *given == *block as u64 && !is_peer(*given, *peer) =>
            {
                write!(
                    f,
                    "`{what}` on rank {rank} in block {block}: tiles of a block travel on the channel of its number, and there are {limit} \
                     channels; launch {limit} blocks at most, or make the transport with more `Options::channels`"
                )
            }
            Operation::OutOfRange { what, block, peer, given, limit } => write!(
                f,
                "`{what}` on rank {rank} (block {block}, peer {peer}) was given {given}, which must be below {limit}"
            ),
            Operation::Refused { what, block, peer, why } => {
                write!(f, "`{what}` on rank {rank} (block {block}, peer {peer}) cannot be: {why}")
            }
        }
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(operation: Operation) -> String {
        let (transport, operation) = ("Shm", Some(operation));
        Fault { transport, reader: 3, rank: 3, operation, at: None, launched: None }.to_string()
    }

    #[test]
    fn tiles_are_told_apart_from_kernels() {
        let mismatch = |seen: u64| {
            let expected = 0x1f2e_3d4c_5b6a_7980;
            told(Operation::Mismatch { peer: 1, channel: 2, bytes: false, expected, seen: expected ^ seen })
        };
        assert!(mismatch(3 << 60).contains("a chunk of another length"));
        for type_and_rest in [0xf, 0xb, 3 << 60 | 6] {
            let text = mismatch(type_and_rest);
            assert!(text.contains("a tile of another type on channel 2"), "{text}");
        }
        assert!(mismatch(0x100 | 6).contains("another kernel"));
        // Of lines, which name kernels by 16 bits.
        let (expected, seen) = (0x4a01, 0x4a7f);
        let text = told(Operation::Mismatch { peer: 1, channel: 2, bytes: false, expected, seen });
        assert!(text.contains("another kernel"), "{text}");
        let text =
            |peer| told(Operation::OutOfRange { what: "recv_tile", block: 4, peer, given: 4, limit: 4 });
        assert!(text(2).contains("in block 4") && text(2).contains("4 blocks at most"), "{}", text(2));
        assert!(text(4).contains("must be below 4"), "{}", text(4));
        // `rank - 1` of rank 0.
        let below = |what| {
            told(Operation::OutOfRange { what, block: 4, peer: u32::MAX as usize, given: u64::MAX, limit: 4 })
        };
        for text in ["send_tile", "put", "get"].map(below) {
            assert!(text.contains("was given 18446744073709551615, which must be below 4"), "{text}");
        }
        let (given, limit) = (MOST_PACKS + 1, MOST_PACKS);
        let text = told(Operation::OutOfRange { what: "send_tile", block: 0, peer: 1, given, limit });
        assert!(text.contains("a tile of 4294967297 packs") && text.contains("at most 4294967295"), "{text}");
        let (given, limit) = (u64::MAX - 159, u64::MAX - 160);
        let text = told(Operation::OutOfRange { what: "send_tile", block: 0, peer: 1, given, limit });
        assert!(text.contains("18446744073709551456 and has 160 elements"), "{text}");
    }

    #[test]
    fn sizes_and_cuts_are_told_apart() {
        let read = |expected, seen| {
            let (kind, operation) = (kind::MISMATCH, operation::HEADER);
            let record = AbortRecord { kind, operation, peer: 1, expected, seen, ..AbortRecord::EMPTY };
            Fault::read("Shm", 0, &record).to_string()
        };
        let text = read(3 * CUT + 640, 5 * CUT + 640);
        assert!(text.contains("cuts the 640 bytes") && text.contains("in another way"), "{text}");
        let text = read(3 * CUT + 640, 5 * CUT + 1280);
        assert!(text.contains("sends 1280 bytes") && text.contains("expects 640"), "{text}");
    }

    #[test]
    fn a_record_holds_file_and_message_of_any_length() {
        let most = AbortRecord::EMPTY.file.len();
        for (file, message) in
            [("src/main.rs", "short"), ("src/main.rs", &"é".repeat(300)), (&"é/".repeat(300), "m")]
        {
            let text = panic_text(file, message);
            let (f, m) = text.split_once('\0').unwrap();
            assert!(text.len() <= most && file.ends_with(f) && message.starts_with(m), "{text}");
            assert!(f.len() >= file.len().min(most / 2 - 4) && !m.is_empty(), "{text}");
        }
    }
}
