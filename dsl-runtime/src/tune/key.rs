//! What a decision depends on, and what is decided.

use crate::schedule::{LaunchOptions, Plan, Protocol};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// In a row of a [`Table`](super::Table): every element type, or every variant, that has no row of its own.
pub const ANY: &str = "*";

/// In a row of a [`Table`](super::Table): every hook module that has neither `produce` nor `consume` and no row of its own.
pub const COPIES: &str = "copies";

/// The smallest bucket: below it times do not depend on the size.
const LEAST_BYTES: usize = 256;

/// What the best way to cut a launch depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// Ranks.
    pub world: usize,
    /// The transport's name, such as `Nvl`.
    pub transport: String,
    /// The GPU's name as the driver gives it, or `host`.
    pub device: String,
    /// The schedule's name, such as `all_to_all`.
    pub schedule: String,
    /// Path of the hook module; in a row also [`COPIES`] or [`ANY`].
    pub variant: String,
    /// Wire element type; in a row also [`ANY`].
    pub element: String,
    /// How the data lies.
    pub layout: Layout,
    /// Wire bytes of one peer's chunk, as a [`bucket`].
    pub bytes: usize,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Key { world, transport, device, schedule, variant, element, layout, bytes } = self;
        write!(
            f,
            "{schedule} of {variant} ({element}, {layout}), {bytes} bytes to each peer, {world} ranks on {transport} ({device})"
        )
    }
}

/// How the data of a launch lies, as far as it may change what is best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
#[non_exhaustive]
pub struct Layout {
    /// The launch gives chunks rows and columns.
    pub shaped: bool,
    /// The output is symmetric memory: [`Buffer::symmetric`](crate::Buffer::symmetric).
    pub symmetric: bool,
}

impl Layout {
    pub(crate) fn of(options: &LaunchOptions, symmetric: bool) -> Self {
        Layout { shaped: options.shape.is_some(), symmetric }
    }

    /// Every layout, with the words for it.
    const ALL: [(&str, Layout); 4] = [
        ("flat", Layout { shaped: false, symmetric: false }),
        ("shaped", Layout { shaped: true, symmetric: false }),
        ("flat symmetric", Layout { shaped: false, symmetric: true }),
        ("shaped symmetric", Layout { shaped: true, symmetric: true }),
    ];
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Self::ALL.iter().filter(|(_, layout)| layout == self).try_for_each(|(words, _)| f.write_str(words))
    }
}

impl FromStr for Layout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|(words, _)| *words == text);
        known.map(|(_, layout)| *layout).ok_or_else(|| {
            format!(
                "`{text}` is no layout; there are `flat` and `shaped`, and each with `symmetric` behind it"
            )
        })
    }
}

impl From<Layout> for String {
    fn from(layout: Layout) -> String {
        layout.to_string()
    }
}

impl TryFrom<String> for Layout {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// The bucket of so many wire bytes: the next power of two, at least 256.
pub fn bucket(wire_bytes: usize) -> usize {
    wire_bytes.max(LEAST_BYTES).checked_next_power_of_two().unwrap_or(1 << (usize::BITS - 1))
}

/// How a launch is cut. Fields are as in [`LaunchOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Config {
    /// How bytes travel.
    pub protocol: Protocol,
    /// Channels to each peer.
    pub channels: u32,
    /// Blocks for the rank's own chunk; with the channels, they make the grid.
    pub self_copy: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Simple: bytes that travel together; a channel's staging divided by it is the number of slots.
    pub chunk: Option<usize>,
    /// Packs in flight per thread: which variant of the kernel.
    pub unroll: u32,
}

impl Config {
    /// Options that say all of it; fields that have nothing to do with cutting are taken from `options`.
    pub fn options(&self, options: &LaunchOptions) -> LaunchOptions {
        LaunchOptions {
            protocol: Some(self.protocol),
            channels: Some(self.channels),
            self_copy: Some(self.self_copy),
            threads: Some(self.threads),
            chunk: self.chunk,
            unroll: Some(self.unroll),
            ..options.clone()
        }
    }

