//! Work queue entries of mlx5 send queues: one 64-byte block each, of 16-byte segments, every field big-endian.
//!
//! | entry | opcode | segments |
//! |---|---|---|
//! | RDMA write | 0x08 | control, remote address, data |
//! | RDMA write, inline | 0x08 | control, remote address, length and up to 28 bytes |
//! | RDMA read | 0x10 | control, remote address, data |
//! | compare and swap | 0x11 | control, remote address, swap and compare, data |
//! | fetch and add | 0x12 | control, remote address, addend, data |
//! | no operation | 0x00 | control |
//! | wait for a completion queue | 0x0f | control, wait |
//!
//! Source: `mlx5dv.h` of rdma-core (`mlx5_wqe_ctrl_seg`, `mlx5_wqe_raddr_seg`, `mlx5_wqe_data_seg`, `mlx5_wqe_atomic_seg`) and the wait
//! segment of DPDK's mlx5 driver (`mlx5_wqe_qseg`).

use super::buffer::{LocalBuffer, RemoteBuffer};

/// Bytes of an entry's place in a send queue.
pub const BYTES: u64 = 64;
/// Most bytes that one entry moves.
pub const MOST: u64 = 1 << 30;
/// Most bytes of an inline write in one block.
pub const INLINE: usize = 28;

/// Opcodes.
pub mod opcode {
    /// No operation.
    pub const NOP: u32 = 0x00;
    /// RDMA write.
    pub const WRITE: u32 = 0x08;
    /// Wait for a completion queue.
    pub const WAIT: u32 = 0x0f;
    /// RDMA read.
    pub const READ: u32 = 0x10;
    /// Compare and swap of 8 bytes.
    pub const COMPARE_SWAP: u32 = 0x11;
    /// Fetch and add of 8 bytes.
    pub const FETCH_ADD: u32 = 0x12;
}

/// Completion requested, and fence mode 4 (`fence_and_initiator_small_fence`: every earlier entry of the queue is done first).
const REPORT: u32 = 0x08;
const FENCE: u32 = 4 << 5;

/// Completion queues count so far, then from 0 on again: DPDK's wait segments carry as many bits (`MLX5_CQ_INDEX_WIDTH`).
pub const COMPLETIONS: u32 = 0xff_ffff;

/// What every entry says of itself.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// Number of the queue pair.
    pub qpn: u32,
    /// Index of the entry; its low 16 bits go out.
    pub index: u64,
    /// Whether it starts only when all earlier entries of the queue are done.
    pub fence: bool,
}

/// An entry, in the byte order of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// 16-byte segments.
    pub segments: [[u32; 4]; 4],
    /// How many are used.
    pub used: u32,
}

impl Head {
    #[inline(always)]
    const fn segment(&self, opcode: u32, used: u32) -> [u32; 4] {
        let flags = REPORT | if self.fence { FENCE } else { 0 };
        [
            ((self.index as u32 & 0xffff) << 8 | opcode).to_be(),
            (self.qpn << 8 | used).to_be(),
            // Signature, stream channel, flags.
            flags.to_be(),
            0,
        ]
    }

    #[inline(always)]
    const fn entry(&self, opcode: u32, used: u32, segments: [[u32; 4]; 3]) -> Entry {
        let [a, b, c] = segments;
        Entry { segments: [self.segment(opcode, used), a, b, c], used }
    }

    /// Writes `bytes` (1 to [`MOST`]) of `local` to `remote`.
    #[inline(always)]
    pub const fn write(&self, remote: RemoteBuffer, local: LocalBuffer, bytes: u32) -> Entry {
        self.entry(opcode::WRITE, 3, [address(remote), data(local, bytes), [0; 4]])
    }

    /// Reads `bytes` (1 to [`MOST`]) of `remote` into `local`.
    #[inline(always)]
    pub const fn read(&self, remote: RemoteBuffer, local: LocalBuffer, bytes: u32) -> Entry {
        self.entry(opcode::READ, 3, [address(remote), data(local, bytes), [0; 4]])
    }

    /// Writes the first `bytes` (1 to [`INLINE`]) of `payload`, words in memory order, to `remote`.
    #[inline(always)]
    pub const fn write_inline(&self, remote: RemoteBuffer, payload: [u32; 7], bytes: u32) -> Entry {
        let [a, b, c, d, e, f, g] = payload;
        let used = if bytes <= 12 { 3 } else { 4 };
        let length = (bytes | 1 << 31).to_be();
        self.entry(opcode::WRITE, used, [address(remote), [length, a, b, c], [d, e, f, g]])
    }

    /// Adds to 8 bytes at `remote`; the value before goes to `sink`.
    #[inline(always)]
    pub const fn fetch_add(&self, remote: RemoteBuffer, add: u64, sink: LocalBuffer) -> Entry {
        let [high, low] = wide(add);
        self.entry(opcode::FETCH_ADD, 4, [address(remote), [high, low, 0, 0], data(sink, 8)])
    }

    /// Puts `swap` into 8 bytes at `remote` if they are `compare`; the value before goes to `sink`.
    #[inline(always)]
    pub const fn compare_swap(
        &self,
        remote: RemoteBuffer,
        swap: u64,
        compare: u64,
        sink: LocalBuffer,
    ) -> Entry {
        let ([a, b], [c, d]) = (wide(swap), wide(compare));
        self.entry(opcode::COMPARE_SWAP, 4, [address(remote), [a, b, c, d], data(sink, 8)])
    }

    /// Does nothing, and completes after everything before it.
    #[inline(always)]
    pub const fn nop(&self) -> Entry {
        self.entry(opcode::NOP, 1, [[0; 4]; 3])
    }

    /// Holds the queue until completion queue `cqn` has the entry of work queue index `index`.
    #[inline(always)]
    pub const fn wait(&self, cqn: u32, index: u64) -> Entry {
        let index = index as u32 & COMPLETIONS;
        self.entry(opcode::WAIT, 2, [[0, 0, index.to_be(), cqn.to_be()], [0; 4], [0; 4]])
    }
}

#[inline(always)]
const fn wide(value: u64) -> [u32; 2] {
    [((value >> 32) as u32).to_be(), (value as u32).to_be()]
}

#[inline(always)]
const fn address(remote: RemoteBuffer) -> [u32; 4] {
    let [high, low] = wide(remote.addr);
    [high, low, remote.rkey.word(), 0]
}

#[inline(always)]
const fn data(local: LocalBuffer, bytes: u32) -> [u32; 4] {
    let [high, low] = wide(local.addr);
    [bytes.to_be(), local.lkey.word(), high, low]
}
