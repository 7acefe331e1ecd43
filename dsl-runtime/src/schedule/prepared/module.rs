//! The code of a kernel on this rank's GPU: which entries can run, their modules, how many blocks fit.

use super::{Variant, WARP};
use crate::kernel::{Entry, Image};
use crate::residency::Ledger;
use crate::schedule::Protocol;
use crate::{Error, Result};
use fusewire_device::protocol::direct::bulk;
use fusewire_driver as cuda;
use fusewire_transports::host::{Link, Machine};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

/// The entries that the GPUs of all ranks can run: bulk copies are of compute capability 9.0, and of blocks with much shared memory, which
/// some newer GPUs lack. Collective if there are such.
pub(super) fn runnable(link: &Link, entries: &'static [Entry]) -> Result<Vec<&'static Entry>> {
    let is_bulk = |e: &&Entry| e.protocol == Protocol::Bulk;
    let has = match link.machine() {
        Machine::Host => true,
        Machine::Cuda(context) => {
            // Beside what the kernel has of its own.
            let needed = most_shared(Protocol::Bulk) + 1024;
            let device = context.device();
            device.compute_capability().0 >= 9 && device.max_shared_per_block_optin() >= needed
        }
    };
    let all =
        !entries.iter().any(|e| is_bulk(&e)) || link.world().all_gather_as(&has)?.into_iter().all(|has| has);
    let here = |e: &&Entry| e.host.is_some() || !matches!(link.machine(), Machine::Host);
    Ok(entries.iter().filter(|e| all || !is_bulk(e)).filter(here).collect())
}

/// Shared memory that a launch gives to each block at most.
fn most_shared(protocol: Protocol) -> u32 {
    if protocol == Protocol::Bulk { bulk::shared_bytes(bulk::MOST) } else { 0 }
}

/// A function that may have the shared memory it needs.
pub(super) fn ready(function: cuda::Function, entry: &Entry) -> Result<cuda::Function> {
    // Else the first launch would wait for all kernels that run.
    function.context().reserve_stack(function.attributes().local_bytes as usize)?;
    let shared = most_shared(entry.protocol);
    if shared > 0 {
        function.set_max_dynamic_shared(shared)?;
    }
    Ok(function)
}

/// Finds out how many blocks every rank's device holds of each variant, with up to `most` threads. Collective where kernels run on GPUs.
/// Ranks that share a GPU have a part of it each, by multiprocessors or else by blocks: the fewest multiprocessors of a part, if there is one.
pub(super) fn agree_residency(
    link: &Link,
    ledger: Option<&Ledger>,
    variants: &mut [Variant],
    most: u32,
) -> Result<Option<u32>> {
    let (Machine::Cuda(context), Some(ledger)) = (link.machine(), ledger) else { return Ok(None) };
    let (world, card) = (link.world(), (context.device().uuid(), std::process::id()));
    let cards: Vec<([u8; 16], u32)> = world.all_gather_as(&card)?;
    let here: Vec<u32> =
        cards.iter().filter(|(uuid, _)| *uuid == card.0).map(|(_, process)| *process).collect();
    let mut sharers = 1;
    if context.place().is_none() {
        ledger.shared_by(here.iter().collect::<BTreeSet<_>>().len() as u32);
        sharers = here.len() as u32;
    }
    let own = |Variant { entry, code, .. }: &Variant| -> Result<Vec<u32>> {
        let code = code.as_ref().expect("a variant of a GPU is loaded");
        let held = held(context, &code.function, entry.protocol, most)?;
        Ok(held.into_iter().map(|blocks| blocks / sharers).collect())
    };
    let own = variants.iter().map(own).collect::<Result<Vec<_>>>()?;
    let part = context.place().map(|_| context.multiprocessors());
    let all: Vec<(Option<u32>, Vec<Vec<u32>>)> = world.all_gather_as(&(part, own))?;
    for (number, variant) in variants.iter_mut().enumerate() {
        let fewest =
            |at| all.iter().filter_map(|(_, rank)| rank.get(number)?.get(at)).min().copied().unwrap_or(0);
        variant.resident = (0..(most / WARP) as usize).map(fewest).collect();
    }
    Ok(all.iter().filter_map(|(part, _)| *part).min())
}

/// Blocks that a GPU holds at once, by their warps from one on, up to `most` threads.
fn held(
    context: &cuda::Context,
    function: &cuda::Function,
    protocol: Protocol,
    most: u32,
) -> Result<Vec<u32>> {
    let blocks = |warps| -> Result<u32> {
        let each = function.max_active_blocks_per_sm(warps * WARP, most_shared(protocol))?;
        Ok(each * context.multiprocessors())
    };
    (1..=most / WARP).map(blocks).collect()
}

/// What becomes of an image's text.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Form {
    /// It is for two ranks alone.
    of_two: bool,
    /// A multiprocessor is to hold so many blocks, if that is not as the image says.
    blocks: Option<u32>,
}

