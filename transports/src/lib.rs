//! Transports of fusewire: device operations and host set-up, side by side.
