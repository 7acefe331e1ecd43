//! One chunk to a peer, one from a peer, or either.

use super::asked::another_rank;
use super::{LaunchOptions, Launcher, Plan};
use crate::kernel::{Arguments, HookSet};
use crate::tune::{Key, Space};
use crate::{Error, Result, Stream, Transport};
use fusewire_device::schedule::{NOBODY, SendRecv};

/// Send and receive with hooks `H` on a transport.
pub type SendRecvLauncher<X, H> = Launcher<SendRecv, X, H>;

/// With both a send and a receive; the peers do not matter.
const BOTH: SendRecv = SendRecv { to: 0, from: 0 };

impl<X: Transport, H: HookSet> SendRecvLauncher<X, H> {
    /// Queues a send to `peer`. The length of `input` (or of the output, or of the options) is the number of elements.
    ///
    /// # Errors
    /// As for [`Launcher::launch_as`]; also for a peer that is this rank or no rank.
    pub fn send(&self, stream: &Stream, peer: usize, args: H::Args<'_>) -> Result<()> {
        self.launch_with(stream, Some(peer), None, args, &LaunchOptions::default())
    }

    /// Queues a receive from `peer`. The output's length is the number of elements.
    ///
    /// # Errors
    /// As for [`SendRecvLauncher::send`].
    pub fn recv(&self, stream: &Stream, peer: usize, args: H::Args<'_>) -> Result<()> {
        self.launch_with(stream, None, Some(peer), args, &LaunchOptions::default())
    }

    /// Queues a send to one peer and a receive of as many elements from another (or the same), at once. If the output is symmetric
    /// memory, the peers' outputs must be too, at the same place, and the peers must call this method, not `send` or `recv` alone.
    ///
    /// # Errors
    /// As for [`SendRecvLauncher::send`].
    pub fn sendrecv(
        &self,
        stream: &Stream,
        send_peer: usize,
        recv_peer: usize,
        args: H::Args<'_>,
    ) -> Result<()> {
        self.launch_with(stream, Some(send_peer), Some(recv_peer), args, &LaunchOptions::default())
    }

    /// Any of the three, with options.
    ///
    /// # Errors
    /// As for [`SendRecvLauncher::send`], and options that cannot be.
    pub fn launch_with(
        &self,
        stream: &Stream,
        send_peer: Option<usize>,
        recv_peer: Option<usize>,
        args: H::Args<'_>,
        options: &LaunchOptions,
    ) -> Result<()> {
        let schedule = self.schedule(send_peer, recv_peer)?;
        same_length::<H>(&schedule, &args, options)?;
        self.launch_as(stream, schedule, args, options)
    }

    /// The configuration of a launch with these arguments.
    ///
    /// # Errors
    /// As for [`SendRecvLauncher::launch_with`].
    pub fn explain(
        &self,
        send_peer: Option<usize>,
        recv_peer: Option<usize>,
        args: &H::Args<'_>,
        options: &LaunchOptions,
    ) -> Result<Plan> {
        let schedule = self.schedule(send_peer, recv_peer)?;
        same_length::<H>(&schedule, args, options)?;
        self.explain_as(&schedule, args, options)
    }

    /// The key in a tuning table of a launch with both a send and a receive.
    ///
    /// # Errors
    /// As for [`SendRecvLauncher::launch_with`].
    pub fn key(&self, args: &H::Args<'_>, options: &LaunchOptions) -> Result<Key> {
        self.key_as(&BOTH, args, options)
    }

    /// What can be tried for such a launch, the default's own protocol first.
    ///
    /// # Errors
    /// As for [`SendRecvLauncher::launch_with`].
    pub fn spaces(&self, args: &H::Args<'_>, options: &LaunchOptions) -> Result<Vec<Space>> {
        self.spaces_as(&BOTH, args, options)
    }

    fn schedule(&self, send_peer: Option<usize>, recv_peer: Option<usize>) -> Result<SendRecv> {
        let me = self.member();
        send_peer.iter().chain(&recv_peer).try_for_each(|&peer| another_rank(me, peer))?;
        // Ranks are below the world's size, a `u32`.
        let [to, from] = [send_peer, recv_peer].map(|peer| peer.map_or(NOBODY, |p| p as u32));
        Ok(SendRecv { to, from })
    }
}

/// One launch sends and receives the same length.
pub(crate) fn same_length<H: HookSet>(
    schedule: &SendRecv,
    args: &H::Args<'_>,
    options: &LaunchOptions,
) -> Result<()> {
    let both = schedule.to != NOBODY && schedule.from != NOBODY && options.elements.is_none();
    match (args.input().map(|p| p.len), args.output().map(|p| p.len)) {
        (Some(i), Some(o)) if both && i != o => Err(Error::misuse(format!(
            "{i} elements to send and {o} to receive in one `sendrecv`: make them equal, or launch `send` and `recv` on two transports"
        ))),
        _ => Ok(()),
    }
}
