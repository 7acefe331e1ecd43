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
    /// `produce`: the rank that will receive the value. `consume`: the rank that sent it. Equal to `rank` in the self copy, and in `produce`
    /// of a schedule that produces once for all ranks.
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
    /// Row and column of `pos`, where whoever made the context knew them.
    pub(crate) shaped: Option<(usize, usize)>,
    /// Columns after the one in `shaped`. The compiler knows this number, so the index of a neighbour costs one addition.
    pub(crate) beside: usize,
    /// The largest index that this context's maker asks for, at least `index()`: if it is in bounds, `index()` is too.
    pub(crate) most: usize,
    /// The pack is whole and its index a multiple of its length, so that a 16-byte access is right.
    pub(crate) whole: bool,
    /// Every slice of the launch begins at a multiple of 16 bytes.
    pub(crate) aligned: bool,
    /// The grid's blocks take rows one after another, in order, and the launch says that they ask for rows further on: see [`PREFETCH`](crate::launch::PREFETCH).
    pub(crate) prefetches: bool,
    /// How the L2 cache keeps packs that are loaded, where the launch says, as it does to a rank alone: see [`EVICT_NORMAL`](crate::launch::EVICT_NORMAL).
    pub(crate) cache_policy: Option<u64>,
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
        match self.shaped {
            Some((row, col)) => (row, col + self.beside),
            None => (self.pos / self.cols, self.pos % self.cols),
        }
    }

    /// Flat index in the input of the element that a transpose moves here. The chunk lies in memory as `cols` rows of `rows` columns;
    /// the element is in its row `row_col().1` and column `row_col().0`.
    #[inline(always)]
    pub fn transposed_index(&self) -> usize {
        let (row, col) = self.row_col();
        self.chunk_start + col * self.rows + row
    }

    /// As `transposed_index()` plus `.1` times `rows`.
    #[inline(always)]
    pub(crate) fn transposed_parts(&self) -> (usize, usize) {
        let ((row, col), beside) = match self.shaped {
            Some(at) => (at, self.beside),
            None => (self.row_col(), 0),
        };
        (self.chunk_start + col * self.rows + row, beside)
    }

    #[inline(always)]
    pub(crate) fn at(&self, pos: usize, valid: usize, whole: bool) -> Ctx {
        let shaped = if pos == self.pos { self.shaped } else { None };
        Ctx { pos, valid, shaped, most: self.chunk_start + pos, whole, ..*self }
    }

    /// Whether packs of `lanes` elements, from the chunk's beginning on, are at multiples of 16 bytes in every slice of such elements.
    #[inline(always)]
    pub(crate) fn in_packs(&self, lanes: usize) -> bool {
        // No branch: it would cost registers in the loops behind it.
        self.aligned & self.chunk_start.is_multiple_of(lanes)
    }

    /// The same place of the chunk that begins at `start`; `aligned`: that is a multiple of a pack's elements.
    #[inline(always)]
    pub(crate) fn moved(&self, start: usize, aligned: bool) -> Ctx {
        Ctx { chunk_start: start, most: start + self.pos, whole: self.whole && aligned, ..*self }
    }

    /// The same, one of several packs of which the last one has index `last`.
    #[inline(always)]
    pub(crate) fn before(self, last: usize) -> Ctx {
        Ctx { most: last, ..self }
    }

    /// Whether `valid` elements from `index()` on are inside `len`. There is one test for all packs that are asked for together, and so
    /// no branch between what they load.
    #[inline(always)]
    pub(crate) fn inside(&self, len: usize) -> bool {
        #[cfg(target_arch = "nvptx64")]
        return self.valid <= len && (self.most <= len - self.valid) | (self.index() <= len - self.valid);
        // In a loop the first of the two does not change, and is what decides.
        #[cfg(not(target_arch = "nvptx64"))]
        return self.valid <= len
            && (self.most <= len - self.valid || {
                core::hint::cold_path();
                self.index() <= len - self.valid
            });
    }

    /// The start of a chunk, for tests.
    #[cfg(test)]
    pub(crate) fn of_chunk(chunk_start: usize, chunk_len: usize, rows: usize, cols: usize) -> Ctx {
        Ctx {
            rank: 0,
            peer: 0,
            world: 1,
            block: 0,
            channel: 0,
            chunk_start,
            chunk_len,
            pos: 0,
            valid: 0,
            rows,
            cols,
            shaped: None,
            beside: 0,
            most: chunk_start,
            whole: false,
            aligned: true,
            prefetches: false,
            cache_policy: None,
            thread: PhantomData,
        }
    }

    /// The context of the element at `pos`, which is in row `row`, and `beside` columns behind `col`.
    #[inline(always)]
    pub(crate) fn of_shape(&self, pos: usize, (row, col): (usize, usize), beside: usize) -> Ctx {
        let most = self.chunk_start + pos;
        Ctx { pos, valid: 1, shaped: Some((row, col)), beside, most, whole: false, ..*self }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tile::whole_until;

    #[test]
    fn no_pack_is_whole_where_a_view_begins_anywhere() {
        let place = Ctx::of_chunk(32, 30, 1, 30);
        assert_eq!(whole_until(&place, 8, 0, 4), 3);
        assert_eq!(whole_until(&Ctx { aligned: false, ..place }, 8, 0, 4), 0);
        assert_eq!(whole_until(&Ctx::of_chunk(33, 30, 1, 30), 8, 0, 4), 0);
    }
}
