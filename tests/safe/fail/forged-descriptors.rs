//! Keys, descriptors and endpoints of adapters made of numbers.
#![forbid(unsafe_code)]

use fusewire::ibgda::IbgdaPeer;
use fusewire::p2p::{Exported, RemoteBuffer};
use fusewire::rdma::{Fabric, Local, PairOptions, Remote, Request, Work};

fn main() {
    let adapter = Fabric::Emulated.open(0).unwrap();
    let pair = adapter.pair(&PairOptions::default()).unwrap();
    let from = Local { address: 0xdead_0000, bytes: 8, lkey: 1 };
    let work = Work::Write { from, to: Remote { address: 0xdead_0000, rkey: 1 }, immediate: None };
    let _ = pair.post(&Request { id: 0, work, fence: false });
    let _ = pair.post_receive(0, from);
    let mut bytes = [0u8; 8];
    let _ = adapter.register(bytes.as_mut_ptr(), 1 << 20, fusewire::rdma::Access::ALL);
    let _ = RemoteBuffer::ZeroCopy(Exported::new(0xdead_0000, 1, 1 << 20));
    let peer: IbgdaPeer = bytemuck::Zeroable::zeroed();
    let _ = peer.endpoint(0, &bytemuck::Zeroable::zeroed());
}
