//! Launches, for C.

use crate::kernel::kernel;
use crate::{
    elements, fusewire_kernel, fusewire_status, fusewire_stream, fusewire_transport, fusewire_type, given,
    guard, hand, misuse, take,
};
use fusewire::dynamic::{Access, Call, DynLauncher, Field, Region, Value};
use fusewire::{LaunchOptions, Protocol};
use std::ffi::{c_char, c_void};
use std::time::Duration;

/// A kernel that was prepared on a transport.
pub struct fusewire_launcher {
    launcher: Box<dyn DynLauncher>,
    fields: &'static [Field],
}

/// One argument of a launch.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fusewire_value {
    /// Elements: the address of the first, in memory of the transport's device. A value: where it is, in host memory.
    pub data: *const c_void,
    /// Elements: how many. A value: its bytes.
    pub len: usize,
    /// Elements: their type; of structs `FUSEWIRE_U8`, and `len` is their bytes. Of a value it is not read.
    pub of: fusewire_type,
}

/// How bytes travel.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum fusewire_protocol {
    /// As the size says.
    FUSEWIRE_BY_SIZE = 0,
    /// Through staging, with credits.
    FUSEWIRE_SIMPLE = 1,
    /// In 128-byte lines that carry their flags.
    FUSEWIRE_LL128 = 2,
    /// Straight into symmetric outputs.
    FUSEWIRE_DIRECT = 3,
    /// The same by bulk copies.
    FUSEWIRE_BULK = 4,
    /// The same by the copy engine.
    FUSEWIRE_COPY = 5,
    /// All-reduces through staging twice: each rank folds a part, and passes it on.
    FUSEWIRE_TWO_SHOT = 6,
    /// The same in 128-byte lines.
    FUSEWIRE_LL128_TWO_SHOT = 7,
    /// In 8-byte words, of which half is a flag.
    FUSEWIRE_LL = 8,
    /// Nowhere: of a rank alone, on a GPU.
    FUSEWIRE_LOCAL = 9,
    /// Through staging within domains of a mesh and across them: all-reduces, all-gathers and reduce-scatters.
    FUSEWIRE_HIERARCHICAL = 10,
}

macro_rules! protocols {
    ($($name:ident = $protocol:ident,)*) => {
        impl From<fusewire_protocol> for Option<Protocol> {
            fn from(of: fusewire_protocol) -> Self {
                match of {
                    fusewire_protocol::FUSEWIRE_BY_SIZE => None,
                    $(fusewire_protocol::$name => Some(Protocol::$protocol),)*
                }
            }
        }

        impl From<Option<Protocol>> for fusewire_protocol {
            fn from(of: Option<Protocol>) -> Self {
                match of {
                    $(Some(Protocol::$protocol) => fusewire_protocol::$name,)*
                    _ => fusewire_protocol::FUSEWIRE_BY_SIZE,
                }
            }
        }
    };
}

protocols! {
    FUSEWIRE_SIMPLE = Simple,
    FUSEWIRE_LL128 = Ll128,
    FUSEWIRE_DIRECT = Direct,
    FUSEWIRE_BULK = Bulk,
    FUSEWIRE_COPY = Copy,
    FUSEWIRE_TWO_SHOT = TwoShot,
    FUSEWIRE_LL128_TWO_SHOT = Ll128TwoShot,
    FUSEWIRE_LL = Ll,
    FUSEWIRE_LOCAL = Local,
    FUSEWIRE_HIERARCHICAL = Hierarchical,
}

/// What a launch is told beside its arguments; equal on all ranks but for `to` and `from`. 0 is the default of each.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fusewire_call {
    /// The root of a broadcast, scatter, gather or reduce.
    pub root: usize,
    /// `sendrecv`: whom to send to, `FUSEWIRE_NOBODY` for nobody.
    pub to: i64,
    /// `sendrecv`: whom to receive from, `FUSEWIRE_NOBODY` for nobody.
    pub from: i64,
    /// Blocks of a schedule function.
    pub blocks: u32,
    /// Elements of one peer's chunk; by default the output's (or the input's) divided by the ranks.
    pub elements: usize,
    /// Rows of a chunk, with `cols`.
    pub rows: usize,
    /// Columns of a chunk, with `rows`.
    pub cols: usize,
    /// How bytes travel.
    pub protocol: fusewire_protocol,
    /// Channels to each peer.
    pub channels: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Blocks in the grid at most.
    pub most_blocks: u32,
    /// Bytes that travel together on a channel.
    pub chunk: usize,
    /// How long one wait may last, in milliseconds.
    pub deadline_ms: u64,
}

/// For `to` and `from`: nobody.
pub const FUSEWIRE_NOBODY: i64 = -1;

/// Prepares a kernel on a transport. Collective: all ranks prepare the same kernels in the same order.
///
/// # Safety
/// As the crate says; the kernel and the transport are of the same library, and `out` takes the launcher.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_launcher_new(
    kernel_: *const fusewire_kernel,
    transport: *const fusewire_transport,
    out: *mut *mut fusewire_launcher,
) -> fusewire_status {
    guard(|| {
        // SAFETY: the caller's contract.
        let (described, transport) = unsafe { (kernel(kernel_)?, given(transport, "transport")?) };
        let launcher = described.kernel.prepare_on(transport.transport.any())?;
        // SAFETY: the caller's contract.
        unsafe { hand(out, fusewire_launcher { launcher, fields: described.kernel.fields }) }
    })
}

/// Frees a launcher; what it has launched goes on.
///
/// # Safety
/// As the crate says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_launcher_free(launcher: *mut fusewire_launcher) {
    // SAFETY: the caller's contract.
    drop(unsafe { take(launcher) });
}

