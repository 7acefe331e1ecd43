//! In place: input and output in one.

use super::{Lent, Out, Place, RawSlice};
use crate::ctx::{Consume, Produce};
use crate::element::Element;
use crate::pack::Pack;
use crate::row::{ConsumeRow, ProduceRow, Row, RowPlace};

/// An argument that is input and output in one, of a collective in place: `produce` reads the element (or pack, or [row](crate::row)) that it sends,
/// `consume` writes the one that came of it.
///
/// ```ignore
/// #[comm_kernel(transports(Nvl), schedules(all_reduce), reduce(sum, f32))]
/// mod sum {
///     pub struct Args<'a> { pub gradients: InOut<'a, Bf16> }
/// }
/// sum.launch(&stream, sum::Launch { gradients: buffer.view_mut() })?;
/// ```
///
/// What a rank keeps of its own stands in one place of the buffer ([`InPlace`](crate::schedule::InPlace)), which is laid out as for NCCL:
///
/// | schedule | chunks of the buffer | sent | written |
/// |---|---|---|---|
/// | `all_reduce`, `reduce` | 1 | it | it; by `reduce` at the root alone |
/// | `broadcast` | 1 | the root's | it |
/// | `all_gather` | one for each rank | this rank's | all |
/// | `reduce_scatter` | one for each rank | all | this rank's |
/// | `gather` | the root's one for each rank, others' 1 | the root's own; the one | all of the root's |
/// | `scatter` | the root's one for each rank, others' 1 | all of the root's | the root's own; the one |
///
/// `ctx.index()` is the index in this buffer, in `produce` as in `consume`; `ctx.pos` counts from the chunk's beginning, which is what another argument of one
/// chunk is indexed by. Of rows, `ctx.index` and `ctx.row` count in the same way.
///
/// It has neither slice nor index: an element is read for what is sent of it, which has happened when `consume` is called for it. A row is read as a whole by the
/// threads that share it, and each of them stores what it alone has read.
#[derive(Clone, Copy, Debug)]
pub struct InOut<'a, T>(Out<'a, T>);

impl<'a, T: Element> InOut<'a, T> {
    /// What a hook sees.
    ///
    /// # Safety
    /// As for [`Out::from_raw`]; and `consume` is called for an element when `produce` has been for the last time.
    #[inline(always)]
    pub unsafe fn from_raw(raw: RawSlice<T>, lent: Lent<'a>) -> Self {
        // SAFETY: the caller's contract.
        InOut(unsafe { Out::from_raw(raw, lent) })
    }

    /// Elements.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no elements.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The element of this `produce` call, at `ctx.index()`.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline(always)]
    #[track_caller]
    pub fn get(&self, ctx: &Produce) -> T {
        self.0.there(ctx).get()
    }

    /// The pack of this `produce` call. Elements past `ctx.valid` are zero.
    ///
    /// # Panics
    /// If there are fewer than `ctx.index() + ctx.valid`; if the wire's elements are so narrow that `ctx.valid` are more than one pack of `T`
    /// (see [`InOut::packs`]).
    #[inline(always)]
    #[track_caller]
    pub fn pack(&self, ctx: &Produce) -> Pack<T> {
        self.0.there(ctx).get_pack()
    }

    /// The `N` packs of this `produce` call: for a wire whose elements are narrower. Elements past `ctx.valid` are zero.
    ///
    /// # Panics
    /// As for [`InOut::pack`], with `N` packs in place of one.
    #[inline(always)]
    #[track_caller]
    pub fn packs<const N: usize>(&self, ctx: &Produce) -> [Pack<T>; N] {
        self.0.there(ctx).get_packs()
    }

    /// The place of this `consume` call: as [`Out::at`]. What is there is still what `produce` read.
    ///
    /// # Panics
    /// If there are fewer elements.
    #[inline(always)]
    #[track_caller]
    pub fn at<'c>(&'c self, ctx: &'c Consume) -> Place<'c, T> {
        self.0.at(ctx)
    }

    /// The row of this `produce` call: `N` elements from `ctx.index * N` on.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline(always)]
    #[track_caller]
    pub fn get_row<const N: usize, const S: usize>(&self, ctx: &ProduceRow<N, S>) -> Row<T, N, S> {
        self.0.row_to_send(ctx)
    }

    /// The row of this `consume` call: as [`Out::row`]. What is there is still what `produce` read.
    ///
    /// # Panics
    /// If there are fewer elements.
    #[inline(always)]
    #[track_caller]
    pub fn row<'c, const N: usize, const S: usize>(
        &'c self,
        ctx: &'c ConsumeRow<N, S>,
    ) -> RowPlace<'c, T, N, S> {
        self.0.row(ctx)
    }

    /// The places alone.
    #[doc(hidden)]
    #[inline(always)]
    pub fn out(&self) -> Out<'a, T> {
        self.0
    }
}