/// Modules by GPU, image, the entries that were loaded from it (a transport with more room can have more of them), and what became of its text.
type Modules = HashMap<(usize, *const u8, Vec<&'static str>, Form), cuda::Module>;

/// The newest image of an entry that the GPU runs.
fn image(context: &cuda::Context, entry: &Entry) -> Result<&'static Image> {
    let (major, minor) = context.device().compute_capability();
    let number = |i: &Image| i.arch.trim_start_matches("sm_").parse::<u32>().unwrap_or(u32::MAX);
    let fitting = entry.images.iter().filter(|i| number(i) <= major * 10 + minor);
    fitting.max_by_key(|i| number(i)).ok_or_else(|| {
        let have: Vec<&str> = entry.images.iter().map(|i| i.arch).collect();
        Error::misuse(format!(
            "`{}` has no PTX for {} (sm_{major}{minor}); it has [{}]. Name an older one in `archs(..)`{}",
            entry.symbol,
            context.device(),
            have.join(", "),
            if have.is_empty() { ", and build with an empty FUSEWIRE_CHECK_ONLY" } else { "" }
        ))
    })
}

/// Whether kernels of this GPU may be set up while the one before them on their stream still runs (programmatic dependent launch: from
/// compute capability 9.0 on). `FUSEWIRE_FOLLOW=0` turns it off.
pub(super) fn follows(context: &cuda::Context) -> bool {
    context.device().compute_capability().0 >= 9
        && std::env::var_os("FUSEWIRE_FOLLOW").is_none_or(|v| v != "0")
}

/// A kernel's code on a GPU.
pub(super) struct Code {
    pub function: cuda::Function,
    /// The same at full occupancy: see [`full_occupancy`].
    pub full: Option<Full>,
}

/// A kernel's code at full occupancy.
pub(super) struct Full {
    pub function: cuda::Function,
    /// Blocks that the GPU holds at once, by their warps from one on.
    pub resident: Vec<u32>,
}

/// How an entry is loaded.
#[derive(Clone, Copy)]
pub(super) struct Way {
    /// For two ranks: see [`for_two`].
    pub of_two: bool,
    /// At full occupancy as well.
    pub full: bool,
}

