//! Running a case on ranks that are threads.

use crate::{Meet, data};
use fusewire::world::Options as WorldOptions;
use fusewire::{Device, Options, Stream, Transport, World};
use std::fmt;
use std::io::Write;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Why a case did not pass.
#[derive(Debug, Clone)]
pub enum Stop {
    /// It cannot be run here; says what is missing.
    LeftOut(String),
    /// It failed.
    Failed(String),
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::LeftOut(why) => write!(f, "left out: {why}"),
            Stop::Failed(why) => f.write_str(why),
        }
    }
}

impl From<fusewire::Error> for Stop {
    #[track_caller]
    fn from(error: fusewire::Error) -> Self {
        Stop::Failed(format!("{error} (at {})", std::panic::Location::caller()))
    }
}

impl From<fusewire::world::Error> for Stop {
    #[track_caller]
    fn from(error: fusewire::world::Error) -> Self {
        Stop::from(fusewire::Error::from(error))
    }
}

impl From<fusewire::peers::TransportError> for Stop {
    #[track_caller]
    fn from(error: fusewire::peers::TransportError) -> Self {
        Stop::from(fusewire::Error::from(error))
    }
}

/// What a case's body returns on each rank. Comparisons that fail panic.
pub type Outcome = Result<(), Stop>;

/// How large cases are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// CPU threads, more of them than cores.
    Host,
    /// GPUs.
    Gpu,
}

impl Scale {
    /// One number or the other.
    pub fn pick<T>(self, host: T, gpu: T) -> T {
        match self {
            Scale::Host => host,
            Scale::Gpu => gpu,
        }
    }
}

/// A named case.
pub struct Case<X> {
    /// `group::name`.
    pub name: &'static str,
    /// The world sizes it is for.
    pub ranks: RangeInclusive<usize>,
    /// Every rank runs it.
    pub body: fn(&Rank<X>) -> Outcome,
}

impl<X> Clone for Case<X> {
    fn clone(&self) -> Self {
        Case { name: self.name, ranks: self.ranks.clone(), body: self.body }
    }
}

impl<X> fmt::Debug for Case<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {:?} ranks", self.name, self.ranks)
    }
}

/// One rank of a running case.
pub struct Rank<X> {
    /// Its world.
    pub world: World,
    /// The run's seed.
    pub seed: u64,
    /// How large to be.
    pub scale: Scale,
    transport: PhantomData<fn() -> X>,
}

impl<X: Meet> Rank<X> {
    /// This rank of `world`.
    pub fn new(world: World, seed: u64, scale: Scale) -> Self {
        Rank { world, seed, scale, transport: PhantomData }
    }

    /// This rank.
    pub fn me(&self) -> usize {
        self.world.rank()
    }

    /// Ranks.
    pub fn size(&self) -> usize {
        self.world.size()
    }

    /// Random numbers, the same on every rank.
    pub fn rng(&self) -> data::Rng {
        data::Rng::new(self.seed)
    }

    /// Data of all ranks for one call.
    pub fn data(&self, call: usize) -> data::Data {
        data::Data::new(self.seed, call as u64)
    }

    /// A small transport: every path is taken with little data. 4 channels of 4 KiB.
    ///
    /// # Errors
    /// Those of the rendezvous.
    pub fn small(&self) -> fusewire::Result<Ground<X>> {
        self.meet(Options::per_peer(16 << 10).channels(4).ll128_channels(4).ll_channels(4).heap(64 << 10))
    }

    /// A transport as a user would have it.
    ///
    /// # Errors
    /// Those of the rendezvous.
    pub fn usual(&self) -> fusewire::Result<Ground<X>> {
        let options = Options::per_peer(256 << 10).channels(4).ll128_channels(4).ll_channels(4);
        let options = self.scale.pick(options, Options::default());
        self.meet(options)
    }

    /// A transport, its device and a stream.
    ///
    /// # Errors
    /// Those of the rendezvous.
    pub fn meet(&self, options: Options) -> fusewire::Result<Ground<X>> {
        Ground::of(X::meet(&self.world, self.patient(options), self.scale)?)
    }

    /// A small transport with domains of so many consecutive ranks; `None` where it has none.
    ///
    /// # Errors
    /// Those of the rendezvous.
    pub fn in_domains(&self, each: usize) -> fusewire::Result<Option<Ground<X>>> {
        let options = self.patient(Options::per_peer(16 << 10).channels(4));
        X::in_domains(&self.world, options, self.scale, each)?.map(Ground::of).transpose()
    }

