//! What `#[comm_kernel]` generates code against. Users meet these as bounds.

use crate::buffer::Memory;
use crate::uses::{Access, Claims};
use crate::{Device, Error, Result, Stream, Transport, View, ViewMut};
use fusewire_device::args::{Crosses, RawSlice};
use fusewire_device::element::Element;
use fusewire_device::hooks::Hooks;
use fusewire_device::launch::{Grid, Params, Unpack};
use fusewire_device::ops::Ops;
use fusewire_device::protocol::{Protocol, exchange};
use fusewire_device::schedule::Schedule;
use fusewire_device::wait::Flow;
use fusewire_transports::host::{Link, Symmetric};
use fusewire_transports::peers::PeersRef;
use std::sync::Arc;

/// PTX for one architecture.
#[derive(Debug)]
pub struct Image {
    /// The oldest architecture it runs on, such as `sm_80`.
    pub arch: &'static str,
    /// The PTX.
    pub text: &'static str,
}

/// One block of a kernel on a CPU thread. The pointer is to the `Params` of the entry's own types.
pub type HostEntry = unsafe fn(Grid, *const u8) -> Flow;

/// A compiled kernel for one schedule, transport and variant.
#[derive(Debug)]
pub struct Entry {
    /// Symbol in the images.
    pub symbol: &'static str,
    /// How bytes travel.
    pub protocol: crate::schedule::Protocol,
    /// Packs in flight: which variant it is.
    pub unroll: u32,
    /// PTX, empty for transports of the host.
    pub images: &'static [Image],
    /// The code for CPU threads, for transports of the host; `None` also for protocols that this program does not have there.
    pub host: Option<HostEntry>,
}

/// A hook module or schedule function, for one element type.
///
/// # Safety
/// What is said of the hooks is so of the entries that [`Supports`] names: they take [`Arguments::Raw`] of `Args`, send and receive
/// `Wire`, and are left out where the constants say so. Launches check lengths, and copy whole chunks, by nothing else.
pub unsafe trait HookSet: Sized + Send + Sync + 'static {
    /// Arguments of a launch.
    type Args<'a>: Arguments;
    /// What crosses the wire.
    type Wire: Element;
    /// Path of the module.
    const NAME: &'static str;
    /// File and line of it.
    const FILE: &'static str;
    /// What a generic module was compiled for, `f32`, `8` or `f32, 8`; else empty.
    const ELEMENT: &'static str;
    /// Differs when hooks or options do.
    const FINGERPRINT: u64;
    /// Whether `produce` is called by tiles: `layout(transposed)`.
    const TRANSPOSED: bool = false;
    /// Whether hooks read what stands at the transposed index, and so need the shape of a chunk.
    const ASKS_SHAPE: bool = false;
    /// The schedules of one's own whose blocks send or receive tiles on the channels of their indices.
    const BY_INDEX: &'static [&'static str] = &[];
    /// The fold that the module names, as `reduce(..)` has it; empty if it names none.
    const FOLD: &'static str = "";
    /// What a fold comes to, as `consume` gets it; empty if nothing is folded.
    const RESULT: &'static str = "";
    /// Packs of what is folded for one of the wire, if it can be passed on; else 0.
    const RELAYS: usize = 0;
    /// Packs of accumulators for one of the wire, if what some ranks contribute can be folded ahead of the rest; else 0.
    const PARTIALS: usize = 0;
    /// Whether what arrives may be stored where `produce` reads: an `InOut`.
    const IN_PLACE: bool = false;
    /// Elements of a row, where hooks work by rows: `grain = row(N)`. Else 0.
    const COLS: usize = 0;
    /// Packs of a row on the wire.
    const ROW_PACKS: usize = 0;
    /// `produce` is not the user's: what is sent is `input`.
    const SENDS_AS_IS: bool;
    /// `consume` is not the user's: what arrives is stored to `output`.
    const KEEPS_AS_IS: bool;
    /// Neither is: elements arrive as they were sent.
    const COPIES: bool = Self::SENDS_AS_IS && Self::KEEPS_AS_IS;
}

