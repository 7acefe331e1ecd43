//! The threads of a host stream: one for each block of the kernel that runs, all at once, since blocks wait for each other.

use super::Running;
use super::overflow::{enter, leave};
use fusewire_device::wait::{Flow, abort_code, kind, record_panic};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A block's work.
type Block<'a> = &'a (dyn Fn(u32) -> Flow + Sync);

struct Round {
    number: u64,
    blocks: u32,
    left: u32,
    // Lives as long as `Crew::run`, which returns only when `left` is zero.
    work: Option<Block<'static>>,
    stop: bool,
}

struct Shared {
    round: Mutex<Round>,
    begin: Condvar,
    done: Condvar,
}

/// Threads that run blocks.
pub(crate) struct Crew {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    pub(crate) fn new() -> Self {
        catch_panics_of_blocks();
        let round = Round { number: 0, blocks: 0, left: 0, work: None, stop: false };
        Crew {
            shared: Arc::new(Shared {
                round: Mutex::new(round),
                begin: Condvar::new(),
                done: Condvar::new(),
            }),
            threads: Vec::new(),
        }
    }

    /// Runs `work(block)` for every block at once and returns when all have ended. The first panic is recorded as a fault of the kernel, if a
    /// peer's did not come before; then `on_panic(code)` tells the peers.
    pub(crate) fn run(
        &mut self,
        blocks: u32,
        running: Running,
        work: &(dyn Fn(u32) -> Flow + Sync),
        on_panic: &(dyn Fn(u64) + Sync),
    ) {
        let block = |block: u32| {
            enter(running, block);
            guarded(block, work, on_panic);
            leave();
            Ok(())
        };
        if blocks == 1 {
            let _ = block(0);
            return;
        }
        while self.threads.len() < blocks as usize {
            let (shared, index) = (Arc::clone(&self.shared), self.threads.len() as u32);
            let thread = std::thread::Builder::new().name(format!("block {index}")).stack_size(512 << 10);
            match thread.spawn(move || member(&shared, index)) {
                Ok(handle) => self.threads.push(handle),
                // The others' threads end with their streams.
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        let whole: Block<'_> = &block;
        // SAFETY: only the lifetime changes; the reference is taken back below, before `block` ends, when no thread uses it.
        let whole: Block<'static> = unsafe { std::mem::transmute::<Block<'_>, Block<'static>>(whole) };
        let mut round = lock(&self.shared.round);
        round.number += 1;
        (round.blocks, round.left, round.work) = (blocks, blocks, Some(whole));
        self.shared.begin.notify_all();
        while round.left > 0 {
            round = self.shared.done.wait(round).unwrap_or_else(PoisonError::into_inner);
        }
        round.work = None;
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        lock(&self.shared.round).stop = true;
        self.shared.begin.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn member(shared: &Shared, index: u32) {
    let mut seen = 0;
    loop {
        let work = {
            let mut round = lock(&shared.round);
            loop {
                if round.stop {
                    return;
                }
                if round.number != seen {
                    seen = round.number;
                    if index < round.blocks {
                        break round.work;
                    }
                }
                round = shared.begin.wait(round).unwrap_or_else(PoisonError::into_inner);
            }
        };
        if let Some(work) = work {
            let _ = work(index);
        }
        let mut round = lock(&shared.round);
        round.left -= 1;
        if round.left == 0 {
            shared.done.notify_all();
        }
    }
}

thread_local! {
    static IN_BLOCK: Cell<bool> = const { Cell::new(false) };
    static PANIC: RefCell<Option<([String; 2], u32, u32)>> = const { RefCell::new(None) };
}

/// What a panic in a block says, and where, goes into the fault instead of to standard error.
fn catch_panics_of_blocks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !IN_BLOCK.get() {
                before(info);
            } else if let Some(at) = info.location() {
                let said = [at.file(), info.payload_as_str().unwrap_or_default()].map(str::to_owned);
                PANIC.set(Some((said, at.line(), at.column())));
            }
        }));
    });
}

/// Drops what a panic carried, which is the user's and may panic in turn, with something that does.
fn let_go(mut payload: Box<dyn Any + Send>) {
    for _ in 0..8 {
        match catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            Ok(()) => return,
            Err(next) => payload = next,
        }
    }
    std::mem::forget(payload);
}

fn guarded(block: u32, work: &(dyn Fn(u32) -> Flow + Sync), on_panic: &(dyn Fn(u64) + Sync)) {
    IN_BLOCK.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(|| work(block)));
    let (armed, panic) = (fusewire_device::arch::take_armed(), PANIC.take());
    let panicked = outcome.is_err();
    if let Err(payload) = outcome {
        let_go(payload);
    }
    IN_BLOCK.set(false);
    PANIC.set(None);
    if panicked && let Some((control, rank, block)) = armed {
        let ([file, message], line, column) = panic.unwrap_or_default();
        // SAFETY: the words of the kernel that this thread ran; the operation that holds them has not returned.
        if unsafe { record_panic(&control, rank, block, &file, line, column, message.as_bytes(), &[]) } {
            on_panic(abort_code(rank, kind::PANIC));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fusewire_device::arch::arm_panic;
    use fusewire_device::group::Thread;
    use fusewire_device::wait::{AbortRecord, Control, FILLED};

    /// What peers are told of two panics, and the state of this rank's record, where the abort word has `word` before.
    fn told(mut word: u64) -> (Vec<u64>, u32) {
        let mut record = AbortRecord::EMPTY;
        let control =
            Control { abort: (&raw mut word) as u64, record: (&raw mut record) as u64, deadline_ns: 0 };
        let (told, rank) = (Mutex::new(Vec::new()), 3);
        for block in 0..2 {
            let work = |block: u32| {
                arm_panic(&Thread, &control, rank, block);
                panic!("of block {block}")
            };
            guarded(block, &work, &|code| lock(&told).push(code));
        }
        (told.into_inner().expect("no panic"), record.state)
    }

    #[test]
    fn peers_are_told_of_a_rank_that_has_a_record() {
        catch_panics_of_blocks();
        assert_eq!(told(0), (vec![abort_code(3, kind::PANIC)], FILLED));
        // A peer came first: who is told of this rank would look for its record in vain.
        assert_eq!(told(abort_code(1, kind::PANIC)), (vec![], 0));
    }
}
