//! The conformance suite on InfiniBand by proxy, over the emulated adapter.

use fusewire::HostIb;

fusewire_tests::transport_tests!(host_ib, HostIb, ranks = [1, 2, 3, 4]);
