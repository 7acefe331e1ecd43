use super::{Walk, produce, produce_chunk};
use crate::args::Packs;
use crate::ctx::{Ctx, Produce};
use crate::element::{Bf16, Element};
use crate::pack::Pack;
use crate::tile::{Each, Team};
use proptest::prelude::*;
use std::cell::RefCell;

/// A matrix of `cols` rows of `rows` columns, `before` elements into a buffer, and some packs of its transpose.
#[derive(Clone, Copy, Debug)]
struct Case {
    rows: usize,
    cols: usize,
    before: usize,
    /// The part of the packs, in hundredths.
    part: (usize, usize),
    warps: u32,
}

fn cases() -> impl Strategy<Value = Case> {
    let sides =
        prop_oneof![(1..80usize, 1..300usize), (1..300usize, 1..20usize), (64..66usize, 127..130usize)];
    (sides, 0..40usize, (0..100usize, 0..101usize), 1..9u32)
        .prop_map(|((rows, cols), before, part, warps)| Case { rows, cols, before, part, warps })
}

fn number<T: Element>(index: usize) -> T {
    T::from_bits64((index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 7)
}

/// Packs that were seen, each of which must be the transpose's there.
struct Seen<'k> {
    case: Case,
    place: &'k Ctx,
    first: usize,
    times: RefCell<Vec<u32>>,
}

impl Seen<'_> {
    fn put<T: Element>(&self, s: u32, ctx: &Ctx, pack: Pack<T>) {
        let (Case { rows, cols, before, .. }, lanes, n) = (self.case, Pack::<T>::LANES, self.place.chunk_len);
        self.times.borrow_mut()[s as usize] += 1;
        assert_eq!(ctx.pos, (self.first + s as usize) * lanes);
        assert_eq!(ctx.valid, lanes.min(n - ctx.pos));
        assert_eq!(ctx.whole, ctx.valid == lanes && before.is_multiple_of(lanes));
        pack.for_each(|k, value| {
            // The element of the input that the transpose has there, or nothing behind the chunk's end.
            let (row, col) = ((ctx.pos + k) / cols, (ctx.pos + k) % cols);
            let want = if k < ctx.valid { number(before + col * rows + row) } else { T::default() };
            assert_eq!(value.to_bits64(), want.to_bits64(), "element {k} of pack {s}: {:?}", self.case);
        });
    }

    fn all_once(self) {
        let times = self.times.into_inner();
        assert!(times.iter().all(|&times| times == 1), "{times:?}: {:?}", self.case);
    }
}

fn transposes<T: Element>(case: Case) {
    let Case { rows, cols, before, part, warps } = case;
    let n = rows * cols;
    let packs = n.div_ceil(Pack::<T>::LANES);
    let first = packs * part.0 / 100;
    let count = (packs - first) * part.1 / 100;
    let place = Ctx::of_chunk(before, n, rows, cols);
    let seen = |first, count| Seen { case, place: &place, first, times: RefCell::new(vec![0; count]) };
    let teams = || (0..warps).map(|lane| Team { lane, lanes: warps });

    let some = seen(first, count);
    let source = Each::of(|ctx: &Produce| {
        assert_eq!((ctx.valid, ctx.row_col()), (1, (ctx.pos / cols, ctx.pos % cols)));
        number::<T>(ctx.transposed_index())
    });
    for team in teams() {
        produce(team, &place, first, count as u32, &source, |s, ctx, pack| some.put::<T>(s, ctx, pack));
    }
    some.all_once();

    let all = seen(0, packs);
    let input: Vec<T> = (0..before + n).map(number).collect();
    let source = Each::of(|ctx: &Produce| input.transposed(ctx));
    for team in teams() {
        let walk = Walk::of_chunk(team, rows as u64);
        produce_chunk(walk, &place, &source, |s, ctx, pack| all.put::<T>(s, ctx, pack));
    }
    all.all_once();
}

proptest! {
    #[test]
    fn every_pack_once_and_transposed(case in cases()) {
        transposes::<u8>(case);
        transposes::<Bf16>(case);
        transposes::<f32>(case);
        transposes::<u64>(case);
    }
}
