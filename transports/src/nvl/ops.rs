//! Device half: stores into the peer's memory.

use fusewire_device::mapped::Mapped;

/// Device operations of [`Nvl`](super).
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct NvlOps(pub(crate) Mapped);

fusewire_device::mapped_ops!(NvlOps, "nvl");
