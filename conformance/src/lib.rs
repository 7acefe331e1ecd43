//! Tests that every transport passes, for transports of other crates.
//!
//! [`conformance!`] compiles kernels for a transport and makes a test of each case:
//!
//! | case | what must hold |
//! |---|---|
//! | `chunks_of_every_size` | all-to-all, sendrecv, all-gather and broadcast, around packs, chunks and a channel's staging; ranks' outputs begin poisoned |
//! | `elements_of_one_and_eight_bytes` | the same for other sizes of elements |
//! | `folds` | all-reduce and reduce-scatter |
//! | `every_number_of_channels` | cut in every way that options name |
//! | `calls_follow_each_other` | random calls of changing size, none waited for, on one stream |
//! | `replays` | graphs between eager calls, with inputs that change |
//! | `tiles_signals_and_heaps` | schedules of one's own; `put` and `get` where the transport has them |
//! | `a_rank_that_does_not_come` | every rank is told by the deadline and knows whom it waited for; the transport works again once renewed |
//! | `a_hook_that_panics` | every rank is told the hook's line |
//! | `an_abort` | every rank is told the reason |
//! | `kernels_that_differ` | are refused on all ranks |
//! | `transports_come_and_go` | one after the other and two at once |
//!
//! The cases see a transport as programs do. That its operations order memory as [`Ops`](fusewire::device::ops::Ops) says, no number of runs shows:
//! what was sent on a machine of stronger order than the device's may be right by luck.

mod cases;
mod ground;
mod kernels;

use cases::Case;
pub use fusewire;

use fusewire::kernel::{HookSet, Supports};
use fusewire::schedule::{AllGather, AllReduce, AllToAll, Broadcast, Custom, ReduceScatter, SendRecv};
use fusewire::{Options, Result, Transport, View, ViewMut, World};

/// A transport and the kernels that were compiled for it. [`conformance!`] implements it.
pub trait Subject: Sized + 'static {
    /// The transport.
    type On: Transport;
    /// Hooks that mark what they send and what they take.
    type Marked: Supports<AllToAll, Self::On>
        + Supports<SendRecv, Self::On>
        + Supports<AllGather, Self::On>
        + Supports<Broadcast, Self::On>;
    /// Hooks that copy bytes.
    type Bytes: Supports<AllToAll, Self::On> + Supports<SendRecv, Self::On>;
    /// Hooks that copy words of eight bytes.
    type Longs: Supports<AllToAll, Self::On> + Supports<SendRecv, Self::On>;
    /// A sum.
    type Summed: Supports<AllReduce, Self::On> + Supports<ReduceScatter, Self::On>;
    /// Tiles to the next rank.
    type Tiles: Supports<Custom, Self::On>;
    /// Signals there and back.
    type Rounds: Supports<Custom, Self::On>;

    /// Makes the transport. Collective.
    ///
    /// # Errors
    /// Those of its rendezvous.
    fn meet(world: &World, options: Options) -> Result<Self::On>;
    /// Arguments of [`Subject::Marked`]; element `bad` of what is sent panics.
    fn marked<'a>(input: View<'a, u32>, output: ViewMut<'a, u32>, bad: u64) -> ArgsOf<'a, Self::Marked>;
    /// Arguments of [`Subject::Bytes`].
    fn bytes<'a>(input: View<'a, u8>, output: ViewMut<'a, u8>) -> ArgsOf<'a, Self::Bytes>;
    /// Arguments of [`Subject::Longs`].
    fn longs<'a>(input: View<'a, u64>, output: ViewMut<'a, u64>) -> ArgsOf<'a, Self::Longs>;
    /// Arguments of [`Subject::Summed`].
    fn summed<'a>(input: View<'a, f32>, output: ViewMut<'a, f32>) -> ArgsOf<'a, Self::Summed>;
    /// Arguments of [`Subject::Tiles`].
    fn tiles<'a>(own: View<'a, u32>, got: ViewMut<'a, u32>, most: usize) -> ArgsOf<'a, Self::Tiles>;
    /// Arguments of [`Subject::Rounds`].
    fn rounds<'a>(rounds: u32, seen: ViewMut<'a, u32>) -> ArgsOf<'a, Self::Rounds>;
    /// Puts what each rank has to the next one, in rounds, where the transport has `put`.
    ///
    /// # Errors
    /// Those of the launch.
    fn put(ground: &Ground<Self>, message: View<'_, u32>, received: ViewMut<'_, u32>) -> Option<Result<()>>;
    /// Gets what the previous rank has in its heap, where the transport has `get`.
    ///
    /// # Errors
    /// Those of the launch.
    fn get(ground: &Ground<Self>, message: View<'_, u32>, received: ViewMut<'_, u32>) -> Option<Result<()>>;
}

/// Arguments of a launch of `H`.
pub type ArgsOf<'a, H> = <H as HookSet>::Args<'a>;

pub use ground::Ground;

/// Runs every case on worlds of threads of these sizes, and prints each.
///
/// # Panics
/// At the end, if a case failed.
pub fn run<S: Subject>(ranks: &[usize]) {
    let mut failed = Vec::new();
    for Case { name, body } in cases::all::<S>() {
        for &size in ranks {
            let outcome = std::panic::catch_unwind(|| ground::on_threads::<S>(name, size, body));
            println!("{name} on {size} ranks: {}", if outcome.is_ok() { "ok" } else { "FAILED" });
            if outcome.is_err() {
                failed.push((name, size));
            }
        }
    }
    assert!(failed.is_empty(), "failed: {failed:?}");
}

/// Runs one case, by name.
///
/// # Panics
/// If it fails, or if there is no such case.
pub fn run_case<S: Subject>(name: &str, ranks: &[usize]) {
    let case = cases::all::<S>().into_iter().find(|case| case.name == name);
    let Case { name, body } = case.unwrap_or_else(|| panic!("there is no case `{name}`"));
    ranks.iter().for_each(|&size| ground::on_threads::<S>(name, size, body));
}
