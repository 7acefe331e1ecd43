//! How long to wait, and how much to accept.

use std::time::Duration;

/// Settings of a [`World`](crate::World); ranks need not have the same ones.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// How long joining, and each collective, may take. Default: 60 s.
    pub timeout: Duration,
    /// How often a TCP connection says "still here". Default: 1 s.
    pub heartbeat: Duration,
    /// A rank that is silent for this long on a TCP connection that stays open is taken for dead (a cut cable, a
    /// stopped process). `None`: never, for work under a debugger. Default: 20 s.
    pub silence: Option<Duration>,
    /// The most bytes that one rank may give to one collective or message. Default: 8 MiB. A rank that leaves the others
    /// more than three times as much, or more than 1024 collectives that they have not joined or 16,384 messages that
    /// they have not received, is taken for lost.
    pub max_message: usize,
    /// The launcher's local rank, where it gave one; otherwise it is counted from the ranks' host ids.
    pub local_rank: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(60),
            heartbeat: Duration::from_secs(1),
            silence: Some(Duration::from_secs(20)),
            max_message: 8 << 20,
            local_rank: None,
        }
    }
}

impl Options {
    /// The same with another [`timeout`](Self::timeout).
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The same with another [`silence`](Self::silence) limit; the heartbeat follows, four to a limit.
    #[must_use]
    pub fn with_silence(mut self, silence: Option<Duration>) -> Self {
        self.silence = silence;
        if let Some(limit) = silence {
            self.heartbeat = self.heartbeat.min(limit / 4);
        }
        self
    }

    /// The same with another [`max_message`](Self::max_message).
    #[must_use]
    pub fn with_max_message(mut self, bytes: usize) -> Self {
        self.max_message = bytes;
        self
    }

    /// The same with the launcher's [`local_rank`](Self::local_rank).
    #[must_use]
    pub fn with_local_rank(mut self, local_rank: Option<usize>) -> Self {
        self.local_rank = local_rank;
        self
    }
}
