//! One chunk to a peer, one from a peer, or either.

use super::copy::Chunk;
use super::default::Pattern;
use super::prepared::{Prepared, holds};
use super::{LaunchOptions, Plan, Protocol};
use crate::kernel::{Arguments, HookSet, Supports};
use crate::tune::{Key, Layout, Space, Table};
use crate::{Error, Result, Stream, Transport};
use fusewire_device::schedule::{NOBODY, Shape};
use std::fmt;
use std::marker::PhantomData;

/// The schedule, as a type.
#[derive(Debug)]
pub struct SendRecv;

/// Send and receive with hooks `H` on a transport.
pub struct SendRecvLauncher<X: Transport, H> {
    prepared: Prepared<X>,
    hooks: PhantomData<H>,
}

impl<X: Transport, H> fmt::Debug for SendRecvLauncher<X, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendRecvLauncher of {}", self.prepared)
    }
}

impl<X: Transport, H: HookSet> SendRecvLauncher<X, H> {
    #[doc(hidden)]
    pub fn new(transport: &X) -> Result<Self>
    where
        H: Supports<SendRecv, X>,
    {
        Ok(Self { prepared: Prepared::new::<SendRecv, H>(transport, "sendrecv")?, hooks: PhantomData })
    }

    /// Queues a send to `peer`: `input` (or the output's length, or the options') says how many elements.
    ///
    /// # Errors
    /// [`Error::Misuse`] before anything is launched, as for
    /// [`AllToAllLauncher::launch`](super::AllToAllLauncher::launch); also for a peer that is this rank or no rank.
    pub fn send(&self, stream: &Stream, peer: usize, args: H::Args<'_>) -> Result<()> {
        self.launch_with(stream, Some(peer), None, args, &LaunchOptions::default())
    }

    /// Queues a receive from `peer`: the output's length says how many elements.
    ///
    /// # Errors
    /// As for [`SendRecvLauncher::send`].
    pub fn recv(&self, stream: &Stream, peer: usize, args: H::Args<'_>) -> Result<()> {
        self.launch_with(stream, None, Some(peer), args, &LaunchOptions::default())
    }

    /// Queues a send to one peer and a receive of as many elements from another (or the same), at once. Where the output is symmetric
    /// memory, it must be so on the peers too, at the same place, and they must call this method, not `send` or `recv` alone.
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

    /// How a launch with these arguments would be cut.
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
        Ok(self.cut(send_peer.is_some(), recv_peer.is_some(), args, options)?.0)
    }

    /// As [`AllToAllLauncher::with_table`](super::AllToAllLauncher::with_table).
    ///
    /// # Errors
    /// As there.
    pub fn with_table(self, table: &Table) -> Result<Self> {
        Ok(Self { prepared: self.prepared.with_table::<H>(table)?, ..self })
    }

    /// What a tuning table is asked for a launch with both a send and a receive.
    ///
    /// # Errors
    /// As for [`SendRecvLauncher::launch_with`].
    pub fn key(&self, args: &H::Args<'_>, options: &LaunchOptions) -> Result<Key> {
        let (plan, _) = self.cut(true, true, args, options)?;
        let symmetric = self.prepared.symmetric(args.output(), plan.elements, 1);
        Ok(self.prepared.key(plan.wire_bytes, Layout::of(options, symmetric)))
    }

    /// What can be tried for such a launch, the default's own protocol first.
    ///
    /// # Errors
    /// As for [`SendRecvLauncher::launch_with`].
    pub fn spaces(&self, args: &H::Args<'_>, options: &LaunchOptions) -> Result<Vec<Space>> {
        let elements = self.cut(true, true, args, options)?.0.elements;
        let symmetric = self.prepared.symmetric(args.output(), elements, 1);
        self.prepared.spaces::<H>(elements, options, Pattern::Ends(2), symmetric)
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
        for peer in [send_peer, recv_peer].into_iter().flatten() {
            if peer >= self.prepared.world() {
                return Err(Error::misuse(format!(
                    "peer {peer} in a world of {} ranks",
                    self.prepared.world()
                )));
            }
            if peer == self.prepared.rank() {
                return Err(Error::misuse(format!(
                    "rank {peer} cannot send to itself; `all_to_all` copies a rank's own chunk"
                )));
            }
        }
        let (plan, mut shape) = self.cut(send_peer.is_some(), recv_peer.is_some(), &args, options)?;
        shape.send_peer = send_peer.map_or(NOBODY, |p| p as u32);
        shape.recv_peer = recv_peer.map_or(NOBODY, |p| p as u32);
        if plan.elements == 0 || plan.blocks == 0 {
            self.prepared.note(stream, &plan, &shape);
            return Ok(());
        }
        if let (Protocol::Copy, Some(peer)) = (plan.protocol, send_peer) {
            let chunk = Chunk { peer, from: 0, to: 0 };
            return self.prepared.copy::<H>(stream, &args, &plan, shape, options, &[chunk]);
        }
        self.prepared.launch(stream, &args, &plan, shape, options)
    }

    fn cut(
        &self,
        sends: bool,
        receives: bool,
        args: &H::Args<'_>,
        options: &LaunchOptions,
    ) -> Result<(Plan, Shape)> {
        let (input, output) = (args.input().map(|p| p.len), args.output().map(|p| p.len));
        let elements = match (options.elements, sends, receives) {
            (Some(n), ..) => Some(n),
            (None, true, true) => match (input, output) {
                (Some(i), Some(o)) if i != o => {
                    return Err(Error::misuse(format!(
                        "{i} elements to send and {o} to receive in one `sendrecv`: make them equal, or launch `send` and `recv` on two transports"
                    )));
                }
                _ => output.or(input),
            },
            (None, true, false) => input.or(output),
            (None, false, _) => output.or(input),
        };
        let Some(elements) = elements else {
            return Err(Error::misuse(
                "the arguments have neither `output` nor `input`: say `LaunchOptions::elements`",
            ));
        };
        let ends = u32::from(sends) + u32::from(receives);
        // A rank that only sends need not have an output, so that both ends of a wire agree only where every rank has both.
        let symmetric = ends == 2 && self.prepared.symmetric(args.output(), elements, 1);
        let plan = self.prepared.plan::<H>(elements, options, Pattern::Ends(ends), symmetric)?;
        holds::<H>(args, elements, usize::from(sends), usize::from(receives))?;
        let mut shape = self.prepared.shape(&plan, options)?;
        self.prepared.aim(&plan, &mut shape, args)?;
        Ok((plan, shape))
    }
}
