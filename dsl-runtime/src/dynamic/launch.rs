//! Launches by values.

use super::values::{FromValues, Value, Values};
use crate::kernel::{HookSet, Supports};
use crate::schedule::{
    AllGather, AllReduce, AllToAll, Broadcast, Custom, CustomLauncher, Gather, LaunchOptions, Launcher,
    Member, Plan, Reduce, ReduceScatter, Scatter, Schedule, SendRecv, a_rank, same_length,
};
use crate::{Error, Result, Stream, Transport};
use fusewire_device::schedule::NOBODY;

/// What a launch is told beside its arguments. What a schedule does not have is not read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The root of a broadcast, scatter, gather or reduce.
    pub root: usize,
    /// Whom `sendrecv` sends to.
    pub to: Option<usize>,
    /// Whom `sendrecv` receives from.
    pub from: Option<usize>,
    /// Blocks of a schedule function; 0 is one.
    pub blocks: u32,
    /// How the launch is cut.
    pub options: LaunchOptions,
}

/// A prepared kernel, whatever its types.
pub trait DynLauncher: Send + Sync {
    /// Queues one launch.
    ///
    /// # Errors
    /// [`Error::Misuse`] for values that are not what the kernel's fields say, naming the field; what launching it by its type gives.
    fn launch(&self, stream: &Stream, values: &[Value<'_>], call: &Call) -> Result<()>;

    /// How a launch with these values would be cut.
    ///
    /// # Errors
    /// As for [`DynLauncher::launch`]; [`Error::Misuse`] for a schedule function, which cuts its chunks itself.
    fn explain(&self, values: &[Value<'_>], call: &Call) -> Result<Plan>;
}

/// A launcher with the name of what it launches.
pub(super) struct Named<L> {
    pub(super) name: &'static str,
    pub(super) launcher: L,
}

/// A launcher's hooks.
pub(super) trait OnTransport {
    type Hooks: HookSet;
}

impl<S, X: Transport, H: HookSet> OnTransport for Launcher<S, X, H> {
    type Hooks = H;
}

impl<L: OnTransport> Named<L> {
    fn args<'v>(&self, values: &[Value<'v>]) -> Result<<L::Hooks as HookSet>::Args<'v>>
    where
        <L::Hooks as HookSet>::Args<'v>: FromValues<'v>,
    {
        let fields = <<L::Hooks as HookSet>::Args<'v> as FromValues<'v>>::FIELDS;
        FromValues::from_values(Values::new(self.name, fields, values)?)
    }
}

impl<S: Shipped, X: Transport, H: Supports<S, X>> DynLauncher for Named<Launcher<S, X, H>>
where
    for<'v> H::Args<'v>: FromValues<'v>,
{
    fn launch(&self, stream: &Stream, values: &[Value<'_>], call: &Call) -> Result<()> {
        let (args, schedule) = (self.args(values)?, S::of(self.launcher.member(), call)?);
        schedule.fits::<H>(&args, &call.options)?;
        self.launcher.launch_as(stream, schedule, args, &call.options)
    }

    fn explain(&self, values: &[Value<'_>], call: &Call) -> Result<Plan> {
        let (args, schedule) = (self.args(values)?, S::of(self.launcher.member(), call)?);
        schedule.fits::<H>(&args, &call.options)?;
        self.launcher.explain_as(&schedule, &args, &call.options)
    }
}

impl<X: Transport, H: Supports<Custom, X>> OnTransport for CustomLauncher<X, H> {
    type Hooks = H;
}

impl<X: Transport, H: Supports<Custom, X>> DynLauncher for Named<CustomLauncher<X, H>>
where
    for<'v> H::Args<'v>: FromValues<'v>,
{
    fn launch(&self, stream: &Stream, values: &[Value<'_>], call: &Call) -> Result<()> {
        self.launcher.launch_with(stream, call.blocks.max(1), self.args(values)?, &call.options)
    }

    fn explain(&self, _: &[Value<'_>], _: &Call) -> Result<Plan> {
        Err(Error::misuse(format!("`{}` is a schedule function, which cuts its chunks itself", self.name)))
    }
}

/// A schedule that a [`Call`] describes.
#[doc(hidden)]
pub trait Shipped: Schedule {
    /// This rank's value.
    ///
    /// # Errors
    /// [`Error::Misuse`] for a rank that there is not.
    fn of(me: Member, call: &Call) -> Result<Self>;

    /// Refuses arguments that are not the schedule's.
    ///
    /// # Errors
    /// [`Error::Misuse`].
    fn fits<H: HookSet>(&self, _: &H::Args<'_>, _: &LaunchOptions) -> Result<()> {
        Ok(())
    }
}

macro_rules! alike {
    ($($schedule:ident)*) => {$(
        impl Shipped for $schedule {
            fn of(_: Member, _: &Call) -> Result<Self> {
                Ok($schedule)
            }
        }
    )*};
}
alike! { AllToAll AllGather ReduceScatter AllReduce }

macro_rules! rooted {
    ($($schedule:ident)*) => {$(
        impl Shipped for $schedule {
            fn of(me: Member, call: &Call) -> Result<Self> {
                Ok($schedule { root: a_rank(me, call.root)? })
            }
        }
    )*};
}
rooted! { Broadcast Scatter Gather Reduce }

impl Shipped for SendRecv {
    fn of(_: Member, call: &Call) -> Result<Self> {
        if (call.to, call.from) == (None, None) {
            return Err(Error::misuse("neither a peer to send to nor one to receive from"));
        }
        // A rank that does not fit is no rank, which the launch says.
        let peer =
            |peer: Option<usize>| peer.map_or(NOBODY, |peer| u32::try_from(peer).unwrap_or(NOBODY - 1));
        Ok(SendRecv { to: peer(call.to), from: peer(call.from) })
    }

    fn fits<H: HookSet>(&self, args: &H::Args<'_>, options: &LaunchOptions) -> Result<()> {
        same_length::<H>(self, args, options)
    }
}
