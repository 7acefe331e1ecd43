//! Commands from kernels to the proxy: a ring in host memory that both see.
//!
//! A block takes a ticket, waits until the slot of that number is free, fills it, and releases it by its turn. The proxy takes slots
//! in the order of tickets. Slots are free again when `retired` has passed them: at once where a command names memory that stays as
//! it is, after completion where it uses the slot's own piece of bounce memory.

/// Bytes of a slot; nothing else shares its lines.
pub const SLOT: u64 = 128;
/// Bytes of bounce memory of a slot: most of one `put` from memory that is not registered.
pub const BOUNCE: u64 = 4096;

/// Write `bytes` from `from` of the registered local memory.
pub const WRITE: u32 = 1;
/// Raise a line to `value`.
pub const SIGNAL: u32 = 2;
/// Write `bytes` from `from` of this rank's own region.
pub const PUT: u32 = 3;
/// Write `bytes` from the slot's bounce memory.
pub const PUT_BOUNCED: u32 = 4;
/// Read `bytes` to `from` of this rank's own region, and say so in `done`.
pub const GET: u32 = 5;

/// One command.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(all(feature = "host", not(target_arch = "nvptx64")), derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Command {
    /// What to do.
    pub op: u32,
    /// With whom.
    pub peer: u32,
    /// Offset in this rank's memory.
    pub from: u64,
    /// Offset in the peer's region.
    pub to: u64,
    /// How much.
    pub bytes: u64,
    /// Value of a signal.
    pub value: u64,
    /// Channel or signal, for reports.
    pub channel: u32,
    /// Not used; zero.
    pub reserved: u32,
}

/// A slot of the ring.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(all(feature = "host", not(target_arch = "nvptx64")), derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C, align(128))]
pub struct Slot {
    /// Number of the ticket plus one, once the command is whole. Written by kernels.
    pub turn: u64,
    /// The command. Written by kernels.
    pub command: Command,
    /// Number of the ticket plus one, once a read is there. Written by the proxy.
    pub done: u64,
    /// Not used.
    pub reserved: [u64; 8],
}

const _: () = assert!(size_of::<Slot>() as u64 == SLOT);
