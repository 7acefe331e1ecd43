//! What a rendezvous is asked for; equal on all ranks.

use super::{Error, Result};
use fusewire_device::mapped::Layout;
use std::ffi::OsStr;
use std::time::Duration;

/// Geometry and deadlines of a transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Staging for each peer and direction, in bytes; cut into channels.
    pub per_peer_bytes: usize,
    /// Channels to each peer: the most blocks that can work for one peer and direction at once.
    pub channels: u32,
    /// Signals from each peer for custom schedules.
    pub signals: u32,
    /// Symmetric heap of each rank in bytes, for raw `put` and `get`.
    pub heap_bytes: usize,
    /// Channels with buffers for LL128: 816 KiB each from each peer. At most this many blocks can send small
    /// chunks at once, and one call carries at most 191 KiB for each; 0 leaves that protocol out.
    pub ll128_channels: u32,
    /// Channels with buffers for LL: 257 KiB each from each peer, of which one call carries 32 KiB; 0 leaves that protocol out.
    pub ll_channels: u32,
    /// How long one wait in a kernel may last.
    pub deadline: Duration,
    /// How long a host thread may wait for kernels before a warning, by [`on_warning`](super::on_warning); ranks may set different times. `None` is
    /// never. A warning stops nothing; the deadline does.
    pub warn: Option<Duration>,
}

impl Options {
    /// Options with `per_peer_bytes` of staging and defaults for the rest.
    pub fn per_peer(bytes: usize) -> Self {
        // Of 512 KiB as by default, as many as that has; of fewer bytes half as many, and of 1 KiB at least.
        let channels = (bytes >> 19).clamp((bytes / 1024).clamp(1, 32), 64) as u32;
        Options { per_peer_bytes: bytes, channels, ..Self::default() }
    }

    /// Sets the number of channels.
    #[must_use]
    pub fn channels(mut self, channels: u32) -> Self {
        self.channels = channels;
        self
    }

    /// Sets the number of user signals from each peer.
    #[must_use]
    pub fn signals(mut self, signals: u32) -> Self {
        self.signals = signals;
        self
    }

    /// Sets the size of the symmetric heap.
    #[must_use]
    pub fn heap(mut self, bytes: usize) -> Self {
        self.heap_bytes = bytes;
        self
    }

    /// Sets the number of channels with line buffers.
    #[must_use]
    pub fn ll128_channels(mut self, channels: u32) -> Self {
        self.ll128_channels = channels;
        self
    }

    /// Sets the number of channels with buffers for LL.
    #[must_use]
    pub fn ll_channels(mut self, channels: u32) -> Self {
        self.ll_channels = channels;
        self
    }

    /// Sets the deadline of waits in kernels.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets how long a thread may wait for kernels before a warning.
    #[must_use]
    pub fn warn(mut self, after: Duration) -> Self {
        self.warn = Some(after);
        self
    }

    /// The layout of every rank's region.
    ///
    /// # Errors
    /// If the staging is too small for the channels, a number is zero or too large, or `FUSEWIRE_DEADLINE_MS` or `FUSEWIRE_WARN_MS` is no number.
    pub fn layout(&self, world: usize) -> Result<Layout> {
        let misuse = |what: String| Err(Error::Misuse { what });
        if self.channels == 0 || self.channels > 4096 {
            return misuse(format!("{} channels; a transport has 1 to 4096", self.channels));
        }
        if self.ll128_channels > 4096 {
            return misuse(format!("{} LL128 channels; a transport has at most 4096", self.ll128_channels));
        }
        if self.ll_channels > 4096 {
            return misuse(format!("{} LL channels; a transport has at most 4096", self.ll_channels));
        }
        if self.signals > 4096 {
            return misuse(format!("{} signals from each peer; a transport has at most 4096", self.signals));
        }
        if self.per_peer_bytes.max(self.heap_bytes) > 1 << 40 {
            return misuse(format!(
                "{} bytes of staging for each peer and {} of heap; a transport has at most 1 TiB of each",
                self.per_peer_bytes, self.heap_bytes
            ));
        }
        let per_channel = self.per_peer_bytes / self.channels as usize;
        if per_channel < 1024 {
            return misuse(format!(
                "{} bytes per peer are {per_channel} for each of {} channels; a channel needs at least 1024. Give more bytes or fewer channels",
                self.per_peer_bytes, self.channels
            ));
        }
        for name in [DEADLINE, WARN] {
            if let Some(text) = std::env::var_os(name)
                && parsed(&text).is_none()
            {
                return misuse(format!("{name}={}: it should be a number of milliseconds", text.display()));
            }
        }
        if self.deadline.is_zero() || self.deadline > Duration::from_secs(24 * 3600) {
            return misuse(format!("a deadline of {:?}; waits last between 1 ns and a day", self.deadline));
        }
        if self.warn.is_some_and(|warn| warn.is_zero()) {
            return misuse("a warning after 0 s; it comes after 1 ns at least, or never (`None`)".into());
        }
        let Ok(world) = u32::try_from(world) else { return misuse(format!("a world of {world} ranks")) };
        Ok(Layout {
            world,
            channels: self.channels,
            signals: self.signals,
            ll128_channels: self.ll128_channels,
            ll_channels: self.ll_channels,
            reserved: 0,
            // Rings are addressed by 32 bits.
            window: 1 << per_channel.ilog2().min(31),
            heap: (self.heap_bytes as u64).next_multiple_of(128),
        })
    }
}

/// Names the default deadline, in milliseconds.
const DEADLINE: &str = "FUSEWIRE_DEADLINE_MS";
/// Names the default time until a warning, in milliseconds; 0 is never.
const WARN: &str = "FUSEWIRE_WARN_MS";

fn parsed(milliseconds: &OsStr) -> Option<u64> {
    milliseconds.to_str()?.parse().ok()
}

impl Default for Options {
    /// 64 channels of 512 KiB to each peer, 8 signals, 1 MiB of heap,
    /// 80 LL128 channels (64 MiB to each peer) and 64 LL channels (16 MiB); waits of 10 s, or `FUSEWIRE_DEADLINE_MS`;
    /// no warning, or after `FUSEWIRE_WARN_MS`.
    fn default() -> Self {
        // What is no number is told when a layout is asked for: a default cannot fail.
        let ms = |name| std::env::var_os(name).and_then(|text| parsed(&text));
        Options {
            per_peer_bytes: 32 << 20,
            channels: 64,
            signals: 8,
            heap_bytes: 1 << 20,
            ll128_channels: 80,
            ll_channels: 64,
            deadline: Duration::from_millis(ms(DEADLINE).unwrap_or(10_000)),
            warn: ms(WARN).filter(|ms| *ms > 0).map(Duration::from_millis),
        }
    }
}

impl From<usize> for Options {
    fn from(per_peer_bytes: usize) -> Self {
        Options::per_peer(per_peer_bytes)
    }
}
