//! What the suite asks of a transport: that ranks can meet on it, and that every kernel of the suite was compiled for it.

use crate::kernels::{
    collectives::*, copying::*, faulty::*, folds::*, hooks::*, in_place::*, rows, schedules::*, structs::*,
    teams::*, windows::*, wires::*,
};
use crate::suite::cases;
use crate::{Case, Scale};
use fusewire::device::prelude::*;
use fusewire::driver::{Context, Driver};
use fusewire::host_ib::HostIbOptions;
use fusewire::kernel::{HookSet, Supports};
use fusewire::nic::emulated::Behaviour;
use fusewire::nic::{Emulated, Nic};
use fusewire::peers::IbgdaAdapter;
use fusewire::rdma::Fabric;
use fusewire::schedule::*;
use fusewire::{
    HostIb, Ibgda, MultiPeerTransport, Options, PeersConfig, Result, Shm, ShmMesh, Transport, World,
};
#[cfg(feature = "gpu")]
use fusewire::{Nvl, NvlMesh};
use std::sync::Arc;

/// A transport that the suite can make.
pub trait Meet: Transport + Sized {
    /// `suite::cases()`: every case, those of [processes] among them. Written where the transport joins the suite, so that programs that run
    /// the cases do not compile them once more.
    ///
    /// [processes]: crate::suite::processes
    fn cases() -> Vec<Case<Self>>;

    /// Ranks map each other's memory: there are LL128 and symmetric outputs.
    const MAPS: bool = false;

    /// Makes it. Collective.
    ///
    /// # Errors
    /// Those of the transport's `rendezvous`.
    fn meet(world: &World, options: Options, scale: Scale) -> Result<Self>;

    /// Makes it with domains of so many consecutive ranks; `None` where it has none. Collective.
    ///
    /// # Errors
    /// Those of the transport's `rendezvous`.
    fn in_domains(_world: &World, _options: Options, _scale: Scale, _each: usize) -> Result<Option<Self>> {
        Ok(None)
    }

    /// The peers of windows on it, not yet exchanged. Collective.
    ///
    /// # Errors
    /// Ranks that cannot reach each other.
    fn peers(&self, _scale: Scale) -> Result<MultiPeerTransport> {
        Ok(MultiPeerTransport::new(self, &PeersConfig::default())?)
    }
}

impl Meet for Shm {
    const MAPS: bool = true;

    fn cases() -> Vec<Case<Self>> {
        cases()
    }

    fn meet(world: &World, options: Options, _: Scale) -> Result<Self> {
        Ok(Shm::rendezvous(world, options)?)
    }
}

#[cfg(feature = "gpu")]
impl Meet for Nvl {
    const MAPS: bool = true;

    fn cases() -> Vec<Case<Self>> {
        cases()
    }

    fn meet(world: &World, options: Options, _: Scale) -> Result<Self> {
        Ok(Nvl::rendezvous(world, options)?)
    }
}

/// Over emulated adapters; a rank's GPU is that of its place on its host.
impl Meet for Ibgda {
    fn cases() -> Vec<Case<Self>> {
        cases()
    }

    fn meet(world: &World, options: Options, scale: Scale) -> Result<Self> {
        match scale {
            Scale::Host => Ok(Ibgda::rendezvous_with(world, adapter(world)?, None, options)?),
            Scale::Gpu => Ok(Ibgda::emulated_on(world, &gpu(world)?, options)?),
        }
    }

    /// On CPU threads an adapter reaches every peer: 4 ranks and more, if even, are pairs that share memory.
    /// On GPUs the emulated adapter cannot reach a window's memory.
    fn peers(&self, scale: Scale) -> Result<MultiPeerTransport> {
        if scale == Scale::Gpu {
            return Ok(MultiPeerTransport::new(self, &PeersConfig::default())?);
        }
        let world = self.link().world();
        let options = Options::per_peer(1024).channels(1);
        let ibgda = Arc::new(Ibgda::rendezvous_with(world, adapter(world)?, None, options)?);
        let ranks: Vec<usize> = (0..world.size()).collect();
        let pairs: Vec<&[usize]> = if ranks.len() >= 4 && ranks.len().is_multiple_of(2) {
            ranks.chunks(2).collect()
        } else {
            vec![]
        };
        let config = PeersConfig::default().domains(&pairs);
        Ok(MultiPeerTransport::with_adapter(self, &config, Some(IbgdaAdapter::new(&ibgda)))?)
    }
}

/// Ranks of one domain of a mesh.
const DOMAIN: usize = 2;