/// Compiled for schedule `S` on transport `X`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` was not compiled for `{S}` on transport `{X}`",
    label = "there is no kernel for this",
    note = "name what it is to be compiled for in the attribute: `#[comm_kernel(transports(..), schedules(..), elements(..), values(..))]`"
)]
///
/// # Safety
/// Each entry, on the host and in its images, is the kernel of these hooks for that schedule, protocol, unroll and the operations of `X`:
/// a launch gives it `Params<X::Ops, S, Raw>` and a grid of that schedule.
pub unsafe trait Supports<S, X: Transport>: HookSet {
    /// The variants, the default first.
    const ENTRIES: &'static [Entry];
}

/// Arguments of a launch: generated as `Launch`.
///
/// # Safety
/// Every address in what `bind` returns came from its binder; slices that kernels write came from [`Binder::write`]. `input` and `output`
/// are the slices that the hooks read and write at those names.
pub unsafe trait Arguments {
    /// What crosses to the device.
    type Raw: Copy + Send + Sync + 'static;
    /// Checks every buffer and takes its address.
    ///
    /// # Errors
    /// [`Error::Misuse`] naming the field.
    fn bind(&self, binder: &mut Binder) -> Result<Self::Raw>;
    /// The field `input`, if there is one.
    fn input(&self) -> Option<Place<'_>>;
    /// The output, if there is one.
    fn output(&self) -> Option<Place<'_>>;
}

/// Where an argument stands.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Elements.
    pub len: usize,
    /// Address of the first.
    pub address: u64,
    /// The symmetric memory that it is in.
    pub symmetric: Option<&'a Arc<Symmetric>>,
}

struct Bound {
    name: &'static str,
    from: u64,
    to: u64,
    written: bool,
    memory: Arc<Memory>,
}

/// Checks the buffers of one launch.
pub struct Binder {
    bound: Vec<Bound>,
    held: Vec<Held>,
    link: Arc<Link>,
    device: Device,
    /// The first buffer that does not begin at a multiple of 16 bytes, and how many it is past one.
    pub(crate) unaligned: Option<(&'static str, u64)>,
}

/// What a launch keeps alive beside its buffers.
pub(crate) type Held = Arc<dyn std::any::Any + Send + Sync>;

/// An argument whose host half is something else than a buffer.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a kernel argument",
    label = "has no host half",
    note = "`DeviceWindow`, `DeviceWindow<Mixed>`, `DeviceWindow<AllRdma>` and `DevicePeers` have one"
)]
///
/// # Safety
/// What `bind` returns is valid for as long as the binder holds what it was given to hold, and no kernel can race through it with what
/// the binder was not told of.
pub unsafe trait Handle: Crosses {
    /// What a launch is given.
    type Owner<'a>;
    /// Checks it and makes what crosses.
    ///
    /// # Errors
    /// What cannot be, naming the argument.
    fn bind(owner: Self::Owner<'_>, name: &'static str, binder: &mut Binder) -> Result<Self>;
}

impl Binder {
    pub(crate) fn new(device: Device, link: &Arc<Link>) -> Self {
        Binder { device, link: Arc::clone(link), bound: Vec::new(), held: Vec::new(), unaligned: None }
    }

    /// Keeps `what` alive with the launch, after checking that its peers are those of the kernel's transport.
    pub(crate) fn hold(&mut self, name: &'static str, peers: &PeersRef, what: Held) -> Result<()> {
        self.device.check_same(peers.machine(), format_args!("`{name}`"))?;
        let (own, theirs) = (self.link.world(), peers.world());
        if (own.rank(), own.size()) != (theirs.rank(), theirs.size()) {
            return Err(Error::misuse(format!(
                "`{name}` is of rank {} of {}, but the kernel runs on rank {} of {}",
                theirs.rank(),
                theirs.size(),
                own.rank(),
                own.size()
            )));
        }
        self.held.push(what);
        Ok(())
    }

    /// Bytes of all buffers that hooks only read, and of the longest.
    pub(crate) fn read_bytes(&self) -> (u64, u64) {
        let each = self.bound.iter().filter(|bound| !bound.written).map(|bound| bound.to - bound.from);
        each.fold((0, 0), |(all, most), bytes| (all + bytes, most.max(bytes)))
    }

    /// Hands a window's memory to the launch's stream: another stream waits for it. No range, so that it overlaps nothing.
    pub(crate) fn use_memory(&mut self, memory: &Arc<Memory>) {
        let (name, written) = ("a window's own memory", true);
        self.bound.push(Bound { name, from: 0, to: 0, written, memory: Arc::clone(memory) });
    }

