//! What a case stands on.

use crate::Subject;
use fusewire::{Device, Options, Result, Stream, World};
use std::time::Duration;

/// A rank of a case, with its transport.
#[derive(Debug)]
pub struct Ground<S: Subject> {
    /// The ranks.
    pub world: World,
    /// The transport.
    pub transport: S::On,
    /// Where its kernels run.
    pub device: Device,
    /// A stream there.
    pub stream: Stream,
    /// The seed of the data.
    pub(crate) seed: u64,
}

impl<S: Subject> Ground<S> {
    pub(crate) fn new(world: World, seed: u64, options: Options) -> Result<Self> {
        let transport = S::meet(&world, options)?;
        let device = Device::of(&transport);
        let stream = device.stream()?;
        Ok(Ground { world, transport, device, stream, seed })
    }

    /// This rank and how many there are.
    pub(crate) fn place(&self) -> (usize, usize) {
        (self.world.rank(), self.world.size())
    }

    /// Value `i` of `rank` in call `call`.
    pub(crate) fn value(&self, call: u64, rank: usize, i: usize) -> u64 {
        mix(mix(self.seed ^ call << 20) ^ (rank as u64) << 48 ^ i as u64)
    }
}

/// Small, so that messages go through staging many times: channels of 4 KiB.
pub(crate) fn options() -> Options {
    Options::per_peer(16 << 10).channels(4).heap(64 << 10).signals(4).deadline(Duration::from_secs(20))
}

/// Runs a case on a world of threads.
///
/// # Panics
/// As the case does, with the seed.
pub(crate) fn on_threads<S: Subject>(name: &str, ranks: usize, case: fn(World, u64) -> Result<()>) {
    let given = std::env::var("FUSEWIRE_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64);
    let seed: u64 = given.unwrap_or(mix(now) >> 32);
    println!("{name} on {ranks} ranks of {}, FUSEWIRE_TEST_SEED={seed}", std::any::type_name::<S::On>());
    let outcomes = World::threads(ranks, move |world| case(world, seed));
    for (rank, outcome) in outcomes.unwrap_or_else(|error| panic!("{error}")).into_iter().enumerate() {
        outcome.unwrap_or_else(|error| panic!("{name} on {ranks} ranks, rank {rank}: {error}"));
    }
}

/// SplitMix64's output function.
pub(crate) fn mix(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
