//! What a rank alone does: nothing travels. Other protocols do it too, but their kernels have registers for all that they may have to do. Hooks for
//! themselves need few, so more of their elements are in flight on a multiprocessor.

use super::simple::{Packs, Take, fold_packs};
use super::{Protocol, Site, arguments, armed, work};
use crate::arch;
use crate::ctx::Ctx;
use crate::group::{Block, Group};
use crate::hooks::Hooks;
use crate::launch::{EVICT_NORMAL, Grid, PREFETCH, Params, Unpack};
use crate::ops::Ops;
use crate::pack::Pack;
use crate::row::walk;
use crate::schedule::{Schedule, has_own};
use crate::tile;
use crate::wait::{Arrive, Behind, Flow};

/// The protocol, as a type. Grid: `self_copy` blocks, which take tiles or rows in turn, or a share each.
#[derive(Debug)]
pub struct Local;

// SAFETY: in a world of one rank no chunk goes anywhere.
unsafe impl<O: Ops> Protocol<O> for Local {
    #[inline(always)]
    unsafe fn exchange<S: Schedule, H: Unpack>(grid: Grid, params: &Params<O, S, H::Raw>) -> Flow {
        // SAFETY: the caller's contract.
        unsafe { armed::<O, S, H>(grid, params) };
        // Hooks may panic from here on, and warps meet.
        Block.sync();
        // SAFETY: the caller's contract.
        let args = unsafe { arguments::<H>(&params.raw) };
        let site = Site::of(grid, params);
        // Nobody looks at the abort word: a block that waits for no peer need not know whether the kernel has been aborted, and the loads of 8000 warps
        // took two microseconds.
        if const { by_packs::<S, H>() } {
            // Where the first is loaded it waits: with one pack for each thread, places take as long to work out as all else.
            own::<O, S, H>(&site, &params.schedule, &args);
            // Who had no pack: else this kernel could end before the one in front.
            Behind::here();
        } else {
            own::<O, S, H>(&site, &params.schedule, args.now(Behind::here()));
        }
        // A panic has its record, and there is nobody to be told.
        Ok(())
    }
}

/// Whether each thread takes packs by itself, from `produce` to `consume`.
const fn by_packs<S: Schedule, H: Hooks>() -> bool {
    !S::FOLDS && !H::TRANSPOSED && H::COLS == 0
}

/// This block's part of the rank's own chunk.
#[inline(always)]
fn own<'a, O: Ops, S: Schedule, H: Hooks>(site: &Site<'_, O>, schedule: &S, args: impl Arrive<H::Args<'a>>) {
    if !has_own(schedule, site.me) {
        return;
    }
    let shape = site.shape;
    let (team, share) = work::<H>(shape.elements, shape.own_share, site.grid.block, shape.self_copy);
    let cache_policy = Some(arch::cache_policy(shape.flags & EVICT_NORMAL != 0));
    let place = Ctx { prefetches: shape.flags & PREFETCH != 0, cache_policy, ..site.own(schedule, 0) };
    let kept = site.kept(schedule);
    let (first, count) = (share.first, share.packs);
    if const { by_packs::<S, H>() } {
        return tile::self_copy_arriving::<H>(team, (&place, kept), first, count, args);
    }
    let args = args.arrive::<0>();
    if const { !S::FOLDS } {
        tile::self_copy::<H>(team, (&place, kept), first, count, args);
    } else if const { H::COLS > 0 } {
        let alone = (Some(0), 1);
        walk::fold::<H, 1>(team, (&place, kept), (first, count), args, alone, &Take, |_, _| Pack::ZERO);
    } else {
        let whole = tile::whole_until(&place, Pack::<H::Wire>::LANES, first, count);
        let packs = Packs { place: &place, first, payload: 0, count, whole };
        fold_packs::<H>((&packs, team.lane), team, kept, site.me, args, &Take, |_, _| Pack::ZERO);
    }
}
