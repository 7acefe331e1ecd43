//! What a hook knows about the element, or pack of elements, that it handles.

use core::marker::PhantomData;
use core::ops::Deref;

/// Where a hook is: who sends to whom, and which element of which chunk this call is about.
///
/// `Ctx` is the one thing that grows as schedules do; the signatures of hooks never change. Hooks receive it as [`Produce`] or
/// [`Consume`], which dereference to it; only the framework makes one.
#[derive(Debug)]
#[non_exhaustive]
pub struct Ctx {
    /// This rank.
    pub rank: usize,
    /// `produce`: the rank that will receive the value. `consume`: the rank that sent it. Equal to `rank` on the diagonal.
    pub peer: usize,
    /// Ranks in the world.
    pub world: usize,
    /// This block's index in the grid.
    pub block: usize,
    /// Channel of the peer that carries the value.
    pub channel: usize,
    /// Index of the first element of this peer's chunk in the flat buffer.
    pub chunk_start: usize,
    /// Elements in the chunk.
    pub chunk_len: usize,
    /// Position in the chunk, in elements; for a pack, of its first element.
    pub pos: usize,
    /// Elements this call is about: 1, or for a pack up to `Pack::LANES` (fewer only at the end of a chunk).
    pub valid: usize,
    /// Rows of the chunk, where the launch gave a shape; else 1.
    pub rows: usize,
    /// Columns of the chunk, where the launch gave a shape; else `chunk_len`.
    pub cols: usize,
    /// The pack is whole and its index a multiple of its length, so that a 16-byte access is right.
    pub(crate) whole: bool,
    /// Keeps a context, and so its witness of exclusive access, on the thread it was made for.
    pub(crate) thread: PhantomData<*mut ()>,
}

impl Ctx {
    /// Flat index: `chunk_start + pos`.
    #[inline(always)]
    pub fn index(&self) -> usize {
        self.chunk_start + self.pos
    }

    /// Row and column of `pos` in the chunk's shape, row-major.
    #[inline(always)]
    pub fn row_col(&self) -> (usize, usize) {
        (self.pos / self.cols, self.pos % self.cols)
    }

    #[inline(always)]
    pub(crate) fn at(&self, pos: usize, valid: usize, whole: bool) -> Ctx {
        Ctx { pos, valid, whole, ..*self }
    }
}

/// The context of a `produce` call.
#[derive(Debug)]
pub struct Produce(pub(crate) Ctx);

/// The context of a `consume` call: the witness that this thread alone handles this element in this launch.
///
/// It can be neither cloned nor made outside the framework, nor shown to another thread, so an [`Out`](crate::args::Out) may give
/// write access for it.
///
/// ```compile_fail,E0277
/// fn shared(ctx: &fusewire_device::ctx::Consume) {
///     std::thread::scope(|threads| threads.spawn(move || ctx.index()));
/// }
/// ```
#[derive(Debug)]
pub struct Consume(pub(crate) Ctx);

impl Deref for Produce {
    type Target = Ctx;
    #[inline(always)]
    fn deref(&self) -> &Ctx {
        &self.0
    }
}

impl Deref for Consume {
    type Target = Ctx;
    #[inline(always)]
    fn deref(&self) -> &Ctx {
        &self.0
    }
}
