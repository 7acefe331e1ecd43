//! The conformance suite on shared memory within domains of two ranks and emulated adapters across.

use fusewire::ShmMesh;

fusewire_tests::transport_tests!(mesh, ShmMesh, ranks = [1, 2, 3, 4]);
