//! Slices, outputs and sums made of numbers.
#![forbid(unsafe_code)]

use fusewire::device::args::{Accumulate, Lent, Out, RawSlice};

fn main() {
    let raw = RawSlice::<u32>::new(0xdead_0000, 4);
    println!("{}", raw.slice(Lent::named())[0]);
    let _ = Out::from_raw(raw, Lent::named());
    Accumulate::from_raw(raw, Lent::named()).add(0, 1);
}
