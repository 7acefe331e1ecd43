//! Calls that several groups make.

use crate::check::same;
use crate::data::{Data, make};
use crate::kernels::copying::copy;
use crate::run::Ground;
use crate::{AllToAllOf, Meet, Outcome, Rank, reference};
use fusewire::device::element::Element;
use fusewire::kernel::HookSet;
use fusewire::schedule::AllToAllLauncher;
use fusewire::{Error, Fault, LaunchOptions, Operation, Transport};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// What is in an output that nobody has written.
pub const POISON: u8 = 0xff;

/// Every element type, as a type.
macro_rules! for_each_element {
    ($t:ident => $body:block) => {
        for_each_element!(@ $t $body u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 F16 Bf16 F8E4M3 F8E5M2)
    };
    (@ $t:ident $body:block $($element:ident)*) => {$({
        #[allow(unused_imports)]
        use fusewire::device::element::*;
        type $t = $element;
        $body
    })*};
}
pub(crate) use for_each_element;

/// All-to-all of `chunk` elements to each rank by copying; every element is compared.
pub fn copy_once<T: Element, X: Transport>(
    ground: &Ground<X>,
    launcher: &AllToAllLauncher<X, copy::Hooks<T>>,
    data: Data,
    chunk: usize,
    options: &LaunchOptions,
) -> Outcome
where
    for<'a> copy::Hooks<T>: HookSet<Args<'a> = copy::Launch<'a, T>>,
{
    let (me, n) = (ground.transport.rank(), ground.transport.world_size() * chunk);
    let input = ground.device.buffer_from(&data.all::<T>(me, n))?;
    let mut output = ground.device.buffer::<T>(n)?;
    output.fill_bytes(&ground.stream, POISON)?;
    let args = copy::Launch { input: input.view(), output: output.view_mut() };
    launcher.launch_with(&ground.stream, args, options)?;
    let got = output.read(&ground.stream)?;
    same(
        format_args!("{} elements of {} to each rank, {options:?}, at rank {me}", chunk, T::NAME),
        &got,
        |i| reference::all_to_all(me, chunk, i, |rank, index| data.any(rank, index)),
    );
    Ok(())
}

/// A copy of a few sizes, to see that the transport works.
pub fn works<X: Meet + AllToAllOf<copy::Hooks<u16>>>(rank: &Rank<X>, ground: &Ground<X>) -> Outcome {
    let launcher = AllToAllOf::<copy::Hooks<u16>>::all_to_all(&ground.transport)?;
    for (k, chunk) in [37, 1, 2000, 64].into_iter().enumerate() {
        copy_once(ground, &launcher, rank.data(900 + k), chunk, &LaunchOptions::default())?;
    }
    Ok(())
}

/// A buffer's worth of one value.
pub fn filled<T: Element>(n: usize, value: T) -> Vec<T> {
    make(n, |_| value)
}

/// The error that a misuse should be, in words.
#[track_caller]
pub fn misuse<T>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Misuse { what }) => what,
        Err(other) => panic!("this should be a misuse: {other:?}"),
        Ok(_) => panic!("this should be refused as a misuse"),
    }
}

/// The fault that a synchronisation should report, within `limit`.
#[track_caller]
pub fn fault<X: Transport>(ground: &Ground<X>, limit: Duration) -> Fault {
    let start = Instant::now();
    let result = ground.stream.synchronize();
    let took = start.elapsed();
    let rank = ground.transport.rank();
    assert!(took < limit, "rank {rank}: it took {took:?} to report {result:?}");
    match result {
        Err(Error::Fault(fault)) => *fault,
        other => panic!("rank {rank}: this should be a fault: {other:?}"),
    }
}

/// The operation that a fault names.
#[track_caller]
pub fn operation(fault: &Fault) -> &Operation {
    fault.operation.as_ref().unwrap_or_else(|| panic!("the fault names no operation: {fault}"))
}

/// Roots to try: the first rank, the last, and one between. (`schedule::check` of the device library follows every root without running it.)
pub fn roots(ranks: usize) -> Vec<usize> {
    BTreeSet::from([0, ranks / 2, ranks - 1]).into_iter().collect()
}
