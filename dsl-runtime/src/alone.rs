//! Kernels in a world of one rank, over slices: for tests of what hooks compute.
//!
//! ```
//! use fusewire::prelude::*;
//!
//! #[comm_kernel(transports(Shm), schedules(all_to_all))]
//! mod scale_add {
//!     pub struct Args<'a> {
//!         pub input: &'a [f32],
//!         pub output: Out<'a, f32>,
//!         pub scale: f32,
//!     }
//!     pub fn produce(ctx: &Produce, args: &Args) -> f32 {
//!         args.scale * args.input[ctx.index()]
//!     }
//!     pub fn consume(ctx: &Consume, args: &Args, value: f32) {
//!         args.output.at(ctx).add(value);
//!     }
//! }
//!
//! # fn main() -> fusewire::Result<()> {
//! let mut output = [1.0, 1.0, 0.5];
//! fusewire::alone::run(scale_add::all_to_all, |slices| scale_add::Launch {
//!     input: slices.read(&[1.0, 2.0, 3.0]),
//!     output: slices.write(&mut output),
//!     scale: 2.0,
//! })?;
//! assert_eq!(output, [3.0, 5.0, 6.5]);
//! # Ok(()) }
//! ```
//!
//! The one rank is its own peer: `consume` takes the value that `produce` returns for the same element, in the wire type. The kernel is
//! the one for `Shm`, on CPU threads, so the attribute must name `Shm`. To test several ranks, or `sendrecv`, which needs two, use
//! [`World::threads`](crate::World::threads).

use crate::buffer::Memory;
use crate::kernel::HookSet;
use crate::schedule::{
    AllGather, AllReduce, AllToAll, Broadcast, CustomLauncher, Gather, Launcher, Reduce, ReduceScatter,
    Scatter, Schedule,
};
use crate::{Buffer, Device, Error, LaunchOptions, Options, Result, Shm, Stream, View, ViewMut, World};
use fusewire_device::element::Element;
use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Runs a kernel in a world of one rank and waits for it. `prepare` is the module's function for a schedule, or a schedule function's `on`;
/// `args` makes its `Launch` of slices.
///
/// # Errors
/// Those of a launch, and the kernel's fault: a hook that panics names file and line, and what it says.
pub fn run<'s, L: Alone>(
    prepare: impl FnOnce(&Shm) -> Result<L> + Send,
    args: impl for<'a> FnOnce(&'a Slices<'s>) -> <L::Hooks as HookSet>::Args<'a> + Send,
) -> Result<()> {
    run_with(prepare, &LaunchOptions::default(), args)
}

/// As [`run`], with options: the shape of `layout(transposed)`, the elements where there is neither `input` nor `output`, the blocks of a schedule
/// function (by default one).
///
/// # Errors
/// As for [`run`], and options that cannot be.
pub fn run_with<'s, L: Alone>(
    prepare: impl FnOnce(&Shm) -> Result<L> + Send,
    options: &LaunchOptions,
    args: impl for<'a> FnOnce(&'a Slices<'s>) -> <L::Hooks as HookSet>::Args<'a> + Send,
) -> Result<()> {
    let once = Mutex::new(Some((prepare, args)));
    let rank = |world: World| {
        let Some((prepare, args)) = once.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return Ok(());
        };
        let shm = Shm::rendezvous(&world, Options::per_peer(64 << 10))?;
        let (launcher, stream) = (prepare(&shm)?, Device::of(&shm).stream()?);
        let slices = Slices::default();
        let args = args(&slices);
        if let Some(error) = slices.failed.take() {
            return Err(error);
        }
        launcher.launch_alone(&stream, args, options)?;
        stream.synchronize()?;
        slices.written.take().into_iter().try_for_each(|copy| copy(&stream))
    };
    World::threads(1, rank)?.into_iter().collect()
}

/// Copies of slices, which the kernel works on.
#[derive(Default)]
pub struct Slices<'s> {
    kept: Kept,
    written: RefCell<Vec<CopyBack<'s>>>,
    failed: RefCell<Option<Error>>,
}

type CopyBack<'s> = Box<dyn FnOnce(&Stream) -> Result<()> + 's>;

/// A list that grows while its parts are lent.
#[derive(Default)]
struct Kept(OnceCell<Box<(Arc<Memory>, Kept)>>);

impl Kept {
    fn keep(&self, memory: &Arc<Memory>) -> &Arc<Memory> {
        let mut end = self;
        while let Some(node) = end.0.get() {
            end = &node.1;
        }
        &end.0.get_or_init(|| Box::new((Arc::clone(memory), Kept::default()))).0
    }
}

impl<'s> Slices<'s> {
    /// For a `&[T]` of the hooks.
    pub fn read<T: Element>(&self, values: &[T]) -> View<'_, T> {
        let buffer = self.buffer(values);
        View::of(self.kept.keep(buffer.memory()), buffer.len())
    }

    /// For an `Out<T>` or `Accumulate<T>` of the hooks: they find what is in `values`, which has what they leave once the kernel has ended
    /// without a fault.
    pub fn write<T: Element>(&self, values: &'s mut [T]) -> ViewMut<'_, T> {
        let buffer = self.buffer(values);
        let view = ViewMut::of(self.kept.keep(buffer.memory()), buffer.len());
        self.written.borrow_mut().push(Box::new(move |stream| buffer.read_into(stream, values)));
        view
    }

    fn buffer<T: Element>(&self, values: &[T]) -> Buffer<T> {
        Device::host().buffer_from(values).unwrap_or_else(|error| {
            // Nothing is launched then.
            *self.failed.borrow_mut() = Some(error);
            Buffer::from_vec(Vec::new())
        })
    }
}

impl fmt::Debug for Slices<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slices, of which {} are written", self.written.borrow().len())
    }
}

/// A schedule that one rank alone can run.
#[diagnostic::on_unimplemented(
    message = "one rank alone cannot run `{Self}`",
    label = "needs a peer",
    note = "name `all_to_all` beside it in the attribute and run that, or launch it in `World::threads(2, ..)`"
)]
pub trait OfOne: Schedule {
    /// What rank 0 of one does.
    const ONE: Self;
}

macro_rules! of_one { ($($schedule:ident $({ $root:ident })?)*) => {$(
    impl OfOne for $schedule {
        const ONE: Self = $schedule $({ $root: 0 })?;
    }
)*} }
of_one! { AllToAll AllGather AllReduce ReduceScatter Broadcast { root } Scatter { root } Gather { root } Reduce { root } }

/// A launcher over `Shm` that one rank alone can launch.
pub trait Alone {
    /// What it launches.
    type Hooks: HookSet;

    /// Queues it on `stream`.
    ///
    /// # Errors
    /// Those of the launcher.
    fn launch_alone(
        &self,
        stream: &Stream,
        args: <Self::Hooks as HookSet>::Args<'_>,
        options: &LaunchOptions,
    ) -> Result<()>;
}

impl<S: OfOne, H: HookSet> Alone for Launcher<S, Shm, H> {
    type Hooks = H;

    fn launch_alone(&self, stream: &Stream, args: H::Args<'_>, options: &LaunchOptions) -> Result<()> {
        self.launch_as(stream, S::ONE, args, options)
    }
}

impl<H: HookSet> Alone for CustomLauncher<Shm, H> {
    type Hooks = H;

    fn launch_alone(&self, stream: &Stream, args: H::Args<'_>, options: &LaunchOptions) -> Result<()> {
        self.launch_with(stream, options.blocks.unwrap_or(1), args, options)
    }
}
