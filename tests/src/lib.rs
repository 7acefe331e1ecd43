//! The conformance suite that every transport passes, tests of several processes, and what the GPU test program runs.
//!
//! | module | what is there |
//! |---|---|
//! | [`suite`] | the cases, generic over a [`Subject`]: a transport that can [meet](Meet) and has every [kernel](kernels) |
//! | [`kernels`] | hooks and schedules under test |
//! | [`mod@reference`] | the same functions in a few lines of plain Rust each |
//! | [`data`], [`check`] | values from a seed, and their comparison |
//! | [`mod@windows`] | windows under test, and scripts that kernels run on them |
//! | [`pairs`] | combinations of choices, all of them or every two side by side |
//! | [`run`] | cases on ranks that are threads, under a watchdog |
//! | [`fleet`] | ranks that are processes: workers that run cases by name, and die when their test does |
//!
//! A transport joins in one line, wherever its tests are:
//!
//! ```no_run
//! use fusewire::Shm;
//! fusewire_tests::transport_tests!(shm, Shm, ranks = [1, 2, 3]);
//! # fn main() {}
//! ```
//!
//! `FUSEWIRE_TEST_SEED` repeats a run's random values; every failure names it. `FUSEWIRE_TEST_MATRIX=whole` has [`suite::matrix`] try every combination, in worlds of
//! one to nine ranks and of 16.
//!
//! # Race detectors
//! Blocks are threads on the host, so a hook that is not sound is a data race there. ThreadSanitizer cannot tell it from others with
//! the standard library as it is shipped: that one is not instrumented, so all that is handed over by its locks and channels (every
//! buffer, every launch) is reported; and a rank maps its peers' memory at addresses of its own, so that a write by one rank and a
//! read by another are different memory to it. It needs a library built for it (`-Zbuild-std`), ranks that map each region once, and
//! a nightly compiler; until then, what the suite shows is that results are right, not that there is no race.

pub mod check;
pub mod data;
pub mod fleet;
pub mod kernels;
mod macros;
pub mod pairs;
pub mod reference;
pub mod run;
mod subject;
pub mod suite;
pub mod windows;

pub use run::{Case, Outcome, Rank, Scale, Stop};
pub use subject::{
    AllGatherOf, AllReduceOf, AllToAllOf, BroadcastOf, CustomOf, ExchangeOf, GatherOf, Meet, ReduceOf,
    ReduceScatterOf, ScatterOf, SendRecvOf, Subject,
};
