//! Device side of fusewire: hooks, schedules, channels; compiled for nvptx64 and for the host.
