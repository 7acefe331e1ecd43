//! The target that `FUSEWIRE_FUZZ` names, under libFuzzer.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("FUSEWIRE_FUZZ").unwrap_or_default();
    let found = fusewire_fuzz::TARGETS.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("FUSEWIRE_FUZZ={name} names no target")).1
});

fuzz_target!(|data: &[u8]| TARGET(data));
