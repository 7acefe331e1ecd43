//! cargo fusewire: set-up, diagnosis, PTX and new projects.
fn main() {}
