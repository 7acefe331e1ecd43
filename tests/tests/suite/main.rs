//! The conformance suite on every transport that needs no GPU, with ranks as threads and as processes, and its program.
//!
//! `cargo test -p fusewire-tests --test suite shm::` runs a part.

mod adapters;
mod domains;
mod launchers;
mod processes;
mod program;
mod reference;
mod windows;

use fusewire::{HostIb, Ibgda, Shm, ShmMesh};
use fusewire_tests::transport_tests;

transport_tests!(shm, Shm, ranks = [1, 2, 3, 5, 8, 16]);

// Over emulated adapters.
transport_tests!(ibgda, Ibgda, ranks = [1, 2, 3, 5]);
transport_tests!(host_ib, HostIb, ranks = [1, 2, 3, 4]);

// Shared memory within domains of two ranks, emulated adapters across.
transport_tests!(mesh, ShmMesh, ranks = [1, 2, 3, 4]);
