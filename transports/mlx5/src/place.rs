//! Memory of queues, as the CPU sees it: where things are in it, and how to look at them.

use crate::error::{from_cuda, misuse};
use fusewire_driver::memory::{DeviceMemory, DeviceRegion, DmaBuf};
use fusewire_driver::{Context, DevicePtr};
use fusewire_nic::Result;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of an entry of either queue.
pub const ENTRY: u64 = 64;
/// Rings begin at pages.
pub const PAGE: u64 = 4096;
/// What a completion queue's last byte says before its first completion: opcode invalid, owned by the adapter's next round.
pub const INVALID: u32 = 0xf1;

/// Offsets in the memory of one queue pair.
///
/// The doorbell record of a queue pair is 8 bytes: first the receive queue's, then the send queue's (`MLX5_RCV_DBR` and
/// `MLX5_SND_DBR` in `mlx5dv.h`). That of a completion queue begins with the consumer index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// Doorbell record of the queue pair.
    pub record: u64,
    /// The send queue's word of it.
    pub sq_record: u64,
    /// Doorbell record of the completion queue.
    pub cq_record: u64,
    /// Send queue.
    pub sq: u64,
    /// Completion queue.
    pub cq: u64,
    /// All of it.
    pub bytes: u64,
}

impl Offsets {
    /// For queues of `depth` entries: records on lines of their own, then each ring from a page on.
    pub const fn new(depth: u32) -> Offsets {
        let ring = (ENTRY * depth as u64).next_multiple_of(PAGE);
        Offsets { record: 0, sq_record: 4, cq_record: 128, sq: PAGE, cq: PAGE + ring, bytes: PAGE + 2 * ring }
    }

    /// The last word of a completion queue's entry.
    pub const fn last_word(&self, entry: u32) -> u64 {
        self.cq + ENTRY * entry as u64 + 60
    }
}

/// Memory of one queue pair.
#[derive(Clone, Debug)]
pub enum Place {
    /// Host memory.
    Host(NonNull<u8>),
    /// Memory of a GPU, and where in it.
    Gpu(Arc<Chunk>, usize),
}

// SAFETY: the pointer is to queue memory that outlives the queue pair (`QueueSource`), accessed by atomics alone.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Place {
    /// The big-endian word at `at`, which is aligned and within the memory.
    pub fn word(&self, at: u64) -> Result<u32> {
        match self {
            // SAFETY: live memory, by the caller's contract aligned and within it.
            Place::Host(start) => Ok(u32::from_be(unsafe { word(*start, at) }.load(Ordering::Acquire))),
            Place::Gpu(chunk, start) => {
                let mut bytes = [0; 4];
                chunk.memory.read(start + at as usize, &mut bytes).map_err(from_cuda)?;
                Ok(u32::from_be_bytes(bytes))
            }
        }
    }

    /// Empties queues and records: all 0, but completions invalid.
    pub fn clear(&self, offsets: &Offsets, depth: u32) -> Result<()> {
        let mut image = vec![0u8; offsets.bytes as usize];
        for entry in 0..depth {
            image[offsets.last_word(entry) as usize..][..4].copy_from_slice(&INVALID.to_be_bytes());
        }
        match self {
            Place::Host(start) => {
                for (k, bytes) in image.chunks_exact(4).enumerate() {
                    let value = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                    // SAFETY: within live memory and aligned.
                    unsafe { word(*start, 4 * k as u64) }.store(value, Ordering::Release);
                }
                Ok(())
            }
            Place::Gpu(chunk, start) => chunk.memory.write(*start, &image).map_err(from_cuda),
        }
    }
}

/// # Safety
/// `at` is within the live memory that `start` begins, and a multiple of 4.
unsafe fn word<'a>(start: NonNull<u8>, at: u64) -> &'a AtomicU32 {
    // SAFETY: the caller's contract; both ends access it atomically.
    unsafe { AtomicU32::from_ptr(start.as_ptr().add(at as usize).cast()) }
}

/// A stretch of GPU memory with its dma-buf.
#[derive(Debug)]
pub struct Chunk {
    /// For adapters.
    pub dmabuf: DmaBuf,
    memory: DeviceMemory,
}

/// GPU memory for queues, cut from few allocations: a GPU's pages are large.
#[derive(Debug)]
pub struct Arena {
    context: Context,
    last: Option<(Arc<Chunk>, usize)>,
}

/// Bytes of one allocation, a page of the GPU's.
const CHUNK: usize = 2 << 20;

impl Arena {
    /// None allocated yet.
    pub fn new(context: &Context) -> Arena {
        Arena { context: context.clone(), last: None }
    }

    /// `bytes` bytes that begin at a page: memory, and offset in it.
    pub fn take(&mut self, bytes: u64) -> Result<(Arc<Chunk>, usize)> {
        let bytes = (bytes as usize).next_multiple_of(PAGE as usize);
        if let Some((chunk, used)) = &mut self.last
            && chunk.memory.bytes() - *used >= bytes
        {
            let at = *used;
            *used += bytes;
            return Ok((Arc::clone(chunk), at));
        }
        let memory = DeviceMemory::new(&self.context, bytes.next_multiple_of(CHUNK)).map_err(from_cuda)?;
        let dmabuf = DmaBuf::export(&self.context, memory.ptr(), memory.bytes()).map_err(from_cuda)?;
        if !dmabuf.offset().is_multiple_of(PAGE) {
            return Err(misuse("GPU memory for queues does not begin at a page: use Queues::Offered"));
        }
        let chunk = Arc::new(Chunk { dmabuf, memory });
        self.last = Some((Arc::clone(&chunk), bytes));
        Ok((chunk, 0))
    }
}

impl Chunk {
    /// Where it begins for kernels.
    pub fn ptr(&self) -> DevicePtr {
        self.memory.ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_begin_at_pages_and_do_not_meet() {
        for depth in (1..16).map(|k| 1u32 << k) {
            let o = Offsets::new(depth);
            assert_eq!((o.sq % PAGE, o.cq % PAGE, o.bytes % PAGE), (0, 0, 0));
            assert!(o.cq >= o.sq + ENTRY * u64::from(depth) && o.bytes >= o.cq + ENTRY * u64::from(depth));
            assert!(o.sq_record == o.record + 4 && o.cq_record >= 128 && o.cq_record + 8 <= o.sq);
            assert_eq!(o.last_word(depth - 1), o.cq + ENTRY * u64::from(depth) - 4);
        }
        assert_eq!(Offsets::new(1024).bytes, 4096 + 2 * 65_536);
    }

    #[test]
    fn cleared_queues_hold_invalid_completions_alone() {
        let offsets = Offsets::new(8);
        let mut memory = vec![0xaaaa_aaaau32; offsets.bytes as usize / 4];
        let start = NonNull::from(memory.as_mut_slice()).cast::<u8>();
        let place = Place::Host(start);
        place.clear(&offsets, 8).unwrap();
        for k in 0..offsets.bytes / 4 {
            let at = 4 * k;
            let last = at >= offsets.cq && at < offsets.cq + 8 * ENTRY && at % ENTRY == 60;
            assert_eq!(place.word(at).unwrap(), if last { INVALID } else { 0 }, "at {at}");
        }
    }
}