    fn patient(&self, options: Options) -> Options {
        // A slow machine is not a fault; where one is meant, the launch says how long to wait.
        Options { deadline: options.deadline.max(Duration::from_secs(self.scale.pick(40, 15))), ..options }
    }
}

/// A transport with a stream on its device.
#[derive(Debug)]
pub struct Ground<X> {
    /// A stream of the device. Dropped first: its work uses the transport.
    pub stream: Stream,
    /// Where kernels run.
    pub device: Device,
    /// The transport.
    pub transport: X,
}

impl<X: Transport> Ground<X> {
    fn of(transport: X) -> fusewire::Result<Self> {
        let device = Device::of(&transport);
        let stream = device.stream()?;
        Ok(Ground { stream, device, transport })
    }

    /// Whether its ranks are in aligned domains.
    pub fn in_domains(&self) -> bool {
        self.transport.link().domains().aligned().is_some()
    }

    /// Has the rank's launches not compared with its peers' before they are queued, as if they were on other hosts.
    pub fn apart(&self) {
        self.transport.link().has_unseen();
    }

    /// Bytes of staging of one channel.
    pub fn window(&self) -> usize {
        self.transport.link().layout().window as usize
    }
}

/// How long ranks wait for each other at set-up.
pub const MEETING: Duration = Duration::from_secs(30);

/// Runs a case on `ranks` threads; gives up on it after `limit`, with its threads left behind.
///
/// # Errors
/// What the first rank that failed said, or that the case is still running.
pub fn in_threads<X: Meet>(
    case: &Case<X>,
    ranks: usize,
    scale: Scale,
    seed: u64,
    limit: Duration,
) -> Outcome {
    let (sender, receiver) = channel();
    let body = case.body;
    let world = move || {
        let options = WorldOptions::default().with_timeout(MEETING);
        World::threads_with(ranks, &options, |world| match body(&Rank::new(world, seed, scale)) {
            Ok(()) => None,
            Err(Stop::LeftOut(why)) => Some(why),
            Err(Stop::Failed(why)) => panic!("{why}"),
        })
    };
    let thread = std::thread::Builder::new().name(case.name.into()).spawn(move || {
        let _ = sender.send(world());
    });
    thread.map_err(|e| Stop::Failed(format!("starting a case's thread: {e}")))?;
    let about = |why: String| format!("{} on {ranks} ranks, seed {seed}: {why}", case.name);
    match receiver.recv_timeout(limit) {
        Ok(Ok(left_out)) => match left_out.into_iter().flatten().next() {
            None => Ok(()),
            Some(why) => Err(Stop::LeftOut(why)),
        },
        Ok(Err(error)) => Err(Stop::Failed(about(error.to_string()))),
        Err(_) => Err(Stop::Failed(about(format!("still running after {limit:?}")))),
    }
}

/// What a `#[test]` of [`transport_tests!`](crate::transport_tests) does: the case for each world size that it is for.
pub fn test<X: Meet>(name: &str, ranks: &[usize]) {
    let cases = X::cases();
    let case = cases.iter().find(|c| c.name == name).unwrap_or_else(|| panic!("there is no case {name}"));
    let seed = data::seed();
    println!("seed {seed}: FUSEWIRE_TEST_SEED={seed} repeats it");
    let (ranks, limit) = match name.starts_with("matrix::") && crate::suite::matrix::whole() {
        true => (&crate::suite::matrix::WORLDS[..], 6 * 3600),
        false => (ranks, 120),
    };
    let fitting: Vec<usize> = ranks.iter().copied().filter(|n| case.ranks.contains(n)).collect();
    assert!(!fitting.is_empty(), "{name} is for {:?} ranks; none of {ranks:?} is", case.ranks);
    for n in fitting {
        let start = std::time::Instant::now();
        match in_threads(case, n, Scale::Host, seed, Duration::from_secs(limit)) {
            Ok(()) => println!("{name} on {n} ranks: {:.2?}", start.elapsed()),
            // Past the test harness, which shows what a test prints only when it fails.
            Err(Stop::LeftOut(why)) => {
                let _ = writeln!(std::io::stderr(), "{name} on {n} ranks: left out: {why}");
            }
            Err(Stop::Failed(why)) => panic!("{why}"),
        }
    }
}
