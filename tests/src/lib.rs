//! The conformance suite that every transport passes, tests of several processes, and what the GPU test program runs.
//!
//! | module | what is there |
//! |---|---|
//! | [`suite`] | the cases, generic over a [`Subject`]: a transport that can [meet](Meet) and has every [kernel](kernels) |
//! | [`kernels`] | hooks and schedules under test |
//! | [`reference`] | the same functions in a few lines of plain Rust each |
//! | [`data`], [`check`] | values from a seed, and their comparison |
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
//! `FUSEWIRE_TEST_SEED` repeats a run's random values; every failure names it.
//!
//! # What the suite does not show
//! Blocks are CPU threads on the host, so unsound hooks are data races there; but the race detector that finds them wants an
//! instrumented standard library (see `tests/races.rs`).

pub mod check;
pub mod data;
pub mod fleet;
pub mod kernels;
mod macros;
pub mod reference;
pub mod run;
mod subject;
pub mod suite;

pub use run::{Case, Outcome, Rank, Scale, Stop};
pub use subject::{AllToAllOf, CustomOf, Meet, SendRecvOf, Subject};