    /// A buffer that hooks read.
    ///
    /// # Errors
    /// [`Error::Misuse`] if it is on another device, or overlaps one that is written.
    pub fn read<T: Element>(&mut self, name: &'static str, view: &View<'_, T>) -> Result<RawSlice<T>> {
        self.bind::<T>(name, view.memory, view.address(), view.len(), false)
    }

    /// A buffer that hooks write.
    ///
    /// # Errors
    /// As for [`Binder::read`]; it may overlap no other.
    pub fn write<T: Element>(&mut self, name: &'static str, view: &ViewMut<'_, T>) -> Result<RawSlice<T>> {
        self.bind::<T>(name, view.memory, view.address(), view.len(), true)
    }

    fn bind<T: Element>(
        &mut self,
        name: &'static str,
        memory: &Arc<Memory>,
        address: u64,
        len: usize,
        written: bool,
    ) -> Result<RawSlice<T>> {
        self.device.check_same(memory.machine(), format_args!("buffer `{name}`"))?;
        if len > 0 && !address.is_multiple_of(16) {
            self.unaligned.get_or_insert((name, address % 16));
        }
        let (from, to) = (address, address + (len * T::SIZE) as u64);
        let clash = self.bound.iter().find(|b| (b.written || written) && b.from < to && from < b.to);
        if let Some(other) = clash {
            return Err(Error::misuse(format!(
                "buffers `{}` and `{name}` overlap, and one of them is written",
                other.name
            )));
        }
        self.bound.push(Bound { name, from, to, written, memory: Arc::clone(memory) });
        Ok(RawSlice::new(address, len))
    }

    /// Claims the buffers for what is queued on the stream next.
    pub(crate) fn claim<'a>(&'a self, stream: &'a Stream) -> Result<Claims<'a>> {
        let access = |b: &Bound| if b.written { Access::Write } else { Access::Read };
        let claims = Claims::of(stream, self.bound.iter().map(|b| (&b.memory, access(b))))?;
        stream.captured(|c| c.held.extend(self.held.iter().cloned()));
        Ok(claims)
    }
}

/// That hooks and what a launch of them is given are of the same types: it does not compile otherwise.
#[doc(hidden)]
pub const fn twins<S: HookSet, H>()
where
    H: Unpack + Hooks<Wire = S::Wire>,
    S::Args<'static>: Arguments<Raw = H::Raw>,
{
    assert!(S::COLS == H::COLS && S::ROW_PACKS == H::ROW_PACKS);
    assert!(S::RELAYS == H::RELAYS && S::PARTIALS == H::PARTIALS && S::IN_PLACE == H::IN_PLACE);
}

/// A block of schedule `S` by protocol `P` on a CPU thread.
///
/// # Safety
/// `params` points to `Params<O, S, H::Raw>` made by a checked launch.
#[doc(hidden)]
#[inline(always)]
pub unsafe fn host<S: Schedule, P: Protocol<O>, O: Ops, H: Unpack>(grid: Grid, params: *const u8) -> Flow {
    // SAFETY: the caller's contract.
    unsafe { exchange::<S, P, O, H>(grid, &*params.cast::<Params<O, S, H::Raw>>()) }
}

/// The code for CPU threads of a protocol that they take only by name: `Some` of it with the feature `cpu-protocols`. It is most of what a kernel is there.
#[doc(hidden)]
#[cfg(feature = "cpu-protocols")]
#[macro_export]
macro_rules! host_by_name {
    ($code:expr) => {
        ::core::option::Option::Some($code)
    };
}

#[doc(hidden)]
#[cfg(not(feature = "cpu-protocols"))]
#[macro_export]
macro_rules! host_by_name {
    ($code:expr) => {
        ::core::option::Option::None
    };
}

/// No transport: nothing is ever compiled for it. Generated code names two of them, so that rustc never takes the one transport in
/// the attribute for the one that is asked for.
#[doc(hidden)]
#[derive(Debug)]
pub enum Nowhere<const N: usize> {}

// SAFETY: there is no value.
unsafe impl<const N: usize> Transport for Nowhere<N> {
    type Ops = fusewire_transports::ops::ShmOps;
    const NAME: &'static str = "nowhere";

    fn link(&self) -> &Arc<Link> {
        match *self {}
    }

    unsafe fn ops(&self) -> Self::Ops {
        match *self {}
    }
}
