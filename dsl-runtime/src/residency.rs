//! Which kernels have a place on a GPU at the same time.
//!
//! Blocks that wait for peers keep their place on a multiprocessor until the peers come. A kernel that a peer waits for must therefore
//! never wait for a place itself. Kernels of one stream follow each other, so of each stream two can have blocks on the GPU: the one that
//! runs, and the one that is set up behind it (a *follower*, which begins when all blocks of the one before have passed their wait for
//! what precedes them). A [`Ledger`] adds up what the streams of this process can hold at once, and lets a launch follow, has it launched
//! plainly, or refuses it.
//!
//! Blocks of different kernels lie on multiprocessors in any way. So all are counted as if each was as large as the largest of any in
//! threads, registers and shared memory: where one more such block does not fit on a multiprocessor, at least so many others are on it.
//!
//! Ranks that share a GPU have parts of it, each with a ledger of its own. Where the driver gives no parts, threads share one ledger, and each
//! process takes as its part of the GPU an even share of the blocks.
//!
//! Kernels that this library did not launch are not counted.

use crate::stream::Queue;
use crate::{Error, Result};
use fusewire_driver as cuda;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What a block needs of a multiprocessor; or what a multiprocessor has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Footprint {
    pub(crate) threads: u32,
    pub(crate) registers: u32,
    /// Bytes.
    pub(crate) shared: u32,
}

impl Footprint {
    /// Of a block of `threads` with so much dynamic shared memory, in the units in which they are handed out.
    pub(crate) fn of(function: &cuda::Function, threads: u32, dynamic_shared: u32) -> Self {
        let attributes = function.attributes();
        // Four schedulers share a multiprocessor's warps; each hands out registers by 256 to a warp.
        let warps = threads.div_ceil(32).next_multiple_of(4);
        let registers = warps * (32 * attributes.registers).next_multiple_of(256);
        // Of each block's, the system takes one KiB.
        let shared = (attributes.static_shared_bytes + dynamic_shared).next_multiple_of(1024) + 1024;
        Footprint { threads: 32 * warps, registers, shared }
    }

    /// The larger in everything.
    fn with(self, other: Self) -> Self {
        Footprint {
            threads: self.threads.max(other.threads),
            registers: self.registers.max(other.registers),
            shared: self.shared.max(other.shared),
        }
    }
}

/// The multiprocessors of a GPU, or of a part of one.
#[derive(Clone, Copy, Debug)]
struct Gpu {
    multiprocessors: u32,
    has: Footprint,
    most_blocks: u32,
}

impl Gpu {
    fn of(context: &cuda::Context) -> Result<Self> {
        use cuda::DeviceAttribute as Attribute;
        let device = context.device();
        let number = |which| device.attribute(which).map(i32::unsigned_abs);
        let has = Footprint {
            threads: number(Attribute::MaxThreadsPerMultiprocessor)?,
            registers: number(Attribute::RegistersPerMultiprocessor)?,
            shared: number(Attribute::SharedMemoryPerMultiprocessor)?,
        };
        let most_blocks = number(Attribute::MaxBlocksPerMultiprocessor)?;
        Ok(Gpu { multiprocessors: context.multiprocessors(), has, most_blocks })
    }

    /// Blocks of up to this size that have a place, however they lie. At least one on each multiprocessor: every block fits on an empty one.
    fn room(&self, block: Footprint) -> u32 {
        let Footprint { threads, registers, shared } = self.has;
        let parts = [(threads, block.threads), (registers, block.registers), (shared, block.shared)];
        let each = parts.iter().map(|(has, needs)| has / (*needs).max(1)).min().unwrap_or(1);
        self.multiprocessors * each.clamp(1, self.most_blocks)
    }
}

/// One kernel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Grid {
    pub(crate) block: Footprint,
    pub(crate) blocks: u32,
}

/// What kernels of a stream, or of a graph, have on the GPU at once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Demand {
    /// The largest of all blocks.
    block: Footprint,
    /// Blocks of the last kernel.
    last: u32,
    /// Most blocks of a kernel and its follower.
    most: u32,
}

impl Demand {
    /// With one more kernel.
    fn then(self, grid: Grid, follows: bool) -> Self {
        let pair = if follows { self.last + grid.blocks } else { grid.blocks };
        Demand { block: self.block.with(grid.block), last: grid.blocks, most: self.most.max(pair) }
    }

