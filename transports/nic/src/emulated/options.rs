//! What an emulated adapter does wrong, and how it counts.

use std::ops::AddAssign;

/// How an emulated adapter and its wire behave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Behaviour {
    /// Seed of every choice: which queue pair goes on, what is lost.
    pub seed: u64,
    /// Bytes of a packet.
    pub mtu: u32,
    /// How many of 1,000,000 packets are lost.
    pub drop: u32,
    /// How many of 1,000,000 acknowledgements and responses are lost.
    pub drop_ack: u32,
    /// How many of 1,000,000 packets hold their queue pair up.
    pub delay: u32,
    /// For how long at most, in nanoseconds.
    pub delay_ns: u64,
    /// Time without an acknowledgement after which packets are sent again, in nanoseconds.
    pub timeout_ns: u64,
    /// How often in a row, before the queue pair gives up.
    pub retries: u32,
    /// Time before the next attempt when the receiver was not ready, in nanoseconds.
    pub not_ready_ns: u64,
    /// How often in a row, before the queue pair gives up; 7 is for ever.
    pub not_ready_retries: u32,
    /// Whether a write's bytes may be placed after a later atomic operation of the same queue pair that has no fence, as with PCIe's
    /// relaxed ordering. They are placed before the write completes in any case.
    pub late_placement: bool,
    /// Entries of a queue pair under way at once.
    pub window: usize,
    /// Room in completion queues, if it is less than their depth: one that is full overruns.
    pub completion_room: u32,
}

impl Default for Behaviour {
    /// No faults, packets of 4 KiB, 7 retries of 20 ms.
    fn default() -> Self {
        Behaviour {
            seed: 1,
            mtu: 4096,
            drop: 0,
            drop_ack: 0,
            delay: 0,
            delay_ns: 0,
            timeout_ns: 20_000_000,
            retries: 7,
            not_ready_ns: 1_000_000,
            not_ready_retries: 7,
            late_placement: false,
            window: 16,
            completion_room: u32::MAX,
        }
    }
}

/// Largest read request and largest payload of a PCIe packet that costs are counted by, in bytes.
pub const PCIE_READ: u64 = 512;
/// See [`PCIE_READ`].
pub const PCIE_PAYLOAD: u64 = 256;
/// Entries that an adapter reads at once.
pub const FETCH: u64 = 4;

/// What an adapter did. Transactions are PCIe packets between the adapter and the memory it serves; a read's answer is not counted
/// as another. Doorbells that follow each other before the adapter looks are counted as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Entries taken up, by kind.
    pub writes: u64,
    /// Inline writes.
    pub inline_writes: u64,
    /// Reads.
    pub reads: u64,
    /// Atomic operations.
    pub atomics: u64,
    /// Entries that do nothing.
    pub nops: u64,
    /// Entries that wait.
    pub waits: u64,
    /// Doorbells seen: one PCIe write of 8 bytes each, and a read of the record.
    pub doorbells: u64,
    /// PCIe reads of entries.
    pub entry_reads: u64,
    /// PCIe reads of payload, at the sender; of memory that is read, at the peer.
    pub payload_reads: u64,
    /// Bytes of payload read.
    pub payload_read_bytes: u64,
    /// PCIe writes of payload: at the receiver, or of what was read.
    pub payload_writes: u64,
    /// Bytes of payload written.
    pub payload_written_bytes: u64,
    /// PCIe transactions of atomic operations at their target: a read and a write each.
    pub atomic_transactions: u64,
    /// PCIe writes of completions, 64 bytes each.
    pub completions: u64,
    /// Of these, with an error.
    pub errors: u64,
    /// Completion queues that overran.
    pub overruns: u64,
    /// Packets sent.
    pub packets: u64,
    /// Bytes of payload on the wire.
    pub wire_bytes: u64,
    /// Packets lost.
    pub dropped: u64,
    /// Packets that the receiver had had before.
    pub duplicates: u64,
    /// Packets that came out of order and were refused.
    pub out_of_order: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Answers that the receiver was not ready.
    pub not_ready: u64,
}

impl Counts {
    /// Entries of all kinds.
    pub fn entries(&self) -> u64 {
        self.writes + self.inline_writes + self.reads + self.atomics + self.nops + self.waits
    }

    /// Bytes over PCIe at both ends, without the packets' own headers: a doorbell is 8 and the read of its record 4, entries and
    /// completions 64, an atomic operation 8 each way.
    pub fn pcie_bytes(&self) -> u64 {
        12 * self.doorbells
            + 64 * (self.entries() + self.completions)
            + self.payload_read_bytes
            + self.payload_written_bytes
            + 8 * self.atomic_transactions
    }

    /// PCIe transactions of all kinds, at both ends.
    pub fn transactions(&self) -> u64 {
        2 * self.doorbells
            + self.entry_reads
            + self.payload_reads
            + self.payload_writes
            + self.atomic_transactions
            + self.completions
    }
}

macro_rules! each_count {
    ($with:ident) => {
        $with! {
            writes inline_writes reads atomics nops waits doorbells entry_reads payload_reads payload_read_bytes payload_writes
            payload_written_bytes atomic_transactions completions errors overruns packets wire_bytes dropped duplicates out_of_order timeouts
            not_ready
        }
    };
}

macro_rules! add_assign {
    ($($field:ident)*) => {
        impl AddAssign for Counts {
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)*
            }
        }
    };
}
each_count!(add_assign);

/// Numbers from a seed (splitmix64).
#[derive(Clone, Debug)]
pub(super) struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// With probability `millionths` / 1,000,000.
    pub fn chance(&mut self, millionths: u32) -> bool {
        millionths > 0 && self.below(1_000_000) < u64::from(millionths)
    }
}
