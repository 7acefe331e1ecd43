//! Where the self copy's elements go.

use crate::ctx::{Consume, Ctx};
use crate::hooks::Hooks;
use crate::pack::Pack;

/// Where the chunk begins that `consume` gets in the self copy, if it is not the one of `produce`.
#[derive(Clone, Copy)]
pub(crate) struct Kept(Option<usize>);

impl Kept {
    /// It is that one.
    pub(crate) const HERE: Self = Kept(None);

    /// It begins there, if that is said.
    #[inline(always)]
    pub(crate) const fn from(start: Option<usize>) -> Self {
        Kept(start)
    }

    /// Where that chunk begins, for what is produced at `place`.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn start(self, place: &Ctx) -> usize {
        self.0.unwrap_or(place.chunk_start)
    }

    /// The witness for what `produce` gave at `ctx`.
    #[inline(always)]
    pub(crate) fn at<H: Hooks>(self, ctx: Ctx) -> Consume {
        Consume(match self.0 {
            None => ctx,
            Some(start) => ctx.moved(start, start.is_multiple_of(Pack::<H::Wire>::LANES)),
        })
    }
}
