//! Every rank sends one chunk to every rank.

use super::LaunchOptions;
use super::copy::Chunk;
use super::default::Pattern;
use super::prepared::{Prepared, holds};
use super::{Plan, Protocol};
use crate::kernel::{Arguments, HookSet, Supports};
use crate::tune::{Key, Layout, Space, Table};
use crate::{Error, Result, Stream, Transport};
use fusewire_device::schedule::Shape;
use std::fmt;
use std::marker::PhantomData;

/// The schedule, as a type.
#[derive(Debug)]
pub struct AllToAll;

/// An all-to-all with hooks `H` on a transport.
///
/// Chunk `p` of a rank's index space goes to rank `p`; what arrives from rank `p` is chunk `p` of the receiver's. The chunk of a rank
/// to itself goes from `produce` to `consume` without a wire.
pub struct AllToAllLauncher<X: Transport, H> {
    prepared: Prepared<X>,
    hooks: PhantomData<H>,
}

impl<X: Transport, H> fmt::Debug for AllToAllLauncher<X, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AllToAllLauncher of {}", self.prepared)
    }
}

impl<X: Transport, H: HookSet> AllToAllLauncher<X, H> {
    #[doc(hidden)]
    pub fn new(transport: &X) -> Result<Self>
    where
        H: Supports<AllToAll, X>,
    {
        Ok(Self { prepared: Prepared::new::<AllToAll, H>(transport, "all_to_all")?, hooks: PhantomData })
    }

    /// Queues one all-to-all on `stream`. Every rank launches it with the same number of elements.
    ///
    /// # Errors
    /// [`Error::Misuse`] before anything is launched: buffers that overlap, are unaligned or elsewhere, a length that the ranks do not
    /// divide, more blocks than the device holds. Faults of the kernel itself come from [`Stream::synchronize`].
    pub fn launch(&self, stream: &Stream, args: H::Args<'_>) -> Result<()> {
        self.launch_with(stream, args, &LaunchOptions::default())
    }

    /// As [`AllToAllLauncher::launch`], with options, which must be equal on all ranks.
    ///
    /// # Errors
    /// As for [`AllToAllLauncher::launch`], and options that cannot be.
    pub fn launch_with(&self, stream: &Stream, args: H::Args<'_>, options: &LaunchOptions) -> Result<()> {
        let (plan, shape) = self.cut(&args, options)?;
        if plan.elements == 0 {
            self.prepared.note(stream, &plan, &shape);
            return Ok(());
        }
        if plan.protocol == Protocol::Copy {
            let (rank, world) = (self.prepared.rank(), self.prepared.world());
            // The own chunk first, since it goes by another engine; then each peer's, the next neighbour's first.
            let peers = (0..world).map(|step| (rank + step) % world);
            let chunks: Vec<_> = peers.map(|peer| Chunk { peer, from: peer, to: rank }).collect();
            return self.prepared.copy::<H>(stream, &args, &plan, shape, options, &chunks);
        }
        self.prepared.launch(stream, &args, &plan, shape, options)
    }

    /// How a launch with these arguments would be cut.
    ///
    /// # Errors
    /// As for [`AllToAllLauncher::launch_with`].
    pub fn explain(&self, args: &H::Args<'_>, options: &LaunchOptions) -> Result<Plan> {
        Ok(self.cut(args, options)?.0)
    }

    /// The same launcher with a table of the caller's instead of [`Table::current`]. Collective.
    ///
    /// # Errors
    /// [`Error::Peer`] if the ranks' tables differ in what they say of this kernel.
    pub fn with_table(self, table: &Table) -> Result<Self> {
        Ok(Self { prepared: self.prepared.with_table::<H>(table)?, ..self })
    }

    /// The same launcher with other code for its kernels, to compare with: PTX whose entries have the symbols (`cargo fusewire ptx` lists
    /// them) and the parameters of what they stand in for. Kernels of which it has no entry stay.
    ///
    /// # Safety
    /// Each such entry works the transport's memory as the kernel does that it stands in for, and accesses nothing else; it begins with
    /// `griddepcontrol.wait`, since it may be set up while the kernel before it runs; all ranks run the same.
    ///
    /// # Errors
    /// [`Error::Misuse`] on CPU threads, or if there is no such entry; what the driver says of the PTX.
    pub unsafe fn with_ptx(self, text: &str) -> Result<Self> {
        // SAFETY: the caller's contract.
        Ok(Self { prepared: unsafe { self.prepared.with_ptx(text)? }, ..self })
    }

    /// What a tuning table is asked for such a launch.
    ///
    /// # Errors
    /// As for [`AllToAllLauncher::launch_with`].
    pub fn key(&self, args: &H::Args<'_>, options: &LaunchOptions) -> Result<Key> {
        let plan = self.explain(args, options)?;
        let symmetric = self.prepared.symmetric(args.output(), plan.elements, self.prepared.world());
        Ok(self.prepared.key(plan.wire_bytes, Layout::of(options, symmetric)))
    }

    /// What can be tried for such a launch, the default's own protocol first.
    ///
    /// # Errors
    /// As for [`AllToAllLauncher::launch_with`].
    pub fn spaces(&self, args: &H::Args<'_>, options: &LaunchOptions) -> Result<Vec<Space>> {
        let elements = self.elements(args, options)?;
        let symmetric = self.prepared.symmetric(args.output(), elements, self.prepared.world());
        self.prepared.spaces::<H>(elements, options, Pattern::AllToAll, symmetric)
    }

    /// Elements of one peer's chunk.
    fn elements(&self, args: &H::Args<'_>, options: &LaunchOptions) -> Result<usize> {
        let world = self.prepared.world();
        Ok(match (options.elements, args.output().or(args.input()).map(|p| p.len)) {
            (Some(n), _) => n,
            (None, Some(len)) if len.is_multiple_of(world) => len / world,
            (None, Some(len)) => {
                return Err(Error::misuse(format!(
                    "{len} elements cannot be cut into {world} equal chunks, one for each rank"
                )));
            }
            (None, None) => {
                return Err(Error::misuse(
                    "the arguments have neither `output` nor `input`: say `LaunchOptions::elements`",
                ));
            }
        })
    }

    fn cut(&self, args: &H::Args<'_>, options: &LaunchOptions) -> Result<(Plan, Shape)> {
        let elements = self.elements(args, options)?;
        let symmetric = self.prepared.symmetric(args.output(), elements, self.prepared.world());
        let plan = self.prepared.plan::<H>(elements, options, Pattern::AllToAll, symmetric)?;
        holds::<H>(args, elements, self.prepared.world(), self.prepared.world())?;
        let mut shape = self.prepared.shape(&plan, options)?;
        self.prepared.aim(&plan, &mut shape, args)?;
        Ok((plan, shape))
    }
}
