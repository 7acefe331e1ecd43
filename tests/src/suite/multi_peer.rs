//! The transport to all peers. Where torchcomms' tests went (`MultiPeerTransportTest`, `..IntegrationTest`, `..MultiNodeTest`,
//! `TopologyDiscoveryTest`, `TopologyClassifyTest`, `NvmlFabricInfoTest`):
//!
//! | there | here |
//! |---|---|
//! | TopologyDiscovery, SelfTransportType, HostNvlAccessor, HostIbgdaAccessorForNvlPeer, SelfAccessor | [`topology_and_accessors`] |
//! | ExchangeSucceeds | every case that makes peers; [`stages`] |
//! | DeviceHandleMetadata, DeviceHandleTypeMap, PeerIterationHelpers, PeerIndexConversionRoundtrip | [`handles_in_kernels`]; property test in `fusewire_device::window` |
//! | DeviceHandleBeforeExchange | [`stages`] |
//! | ExchangeNvlBufferCudaMalloc | refused by type: [`foreign_memory`] |
//! | ExchangeNvlBufferFabric, ExchangeNvlBufferMultipleRoundTrips | [`mapped_memory`] (file descriptors; fabric handles span hosts, and there is one) |
//! | NvlSendRecv | `windows::send_and_receive` |
//! | SelfTransportPut | `schedules::all_gather_by_get` puts to its own rank; windows refuse it: `window_faults::calls_that_cannot_be` |
//! | IbgdaAccessor | [`registration`] |
//! | SequentialNvlPingPong | `windows::ping_pong` |
//! | MultiNode: TopologyDiscovery, Exchange, DeviceHandle, HostAccessors | the same cases in two domains of two |
//! | TopologyDiscovery and Classify, P2P and InfiniBand switched off, logical groups | property and unit tests in `fusewire_transports::peers`; [`switches`] |
//! | NvmlFabricInfo | not there: reach is the driver's word (`cuDeviceCanAccessPeer`), fabric handles are not used |

use crate::check::says;
use crate::kernels::windows::peers_seen;
use crate::windows::windowed;
use crate::{CustomOf, Outcome, Rank, Subject};
use fusewire::device::window::LinkKind;
use fusewire::peers::Sharable;
use fusewire::{Error, HostWindow, MultiPeerTransport, PeersConfig, PeersError, WindowConfig};
use std::fmt::Debug;
use std::sync::Arc;

/// The error in the use of peers that this should be.
#[track_caller]
fn peers_error<T: Debug>(result: Result<T, impl Into<Error>>) -> PeersError {
    match result.map_err(Into::into) {
        Err(Error::Peers(error)) => error,
        other => panic!("this should be an error in the use of peers: {other:?}"),
    }
}

pub fn topology_and_accessors<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let peers = rank.peers(&ground)?;
    let (me, size) = (rank.me(), rank.size());
    assert_eq!((peers.rank(), peers.world_size()), (me, size));
    for other in 0..size {
        let kind = peers.link_kind(other).map_err(Error::from)?;
        assert_eq!(kind == LinkKind::Own, other == me);
        assert_eq!(peers.is_mapped(other).map_err(Error::from)?, kind == LinkKind::Mapped);
        // Where there is an adapter it reaches every peer.
        assert_eq!(peers.is_rdma(other).map_err(Error::from)?, peers.has_rdma() && other != me);
    }
    let (mapped, rdma) = (peers.topology().mapped_peers(), peers.topology().rdma_peers());
    assert!(mapped.is_sorted() && rdma.is_sorted());
    assert_eq!(rdma, if peers.has_rdma() { rank.others() } else { vec![] });
    let no = PeersError::NoSuchRank { rank: size, world: size };
    assert_eq!(peers_error(peers.link_kind(size)), no);
    assert_eq!(peers_error(peers.is_mapped(size)), no);
    assert_eq!(peers_error(peers.is_rdma(size)), no);
    says(format!("{peers:?}"), &[&format!("rank {me} of {size}")]);
    Ok(())
}

/// What kernels see of the peers is what the host says.
pub fn handles_in_kernels<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let peers = rank.peers(&ground)?;
    let (me, size) = (rank.me(), rank.size());
    let kernel = CustomOf::<peers_seen::Hooks>::custom(&ground.transport)?;
    let mut seen = ground.device.buffer::<u64>(7 * (size + 1) + 3)?;
    kernel.launch(&ground.stream, 1, peers_seen::Launch { peers: &peers, seen: seen.view_mut() })?;
    let seen = seen.read(&ground.stream)?;
    let (mapped, rdma, others) =
        (peers.topology().mapped_peers(), peers.topology().rdma_peers(), rank.others());
    let index = |list: &[usize], rank| list.iter().position(|r| *r == rank).map_or(u64::MAX, |i| i as u64);
    let nth = |list: &[usize], index: usize| list.get(index).map_or(u64::MAX, |rank| *rank as u64);
    for other in 0..=size {
        let kind = peers.link_kind(other).map_or(u64::MAX, |k| k as u64);
        let want = [
            kind,
            index(&mapped, other),
            index(&rdma, other),
            index(&others, other),
            nth(&mapped, other),
            nth(&rdma, other),
            nth(&others, other),
        ];
        assert_eq!(seen[7 * other..7 * other + 7], want, "rank {me} of {size}, about rank {other}");
    }
    let counts = [
        (me as u64) << 32 | size as u64,
        (mapped.len() as u64) << 32 | rdma.len() as u64,
        others.len() as u64,
    ];
    assert_eq!(seen[7 * (size + 1)..], counts);
    Ok(())
}