/// An adapter that places the bytes of writes as late as it may: behind later additions of their queue pair that have no fence.
fn adapter(world: &World) -> Result<Arc<dyn Nic>> {
    let seed = world.rank() as u64;
    let behaviour = Behaviour { seed, late_placement: true, ..Behaviour::default() };
    Ok(Arc::new(Emulated::new(behaviour)?))
}

/// Shared memory in domains of two, adapters across.
impl Meet for ShmMesh {
    fn cases() -> Vec<Case<Self>> {
        cases()
    }

    fn meet(world: &World, options: Options, _: Scale) -> Result<Self> {
        Ok(ShmMesh::rendezvous(world, (world.rank() / DOMAIN) as u64, adapter(world)?, options)?)
    }

    fn in_domains(world: &World, options: Options, _: Scale, each: usize) -> Result<Option<Self>> {
        let domain = (world.rank() / each) as u64;
        Ok(Some(ShmMesh::rendezvous(world, domain, adapter(world)?, options)?))
    }
}

/// NVLink in domains of two, adapters across.
#[cfg(feature = "gpu")]
impl Meet for NvlMesh {
    fn cases() -> Vec<Case<Self>> {
        cases()
    }

    fn meet(world: &World, options: Options, _: Scale) -> Result<Self> {
        let domain = (world.rank() / DOMAIN) as u64;
        Ok(NvlMesh::rendezvous(world, domain, &gpu(world)?, adapter(world)?, options)?)
    }

    fn in_domains(world: &World, options: Options, _: Scale, each: usize) -> Result<Option<Self>> {
        let domain = (world.rank() / each) as u64;
        Ok(Some(NvlMesh::rendezvous(world, domain, &gpu(world)?, adapter(world)?, options)?))
    }
}

/// Over real adapters where `FUSEWIRE_TEST_VERBS` is 1, else over the emulation.
impl Meet for HostIb {
    fn cases() -> Vec<Case<Self>> {
        cases()
    }

    fn meet(world: &World, options: Options, scale: Scale) -> Result<Self> {
        let real = std::env::var("FUSEWIRE_TEST_VERBS").is_ok_and(|v| v == "1");
        let mut how = HostIbOptions::default().fabric(if real { Fabric::Verbs } else { Fabric::Emulated });
        if scale == Scale::Gpu {
            how = how.context(&gpu(world)?);
        }
        Ok(HostIb::rendezvous_with(world, options, &how)?)
    }
}

/// The GPU of this rank's place on its host.
fn gpu(world: &World) -> Result<Context> {
    let driver = Driver::load()?;
    let count = driver.device_count()?.max(1);
    Ok(Context::new(&driver.device(world.local_rank() % count)?)?)
}

