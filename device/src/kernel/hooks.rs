//! Tiles whose hooks are a module's.

use super::{Kernel, Tile};
use crate::hooks::Hooks;
use crate::ops::Ops;
use crate::protocol::ll128::bundles;
use crate::tile::{By, Module};
use crate::wait::Flow;

/// The arguments of a hook module that has a schedule of its own. `#[comm_kernel]` implements it for the module's `Args`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the `Args` of a hook module that has a schedule of its own",
    label = "not the arguments of this schedule's module",
    note = "the schedule stands in the module, which names it: `#[comm_kernel(schedules(ring))] mod m {{ .. pub fn ring<O: Ops>(kernel: &Kernel<O>, args: &Args) -> Flow {{ .. }} }}`"
)]
pub trait HookArgs<'a>: Sized {
    /// The module's hooks.
    type Hooks: Hooks<Args<'a> = Self>;
}

/// Tiles that a hook module produces and consumes: see [`Kernel::hooks`].
pub struct HookTiles<'k, 'a, O, H: Hooks> {
    kernel: &'k Kernel<O>,
    args: &'k H::Args<'a>,
    by_ll128: bool,
}

impl<O: Ops> Kernel<O> {
    /// Tiles by the `produce` and `consume` of the module that this schedule stands in. What is sent is produced at the tile's indices, with the peer's
    /// rank as `ctx.peer`; what arrives is consumed at them. A hook that the module leaves out is a copy of `input` or to `output`, as elsewhere. `ctx.pos`,
    /// `chunk_len`, `rows` and `cols` are those of the tile, which is one row.
    ///
    /// ```ignore
    /// let hooks = kernel.hooks(args);
    /// hooks.send_tile(kernel.next(1), tile)?;
    /// unsafe { hooks.recv_tile(kernel.previous(1), tile)? };
    /// ```
    #[inline(always)]
    pub fn hooks<'k, 'a, A: HookArgs<'a>>(&'k self, args: &'k A) -> HookTiles<'k, 'a, O, A::Hooks> {
        HookTiles { kernel: self, args, by_ll128: false }
    }
}

impl<O: Ops, H: Hooks> HookTiles<'_, '_, O, H> {
    /// The same tiles by LL128, under the rules of [`Kernel::ll128`].
    #[inline(always)]
    #[must_use]
    pub fn ll128(self) -> Self {
        HookTiles { by_ll128: true, ..self }
    }

    /// [`Kernel::send_tile`] of what `produce` gives.
    ///
    /// # Panics
    /// If the hook sends or receives.
    #[inline(always)]
    #[track_caller]
    pub fn send_tile(&self, peer: usize, tile: Tile) -> Flow {
        let (hooks, bundles) = (Module::<H>(self.args), bundles::<H>());
        match self.by_ll128 {
            true => self.kernel.ll128().send_by::<By<H>, _>(peer, tile, &hooks, bundles),
            false => self.kernel.send_by::<By<H>, _>(peer, tile, &hooks),
        }
    }

    /// [`Kernel::recv_tile`] of what `consume` takes.
    ///
    /// # Safety
    /// As there.
    ///
    /// # Panics
    /// If the hook sends or receives.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn recv_tile(&self, peer: usize, tile: Tile) -> Flow {
        let (hooks, bundles) = (Module::<H>(self.args), bundles::<H>());
        // SAFETY: the caller's contract.
        unsafe {
            match self.by_ll128 {
                true => self.kernel.ll128().recv_by::<By<H>, _>(peer, tile, &hooks, bundles),
                false => self.kernel.recv_by::<By<H>, _>(peer, tile, &hooks),
            }
        }
    }

    /// [`Kernel::keep_tile`] by both hooks.
    ///
    /// # Safety
    /// As there.
    ///
    /// # Panics
    /// As there.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn keep_tile(&self, from: Tile, to: usize) {
        let hooks = Module::<H>(self.args);
        // SAFETY: the caller's contract.
        unsafe { self.kernel.keep_by::<By<H>, _>(from, to, &hooks, &hooks) };
    }
}