/// Before `exchange`, twice, and after `close`.
pub fn stages<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let (size, config) = (rank.size(), WindowConfig::default());
    let peers = MultiPeerTransport::new(&ground.transport, &PeersConfig::default())?;
    let shared = Arc::new(Sharable::create(ground.transport.link().machine(), 64)?);
    let all = shared.allocation();
    let early = |error: PeersError| assert!(matches!(error, PeersError::NotExchanged { .. }), "{error}");
    early(peers_error(peers.device_handle()));
    early(peers_error(peers.exchange_mapped(&shared)));
    early(peers_error(HostWindow::without_data(&peers, config)));
    // Registering needs nobody else.
    // SAFETY: the memory lives until the end.
    let registration = unsafe { peers.register(all, all.base, 8)? };
    early(peers_error(peers.exchange_registration(&registration)));
    peers.exchange()?;
    assert!(matches!(peers_error(peers.exchange()), PeersError::AlreadyExchanged { .. }));
    peers.device_handle()?;
    let window = HostWindow::without_data(&peers, config)?;
    assert!(matches!(peers_error(window.data_bytes(0)), PeersError::NotExchanged { .. }));
    assert!(matches!(
        peers_error(window.device_window::<fusewire::device::window::AllMapped>()),
        PeersError::NotExchanged { .. }
    ));
    window.exchange()?;
    assert!(matches!(peers_error(window.exchange()), PeersError::AlreadyExchanged { .. }));
    let no = peers_error(window.data_bytes(size));
    assert_eq!(no, PeersError::NoSuchRank { rank: size, world: size });
    rank.world.barrier()?;
    peers.close()?;
    let late = |error: PeersError| assert!(matches!(error, PeersError::Closed { .. }), "{error}");
    late(peers_error(peers.close()));
    late(peers_error(peers.exchange()));
    late(peers_error(peers.device_handle()));
    late(peers_error(peers.exchange_mapped(&shared)));
    late(peers_error(peers.exchange_registration(&registration)));
    // SAFETY: as above.
    late(peers_error(unsafe { peers.register(all, all.base, 8) }));
    late(peers_error(HostWindow::without_data(&peers, config)));
    Ok(())
}

/// Every rank maps every reachable peer's memory; again and again.
pub fn mapped_memory<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let peers = rank.peers(&ground)?;
    let (me, size) = (rank.me(), rank.size());
    let machine = ground.transport.link().machine();
    for round in 0..4 {
        let bytes = |rank: usize| 8 * (100 * (rank + 1) + round);
        let own = Arc::new(Sharable::create(machine, bytes(me))?);
        let word = 0x1000 * round as u64 + me as u64;
        match &*own {
            // SAFETY: this rank's own mapping, which nobody reads before the exchange.
            Sharable::Host(mapping) => unsafe { (mapping.address() as *mut u64).write(word) },
            Sharable::Cuda(memory) => {
                use fusewire::driver::memory::DeviceRegion as _;
                memory.write(0, &[word]).map_err(Error::from)?;
            }
            Sharable::Foreign(_) => unreachable!("made here"),
        }
        let mapped = peers.exchange_mapped(&own)?;
        for other in 0..size {
            assert_eq!(mapped.bytes(other).map_err(Error::from)?, bytes(other) as u64);
            let near = peers.link_kind(other).map_err(Error::from)? != LinkKind::Rdma;
            match mapped.address(other) {
                Ok(address) => {
                    assert!(near);
                    assert_eq!(first_word(machine, address)?, 0x1000 * round as u64 + other as u64);
                }
                Err(error) => assert_eq!((near, error), (false, PeersError::NotMapped { peer: other })),
            }
        }
        assert_eq!(mapped.own().map(|m| m.address()), Some(own.address()));
        let no = PeersError::NoSuchRank { rank: size, world: size };
        assert_eq!((mapped.address(size).unwrap_err(), mapped.bytes(size).unwrap_err()), (no.clone(), no));
        // Nobody unmaps while another looks.
        rank.world.barrier()?;
    }
    Ok(())
}

fn first_word(machine: &fusewire::peers::Machine, address: u64) -> fusewire::Result<u64> {
    let mut word = [0u64];
    match machine {
        // SAFETY: a mapped word, written before the exchange.
        fusewire::peers::Machine::Host => word[0] = unsafe { (address as *const u64).read() },
        fusewire::peers::Machine::Cuda(context) => {
            let from = fusewire::driver::DevicePtr::new(address);
            // SAFETY: as above.
            unsafe { fusewire::driver::copy::d2h(context, &mut word, from)? };
        }
    }
    Ok(word[0])
}

