//! Hooks of the tests, and the vectors that they are given.

use fusewire_device::{
    args::{Lent, Out, Packs, RawSlice},
    ctx::{Consume, Produce},
    element::{Bf16, Element, F8E4M3, Float},
    hooks::{Hooks, consume_each, produce_each},
    launch::Unpack,
    pack::Pack,
};
use std::marker::PhantomData;

/// A slice of whatever the hooks take.
#[derive(Clone, Copy)]
pub struct Any(pub u64, pub usize);

impl Any {
    pub fn of<T: Element>(self) -> RawSlice<T> {
        RawSlice::new(self.0, self.1)
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct Raw {
    pub input: Any,
    pub output: Any,
}

#[derive(Clone, Copy)]
pub struct Args<'a, I, O> {
    pub input: &'a [I],
    pub output: Out<'a, O>,
}

/// [`Args`] of the slices that a launch was made with.
macro_rules! unpack {
    ($name:ident $(<$t:ident $(: $bound:ident)?>)?) => {
        // SAFETY: the tests make `Raw` from vectors that outlive the launch and are lent to it alone.
        unsafe impl $(<$t: Element $(+ $bound)?>)? Unpack for $name $(<$t>)? {
            type Raw = Raw;
            unsafe fn unpack<'a>(raw: &Raw) -> Self::Args<'a> {
                // SAFETY: as above.
                unsafe {
                    Args {
                        input: raw.input.of().slice(Lent::<'a>::named()),
                        output: Out::from_raw(raw.output.of(), Lent::<'a>::named()),
                    }
                }
            }
        }
    };
}

macro_rules! hooks {
    ($name:ident<$t:ident $(: $bound:ident)?>, $input:ty, $wire:ty, $unroll:literal, $produce:expr, $consume:expr) => {
        pub struct $name<$t>(PhantomData<$t>);
        impl<$t: Element $(+ $bound)?> Hooks for $name<$t> {
            type Args<'a> = Args<'a, $input, $t>;
            type Wire = $wire;
            type Folded = $wire;
            const UNROLL: usize = $unroll;
            fn produce(ctx: &Produce, args: &Self::Args<'_>) -> Pack<$wire> {
                let produce: fn(&Produce, &Self::Args<'_>) -> Pack<$wire> = $produce;
                produce(ctx, args)
            }
            fn consume(ctx: &Consume, args: &Self::Args<'_>, value: Pack<$wire>) {
                let consume: fn(&Consume, &Self::Args<'_>, Pack<$wire>) = $consume;
                consume(ctx, args, value);
            }
        }
        unpack! { $name<$t $(: $bound)?> }
    };
}
hooks!(ByPack<T>, T, T, 4, |ctx, args| args.input.pack(ctx), |ctx, args, v| args.output.at(ctx).set_pack(v));
hooks!(
    ByElement<T>,
    T,
    T,
    2,
    |ctx, args| produce_each(ctx, |ctx| args.input[ctx.index()]),
    |ctx, args, v| consume_each(ctx, v, |ctx, v| args.output.at(ctx).set(v))
);
// Sent as fp8, added to what is there.
hooks!(
    Narrow<T: Float>, f32, F8E4M3, 1,
    |ctx, args| produce_each(ctx, |ctx| F8E4M3::from_f32(args.input[ctx.index()])),
    |ctx, args, v| consume_each(ctx, v, |ctx, v| {
        args.output.at(ctx).update(|old| T::from_f32(old.to_f32() + v.to_f32()));
    })
);

/// Sixteen elements of two bytes to a pack of the wire.
pub struct Halved;

impl Hooks for Halved {
    type Args<'a> = Args<'a, Bf16, Bf16>;
    type Wire = F8E4M3;
    type Folded = F8E4M3;
    const UNROLL: usize = 4;
    fn produce(ctx: &Produce, args: &Self::Args<'_>) -> Pack<F8E4M3> {
        let [low, high] = args.input.packs(ctx).map(|pack: Pack<Bf16>| pack.to_f32s());
        Pack::from_f32s(|k| if k < 8 { low[k] } else { high[k - 8] })
    }
    fn consume(ctx: &Consume, args: &Self::Args<'_>, value: Pack<F8E4M3>) {
        let values = value.to_f32s();
        args.output.at(ctx).set_packs([0, 8].map(|first| Pack::from_f32s(|k| values[first + k])));
    }
}

unpack! { Halved }

/// Transposed on the way, by tiles.
pub struct Tiled<T>(PhantomData<T>);

impl<T: Element> Hooks for Tiled<T> {
    type Args<'a> = Args<'a, T, T>;
    type Wire = T;
    type Folded = T;
    const UNROLL: usize = 4;
    const TRANSPOSED: bool = true;
    fn produce(ctx: &Produce, args: &Self::Args<'_>) -> Pack<T> {
        produce_each(ctx, |ctx| {
            let value = args.input.transposed(ctx);
            assert_eq!(value.to_bits64(), args.input[ctx.transposed_index()].to_bits64());
            value
        })
    }
    fn consume(ctx: &Consume, args: &Self::Args<'_>, value: Pack<T>) {
        args.output.at(ctx).set_pack(value);
    }
}

unpack! { Tiled<T> }

/// A vector whose first element is 16-byte aligned, as a buffer's is.
pub struct Aligned<T> {
    words: Vec<Pack<u8>>,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Element> Aligned<T> {
    pub fn new(len: usize, mut value: impl FnMut(usize) -> T) -> Self {
        let mut out =
            Aligned { words: vec![Pack::ZERO; (len * T::SIZE).div_ceil(16)], len, element: PhantomData };
        for (k, at) in out.all_mut().iter_mut().enumerate() {
            *at = value(k);
        }
        out
    }
    pub fn all(&self) -> &[T] {
        // SAFETY: zeroed or written memory of enough bytes, aligned to 16.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.len) }
    }
    pub fn all_mut(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), self.len) }
    }
    pub fn raw(&mut self) -> Any {
        Any(self.words.as_mut_ptr() as u64, self.len)
    }
}
