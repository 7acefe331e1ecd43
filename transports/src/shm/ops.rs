//! Device half: stores into the peer's memory.

use fusewire_device::mapped::Mapped;

/// Device operations of [`Shm`](super).
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct ShmOps(pub(crate) Mapped);

fusewire_device::mapped_ops!(ShmOps, "shm");