/// Registrations of buffers: keys with an adapter, nothing to do without one; sources of a window.
pub fn registration<X: Subject>(rank: &Rank<X>) -> Outcome {
    let on = windowed(rank, WindowConfig::default(), 64)?;
    let before = on.peers.registered();
    let buffer = on.ground.device.buffer::<u64>(100)?;
    let other = on.ground.device.shared_buffer::<u32>(7)?;
    on.window.register(&buffer)?;
    on.window.register(&buffer)?;
    on.window.register(&other)?;
    assert_eq!(on.peers.registered() - before, if on.peers.has_rdma() { 2 } else { 0 });
    on.window.deregister(&buffer)?;
    on.window.deregister(&other)?;
    on.window.deregister(&buffer)?;
    assert!(matches!(peers_error(on.window.deregister(&buffer)), PeersError::NotRegistered { .. }));
    assert_eq!(on.peers.registered(), before);
    let shared = Sharable::create(on.ground.transport.link().machine(), 64)?;
    let all = shared.allocation();
    // SAFETY: the memory lives until the end.
    let own = unsafe { on.peers.register(all, all.base + 8, 16)? };
    assert_eq!((own.keys().is_some(), own.bytes()), (on.peers.has_rdma(), 16));
    let exchanged = on.peers.exchange_registration(&own)?;
    assert_eq!(exchanged.len(), rank.size());
    assert!(exchanged.iter().all(|region| region.is_some() == on.peers.has_rdma()));
    rank.world.barrier()?;
    Ok(())
}

/// Buffers that peers cannot reach, and of other devices.
pub fn foreign_memory<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let peers = rank.peers(&ground)?;
    let none = ground.device.buffer::<u32>(0)?;
    says(peers_error(HostWindow::new(&peers, WindowConfig::default(), &none)), &["no elements"]);
    if peers.has_rdma() {
        let plain = ground.device.buffer::<u32>(10)?;
        let error = peers_error(HostWindow::new(&peers, WindowConfig::default(), &plain));
        assert!(matches!(error, PeersError::Foreign { .. }));
        says(error, &["adapters", "shared_buffer"]);
    }
    if rank.scale == crate::Scale::Gpu {
        let host = fusewire::Device::host().shared_buffer::<u32>(10)?;
        let error = peers_error(HostWindow::new(&peers, WindowConfig::default(), &host));
        says(error, &["another device"]);
        let window = HostWindow::without_data(&peers, WindowConfig::default())?;
        window.exchange()?;
        says(peers_error(window.register(&host)), &["another device"]);
    }
    let many = WindowConfig::default().signals(5000);
    let error = peers_error(HostWindow::without_data(&peers, many));
    says(error, &["5000 signals", "at most 4096"]);
    // A window of other peers than the kernel's.
    let single = fusewire::World::single()?;
    let alone = X::meet(&single, fusewire::Options::per_peer(1024).channels(1), rank.scale)?;
    if rank.size() > 1 && X::NAME == "Shm" {
        let few = MultiPeerTransport::new(&alone, &PeersConfig::default())?;
        few.exchange()?;
        let kernel = CustomOf::<peers_seen::Hooks>::custom(&ground.transport)?;
        let mut seen = ground.device.buffer::<u64>(100)?;
        let launched =
            kernel.launch(&ground.stream, 1, peers_seen::Launch { peers: &few, seen: seen.view_mut() });
        let Err(Error::Misuse { what }) = launched else { panic!("peers of another world: {launched:?}") };
        says(what, &["`peers` is of rank 0 of 1"]);
    }
    Ok(())
}

/// Without mapped memory and without an adapter nobody is reached; every rank says so, and the next attempt is as good as new.
pub fn switches<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let size = rank.size();
    let make = |config: PeersConfig| MultiPeerTransport::new(&ground.transport, &config);
    let on = PeersConfig { mapped: true, rdma: true, atomics: true, domains: None };
    let error = peers_error(make(on.clone().mapped(false)));
    assert!(matches!(error, PeersError::Unreachable { from: 0, to: 1, .. }), "{error}");
    says(error, &["turned off on rank 0", "adapter"]);
    says(
        peers_error(make(on.clone().atomics(false))),
        &["native atomics", "turned off on rank 0", "adapter"],
    );
    let alone: Vec<Vec<usize>> = (0..size).map(|r| vec![r]).collect();
    let alone: Vec<&[usize]> = alone.iter().map(Vec::as_slice).collect();
    says(peers_error(make(on.clone().domains(&alone))), &["different domains"]);
    let error = peers_error(make(on.clone().domains(&[&[0, size]])));
    assert_eq!(error, PeersError::NoSuchRank { rank: size, world: size });
    // Ranks that ask for different things are told which.
    let differing = make(on.clone().rdma(rank.me() != 1)).map_err(Error::from);
    let Err(Error::Peer(error)) = differing else { panic!("rank 1 differs: {differing:?}") };
    says(error, &["rank 1", "adapters"]);
    let all: Vec<usize> = (0..size).rev().collect();
    let peers = make(on.domains(&[&all]))?;
    peers.exchange()?;
    assert_eq!(peers.topology().mapped_peers(), rank.others());
    Ok(())
}
