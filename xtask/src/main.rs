//! What this repository's people run.
fn main() {}