macro_rules! launchers {
    ($($(#[$doc:meta])* $name:ident: $make:ident, $schedule:ident, $launcher:ident;)*) => {$(
        $(#[$doc])*
        pub trait $name<H: HookSet>: Transport + Sized {
            /// Prepares the kernel. Collective.
            ///
            /// # Errors
            /// Ranks that prepare different kernels.
            fn $make(&self) -> Result<$launcher<Self, H>>;
        }

        impl<X: Transport, H: Supports<$schedule, X>> $name<H> for X {
            fn $make(&self) -> Result<$launcher<Self, H>> {
                $launcher::new(self)
            }
        }
    )*};
}

launchers! {
    /// `H` runs as an all-to-all on this transport. (A bound on the transport, so that [`Subject`] can imply it.)
    AllToAllOf: all_to_all, AllToAll, AllToAllLauncher;
    /// `H` runs as send and receive on this transport.
    SendRecvOf: sendrecv, SendRecv, SendRecvLauncher;
    /// `H` runs as an all-gather on this transport.
    AllGatherOf: all_gather, AllGather, AllGatherLauncher;
    /// `H` runs as a broadcast on this transport.
    BroadcastOf: broadcast, Broadcast, BroadcastLauncher;
    /// `H` runs as a scatter on this transport.
    ScatterOf: scatter, Scatter, ScatterLauncher;
    /// `H` runs as a gather on this transport.
    GatherOf: gather, Gather, GatherLauncher;
    /// `H` runs as a reduce-scatter on this transport.
    ReduceScatterOf: reduce_scatter, ReduceScatter, ReduceScatterLauncher;
    /// `H` runs as an all-reduce on this transport.
    AllReduceOf: all_reduce, AllReduce, AllReduceLauncher;
    /// `H` runs as a reduce on this transport.
    ReduceOf: reduce, Reduce, ReduceLauncher;
    /// `H` is a schedule on this transport.
    CustomOf: custom, Custom, CustomLauncher;
}

/// The module `traded` has its schedule `exchange` on this transport.
pub trait ExchangeOf: Transport + Sized {
    /// Prepares the kernel. Collective.
    ///
    /// # Errors
    /// Ranks that prepare different kernels.
    fn exchange(&self) -> Result<CustomLauncher<Self, traded::Hooks, traded::exchange::Own>>;
}

impl<X: Transport> ExchangeOf for X
where
    traded::Hooks: Supports<traded::exchange::Own, X>,
{
    fn exchange(&self) -> Result<CustomLauncher<Self, traded::Hooks, traded::exchange::Own>> {
        traded::exchange::on(self)
    }
}

macro_rules! subject {
    ($($bound:path,)*) => {
        /// A transport with every kernel of the suite. Implemented for all that have them.
        pub trait Subject: Meet $(+ $bound)* {}
        impl<X: Meet $(+ $bound)*> Subject for X {}
    };
}

subject! {
    AllToAllOf<copy::Hooks<u8>>, AllToAllOf<copy::Hooks<u16>>, AllToAllOf<copy::Hooks<u32>>, AllToAllOf<copy::Hooks<u64>>,
    AllToAllOf<copy::Hooks<i8>>, AllToAllOf<copy::Hooks<i16>>, AllToAllOf<copy::Hooks<i32>>, AllToAllOf<copy::Hooks<i64>>,
    AllToAllOf<copy::Hooks<f32>>, AllToAllOf<copy::Hooks<f64>>, AllToAllOf<copy::Hooks<F16>>, AllToAllOf<copy::Hooks<Bf16>>,
    AllToAllOf<copy::Hooks<F8E4M3>>, AllToAllOf<copy::Hooks<F8E5M2>>,
    SendRecvOf<copy::Hooks<u8>>, SendRecvOf<copy::Hooks<u16>>, SendRecvOf<copy::Hooks<u32>>, SendRecvOf<copy::Hooks<u64>>,
    SendRecvOf<copy::Hooks<i8>>, SendRecvOf<copy::Hooks<i16>>, SendRecvOf<copy::Hooks<i32>>, SendRecvOf<copy::Hooks<i64>>,
    SendRecvOf<copy::Hooks<f32>>, SendRecvOf<copy::Hooks<f64>>, SendRecvOf<copy::Hooks<F16>>, SendRecvOf<copy::Hooks<Bf16>>,
    SendRecvOf<copy::Hooks<F8E4M3>>, SendRecvOf<copy::Hooks<F8E5M2>>,
    AllToAllOf<reverse::Hooks<u8>>, AllToAllOf<reverse::Hooks<u16>>, AllToAllOf<reverse::Hooks<u32>>, AllToAllOf<reverse::Hooks<u64>>,
    AllToAllOf<unrolled::Hooks>, AllToAllOf<reverse_unrolled::Hooks>,
    AllToAllOf<transpose_add::Hooks>, AllToAllOf<tiles::Hooks>, AllToAllOf<scale_add::Hooks>, AllToAllOf<gather::Hooks<0>>, AllToAllOf<gather::Hooks<7>>, AllToAllOf<places::Hooks>,
    AllToAllOf<histogram::Hooks>, AllToAllOf<chain::Hooks>,
    SendRecvOf<transpose_add::Hooks>, SendRecvOf<tiles::Hooks>, SendRecvOf<chain::Hooks>,
    AllGatherOf<counted::Hooks>, BroadcastOf<counted::Hooks>, ScatterOf<counted::Hooks>, GatherOf<counted::Hooks>,
    ReduceScatterOf<ordered::Hooks>, AllReduceOf<ordered::Hooks>, ReduceOf<ordered::Hooks>,
    ReduceScatterOf<summed::Hooks<f32>>, AllReduceOf<summed::Hooks<f32>>, ReduceOf<summed::Hooks<f32>>,
    ReduceScatterOf<summed::Hooks<F16>>, AllReduceOf<summed::Hooks<F16>>, ReduceOf<summed::Hooks<F16>>,
    ReduceScatterOf<summed::Hooks<Bf16>>, AllReduceOf<summed::Hooks<Bf16>>, ReduceOf<summed::Hooks<Bf16>>,
    ReduceScatterOf<summed::Hooks<F8E4M3>>, AllReduceOf<summed::Hooks<F8E4M3>>, ReduceOf<summed::Hooks<F8E4M3>>,
    ReduceScatterOf<totals::Hooks>, AllReduceOf<totals::Hooks>, ReduceOf<totals::Hooks>,
    AllReduceOf<summed_in_place::Hooks>, ReduceScatterOf<summed_in_place::Hooks>,
    AllReduceOf<linked_in_place::Hooks>, ReduceScatterOf<linked_in_place::Hooks>, ReduceOf<linked_in_place::Hooks>,
    AllGatherOf<moved_in_place::Hooks>, BroadcastOf<moved_in_place::Hooks>, ScatterOf<moved_in_place::Hooks>, GatherOf<moved_in_place::Hooks>,
    AllGatherOf<gathered_in_place::Hooks>,
    AllReduceOf<linked_rows::Hooks>, ReduceScatterOf<linked_rows::Hooks>, ReduceOf<linked_rows::Hooks>,
    AllGatherOf<moved_rows::Hooks>, BroadcastOf<moved_rows::Hooks>, ScatterOf<moved_rows::Hooks>, GatherOf<moved_rows::Hooks>,
    AllReduceOf<normed_in_place::Hooks<f32>>, AllReduceOf<normed_in_place::Hooks<Bf16>>, AllReduceOf<quantised_in_place::Hooks>,
    AllReduceOf<summed_rows::Hooks<f32>>, AllReduceOf<summed_rows::Hooks<F16>>, AllReduceOf<summed_rows::Hooks<F8E4M3>>,
    ReduceScatterOf<summed_rows::Hooks<f32>>, ReduceScatterOf<summed_rows::Hooks<F16>>, ReduceScatterOf<summed_rows::Hooks<F8E4M3>>,
    AllReduceOf<averaged::Hooks>, ReduceScatterOf<greatest::Hooks>,
    AllReduceOf<found::Hooks>, ReduceScatterOf<found::Hooks>, AllToAllOf<points::Hooks>, SendRecvOf<points::Hooks>, AllToAllOf<pixels::Hooks>, AllToAllOf<paired::Hooks>, AllGatherOf<neighbours::Hooks>,
    AllGatherOf<scaled::Hooks>, AllGatherOf<gathered::Hooks>,
    AllToAllOf<by_f8::Hooks>, AllToAllOf<to_bf16::Hooks>, AllToAllOf<widened::Hooks>, AllToAllOf<spread::Hooks>,
    AllToAllOf<rows::short::Hooks>, AllGatherOf<rows::short::Hooks>, SendRecvOf<rows::long::Hooks>, BroadcastOf<rows::long::Hooks>,
    AllToAllOf<rows::wide::Hooks>, AllToAllOf<rows::scaled::Hooks>, BroadcastOf<rows::scaled::Hooks>, AllToAllOf<rows::powers::Hooks>,
    AllReduceOf<rows::centred::Hooks>, ReduceScatterOf<rows::centred::Hooks>, ReduceOf<rows::centred::Hooks>, AllReduceOf<rows::greatest_scaled::Hooks>,
    AllReduceOf<rows::quantised_sums::Hooks>, AllReduceOf<rows::rounded_rows::Hooks>, AllReduceOf<rounded::Hooks>,
    AllReduceOf<rows::longer::Hooks>, AllToAllOf<rows::longest::Hooks>,
    AllToAllOf<bad_produce::Hooks>, AllToAllOf<bad_consume::Hooks>, AllToAllOf<says_values::Hooks>,
    ExchangeOf, AllToAllOf<traded::Hooks>,
    CustomOf<ring_all_gather::Hooks>, CustomOf<ring_by_packs::Hooks>, CustomOf<halves::Hooks>, CustomOf<bursts::Hooks>, CustomOf<pairs_by_ll128::Hooks>, CustomOf<relayed::Hooks>, CustomOf<halo::Hooks>, CustomOf<pull_all_gather::Hooks>, CustomOf<rounds_between_barriers::Hooks>, CustomOf<misdirected::Hooks>,
    CustomOf<script::Hooks>, CustomOf<script_mixed::Hooks>, CustomOf<linked_ring::Hooks>, CustomOf<linked_ring_mixed::Hooks>, CustomOf<sent_ring::Hooks>, CustomOf<peers_seen::Hooks>,
    CustomOf<misdirected_window::Hooks>,
    CustomOf<folded_by_teams::Hooks>, CustomOf<turned_round::Hooks>, CustomOf<changed_by_all::Hooks>, CustomOf<spread_by_teams::Hooks>, CustomOf<bad_team::Hooks>,
}
