//! Tiles by element and by pack: every mix of ends gives the same bits.

#[path = "common/world.rs"]
mod world;

use fusewire_device::args::{Lent, Out, RawSlice};
use fusewire_device::ctx::{Consume, Produce};
use fusewire_device::element::Element;
use fusewire_device::kernel::{Kernel, Tile, custom};
use fusewire_device::pack::Pack;
use fusewire_device::prelude::Packs;
use fusewire_device::wait::Flow;
use proptest::prelude::*;
use world::{NO_ELEMENTS, Peers, World};

/// Elements that begin at a multiple of 16 bytes.
struct Aligned<T> {
    memory: Vec<u128>,
    len: usize,
    element: std::marker::PhantomData<T>,
}

impl<T: Element + PartialEq> Aligned<T> {
    fn of(len: usize, value: impl Fn(usize) -> T) -> Self {
        let memory = vec![0; (len * size_of::<T>()).div_ceil(16) + 1];
        let mut all = Aligned { memory, len, element: std::marker::PhantomData };
        // SAFETY: the vector has room for them, and any bits are an element.
        let elements = unsafe { std::slice::from_raw_parts_mut(all.memory.as_mut_ptr().cast::<T>(), len) };
        elements.iter_mut().enumerate().for_each(|(k, e)| *e = value(k));
        all
    }

    fn raw(&self) -> RawSlice<T> {
        RawSlice::new(self.memory.as_ptr() as u64, self.len)
    }

    fn slice(&self) -> &[T] {
        // SAFETY: elements of the vector.
        unsafe { self.raw().slice(Lent::while_borrowed(self)) }
    }

    /// Written by one thread, and read when that is done.
    fn out(&self) -> Out<'_, T> {
        // SAFETY: of this thread alone.
        unsafe { Out::from_raw(self.raw(), Lent::while_borrowed(self)) }
    }
}

/// A tile, which hooks are by pack, and how it travels.
#[derive(Clone, Copy, Debug)]
struct Case {
    ranks: u32,
    sent: usize,
    taken: usize,
    len: usize,
    by_pack: [bool; 3],
    by_ll128: bool,
}

fn cases() -> impl Strategy<Value = Case> {
    let len = prop_oneof![0usize..70, 400usize..1500];
    let places = [0usize..20, 0..20].map(|start| prop_oneof![Just(16), start]);
    (1u32..=5, places, len, any::<[bool; 3]>(), any::<bool>()).prop_map(
        |(ranks, [sent, taken], len, by_pack, by_ll128)| Case { ranks, sent, taken, len, by_pack, by_ll128 },
    )
}

fn value(k: usize) -> u64 {
    (k as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// From rank 0 through all others to the last, each of which keeps what it passes on; a rank alone sends to itself.
fn chain<T: Element + PartialEq + std::fmt::Debug>(kernel: &Kernel<Peers>, case: Case) -> Flow {
    let Case { sent, taken, len, by_pack: [gives, passes, takes], by_ll128, .. } = case;
    let (me, last, lines) = (kernel.rank(), kernel.world() - 1, kernel.ll128());
    let len = if by_ll128 && last > 0 { len.min(lines.most::<T>()) } else { len };
    let number = |k: usize| T::from_bits64(value(k));
    let poison = T::from_bits64(0x5a5a_5a5a_5a5a_5a5a);
    let input = Aligned::of(sent + len, number);
    let output = Aligned::of(taken + len + 3, |_| poison);
    let (input, out) = (input.slice(), output.out());
    let (from, to) = (Tile { start: sent, len }, Tile { start: taken, len });
    let give = |ctx: &Produce| input[ctx.index()];
    let give_pack = |ctx: &Produce| input.pack(ctx);
    let take = |ctx: &Consume, value: T| out.at(ctx).set(value);
    let take_pack = |ctx: &Consume, value: Pack<T>| {
        assert!(ctx.valid > 0 && ctx.pos + ctx.valid <= len, "{} of {} elements", ctx.valid, len);
        out.at(ctx).set_pack(value);
    };
    let pass = |ctx: &Consume, value: T| {
        take(ctx, value);
        value
    };
    let pass_pack = |ctx: &Consume, value: Pack<T>| {
        take_pack(ctx, value);
        value
    };
    // SAFETY: outputs are this thread's.
    unsafe {
        match (me, by_ll128) {
            (0, _) if last == 0 => match (gives, takes) {
                (false, _) => kernel.keep_tile(from, taken, give, take),
                (true, _) => kernel.keep_tile(from, taken, give_pack, take_pack),
            },
            (0, false) if gives => kernel.send_tile(1, from, give_pack)?,
            (0, false) => kernel.send_tile(1, from, give)?,
            (0, true) if gives => lines.send_tile(1, from, give_pack)?,
            (0, true) => lines.send_tile(1, from, give)?,
            (_, false) if me == last && takes => kernel.recv_tile(me - 1, to, take_pack)?,
            (_, false) if me == last => kernel.recv_tile(me - 1, to, take)?,
            (_, true) if me == last && takes => lines.recv_tile(me - 1, to, take_pack)?,
            (_, true) if me == last => lines.recv_tile(me - 1, to, take)?,
            (_, false) if passes => kernel.forward_tile(me - 1, me + 1, to, pass_pack)?,
            (_, false) => kernel.forward_tile(me - 1, me + 1, to, pass)?,
            (_, true) if passes => lines.forward_tile(me - 1, me + 1, to, pass_pack)?,
            (_, true) => lines.forward_tile(me - 1, me + 1, to, pass)?,
        }
    }
    let got = output.slice();
    for (k, got) in got.iter().enumerate() {
        let inside = (taken..taken + len).contains(&k) && (me > 0 || last == 0);
        let want = if inside { number(sent + k - taken) } else { poison };
        assert_eq!(*got, want, "rank {me}, element {k}, {case:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn elements_and_packs_are_the_same_tile(case in cases()) {
        let world = World::new(case.ranks, 1, 1024);
        let flows = world.run(1, |rank, grid| {
            let (ops, control) = (world.ops(rank), world.control(rank, 20_000));
            let body = |kernel: &Kernel<Peers>| {
                chain::<u32>(kernel, case)?;
                chain::<u8>(kernel, case)?;
                chain::<u64>(kernel, case)
            };
            // SAFETY: the world's words; every block runs it.
            unsafe { custom(grid, ops, control, NO_ELEMENTS, body) }
        });
        prop_assert!(flows.iter().flatten().all(|flow| flow.is_ok()), "{flows:?}");
    }
}
