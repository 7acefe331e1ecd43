//! Hooks of schedules that fold.

use super::hooks::{Args, Raw};
use fusewire_device::{
    args::{Lent, Out, Packs},
    ctx::{Consume, Produce},
    fold::{self, Contributions, Fold},
    hooks::{Hooks, consume_each, produce_each},
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

impl Fold<u8> for Ordered {
    type Acc = u32;
    fn lift(value: u8) -> u32 {
        Ordered::lift(u16::from(value))
    }
    fn fold(left: u32, right: u32) -> u32 {
        <Ordered as Fold<u16>>::fold(left, right)
    }
}

/// What ranks `from..to` contribute, by the tree of its definition.
pub fn tree(from: u32, to: u32, of: &impl Fn(u32) -> u16) -> u32 {
    if to - from == 1 {
        return <Ordered as Fold<u16>>::lift(of(from));
    }
    let left = 1 << (to - from - 1).ilog2();
    <Ordered as Fold<u16>>::fold(tree(from, from + left, of), tree(from + left, to, of))
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
    const PARTIALS: usize = fold::partials::<u16, <Ordered as Fold<u16>>::Acc>(<Ordered as Fold<u16>>::ORDER);
    fn partial(ranks: u32, of: &impl Contributions<u16>, put: &impl Fn(usize, [u32; 4])) -> bool {
        fold::partial::<Ordered, u16>(ranks, of, &|number, pack: Pack<_>| put(number, pack.words()))
    }
    fn join(ranks: (u32, u32), of: &impl fold::Partials, put: &impl Fn(usize, Pack<u32>)) {
        fold::join::<Ordered, u16, u32>(ranks, of, |folded| folded, put);
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

/// Sends bytes, of which accumulators take four times the room.
pub struct Bytes;

impl Hooks for Bytes {
    type Args<'a> = Args<'a, u16, u32>;
    type Wire = u8;
    type Folded = u32;
    const UNROLL: usize = 1;
    const FOLDS: bool = true;
    const RELAYS: usize = fold::relays::<u8, u32>();
    const PARTIALS: usize = fold::partials::<u8, <Ordered as Fold<u8>>::Acc>(<Ordered as Fold<u8>>::ORDER);
    fn produce(ctx: &Produce, args: &Self::Args<'_>) -> Pack<u8> {
        produce_each(ctx, |ctx| args.input[ctx.index()] as u8)
    }
    fn consume(_: &Consume, _: &Self::Args<'_>, _: Pack<u8>) {
        unreachable!("nothing but the fold takes values");
    }
    fn partial(ranks: u32, of: &impl Contributions<u8>, put: &impl Fn(usize, [u32; 4])) -> bool {
        fold::partial::<Ordered, u8>(ranks, of, &|number, pack: Pack<_>| put(number, pack.words()))
    }
    fn join(ranks: (u32, u32), of: &impl fold::Partials, put: &impl Fn(usize, Pack<u32>)) {
        fold::join::<Ordered, u8, u32>(ranks, of, |folded| folded, put);
    }
    fn take(ctx: &Consume, args: &Self::Args<'_>, folded: Pack<u32>) {
        consume_each(ctx, folded, |ctx, value| args.output.at(ctx).set(value));
    }
}

unpack! { Bytes }

/// Takes half of what was folded, so that accumulators are wider than what is passed on.
pub struct Settled;

impl Hooks for Settled {
    type Args<'a> = Args<'a, u16, u32>;
    type Wire = u16;
    type Folded = u16;
    const UNROLL: usize = 1;
    const FOLDS: bool = true;
    const RELAYS: usize = fold::relays::<u16, u16>();
    const PARTIALS: usize = fold::partials::<u16, <Ordered as Fold<u16>>::Acc>(<Ordered as Fold<u16>>::ORDER);
    fn produce(ctx: &Produce, args: &Self::Args<'_>) -> Pack<u16> {
        args.input.pack(ctx)
    }
    fn consume(_: &Consume, _: &Self::Args<'_>, _: Pack<u16>) {
        unreachable!("nothing but the fold takes values");
    }
    fn partial(ranks: u32, of: &impl Contributions<u16>, put: &impl Fn(usize, [u32; 4])) -> bool {
        fold::partial::<Ordered, u16>(ranks, of, &|number, pack: Pack<_>| put(number, pack.words()))
    }
    fn join(ranks: (u32, u32), of: &impl fold::Partials, put: &impl Fn(usize, Pack<u16>)) {
        fold::join::<Ordered, u16, u16>(ranks, of, |folded| folded as u16, put);
    }
    fn take(ctx: &Consume, args: &Self::Args<'_>, folded: Pack<u16>) {
        consume_each(ctx, folded, |ctx, value| args.output.at(ctx).set(u32::from(value)));
    }
}

unpack! { Settled }

/// What becomes of an element of the output.
pub trait Becomes: Unpack<Raw = Raw> {
    fn becomes(old: u32, folded: u32) -> u32;
    /// What is sent of an element of the input.
    fn sent(value: u16) -> u16 {
        value
    }
}

impl Becomes for Bytes {
    fn becomes(_: u32, folded: u32) -> u32 {
        folded
    }
    fn sent(value: u16) -> u16 {
        value & 0xff
    }
}

impl Becomes for Settled {
    fn becomes(_: u32, folded: u32) -> u32 {
        folded & 0xffff
    }
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
