//! Windows and peers made of numbers.
#![forbid(unsafe_code)]

use fusewire::device::window::{AllMapped, DevicePeers, DeviceWindow, NoRdma, WindowLayout, WindowParts};

fn main() {
    let layout = WindowLayout { world: 2, signals: 8, barriers: 8, counters: 8 };
    let parts = WindowParts::<AllMapped> {
        layout,
        rank: 0,
        data_key: 0,
        peers: 0xdead_0000,
        epochs: 0xdead_0000,
        data: 0,
        data_bytes: 0,
        sources: 0,
        sources_len: 0,
        adapter: NoRdma,
    };
    let _ = DeviceWindow::new(parts);
    let peers = DevicePeers::new([0, 2], [0, 0], 0xdead_0000);
    println!("{:?}", peers.kind(1));
}
