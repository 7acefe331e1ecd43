//! Device halves made of numbers.
#![forbid(unsafe_code)]

use fusewire::device::mapped::{Layout, Mapped, MappedParts};

fn main() {
    let layout = Layout { world: 2, channels: 1, signals: 0, ll128_channels: 0, ll_channels: 0, reserved: 0, window: 1024, heap: 0 };
    let parts = MappedParts { layout, rank: 0, processes: 0, own: 0, bases: 0xdead_0000 };
    let mapped = Mapped::new(parts);
    println!("{:#x}", mapped.peer_base(0));
}
