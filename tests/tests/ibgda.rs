//! The conformance suite on GPU-initiated InfiniBand, over emulated adapters.

use fusewire::Ibgda;

fusewire_tests::transport_tests!(ibgda, Ibgda, ranks = [1, 2, 3, 5]);
