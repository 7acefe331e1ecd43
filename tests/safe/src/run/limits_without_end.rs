//! Deadlines and sizes of a world, a transport and its memory at their ends: refused in words, or it runs; nothing panics.
//! Ends: well

use fusewire::host_ib::HostIbOptions;
use fusewire::ibgda::IbgdaOptions;
use fusewire::prelude::*;
use fusewire::rdma::Fabric;
use fusewire::world::{Options as Limits, Result};
use std::net::Ipv4Addr;
use std::time::Duration;

const TIMES: [Duration; 4] = [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_nanos(1), Duration::ZERO];
const SIZES: [usize; 6] = [usize::MAX, usize::MAX / 2, usize::MAX / 8, usize::MAX / 8 + 1, 1 << 60, 1 << 48];

/// Whatever a world does that has a deadline.
fn meets(world: &World) -> Result<()> {
    world.barrier()?;
    world.all_gather(b"part")?;
    world.exchange_fds(&[])?;
    let peer = (world.rank() + 1) % world.size();
    if peer != world.rank() {
        world.send(peer, u32::MAX, b"x")?;
        world.recv(peer, u32::MAX)?;
    }
    world.teardown_barrier()
}

/// Ranks with these limits meet, if `must`.
fn connected(limits: &Limits, must: bool) -> crate::Ended {
    let id = UniqueId::create_on(Ipv4Addr::LOCALHOST.into())?;
    std::thread::scope(|scope| {
        let rank = |rank| scope.spawn(move || meets(&World::connect(&id, rank, 2, limits)?));
        for outcome in [0, 1].map(rank).map(|thread| thread.join()) {
            let outcome = outcome.map_err(|_| format!("a panic with {limits:?}"))?;
            crate::ensure(!must || outcome.is_ok(), || format!("{outcome:?} with {limits:?}"))?;
        }
        Ok(())
    })
}

pub fn run() -> crate::Ended {
    for time in TIMES {
        let endless = time > Duration::from_secs(1);
        let outcomes = World::threads(2, |world| meets(&world.with_timeout(time)))?;
        crate::ensure(!endless || outcomes.iter().all(Result::is_ok), || format!("{time:?}: {outcomes:?}"))?;
        let _ = meets(&World::single()?.with_timeout(time));
        let limits = Limits::default().with_timeout(time);
        connected(&limits, endless)?;
        let limits = Limits::default().with_timeout(Duration::from_secs(2)).with_silence(Some(time));
        connected(&limits, endless)?;
        let mut limits = Limits::default().with_timeout(Duration::from_secs(2));
        limits.heartbeat = time;
        connected(&limits, true)?;
    }
    for bytes in SIZES.into_iter().chain([0]) {
        connected(&Limits::default().with_timeout(Duration::from_secs(2)).with_max_message(bytes), bytes > 0)?;
    }

    let world = World::single()?;
    for bytes in SIZES {
        let of = |options: Options| Shm::rendezvous(&world, options).is_err();
        let all = of(Options::per_peer(bytes)) && of(Options::per_peer(1 << 16).heap(bytes));
        crate::ensure(all, || format!("a transport of {bytes} bytes"))?;
    }
    for many in [u32::MAX, u32::MAX / 2, 1 << 20] {
        let some = || Options::per_peer(1 << 16);
        let flagged = [some().ll128_channels(many), some().ll_channels(many)];
        for options in [some().channels(many), some().signals(many)].into_iter().chain(flagged) {
            crate::ensure(Shm::rendezvous(&world, options).is_err(), || format!("{many} of something"))?;
        }
        let how = HostIbOptions::default().fabric(Fabric::Emulated).commands(many);
        crate::ensure(HostIb::rendezvous_with(&world, some(), &how).is_err(), || format!("{many} commands"))?;
        for options in [IbgdaOptions::new(some()).queue_pairs(many), IbgdaOptions::new(some()).depth(many)] {
            crate::ensure(Ibgda::emulated(&world, options).is_err(), || format!("{many} entries"))?;
        }
    }

    let shm = Shm::rendezvous(&world, 1 << 16)?;
    let device = Device::of(&shm);
    for len in SIZES {
        let refused = device.buffer::<u64>(len).is_err()
            && device.buffer::<u8>(len).is_err()
            && device.shared_buffer::<u64>(len).is_err()
            && Buffer::<u64>::symmetric(&shm, len).is_err()
            && Buffer::<u8>::symmetric(&shm, len).is_err();
        crate::ensure(refused, || format!("a buffer of {len} elements"))?;
    }
    let buffer = device.buffer::<u64>(8)?;
    let max = usize::MAX;
    crate::ensure(buffer.view().slice(0..max).is_err(), || "0..MAX".into())?;
    crate::ensure(buffer.view().slice(0..=max).is_err(), || "0..=MAX".into())?;
    crate::ensure(buffer.view().slice(max..).is_err(), || "MAX..".into())?;
    crate::ensure(buffer.view().slice(max..=max).is_err(), || "MAX..=MAX".into())?;
    #[expect(clippy::reversed_empty_ranges, reason = "that is what is tried")]
    let backwards = buffer.view().slice(5..2).is_err();
    crate::ensure(backwards, || "5..2".into())?;

    let peers = MultiPeerTransport::new(&shm, &PeersConfig::default())?;
    peers.exchange()?;
    for many in [u32::MAX, u32::MAX / 2, 1 << 28] {
        let none = WindowConfig::default;
        for config in [none().signals(many), none().counters(many), none().barriers(many)] {
            let window = HostWindow::without_data(&peers, config);
            crate::ensure(window.is_err(), || format!("{many} words"))?;
        }
    }
    let far = PeersConfig::default().domains(&[&[0, usize::MAX]]);
    crate::ensure(MultiPeerTransport::new(&shm, &far).is_err(), || "a rank that there is not".into())
}
