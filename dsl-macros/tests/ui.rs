//! What the macro refuses, and how it says so; what it takes.
//!
//! Each file under `ui/fail` makes the one mistake it is named after; the `.stderr` beside it is what a user reads. Each file under
//! `ui/pass` must compile, device side included. Those of `ui/fail/device` are
//! refused by the device compiler: with `FUSEWIRE_CHECK_ONLY` nobody refuses them. `TRYBUILD=overwrite` writes the messages anew;
//! `cargo test -p fusewire-macros --test ui -- trybuild=NAME` runs the files whose name contains `NAME`.

// Apart, since trybuild compiles files one after the other where one of them is to pass.

#[test]
fn refused() {
    trybuild::TestCases::new().compile_fail("tests/ui/fail/*/*.rs");
}

#[test]
fn taken() {
    trybuild::TestCases::new().pass("tests/ui/pass/*.rs");
}
