//! What a block does before the kernel in front of its own is done: it works out what needs no memory.
//!
//! A block begins [`Armed`]. What touches memory comes of that only by the wait for the kernel in front: a [`Watch`], whose waits and
//! looks are of words that peers write, and the hooks' arguments, which are [`Ahead`] until there is a [`Behind`].

use super::Watch;
use crate::arch;
use crate::group::Group;
use crate::wait::Control;

/// The kernel in front on this stream is done, and all it wrote is visible: this thread has waited for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behind(());

impl Behind {
    /// Waits until it is: once, or again where that costs nothing. See [`arch::follow`].
    #[inline(always)]
    pub(crate) fn here() -> Self {
        Self::in_branch::<0>()
    }

    /// As [`Behind::here`], in a branch that has this number: see [`arch::follow_in`].
    #[inline(always)]
    pub(crate) fn in_branch<const BRANCH: u32>() -> Self {
        arch::follow_in::<BRANCH>();
        Behind(())
    }
}

/// A block of a kernel that may have been set up before the one in front is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Armed {
    control: Control,
    rank: u32,
    block: u32,
}

impl Armed {
    /// # Safety
    /// As for [`Watch::begin`].
    #[inline(always)]
    pub(crate) unsafe fn new<G: Group>(group: &G, control: Control, rank: u32, block: u32) -> Self {
        let armed = Armed { control, rank, block };
        arch::arm_panic(group, &armed.control, rank, block);
        armed
    }

    /// Waits; then every thread looks at the abort word for itself.
    #[inline(always)]
    pub(crate) fn looked(self) -> Watch {
        let mut watch = self.watch(Behind::here());
        watch.look();
        watch
    }

    /// Waits; then the group's leader looks at the abort word.
    #[inline(always)]
    pub(crate) fn led<G: Group>(self, group: &G) -> Watch {
        let mut watch = self.watch(Behind::here());
        watch.look_as_leader(group);
        watch
    }

    /// For a loop whose first turn waits: its watch, and what was worked out for that turn alone.
    #[inline(always)]
    pub(crate) fn first_of<T>(self, first: T) -> (LateWatch, FirstTurn<T>) {
        // Nobody has it before the first turn.
        (LateWatch(self.watch(Behind(()))), FirstTurn(Some(first)))
    }

    #[inline(always)]
    fn watch(self, behind: Behind) -> Watch {
        let Armed { control, rank, block } = self;
        Watch { control, rank, block, poison: 0, behind }
    }
}

impl Watch {
    #[inline(always)]
    fn look(&mut self) {
        self.poison = self.abort_word() as u32;
    }

    #[inline(always)]
    fn look_as_leader<G: Group>(&mut self, group: &G) {
        if group.leads() {
            self.look();
        }
    }
}

/// The watch of a loop whose first turn waits, so that what the loop works out once is worked out before. It stays in one place, since who gives up
/// names it by address: what the first turn needs would stay in memory with it, so that is a [`FirstTurn`] beside it.
pub(crate) struct LateWatch(Watch);

/// What was worked out for the first turn of such a loop.
pub(crate) struct FirstTurn<T>(Option<T>);

impl LateWatch {
    /// The watch, and on the first turn what was worked out for it, behind a wait as by [`Armed::led`].
    #[inline(always)]
    pub(crate) fn led<T, G: Group>(&mut self, first: &mut FirstTurn<T>, group: &G) -> (&Watch, Option<T>) {
        let first = first.0.take();
        if first.is_some() {
            Behind::here();
            self.0.look_as_leader(group);
        }
        (&self.0, first)
    }

    /// As [`LateWatch::led`], by [`Armed::looked`], in a branch that has this number: see [`arch::follow_in`].
    #[inline(always)]
    pub(crate) fn looked<const BRANCH: u32, T>(&mut self, first: &mut FirstTurn<T>) -> (&Watch, Option<T>) {
        let first = first.0.take();
        if first.is_some() {
            Behind::in_branch::<BRANCH>();
            self.0.look();
        }
        (&self.0, first)
    }
}

/// What leads to memory, where it can be made before the wait: addresses come of parameters alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead<T>(T);

impl<T> Ahead<T> {
    #[inline(always)]
    pub(crate) fn new(value: T) -> Self {
        Ahead(value)
    }

    /// The same, behind the wait.
    #[inline(always)]
    pub(crate) fn now(&self, _: Behind) -> &T {
        &self.0
    }
}

/// Arguments of hooks, where each branch that loads may have to wait first: so that its places are worked out before.
pub(crate) trait Arrive<T>: Copy {
    /// The arguments, in a branch that has this number.
    fn arrive<const BRANCH: u32>(&self) -> &T;
}

/// It has waited.
impl<T> Arrive<T> for &T {
    #[inline(always)]
    fn arrive<const BRANCH: u32>(&self) -> &T {
        self
    }
}

/// It has not.
impl<T> Arrive<T> for &Ahead<T> {
    #[inline(always)]
    fn arrive<const BRANCH: u32>(&self) -> &T {
        self.now(Behind::in_branch::<BRANCH>())
    }
}