    /// With what another stream has, beside which it may run.
    fn beside(self, other: Self) -> Self {
        Demand { block: self.block.with(other.block), most: self.most + other.most, ..self }
    }

    /// As one kernel.
    pub(crate) fn whole(self) -> Grid {
        Grid { block: self.block, blocks: self.most }
    }

    /// With one more kernel of a capture, and whether it may be set up while the one before runs: where half of the GPU is left to other
    /// streams. Its replays are counted as a whole.
    pub(crate) fn captured(&mut self, ledger: &Ledger, grid: Grid, may_follow: bool) -> bool {
        let state = ledger.state();
        let follows = may_follow && state.leaves_half(self.then(grid, true));
        *self = self.then(grid, follows);
        follows
    }
}

/// A stream whose kernels may still run.
struct Entry {
    queue: Weak<Queue>,
    demand: Demand,
    /// Launches that were admitted and are not queued yet.
    queueing: u32,
}

struct State {
    gpu: Gpu,
    /// Processes whose ranks share the GPU: each has its part.
    processes: u32,
    entries: Vec<Entry>,
}

/// By GPU and part.
type Ledgers = HashMap<(usize, Option<(u32, u32)>), Arc<Ledger>>;

/// What the streams of this process can have on a GPU, or a part of one, at once.
pub(crate) struct Ledger {
    state: Mutex<State>,
}

/// Counts a launch from before it is queued.
pub(crate) struct Admitted<'l> {
    ledger: &'l Ledger,
    queue: *const Queue,
    /// Whether it may be set up while the kernel before it on its stream runs.
    pub(crate) follows: bool,
}

impl Ledger {
    /// That of a GPU, or of a part of one: one for a process.
    pub(crate) fn of(context: &cuda::Context) -> Result<Arc<Self>> {
        static ALL: Mutex<Option<Ledgers>> = Mutex::new(None);
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        let all = all.get_or_insert_default();
        let key = (context.device().ordinal(), context.place());
        if let Some(ledger) = all.get(&key) {
            return Ok(Arc::clone(ledger));
        }
        let ledger = Arc::new(Ledger::new(Gpu::of(context)?));
        all.insert(key, Arc::clone(&ledger));
        Ok(ledger)
    }

    fn new(gpu: Gpu) -> Self {
        Ledger { state: Mutex::new(State { gpu, processes: 1, entries: Vec::new() }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ranks of so many processes have kernels on this GPU.
    pub(crate) fn shared_by(&self, processes: u32) {
        let mut state = self.state();
        state.processes = state.processes.max(processes);
    }

    /// Counts a launch on `queue`. Where there is no place for it beside what streams have that nobody has any more, it runs behind them.
    ///
    /// # Errors
    /// [`Error::Misuse`] if its blocks, and those that other streams may have on the GPU, do not fit together; the driver's.
    pub(crate) fn admit(&self, queue: &Arc<Queue>, grid: Grid, may_follow: bool) -> Result<Admitted<'_>> {
        let behind = |before: &Arc<Queue>| queue.follow(before, before.last_use(), "GPU");
        self.admit_with(queue, grid, may_follow, Queue::is_idle, behind)
    }

    /// `is_idle`: whether all that was queued on a stream is done. `behind`: lets what is queued from here on run behind a stream.
    fn admit_with(
        &self,
        queue: &Arc<Queue>,
        grid: Grid,
        may_follow: bool,
        is_idle: impl Fn(&Queue) -> bool,
        behind: impl FnMut(&Arc<Queue>) -> Result<()>,
    ) -> Result<Admitted<'_>> {
        let mut state = self.state();
        let own = Arc::as_ptr(queue);
        let mut found = state.fit(own, grid, may_follow).or_else(|| {
            state.forget_idle(is_idle);
            state.fit(own, grid, may_follow)
        });
        if found.is_none() {
            let gone: Vec<_> = state.entries.iter().filter_map(|entry| entry.queue.upgrade()).collect();
            drop(state);
            gone.iter().filter(|before| before.has_no_handle()).try_for_each(behind)?;
            // May be the last ends of streams, which are in ledgers.
            drop(gone);
            state = self.state();
            found = state.fit(own, grid, may_follow);
        }
        let Some((follows, demand)) = found else { return Err(state.refusal(own, grid)) };
        match state.entries.iter_mut().find(|entry| entry.queue.as_ptr() == own) {
            Some(entry) => (entry.demand, entry.queueing) = (demand, entry.queueing + 1),
            None => state.entries.push(Entry { queue: Arc::downgrade(queue), demand, queueing: 1 }),
        }
        Ok(Admitted { ledger: self, queue: own, follows })
    }
}

impl Ledger {
    /// What is queued on `own` from here on runs behind what `before` has: `wait` queues that. So the kernels of `before` are counted with
    /// those that `own` has, not beside those to come.
    pub(crate) fn join(
        &self,
        own: &Arc<Queue>,
        before: &Queue,
        wait: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut state = self.state();
        wait()?;
        // A launch that is not queued yet is not waited for.
        let is_before = |e: &Entry| std::ptr::eq(e.queue.as_ptr(), before) && e.queueing == 0;
        let Some(at) = state.entries.iter().position(is_before) else { return Ok(()) };
        let Entry { demand, .. } = state.entries.swap_remove(at);
        match state.entries.iter_mut().find(|entry| entry.queue.as_ptr() == Arc::as_ptr(own)) {
            Some(entry) => entry.demand = entry.demand.beside(demand),
            None => state.entries.push(Entry { queue: Arc::downgrade(own), demand, queueing: 0 }),
        }
        Ok(())
    }
}

impl State {
    /// Blocks of up to this size that have a place.
    fn room(&self, block: Footprint) -> u32 {
        self.gpu.room(block) / self.processes
    }