/// Loads the entries, of blocks of up to `most` threads, once per GPU, each in its own way. An image has those of other transports and schedules
/// too: the driver is given what these entries need.
pub(super) fn load(
    context: &cuda::Context,
    entries: &[&'static Entry],
    most: u32,
    way: impl Fn(&Entry) -> Way,
) -> Result<Vec<Code>> {
    let images = entries.iter().map(|e| image(context, e)).collect::<Result<Vec<_>>>()?;
    let code = |(entry, own): (&&'static Entry, &&'static Image)| {
        let Way { of_two, full } = way(entry);
        let together = |(e, i): &(&&'static Entry, &&'static Image)| {
            i.text.as_ptr() == own.text.as_ptr() && !way(e).of_two
        };
        let symbols = || entries.iter().zip(&images).filter(together).map(|(e, _)| e.symbol).collect();
        let function = match of_two {
            true => for_two(context, entry, own, most)?,
            false => module(context, own, symbols(), Form::default())?.function(entry.symbol)?,
        };
        let function = ready(function, entry)?;
        let full = if full { full_occupancy(context, entry, own, &function, most)? } else { None };
        Ok(Code { function, full })
    };
    entries.iter().zip(&images).map(code).collect()
}

/// `symbols` of an image, in this form.
fn module(
    context: &cuda::Context,
    image: &'static Image,
    symbols: Vec<&'static str>,
    form: Form,
) -> Result<cuda::Module> {
    struct Cache(Modules);
    // SAFETY: the pointers are keys, never followed.
    unsafe impl Send for Cache {}
    static MODULES: Mutex<Option<Cache>> = Mutex::new(None);
    let mut modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    let cache = &mut modules.get_or_insert_with(|| Cache(HashMap::new())).0;
    let key = (context.device().ordinal(), image.text.as_ptr(), symbols, form);
    if let Some(module) = cache.get(&key) {
        return Ok(module.clone());
    }
    let part = cuda::ptx::part(image.text, &key.2);
    let mut text = cuda::ptx::raised(&part, context.device().compute_capability().0);
    if form.of_two {
        text = cuda::ptx::of_two(&text).into();
    }
    if let Some(blocks) = form.blocks {
        text = cuda::ptx::with_blocks(&text, blocks).into();
    }
    // Never unloaded, so it is of the whole GPU's context: a partition may end.
    let module = cuda::Module::load_ptx(&context.whole(), &text, &cuda::JitOptions::default())?;
    cache.insert(key, module.clone());
    Ok(module)
}

/// Bytes of a thread that may be spilled for more threads on a multiprocessor: about what is worked out before the loop.
const SPILLED: u32 = 32;

/// Whether a thread of `function` spills so much more than one of `other`.
fn spills(function: &cuda::Function, other: &cuda::Function) -> bool {
    function.attributes().local_bytes > other.attributes().local_bytes + SPILLED
}

/// Threads that a multiprocessor holds of what folds for two ranks. What folds for any number of ranks has twice the registers, so that the next call's blocks have
/// no place beside this one's.
const OF_TWO_THREADS: u32 = 512;

/// An entry for two ranks alone, with as many registers for a thread as leave [`OF_TWO_THREADS`] their places, if they are enough.
fn for_two(
    context: &cuda::Context,
    entry: &'static Entry,
    image: &'static Image,
    most: u32,
) -> Result<cuda::Function> {
    let of = |blocks| -> Result<_> {
        let module = module(context, image, vec![entry.symbol], Form { of_two: true, blocks })?;
        Ok(module.function(entry.symbol)?)
    };
    let several = of(Some((OF_TWO_THREADS / most).max(1)))?;
    if several.attributes().local_bytes > SPILLED {
        let any = of(None)?;
        if spills(&several, &any) {
            return Ok(any);
        }
    }
    Ok(several)
}

/// `function` with so few registers for a thread that a multiprocessor holds all the threads it can, if they are enough: more warps compute while others wait for
/// memory. Blocks have up to `most` threads.
fn full_occupancy(
    context: &cuda::Context,
    entry: &'static Entry,
    image: &'static Image,
    function: &cuda::Function,
    most: u32,
) -> Result<Option<Full>> {
    let blocks =
        context.device().attribute(cuda::DeviceAttribute::MaxThreadsPerMultiprocessor)? as u32 / most;
    let form = Form { of_two: false, blocks: Some(blocks) };
    let full = module(context, image, vec![entry.symbol], form)?.function(entry.symbol)?;
    if spills(&full, function) {
        return Ok(None);
    }
    let resident = held(context, &full, entry.protocol, most)?;
    Ok(Some(Full { function: ready(full, entry)?, resident }))
}
