//! One line per check, and the count at the end.

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What came of a check that did not fail.
pub enum Verdict {
    /// It passed; with a detail worth a look.
    Pass(String),
    /// This machine cannot show it, and why.
    Skip(String),
}

/// The result of one check.
pub type Outcome = Result<Verdict, Box<dyn Error>>;

/// A pass with its detail.
pub fn pass(detail: impl Into<String>) -> Outcome {
    Ok(Verdict::Pass(detail.into()))
}

/// A skip with its reason.
pub fn skip(reason: impl Into<String>) -> Outcome {
    Ok(Verdict::Skip(reason.into()))
}

/// Fails with a message unless a condition holds.
pub fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), Box<dyn Error>> {
    if holds { Ok(()) } else { Err(message().into()) }
}

/// Counts what passed and failed.
#[derive(Default)]
pub struct Report {
    passed: u32,
    failed: u32,
    skipped: u32,
}

impl Report {
    /// Runs a check and prints its line; a panic is a failure.
    pub fn check(&mut self, name: &str, body: impl FnOnce() -> Outcome) {
        let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| Err("it panicked".into()));
        match outcome {
            Ok(Verdict::Pass(detail)) => {
                self.passed += 1;
                println!("ok    {name}: {detail}");
            }
            Ok(Verdict::Skip(reason)) => {
                self.skipped += 1;
                println!("skip  {name}: {reason}");
            }
            Err(error) => {
                self.failed += 1;
                println!("FAIL  {name}: {error}");
            }
        }
    }

    /// Prints the count and returns the exit code: 0, or 1 if anything failed.
    pub fn finish(self) -> i32 {
        let Self { passed, failed, skipped } = self;
        println!("{passed} passed, {failed} failed, {skipped} skipped");
        i32::from(failed > 0)
    }
}
