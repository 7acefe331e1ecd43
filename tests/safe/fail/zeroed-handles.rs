//! Handles made of bytes.
#![forbid(unsafe_code)]

use fusewire::device::mapped::Mapped;
use fusewire::device::window::{DevicePeers, DeviceWindow};
use fusewire::ops::{HostIbOps, IbgdaOps, NvlOps, ShmOps};

fn zeroed<T: bytemuck::Zeroable>() {}
fn cast<T: bytemuck::AnyBitPattern>() {}

fn main() {
    zeroed::<Mapped>();
    zeroed::<ShmOps>();
    zeroed::<NvlOps>();
    zeroed::<IbgdaOps>();
    zeroed::<HostIbOps>();
    zeroed::<DeviceWindow<'static>>();
    zeroed::<DevicePeers<'static>>();
    cast::<ShmOps>();
}
