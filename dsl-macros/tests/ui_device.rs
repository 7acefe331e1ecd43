//! What the device compiler refuses, and what both compilers take.
//!
//! Files under `ui/fail/device` are as those that `ui.rs` tests; with `FUSEWIRE_CHECK_ONLY` nobody refuses them. Each file under `ui/pass` must
//! compile, device side included.

// Apart, since trybuild compiles files one after the other where one of them is to pass.

#[test]
fn refused() {
    trybuild::TestCases::new().compile_fail("tests/ui/fail/device/*.rs");
}

#[test]
fn taken() {
    trybuild::TestCases::new().pass("tests/ui/pass/*.rs");
}
