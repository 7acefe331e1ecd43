//! Virtual threads on one real one, with a clock of their own. Who goes on is chosen by a seed.

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::{Cell, RefCell};

/// Time that one turn takes.
const TURN_NS: u64 = 1000;

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
    static YIELDER: Cell<*const Yielder<(), ()>> = const { Cell::new(std::ptr::null()) };
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// Another virtual thread may go on here.
pub fn point() {
    let yielder = YIELDER.get();
    if !yielder.is_null() {
        // SAFETY: set while the virtual thread that it belongs to runs; that one's body is on the stack below.
        unsafe { &*yielder }.suspend(());
        YIELDER.set(yielder);
    }
}

pub fn now() -> u64 {
    NOW.get()
}

pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
}

/// Runs the bodies and, between them, `aside` (adapters, checks), which gets the time and says whether it had anything to do. Ends when
/// all bodies have; `false` if they have not by `limit_ns`.
pub fn run<'a>(
    rng: &mut Rng,
    bodies: Vec<Box<dyn FnOnce() + 'a>>,
    limit_ns: u64,
    mut aside: impl FnMut(u64, &mut Rng) -> bool,
) -> bool {
    let mut threads: Vec<Coroutine<(), (), (), DefaultStack>> = bodies
        .into_iter()
        .map(|body| {
            // SAFETY: only the lifetime changes: every coroutine ends, or is taken down, before this function returns.
            let body: Box<dyn FnOnce() + 'static> = unsafe { std::mem::transmute(body) };
            let stack = STACKS.with_borrow_mut(Vec::pop);
            let stack = stack.unwrap_or_else(|| DefaultStack::new(256 << 10).expect("memory for a stack"));
            Coroutine::with_stack(stack, move |yielder, ()| {
                YIELDER.set(yielder);
                body();
            })
        })
        .collect();
    let start = NOW.get();
    let mut quiet = false;
    while !threads.is_empty() {
        let now = NOW.get() + TURN_NS;
        NOW.set(now);
        if now - start > limit_ns {
            YIELDER.set(std::ptr::null());
            threads.iter_mut().for_each(Coroutine::force_unwind);
            return false;
        }
        // Adapters get as many turns as all threads together, unless they had nothing to do.
        if !quiet && rng.below(2) == 0 {
            quiet = !aside(now, rng);
            continue;
        }
        quiet = false;
        let which = rng.below(threads.len() as u64) as usize;
        if let CoroutineResult::Return(()) = threads[which].resume(()) {
            let stack = threads.swap_remove(which).into_stack();
            STACKS.with_borrow_mut(|s| s.push(stack));
        }
        YIELDER.set(std::ptr::null());
    }
    true
}