    /// Fills what `options` leaves open. `None` if that is nothing, or if what they say is of another protocol than this.
    pub(crate) fn fill(&self, options: &LaunchOptions) -> Option<LaunchOptions> {
        // As in a plan: chunks and variants are of staging unless another protocol is asked for.
        let staging = options.chunk.is_some() || options.unroll.is_some();
        let asked = options.protocol.or(staging.then_some(Protocol::Simple));
        if asked.is_some_and(|p| p != self.protocol) {
            return None;
        }
        let filled = LaunchOptions {
            protocol: Some(self.protocol),
            channels: options.channels.or(Some(self.channels)),
            self_copy: options.self_copy.or(Some(self.self_copy)),
            threads: options.threads.or(Some(self.threads)),
            chunk: options.chunk.or(self.chunk),
            unroll: options.unroll.or(Some(self.unroll)),
            ..options.clone()
        };
        (filled != *options).then_some(filled)
    }
}

impl From<&Plan> for Config {
    fn from(plan: &Plan) -> Self {
        Config {
            protocol: plan.protocol,
            channels: plan.channels,
            self_copy: plan.self_copy,
            threads: plan.threads,
            chunk: matches!(
                plan.protocol,
                Protocol::Simple | Protocol::TwoShot | Protocol::Hierarchical | Protocol::Bulk
            )
            .then_some(plan.chunk as usize),
            unroll: plan.unroll,
        }
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Config { protocol, channels, self_copy, threads, chunk, unroll } = self;
        write!(
            f,
            "{protocol:?}, {channels} channels and {self_copy} blocks for the self copy, {threads} threads, {unroll} packs in flight"
        )?;
        chunk.map_or(Ok(()), |chunk| write!(f, ", chunks of {chunk} bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: Config =
        Config { protocol: Protocol::Ll128, channels: 8, self_copy: 0, threads: 128, chunk: None, unroll: 1 };
    const STAGED: Config = Config {
        protocol: Protocol::Simple,
        channels: 24,
        self_copy: 2,
        threads: 512,
        chunk: Some(4096),
        unroll: 4,
    };

    #[test]
    fn a_bucket_holds_its_bytes_and_half_of_it_does_not() {
        for (bytes, want) in [(0, 256), (1, 256), (256, 256), (257, 512), (65536, 65536), (65537, 131_072)] {
            assert_eq!(bucket(bytes), want, "{bytes}");
        }
        assert_eq!(bucket(usize::MAX), 1 << (usize::BITS - 1));
    }

    #[test]
    fn what_the_caller_says_stands() {
        let none = LaunchOptions::default();
        assert_eq!(STAGED.fill(&none), Some(STAGED.options(&none)));
        assert_eq!(LINES.fill(&none), Some(LINES.options(&none)));
        let filled = STAGED.fill(&none.clone().threads(64)).unwrap();
        assert_eq!((filled.threads, filled.channels, filled.chunk), (Some(64), Some(24), Some(4096)));
        // Nothing of a table's lines goes into a launch that asks for staging, in whatever words.
        assert_eq!(LINES.fill(&none.clone().protocol(Protocol::Simple)), None);
        assert_eq!(LINES.fill(&none.clone().unroll(4)), None);
        assert_eq!(LINES.fill(&none.clone().chunk(4096)), None);
        assert_eq!(STAGED.fill(&none.clone().protocol(Protocol::Ll128)), None);
        // Nothing is left to fill.
        assert_eq!(STAGED.fill(&STAGED.options(&none)), None);
    }

    #[test]
    fn layouts_are_words() {
        for (words, layout) in Layout::ALL {
            assert_eq!((layout.to_string().as_str(), words.parse()), (words, Ok(layout)));
        }
        assert!("round".parse::<Layout>().unwrap_err().contains("`flat`"));
    }
}
