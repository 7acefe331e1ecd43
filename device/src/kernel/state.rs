//! What a kernel knows of what is under way.

use core::cell::Cell;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum State {
    Ready,
    /// A tile is under way.
    Busy,
    /// A tile that is for each thread by itself; and whether an operation returned `Stopped`.
    Local(bool),
    /// Teams are at work.
    Teams,
    /// An operation returned `Stopped`: whatever else the schedule asks for is refused as well.
    Stopped,
}

/// In the compiler's message to a closure that has a kernel or a team.
pub(crate) struct KernelsAndTeamsStandOutsideClosures;

/// What a kernel or a team notes of itself.
#[derive(Debug)]
pub(crate) struct Own<T: Copy>(Cell<T>);

// SAFETY: it is a part of what its `thread` keeps on one thread. So one field alone stands in what the compiler says.
unsafe impl<T: Copy> Sync for Own<T> {}

impl<T: Copy> Own<T> {
    #[inline(always)]
    pub const fn new(value: T) -> Self {
        Own(Cell::new(value))
    }
    #[inline(always)]
    pub fn get(&self) -> T {
        self.0.get()
    }
    #[inline(always)]
    pub fn set(&self, value: T) {
        self.0.set(value);
    }
    #[inline(always)]
    pub fn replace(&self, value: T) -> T {
        self.0.replace(value)
    }
}
