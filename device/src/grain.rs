//! What a tile's hook gives or takes at a time.

use crate::ctx::{Consume, Produce};
use crate::element::Element;
use crate::hooks::{consume_each, pass_each, produce_each};
use crate::pack::Pack;

/// What a tile's hook gives or takes at a time: an [`Element`], or a [`Pack`] of them. The hook's type says which, and so what crosses the wire:
///
/// ```ignore
/// kernel.send_tile(peer, tile, |ctx| input[ctx.index()])?;                     // f32
/// kernel.send_tile(peer, tile, |ctx| input.pack(ctx))?;                        // Pack<f32>
/// kernel.recv_tile(peer, tile, |ctx, value: Pack<f32>| output.at(ctx).set_pack(value))?;
/// ```
///
/// A hook by pack is called for `ctx.valid` elements from `ctx.index()` on: a whole pack, or fewer at the tile's end. It loads and stores 16 bytes at
/// once where the tile begins at a multiple of [`Pack::LANES`]. Either end of a tile may be by element and the other by pack.
#[diagnostic::on_unimplemented(
    message = "a tile's hook cannot give or take `{Self}`",
    label = "neither an element nor a `Pack` of elements",
    note = "element types are u8 to u64, i8 to i64, f32, f64, F16, Bf16, F8E4M3 and F8E5M2, and structs of these with `#[derive(Element)]` (in a device crate: of `element!`)"
)]
pub trait Grain: Copy + sealed::Sealed {
    /// What crosses the wire.
    type Wire: Element;
    /// Packs that a thread has in flight.
    #[doc(hidden)]
    const IN_FLIGHT: usize;
    /// Whether it leaves registers for bundles of LL128.
    #[doc(hidden)]
    const BUNDLES: bool;
    #[doc(hidden)]
    fn give(ctx: &Produce, hook: impl Fn(&Produce) -> Self) -> Pack<Self::Wire>;
    #[doc(hidden)]
    fn take(ctx: &Consume, pack: Pack<Self::Wire>, hook: impl Fn(&Consume, Self));
    #[doc(hidden)]
    fn pass(ctx: &Consume, pack: Pack<Self::Wire>, hook: impl Fn(&Consume, Self) -> Self)
    -> Pack<Self::Wire>;
}

impl<W: Element> Grain for W {
    type Wire = W;
    const IN_FLIGHT: usize = 2;
    // Not where a pack has many elements.
    const BUNDLES: bool = Pack::<W>::LANES <= 8;
    #[inline(always)]
    fn give(ctx: &Produce, hook: impl Fn(&Produce) -> W) -> Pack<W> {
        produce_each(ctx, hook)
    }
    #[inline(always)]
    fn take(ctx: &Consume, pack: Pack<W>, hook: impl Fn(&Consume, W)) {
        consume_each(ctx, pack, hook);
    }
    #[inline(always)]
    fn pass(ctx: &Consume, pack: Pack<W>, hook: impl Fn(&Consume, W) -> W) -> Pack<W> {
        pass_each(ctx, pack, hook)
    }
}

impl<W: Element> Grain for Pack<W> {
    type Wire = W;
    const IN_FLIGHT: usize = 4;
    const BUNDLES: bool = true;
    #[inline(always)]
    fn give(ctx: &Produce, hook: impl Fn(&Produce) -> Self) -> Self {
        hook(ctx)
    }
    #[inline(always)]
    fn take(ctx: &Consume, pack: Self, hook: impl Fn(&Consume, Self)) {
        hook(ctx, pack);
    }
    #[inline(always)]
    fn pass(ctx: &Consume, pack: Self, hook: impl Fn(&Consume, Self) -> Self) -> Self {
        hook(ctx, pack)
    }
}

mod sealed {
    use crate::element::Element;
    use crate::pack::Pack;

    pub trait Sealed {}
    impl<W: Element> Sealed for W {}
    impl<W: Element> Sealed for Pack<W> {}
}
