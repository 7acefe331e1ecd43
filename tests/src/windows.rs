//! Windows under test: making them, and scripts for `script`.

use crate::kernels::windows::{STEP, script, script_mixed};
use crate::run::Ground;
use crate::{CustomOf, Rank, Subject};
use fusewire::peers::Machine;
use fusewire::schedule::CustomLauncher;
use fusewire::{Buffer, Device, HostWindow, LaunchOptions, MultiPeerTransport, Result, WindowConfig};

/// Threads of a block where a test counts them; on the host a block has one.
pub const THREADS: u32 = 96;

/// A window with what it stands on, in the order in which they are dropped.
pub struct Windowed<X> {
    /// The window.
    pub window: HostWindow,
    /// Its data.
    pub data: Buffer<u64>,
    /// The peers.
    pub peers: MultiPeerTransport,
    /// Where kernels run.
    pub ground: Ground<X>,
}

/// A window over every peer, with `words` of data, on a small transport.
///
/// # Errors
/// Those of making it.
pub fn windowed<X: Subject>(rank: &Rank<X>, config: WindowConfig, words: usize) -> Result<Windowed<X>> {
    windowed_over(rank, config, |device| device.shared_buffer(words))
}

/// As [`windowed`], with data of another making.
///
/// # Errors
/// Those of making it.
pub fn windowed_over<X: Subject>(
    rank: &Rank<X>,
    config: WindowConfig,
    data: impl FnOnce(&Device) -> Result<Buffer<u64>>,
) -> Result<Windowed<X>> {
    let ground = rank.small()?;
    let peers = rank.peers(&ground)?;
    let data = data(&ground.device)?;
    let window = HostWindow::new(&peers, config, &data)?;
    window.exchange()?;
    Ok(Windowed { window, data, peers, ground })
}

impl<X: Subject> Rank<X> {
    /// The peers of a rank, exchanged, as this run reaches them.
    ///
    /// # Errors
    /// Those of making them.
    pub fn peers(&self, ground: &Ground<X>) -> Result<MultiPeerTransport> {
        let peers = ground.transport.peers(self.scale)?;
        peers.exchange()?;
        Ok(peers)
    }

    /// The other ranks.
    pub fn others(&self) -> Vec<usize> {
        (0..self.size()).filter(|r| *r != self.me()).collect()
    }

    /// Lanes of a group of a script: 1 for the block, then by number.
    pub fn calls_of(&self, group: u64) -> u64 {
        match group {
            3 => u64::from(self.scale.pick(1, THREADS / 32)),
            4 => u64::from(self.scale.pick(1, THREADS)),
            _ => 1,
        }
    }
}

/// One step of a script.
#[derive(Clone, Copy, Debug, Default)]
pub struct Step([u64; STEP]);

/// A step with operation `op`.
pub fn step(op: u64) -> Step {
    let mut words = [0; STEP];
    words[0] = op;
    Step(words)
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident = $place:literal;)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name(mut self, value: impl TryInto<u64>) -> Self {
            self.0[$place] = value.try_into().unwrap_or(u64::MAX);
            self
        }
    )*};
}

impl Step {
    setters! {
        /// Group: 0 the block, 1 its first warp, 2 its first thread, 3 each warp, 4 each thread.
        by = 1;
        /// Peer.
        peer = 2;
        /// Signal, barrier or counter.
        id = 3;
        /// `set` of a signal; comparison of a wait; whether a put's source is the input, not the window's own data.
        how = 4;
        /// Value.
        value = 5;
        /// First word at the target.
        to = 6;
        /// First word of the source.
        from = 7;
        /// Words.
        count = 8;
        /// Counter of a put.
        counter = 9;
    }
}

/// Comparisons by their number in a script.
pub mod how {
    #![allow(missing_docs)]
    pub const EQ: u64 = 0;
    pub const NE: u64 = 1;
    pub const LT: u64 = 2;
    pub const LE: u64 = 3;
    pub const GT: u64 = 4;
    pub const GE: u64 = 5;
    pub const SET: u64 = 1;
    /// A put's source is the launch's input.
    pub const INPUT: u64 = 1;
}

