//! What the macro refuses, and how it says so.
//!
//! Each file under `ui/fail` makes the one mistake it is named after; the `.stderr` beside it is what a user reads. Those of `ui/fail/device`
//! are refused by the device compiler, and tested by `ui_device.rs`. Here kernels are checked and not compiled, which is minutes less.
//! `TRYBUILD=overwrite` writes the messages anew; `cargo test -p fusewire-macros --test ui -- trybuild=NAME` runs the files whose name contains `NAME`.

use std::path::Path;

#[test]
fn refused() {
    // SAFETY: this program has one test, whose end its other thread waits for.
    unsafe { std::env::set_var("FUSEWIRE_CHECK_ONLY", "1") };
    let cases = trybuild::TestCases::new();
    let folders = Path::new("tests/ui/fail").read_dir().expect("cases");
    for folder in folders.map(|folder| folder.expect("a folder of cases").path()) {
        if !folder.ends_with("device") {
            cases.compile_fail(folder.join("*.rs"));
        }
    }
}
