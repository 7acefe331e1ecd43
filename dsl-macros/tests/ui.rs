//! What the macro refuses, and how it says so; what it takes.
//!
//! Each file under `ui/fail` makes the one mistake it is named after; the `.stderr` beside it is what a user reads. Each file under
//! `ui/pass` must compile, device side included. `TRYBUILD=overwrite` writes the messages anew;
//! `cargo test -p fusewire-macros --test ui -- ui trybuild=NAME` runs the files whose name contains `NAME`.

#[test]
fn ui() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/fail/*/*.rs");
    cases.pass("tests/ui/pass/*.rs");
}
