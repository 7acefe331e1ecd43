//! The conformance suite on host shared memory.

use fusewire::Shm;

fusewire_tests::transport_tests!(shm, Shm, ranks = [1, 2, 3, 5, 8, 16]);
