//! Entries as an adapter reads them.
//!
//! Written from the layouts in rdma-core's `mlx5dv.h`, apart from the code that writes entries: bytes in, meaning out.

/// Why an entry cannot be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// No such operation.
    Opcode(u8),
    /// The entry names another queue pair.
    Queue(u32),
    /// The entry carries another index than its place.
    Index(u16),
    /// Not the number of segments that the operation has.
    Segments(u8),
    /// A length that cannot be.
    Length(u32),
    /// Bits that must be zero are not.
    Reserved,
    /// A fence mode that is none.
    Fence(u8),
}

/// Memory of the entry's own rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// Address.
    pub addr: u64,
    /// Key.
    pub key: u32,
    /// Bytes.
    pub bytes: u32,
}

/// Memory at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Far {
    /// Address.
    pub addr: u64,
    /// Key.
    pub key: u32,
}

/// What an entry asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Nop,
    /// Write local memory to the peer.
    Write(Far, Local),
    /// Write bytes of the entry itself.
    Inline(Far, [u8; 28], u32),
    /// Read from the peer.
    Read(Far, Local),
    /// Add to 8 bytes; the value before goes to local memory.
    FetchAdd(Far, u64, Local),
    /// Swap 8 bytes if they compare; the value before goes to local memory.
    CompareSwap {
        /// Where.
        far: Far,
        /// New value.
        swap: u64,
        /// Value they must have.
        compare: u64,
        /// Where the value before goes.
        old: Local,
    },
    /// Hold the queue until a completion queue has so many entries.
    Wait {
        /// The completion queue.
        queue: u32,
        /// Index of the completion waited for, 24 bits.
        index: u32,
    },
}

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// What it asks for.
    pub action: Action,
    /// Whether it starts only when everything before it is done.
    pub fence: bool,
    /// Whether a completion is asked for.
    pub report: bool,
    /// The opcode, for the completion.
    pub opcode: u8,
}

impl Decoded {
    /// Whether nothing of it goes over the wire.
    pub fn is_silent(&self) -> bool {
        matches!(self.action, Action::Nop | Action::Wait { .. })
    }
}

struct Reader<'a>(&'a [u8; 64]);

impl Reader<'_> {
    fn u32(&self, at: usize) -> u32 {
        u32::from_be_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from(self.u32(at)) << 32 | u64::from(self.u32(at + 4))
    }

    fn far(&self) -> Result<Far, Bad> {
        match self.u32(28) {
            0 => Ok(Far { addr: self.u64(16), key: self.u32(24) }),
            _ => Err(Bad::Reserved),
        }
    }

    fn local(&self, at: usize) -> Local {
        Local { bytes: self.u32(at), key: self.u32(at + 4), addr: self.u64(at + 8) }
    }
}

/// Reads the entry at its place `index` in the queue of pair `number`.
///
/// # Errors
/// What is wrong with it.
pub fn decode(block: &[u8; 64], number: u32, index: u16) -> Result<Decoded, Bad> {
    let r = Reader(block);
    let first = r.u32(0);
    let (opcode, at) = (first as u8, (first >> 8) as u16);
    let (queue, segments) = (r.u32(4) >> 8, r.u32(4) as u8);
    if first >> 24 != 0 || block[8..11] != [0; 3] || r.u32(12) != 0 {
        return Err(Bad::Reserved);
    }
    if queue != number {
        return Err(Bad::Queue(queue));
    }
    if at != index {
        return Err(Bad::Index(at));
    }
    let flags = block[11];
    if flags & 0b0001_0111 != 0 {
        return Err(Bad::Reserved);
    }
    let fence = match flags >> 5 {
        0 => false,
        4 => true,
        other => return Err(Bad::Fence(other)),
    };
    let wants = |n: u8| if segments == n { Ok(()) } else { Err(Bad::Segments(segments)) };
    let sized = |local: Local, bytes: std::ops::RangeInclusive<u32>| match bytes.contains(&local.bytes) {
        true => Ok(local),
        false => Err(Bad::Length(local.bytes)),
    };
    const GIB: u32 = 1 << 30;
    let action = match opcode {
        0x00 => {
            wants(1)?;
            Action::Nop
        }
        0x08 if r.u32(32) >> 31 == 1 => {
            let bytes = r.u32(32) & 0x7fff_ffff;
            if bytes == 0 || bytes > 28 {
                return Err(Bad::Length(bytes));
            }
            wants(if bytes <= 12 { 3 } else { 4 })?;
            let mut payload = [0; 28];
            payload[..bytes as usize].copy_from_slice(&block[36..36 + bytes as usize]);
            Action::Inline(r.far()?, payload, bytes)
        }
        0x08 => {
            wants(3)?;
            Action::Write(r.far()?, sized(r.local(32), 1..=GIB)?)
        }
        0x10 => {
            wants(3)?;
            Action::Read(r.far()?, sized(r.local(32), 1..=GIB)?)
        }
        0x11 => {
            wants(4)?;
            let old = sized(r.local(48), 8..=8)?;
            Action::CompareSwap { far: r.far()?, swap: r.u64(32), compare: r.u64(40), old }
        }
        0x12 => {
            wants(4)?;
            if r.u64(40) != 0 {
                return Err(Bad::Reserved);
            }
            Action::FetchAdd(r.far()?, r.u64(32), sized(r.local(48), 8..=8)?)
        }
        0x0f => {
            wants(2)?;
            // Completion queues count in 24 bits.
            if r.u64(16) != 0 || r.u32(24) >> 24 != 0 {
                return Err(Bad::Reserved);
            }
            Action::Wait { index: r.u32(24), queue: r.u32(28) }
        }
        other => return Err(Bad::Opcode(other)),
    };
    Ok(Decoded { action, fence, report: flags & 0x08 != 0, opcode })
}