    /// Whether the kernels leave half of the GPU to other streams.
    fn leaves_half(&self, demand: Demand) -> bool {
        2 * demand.most <= self.room(demand.block)
    }

    /// What the stream of a launch has, the largest of all blocks with the launch's, and how many other streams have how many blocks.
    fn beside(&self, own: *const Queue, grid: Grid) -> (Demand, Footprint, u32, u32) {
        let start = (Demand::default(), grid.block, 0, 0);
        self.entries.iter().fold(start, |(before, block, streams, others), entry| {
            let block = block.with(entry.demand.block);
            match entry.queue.as_ptr() == own {
                true => (entry.demand, block, streams, others),
                false => (before, block, streams + 1, others + entry.demand.most),
            }
        })
    }

    /// Whether a launch fits, with a place for it beside the kernel before it or without, and what its stream needs then.
    fn fit(&self, own: *const Queue, grid: Grid, may_follow: bool) -> Option<(bool, Demand)> {
        let (before, block, _, others) = self.beside(own, grid);
        let fits = |follows: bool| {
            let demand = before.then(grid, follows);
            let alone = others == 0 && self.processes == 1 && !follows;
            let modest =
                !follows || self.leaves_half(Demand { most: before.last + grid.blocks, block, ..demand });
            (modest && (alone || others + demand.most <= self.room(block))).then_some((follows, demand))
        };
        may_follow.then(|| fits(true)).flatten().or_else(|| fits(false))
    }

    /// Forgets the streams that have nothing to do any more, or are gone.
    fn forget_idle(&mut self, is_idle: impl Fn(&Queue) -> bool) {
        let is_idle = |queue: &Weak<Queue>| queue.upgrade().is_none_or(|queue| is_idle(&queue));
        self.entries.retain(|entry| entry.queueing > 0 || !is_idle(&entry.queue));
    }

    fn refusal(&self, own: *const Queue, grid: Grid) -> Error {
        let (_, block, streams, blocks) = self.beside(own, grid);
        let room = self.room(block);
        let shared = match self.processes {
            1 => String::new(),
            n => format!(" for each of the {n} processes that share it"),
        };
        Error::misuse(format!(
            "{} blocks, but kernels that are queued on {streams} other streams may hold {blocks}, and the GPU has a place for {room} of \
             that size{shared}. Blocks of two streams that find no place beside each other can keep peers waiting for ever: use fewer \
             channels or blocks, or one stream, or synchronize the others first",
            grid.blocks
        ))
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let mut state = self.ledger.state();
        if let Some(entry) = state.entries.iter_mut().find(|entry| entry.queue.as_ptr() == self.queue) {
            entry.queueing -= 1;
        }
    }
}

#[cfg(test)]
mod tests;
