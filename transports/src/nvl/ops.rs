//! Device half: stores into the peer's memory.

use fusewire_device::mapped::Mapped;

/// Device operations of [`Nvl`](super).
#[derive(Clone, Copy, Debug)]
#[cfg_attr(all(feature = "host", not(target_arch = "nvptx64")), derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(transparent)]
pub struct NvlOps(pub Mapped);

fusewire_device::mapped_ops!(NvlOps, "nvl");