/// Queues one launch on a stream, with one value for each field, in order; `call` may be null. Waits for nothing.
///
/// # Safety
/// As the crate says; the launcher, the transport and the stream belong together. Elements stay valid until the stream has run the launch,
/// and nobody else uses them before that, unless both only read. Values are of the types that the fields say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_launch(
    launcher: *const fusewire_launcher,
    transport: *const fusewire_transport,
    stream: *const fusewire_stream,
    values: *const fusewire_value,
    value_count: usize,
    call: *const fusewire_call,
) -> fusewire_status {
    // SAFETY: the caller's contract.
    guard(|| unsafe {
        let stream = &given(stream, "stream")?.0;
        with(launcher, transport, values, value_count, call, |launcher, values, call| {
            launcher.launch(stream, values, call)
        })
    })
}

/// Says in words how such a launch would be cut: at most `len` bytes at `text`, the last of them zero.
///
/// # Safety
/// As for [`fusewire_launch`]; there are `len` bytes at `text`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_explain(
    launcher: *const fusewire_launcher,
    transport: *const fusewire_transport,
    values: *const fusewire_value,
    value_count: usize,
    call: *const fusewire_call,
    text: *mut c_char,
    len: usize,
) -> fusewire_status {
    // SAFETY: the caller's contract.
    guard(|| unsafe {
        with(launcher, transport, values, value_count, call, |launcher, values, call| {
            let words = launcher.explain(values, call)?.to_string();
            let Some(room) = len.checked_sub(1) else { return Err(misuse("no room for words")) };
            given(text, "text")?;
            let cut = words.floor_char_boundary(room);
            text.cast::<u8>().copy_from_nonoverlapping(words.as_ptr(), cut);
            text.add(cut).write(0);
            Ok(())
        })
    })
}

/// Makes a launch's arguments of what C gave.
///
/// # Safety
/// That of [`fusewire_launch`].
unsafe fn with(
    launcher: *const fusewire_launcher,
    transport: *const fusewire_transport,
    values: *const fusewire_value,
    value_count: usize,
    call: *const fusewire_call,
    body: impl FnOnce(&dyn DynLauncher, &[Value<'_>], &Call) -> fusewire::Result<()>,
) -> fusewire::Result<()> {
    // SAFETY: the caller's contract.
    let (launcher, transport) = unsafe { (given(launcher, "launcher")?, given(transport, "transport")?) };
    // SAFETY: the caller's contract.
    let values = unsafe { elements(values, value_count, "values")? };
    // Values without a field are kept: the launcher says how many there should be.
    let pairs = || values.iter().zip(launcher.fields.iter().map(Some).chain(std::iter::repeat(None)));
    let region = |(value, field): (&fusewire_value, Option<&Field>)| -> fusewire::Result<Option<Region>> {
        let Some(field) = field.filter(|field| field.access != Access::Value) else { return Ok(None) };
        let fusewire_value { data, len, of } = *value;
        if !(1..15).contains(&of.code()) {
            return Err(misuse(format!("argument `{}`: `of` is no type of elements", field.name)));
        }
        // SAFETY: the caller's contract.
        let region = unsafe { transport.region(data.addr() as u64, len, of.code(), of.size()) };
        Ok(Some(region.map_err(|error| misuse(format!("argument `{}`: {error}", field.name)))?))
    };
    let regions: Vec<Option<Region>> = pairs().map(region).collect::<fusewire::Result<_>>()?;
    let made = |((value, field), region): ((&fusewire_value, Option<&Field>), _)| match (region, field) {
        (Some(region), _) => Ok(Value::Region(region)),
        (None, None) => Ok(Value::Absent),
        (None, Some(field)) if field.optional && value.data.is_null() => Ok(Value::Absent),
        (None, Some(field)) if value.len == field.size => {
            // SAFETY: the caller's contract.
            let bytes = unsafe { elements(value.data.cast(), value.len, field.name)? };
            // SAFETY: as above.
            Ok(unsafe { Value::from_bytes(field.code, bytes) })
        }
        (None, Some(field)) => Err(misuse(format!(
            "argument `{}` is a value of {} bytes, but these are {}",
            field.name, field.size, value.len
        ))),
    };
    let regions = regions.iter().map(Option::as_ref);
    let made: Vec<Value<'_>> = pairs().zip(regions).map(made).collect::<fusewire::Result<_>>()?;
    // SAFETY: the caller's contract.
    let call = unsafe { call.as_ref() }.map_or_else(|| Ok(Call::default()), called)?;
    body(&*launcher.launcher, &made, &call)
}

fn called(asked: &fusewire_call) -> fusewire::Result<Call> {
    let peer = |peer: i64, name| match peer {
        FUSEWIRE_NOBODY => Ok(None),
        rank => usize::try_from(rank).map(Some).map_err(|_| misuse(format!("`{name}` is rank {rank}"))),
    };
    let some = |n: u32| (n > 0).then_some(n);
    let shape = match (asked.rows, asked.cols) {
        (0, 0) => None,
        shape => Some(shape),
    };
    let options = LaunchOptions {
        elements: (asked.elements > 0).then_some(asked.elements),
        shape,
        protocol: asked.protocol.into(),
        channels: some(asked.channels),
        threads: some(asked.threads),
        blocks: some(asked.most_blocks),
        chunk: (asked.chunk > 0).then_some(asked.chunk),
        deadline: (asked.deadline_ms > 0).then(|| Duration::from_millis(asked.deadline_ms)),
        ..LaunchOptions::default()
    };
    let (to, from) = (peer(asked.to, "to")?, peer(asked.from, "from")?);
    Ok(Call { root: asked.root, to, from, blocks: asked.blocks, options })
}
