//! Where folded packs go.

use crate::ctx::Consume;
use crate::fold::Contributions;
use crate::hooks::Hooks;
use crate::pack::Pack;
use crate::row::RowAt;

/// What becomes of a turn's packs when they are folded.
pub(crate) trait Then<H: Hooks> {
    /// Folds pack `s` of the turn, which is the one at `ctx`, of what `ranks` ranks contribute.
    fn fold(&self, s: u32, ctx: &Consume, args: &H::Args<'_>, ranks: u32, of: &impl Contributions<H::Wire>);

    /// The same of the row at `at`, which begins with pack `s` of the turn; as [`Hooks::fold_row`].
    #[inline(always)]
    fn fold_row<const RANKS: usize>(
        &self,
        s: u32,
        at: RowAt,
        args: &H::Args<'_>,
        ranks: u32,
        own: Option<(u32, RowAt)>,
        of: &impl Fn(u32, u32) -> Pack<H::Wire>,
    ) {
        let _ = s;
        H::fold_row::<RANKS>(at, args, ranks, own, of);
    }
}
