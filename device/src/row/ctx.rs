//! Where a hook of rows is.

use crate::ctx::Ctx;
use core::marker::PhantomData;
use core::ops::Deref;

/// Who sends to whom, and which row of which chunk this call is about.
#[derive(Debug)]
#[non_exhaustive]
pub struct RowAt {
    /// This rank.
    pub rank: usize,
    /// `produce`: the rank that will receive the row. `consume`: the rank that sent it. Equal to `rank` in the self copy, and in `produce`
    /// of a schedule that produces once for all ranks.
    pub peer: usize,
    /// Ranks in the world.
    pub world: usize,
    /// Channel of the peer that carries the row.
    pub channel: usize,
    /// Row in the chunk.
    pub row: usize,
    /// Rows in the chunk.
    pub rows: usize,
    /// Index of the row in the flat buffer, in rows: of what holds one element for each row.
    pub index: usize,
    /// As in [`Ctx`].
    pub(crate) prefetches: bool,
    /// As in [`Ctx`].
    pub(crate) cache_policy: Option<u64>,
    /// Keeps a context on the thread it was made for, and out of closures that are called for each element.
    thread: PhantomData<*mut SumsAndMaximaStandOutsideClosures>,
}

/// What the compiler names where a closure would take a context.
#[derive(Debug)]
pub struct SumsAndMaximaStandOutsideClosures(());

impl RowAt {
    /// Row `row` of the chunk at `place`, with `cols` elements in each.
    #[inline(always)]
    pub(crate) fn of(place: &Ctx, row: usize, cols: usize) -> Self {
        let Ctx { rank, peer, world, channel, prefetches, cache_policy, .. } = *place;
        let (rows, index) = (place.chunk_len / cols, place.chunk_start / cols + row);
        RowAt { rank, peer, world, channel, row, rows, index, prefetches, cache_policy, thread: PhantomData }
    }
}

/// The context of a `produce` call.
#[derive(Debug)]
pub struct ProduceRow<const N: usize, const S: usize>(RowAt);

/// The context of a `consume` call: the witness that this team alone handles this row in this launch.
///
/// It can be neither cloned nor made outside the framework. Nor can a closure have it, which is called for each element:
///
/// ```compile_fail,E0277
/// # use fusewire_device::row::{self, Row, ConsumeRow};
/// fn nested(ctx: &ConsumeRow<64, { row::slots(64) }>, row: Row<f32, 64, { row::slots(64) }>) {
///     row.map(|x| x / row.sum(ctx));
/// }
/// ```
#[derive(Debug)]
pub struct ConsumeRow<const N: usize, const S: usize>(RowAt);

/// The context of either.
///
/// Sealed: what takes one is done by all threads of a team together.
pub trait AtRow<const N: usize, const S: usize>: Deref<Target = RowAt> + sealed::Sealed {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! contexts {
    ($($name:ident)*) => {$(
        impl<const N: usize, const S: usize> $name<N, S> {
            /// The framework's own.
            ///
            /// # Safety
            /// All threads of a team make one of the same row together. Of `consume` there is one for each row of a launch.
            #[doc(hidden)]
            #[inline(always)]
            pub unsafe fn new(at: RowAt) -> Self {
                Self(at)
            }
        }
        impl<const N: usize, const S: usize> Deref for $name<N, S> {
            type Target = RowAt;
            #[inline(always)]
            fn deref(&self) -> &RowAt {
                &self.0
            }
        }
        impl<const N: usize, const S: usize> sealed::Sealed for $name<N, S> {}
        impl<const N: usize, const S: usize> AtRow<N, S> for $name<N, S> {}
    )*};
}
contexts! { ProduceRow ConsumeRow }