/// What a script read: by block and step, and the data that it took.
pub struct Seen {
    steps: usize,
    values: Vec<u64>,
    /// Data.
    pub taken: Vec<u64>,
}

impl Seen {
    /// What step `k` of block 0 read.
    pub fn at(&self, k: usize) -> u64 {
        self.of(0, k)
    }

    /// What step `k` of a block read.
    pub fn of(&self, block: usize, k: usize) -> u64 {
        self.values[block * self.steps + k]
    }
}

/// Scripts on a window.
pub struct Player<'w, X: Subject> {
    on: &'w Windowed<X>,
    launcher: Launcher<X>,
}

/// Specialised where every peer's memory can be stored to.
enum Launcher<X: Subject> {
    Mapped(CustomLauncher<X, script::Hooks>),
    Mixed(CustomLauncher<X, script_mixed::Hooks>),
}

impl<'w, X: Subject> Player<'w, X> {
    /// Collective.
    ///
    /// # Errors
    /// Ranks that prepare different kernels.
    pub fn new(on: &'w Windowed<X>) -> Result<Self> {
        let (transport, topology) = (&on.ground.transport, on.window.topology());
        let launcher = match topology.mapped_peers().len() + 1 == transport.world_size() {
            true => Launcher::Mapped(CustomOf::<script::Hooks>::custom(transport)?),
            false => Launcher::Mixed(CustomOf::<script_mixed::Hooks>::custom(transport)?),
        };
        Ok(Player { on, launcher })
    }

    /// One block's steps, once.
    ///
    /// # Errors
    /// Those of the launch and of the kernel.
    pub fn play(&self, steps: &[Step]) -> Result<Seen> {
        self.play_all(&[steps.to_vec()], &[], 1)
    }

    /// Each block's own steps, `rounds` times; all have equally many, or are filled up with nothing. `taken` has as many words as the
    /// window's data.
    ///
    /// # Errors
    /// Those of the launch and of the kernel.
    pub fn play_all(&self, blocks: &[Vec<Step>], input: &[u64], rounds: usize) -> Result<Seen> {
        let Windowed { window, data, ground, .. } = self.on;
        let steps = blocks.iter().map(Vec::len).max().unwrap_or(0);
        let fill = |block: &Vec<Step>| {
            let nothing = std::iter::repeat_n(Step::default(), steps - block.len());
            block.iter().copied().chain(nothing).flat_map(|s| s.0).collect::<Vec<u64>>()
        };
        let words: Vec<u64> = blocks.iter().flat_map(fill).collect();
        let script = ground.device.buffer_from(&words)?;
        let input = ground.device.buffer_from(if input.is_empty() { &[0] } else { input })?;
        // Where there is an adapter, it reads the input too.
        window.register(&input)?;
        let mut seen = ground.device.buffer::<u64>((blocks.len() * steps).max(1))?;
        let mut taken = ground.device.buffer::<u64>(data.len().max(1))?;
        let options = LaunchOptions::default();
        let options = match ground.transport.link().machine() {
            Machine::Host => options,
            Machine::Cuda(_) => options.threads(THREADS),
        };
        macro_rules! launch {
            ($launcher:ident, $kernel:ident) => {{
                let args = $kernel::Launch {
                    window,
                    script: script.view(),
                    input: input.view(),
                    seen: seen.view_mut(),
                    taken: taken.view_mut(),
                    steps,
                    rounds,
                };
                $launcher.launch_with(&ground.stream, blocks.len() as u32, args, &options)?
            }};
        }
        match &self.launcher {
            Launcher::Mapped(launcher) => launch!(launcher, script),
            Launcher::Mixed(launcher) => launch!(launcher, script_mixed),
        }
        let values = seen.read(&ground.stream)?;
        window.deregister(&input)?;
        Ok(Seen { steps, values, taken: taken.read(&ground.stream)? })
    }
}
