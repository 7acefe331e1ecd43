//! What has no constructor, put together and taken apart.
#![forbid(unsafe_code)]

use fusewire::device::ctx::{Consume, Ctx, Produce};
use fusewire::device::mapped::{Mapped, MappedParts};
use fusewire::ops::{IbgdaOps, ShmOps};
use fusewire::p2p::{Exported, HostBuffer, RemoteBuffer};

fn witness(ctx: Ctx) -> (Consume, Produce) {
    (Consume(ctx), Produce(ctx))
}

fn operations(parts: MappedParts, other: &mut IbgdaOps) -> ShmOps {
    other.peers = 0xdead_0000;
    ShmOps(Mapped(parts))
}

fn main() {
    let _ = RemoteBuffer::ZeroCopy(Exported { address: 0xdead_0000, rkey: 1, bytes: 1 << 20 });
    let _ = HostBuffer::from_vec(vec![0; 8]).start();
    let _ = (witness, operations);
}
