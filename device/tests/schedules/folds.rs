//! Hooks of schedules that fold.

use super::hooks::{Args, Raw};
use fusewire_device::{
    args::{Lent, Out, Packs},
    ctx::{Consume, Produce},
    fold::{self, Contributions, Fold},
    hooks::{Hooks, consume_each},
    launch::Unpack,
    pack::Pack,
};

/// Neither associative nor commutative.
pub struct Ordered;

impl Fold<u16> for Ordered {
    type Acc = u32;
    fn lift(value: u16) -> u32 {
        u32::from(value) ^ 0x5bd1_e995
    }
    fn fold(left: u32, right: u32) -> u32 {
        left.wrapping_mul(0x0100_0193).rotate_left(7).wrapping_add(right ^ right >> 15)
    }
}

/// What ranks `from..to` contribute, by the tree of its definition.
pub fn tree(from: u32, to: u32, of: &impl Fn(u32) -> u16) -> u32 {
    if to - from == 1 {
        return Ordered::lift(of(from));
    }
    let left = 1 << (to - from - 1).ilog2();
    Ordered::fold(tree(from, from + left, of), tree(from + left, to, of))
}

/// Folds, and chains the results of calls.
pub struct Folding;

impl Hooks for Folding {
    type Args<'a> = Args<'a, u16, u32>;
    type Wire = u16;
    type Folded = u32;
    const UNROLL: usize = 1;
    const FOLDS: bool = true;
    const RELAYS: usize = fold::relays::<u16, u32>();
    fn produce(ctx: &Produce, args: &Self::Args<'_>) -> Pack<u16> {
        // Those that fold must wait for one that takes its time.
        if ctx.rank == 1 && ctx.pos % 512 == 256 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        args.input.pack(ctx)
    }
    fn consume(_: &Consume, _: &Self::Args<'_>, _: Pack<u16>) {
        unreachable!("nothing but the fold takes values");
    }
    fn fold(ctx: &Consume, args: &Self::Args<'_>, ranks: u32, of: &impl Contributions<u16>) -> bool {
        // Senders must wait for a rank that takes its time.
        if ctx.rank == 0 && ctx.pos == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        fold::each::<Ordered, u16>(ctx, ranks, of, |ctx, value| {
            args.output.at(ctx).update(|old| Self::becomes(old, value));
        })
    }
    fn relay(ranks: u32, of: &impl Contributions<u16>, put: &impl Fn(usize, Pack<u32>)) -> bool {
        fold::relay::<Ordered, u16, u32>(ranks, of, |folded| folded, put)
    }
    fn take(ctx: &Consume, args: &Self::Args<'_>, folded: Pack<u32>) {
        // Those that fold must wait for a rank that takes its time, also with what others have folded.
        if ctx.rank == 0 && ctx.pos.is_multiple_of(512) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        consume_each(ctx, folded, |ctx, value| {
            args.output.at(ctx).update(|old| Self::becomes(old, value));
        });
    }
}

unpack! { Folding }

/// Stores what is folded, and leaves all as it is, so that CPU threads call no hook of it.
pub struct AsIs;

impl Hooks for AsIs {
    type Args<'a> = Args<'a, u16, u32>;
    type Wire = u16;
    type Folded = u32;
    const UNROLL: usize = 1;
    const FOLDS: bool = true;
    const RELAYS: usize = fold::relays::<u16, u32>();
    fn produce(_: &Produce, _: &Self::Args<'_>) -> Pack<u16> {
        unreachable!("it is sent as it is");
    }
    fn consume(_: &Consume, _: &Self::Args<'_>, _: Pack<u16>) {
        unreachable!("nothing but the fold takes values");
    }
    fn fold_run(from: &[&[u16]], to: &mut [u32]) {
        fold::run::<Ordered, u16, u32>(from, to, |folded| folded);
    }
    fn sends_as_is<'a>(args: &Self::Args<'a>) -> Option<&'a [u16]> {
        Some(args.input)
    }
    fn keeps_folded<'a>(args: &Self::Args<'a>) -> Option<Out<'a, u32>> {
        Some(args.output)
    }
}

unpack! { AsIs }

/// What becomes of an element of the output.
pub trait Becomes: Unpack<Raw = Raw> {
    fn becomes(old: u32, folded: u32) -> u32;
}

impl Becomes for Folding {
    fn becomes(old: u32, folded: u32) -> u32 {
        old.wrapping_mul(31).wrapping_add(folded)
    }
}

impl Becomes for AsIs {
    fn becomes(_: u32, folded: u32) -> u32 {
        folded
    }
}
