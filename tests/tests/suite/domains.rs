//! Worlds of more domains, and of larger ones, than those that every case is run on.

use fusewire::ShmMesh;
use fusewire_tests::run;

#[test]
fn sums_of_eight_ranks() {
    run::test::<ShmMesh>("domains::sums", &[8]);
}

#[test]
fn chained_of_eight_ranks() {
    run::test::<ShmMesh>("domains::chained", &[8]);
}
