//! What a kernel leaves behind when it is aborted, and where.

/// What went wrong, as a number in an [`AbortRecord`].
pub mod kind {
    /// A wait expired.
    pub const EXPIRED: u32 = 1;
    /// A hook or schedule panicked.
    pub const PANIC: u32 = 2;
    /// The peer's call is not this rank's call.
    pub const MISMATCH: u32 = 3;
    /// The host raised the abort word: a rank was lost.
    pub const LOST: u32 = 4;
    /// A raw operation named a rank or a signal that does not exist: `seen`, which must be below `expected`.
    pub const RANGE: u32 = 5;
    /// An adapter could not carry out a request.
    pub const FABRIC: u32 = 6;
    /// An adapter ended a work queue entry with an error: `expected` is its syndrome, `seen` the entry's index.
    pub const ADAPTER: u32 = 7;
    /// A window's operation named a rank that does not exist.
    pub const NO_RANK: u32 = 8;
    /// A window's operation named a signal, barrier or counter that does not exist.
    pub const NO_ID: u32 = 9;
    /// A window's operation named this rank itself.
    pub const SELF: u32 = 10;
    /// A window's operation that the link to the peer does not have.
    pub const LINK: u32 = 11;
    /// A window's operation was given memory that is not registered.
    pub const UNREGISTERED: u32 = 12;
    /// The host raised the abort word: a rank's program asked for it, or refused a launch that is not its peers'.
    pub const ABORT: u32 = 13;
    /// As [`RANGE`], of a range of elements: its end, and one more than that may be.
    pub const BEYOND: u32 = 14;
    /// As [`RANGE`], of a tile: its packs.
    pub const LONG_TILE: u32 = 15;
    /// As [`RANGE`], of a tile by LL128: its packs.
    pub const LONG_LL128_TILE: u32 = 16;
    /// As [`RANGE`], of a tile: its first element, behind which its other elements have no index.
    pub const TILE_END: u32 = 17;
    /// As [`RANGE`], of a block that sends or receives a tile: its number, which is its channel's.
    pub const NO_CHANNEL: u32 = 18;
}

/// What a thread was doing, as a number in an [`AbortRecord`].
pub mod operation {
    /// Waiting for data of the peer.
    pub const RECEIVE: u32 = 1;
    /// Waiting for the peer to free staging.
    pub const SEND: u32 = 2;
    /// Waiting for a user's signal.
    pub const WAIT: u32 = 3;
    /// Running a hook.
    pub const HOOK: u32 = 4;
    /// Comparing the peer's header.
    pub const HEADER: u32 = 5;
    /// A raw `put`.
    pub const PUT: u32 = 6;
    /// A raw `get`.
    pub const GET: u32 = 7;
    /// A raw `signal`.
    pub const SIGNAL: u32 = 8;
    /// Handing a command to a proxy.
    pub const POST: u32 = 9;
    /// Waiting for the peer to let its output be written.
    pub const LEAVE: u32 = 10;
    /// Comparing how long the peer's chunk or tile is, where the last pack of both is not equally full: of CPU threads alone.
    pub const LENGTH: u32 = 11;
    /// Comparing 16 bits of a digest of the peer's kernel, by which LL128 names it.
    pub const DIGEST: u32 = 12;
    /// Comparing where the peer's output stands in its symmetric allocation.
    pub const OUTPUT: u32 = 20;
    /// The first of a window's operations; see [`crate::window::operation`].
    pub const WINDOW: u32 = 64;
}

/// [`AbortRecord::state`] once every field is written.
pub const FILLED: u32 = 2;

/// Why a kernel of this rank was aborted; in memory that the host can read at any time.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(target_arch = "nvptx64"), derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C, align(128))]
pub struct AbortRecord {
    /// 0 empty, [`FILLED`] complete.
    pub state: u32,
    /// See [`kind`].
    pub kind: u32,
    /// The rank that gave up.
    pub rank: u32,
    /// The rank it waited for.
    pub peer: u32,
    /// Block in its grid.
    pub block: u32,
    /// Channel, or number of the user's signal.
    pub channel: u32,
    /// See [`operation`].
    pub operation: u32,
    /// Panics and windows' operations: line in `file`.
    pub line: u32,
    /// Value waited for, or this rank's side of a mismatch.
    pub expected: u64,
    /// Value last seen, or the peer's side of a mismatch.
    pub seen: u64,
    /// Nanoseconds since the wait began.
    pub age_ns: u64,
    /// Column.
    pub column: u32,
    /// Bytes of `file` that are used.
    pub file_len: u32,
    /// The end of the file's name; of a panic, behind a zero, the beginning of what it says.
    pub file: [u8; 248],
    /// Of a panic whose message is a format ([`print`](crate::print)): the values in it.
    pub values: [u64; 8],
    /// How many were written, of which a format may have fewer; 0 where the message is a text.
    pub value_count: u32,
    #[doc(hidden)]
    pub pad: u32,
}

impl AbortRecord {
    /// A record that nobody has filled.
    pub const EMPTY: Self = AbortRecord {
        state: 0,
        kind: 0,
        rank: 0,
        peer: 0,
        block: 0,
        channel: 0,
        operation: 0,
        line: 0,
        expected: 0,
        seen: 0,
        age_ns: 0,
        column: 0,
        file_len: 0,
        file: [0; 248],
        values: [0; 8],
        value_count: 0,
        pad: 0,
    };
}

/// Where a kernel finds its abort word, record and deadline.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(target_arch = "nvptx64"), derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Control {
    /// Address of this rank's abort word (`u64`): 0, or see [`abort_code`].
    pub abort: u64,
    /// Address of this rank's [`AbortRecord`].
    pub record: u64,
    /// How long one wait may last, in nanoseconds.
    pub deadline_ns: u64,
}

/// Value of an abort word: who raised it and why.
#[inline(always)]
pub const fn abort_code(rank: u32, kind: u32) -> u64 {
    (kind as u64) << 32 | (rank as u64 + 1)
}

/// Rank and [`kind`] in an abort word, if it is raised.
pub const fn read_abort_code(word: u64) -> Option<(u32, u32)> {
    if word == 0 { None } else { Some(((word as u32).wrapping_sub(1), (word >> 32) as u32)) }
}
