//! What all launchers share: what ranks agree on, and the variants of a kernel that there are.

mod launch;
mod module;
mod parameters;

pub(crate) use launch::{Call, Places, told_protocol};

use super::Protocol;
use super::facts::Facts;
use super::plan::HOST_BLOCKS;
use crate::aside::Aside;
use crate::kernel::{Entry, Supports};
use crate::order::Used;
use crate::residency::Ledger;
use crate::tune::{Key, Layout, Table, Tuned, bucket};
use crate::{Device, Error, Result, Transport};
use fusewire_device::row;
use fusewire_driver as cuda;
use fusewire_transports::host::{Domains, Link, Machine};
use module::{Code, Way, agree_residency, follows, load, ready, runnable};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex};

/// A kernel that all ranks have agreed on, loaded on this rank.
pub(crate) struct Agreed {
    pub(crate) facts: &'static Facts,
    pub(crate) link: Arc<Link>,
    /// All that kernels use, the link among them.
    pub(crate) links: Vec<Used>,
    /// Of the kernels on the transport.
    number: u64,
    pub(crate) kernel: u64,
    /// What the tuning table says of this kernel.
    pub(crate) tuned: Tuned,
    key: Key,
    variants: Vec<Variant>,
    /// Whether launches may be set up while the kernel before them still runs.
    follows: bool,
    /// Multiprocessors of the smallest part, where ranks have parts of GPUs. The same on all ranks: plans depend on it.
    pub(crate) part: Option<u32>,
    /// What the GPU has room for, if there is one.
    ledger: Option<Arc<Ledger>>,
    /// For the copy engine; made when it is first used.
    pub(crate) aside: Mutex<Option<Arc<Aside>>>,
}

/// The same with the operations of its transport: what is generic is here alone.
pub(crate) struct Prepared<X: Transport> {
    ops: X::Ops,
    agreed: Agreed,
}

impl<X: Transport> Deref for Prepared<X> {
    type Target = Agreed;
    fn deref(&self) -> &Agreed {
        &self.agreed
    }
}

impl<X: Transport> Prepared<X> {
    /// Collective: compares what the ranks are about to run, then loads it.
    pub(crate) fn new<S: 'static, H: Supports<S, X>>(transport: &X, schedule: &'static str) -> Result<Self> {
        let agreed = Agreed::new(transport.link(), X::NAME, schedule, Facts::of::<H>(), H::ENTRIES)?;
        // SAFETY: the link is kept beside it, and with each launch; schedules stay within what there is.
        Ok(Prepared { ops: unsafe { transport.ops() }, agreed })
    }

    /// The same with another table. Collective: ranks compare theirs.
    pub(crate) fn with_table(self, table: &Table) -> Result<Self> {
        let tuned = Tuned::of(table, &self.key, self.facts.copies);
        self.link.world().agree("tuning table", &[("tuned configurations", tuned.digest())])?;
        Ok(Prepared { agreed: Agreed { tuned, ..self.agreed }, ..self })
    }

    /// The same with other code for the kernels whose symbols `text` has. Collective: ranks compare how many blocks fit.
    ///
    /// # Safety
    /// Those entries do what the kernels do, with the same parameters.
    pub(crate) unsafe fn with_ptx(mut self, text: &str) -> Result<Self> {
        self.agreed.replace(text)?;
        Ok(self)
    }
}

struct Variant {
    entry: &'static Entry,
    /// `None` on CPU threads.
    code: Option<Code>,
    /// Blocks that the device of each rank holds at once, the fewest of them, by the warps of a block from one on; empty on CPU threads.
    resident: Vec<u32>,
}

/// Threads of a warp.
const WARP: u32 = 32;

impl Agreed {
    fn new(
        link: &Arc<Link>,
        transport: &'static str,
        schedule: &'static str,
        facts: &'static Facts,
        entries: &'static [Entry],
    ) -> Result<Self> {
        let number = link.next_kernel();
        let key = Key {
            world: link.world().size(),
            transport: transport.into(),
            device: match link.machine() {
                Machine::Host => "host".into(),
                Machine::Cuda(context) => context.device().name().into(),
            },
            schedule: schedule.into(),
            variant: facts.name.into(),
            element: facts.wire.into(),
            layout: Layout::default(),
            bytes: 0,
        };
        let tuned = Tuned::of(&*Table::current()?, &key, facts.copies);
        let fields = [
            ("protocol version", fusewire_device::PROTOCOL.to_string()),
            ("transport", transport.to_string()),
            ("schedule", schedule.to_string()),
            ("kernel", facts.name.to_string()),
            ("element type", facts.element.to_string()),
            ("wire type", facts.wire.to_string()),
            ("fold", if facts.folds() { facts.fold.to_string() } else { "none".into() }),
            (
                "type of the fold's result",
                if facts.folds() { facts.result.to_string() } else { "none".into() },
            ),
            ("hooks' fingerprint", format!("{:016x}", facts.fingerprint)),
            ("kernels made before on this transport", number.to_string()),
            ("tuned configurations", tuned.digest()),
        ];
        link.world().agree("kernel", &fields)?;
        let told = ["schedule", "kernel", "element type", "wire type", "fold", "type of the fold's result"];
        let told = fields.iter().filter(|(field, _)| told.contains(field));
        link.agreed_on(number, told.map(|(field, value)| (*field, format!("`{value}`"))).collect());
        let kernel = facts.fingerprint ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ fnv(schedule);
        let mut entries = runnable(link, entries)?;
        // Its second step may have channels of its own; their staging holds four turns of what is passed on.
        let layout = link.layout();
        let together = if facts.cols > 0 { 16 * row::whole(facts.row_packs) } else { 128 };
        let stages = |protocol| layout.channels > 1 && layout.window / 4 >= together * facts.times(protocol);
        let splits = facts.partials > 0 || !facts.folds();
        let by_domains = splits && link.domains().aligned().is_some();
        entries.retain(|e| match e.protocol {
            Protocol::TwoShot => facts.relays > 0 && stages(e.protocol),
            Protocol::Hierarchical => facts.relays > 0 && by_domains && stages(e.protocol),
            Protocol::Local => layout.world == 1,
            _ => true,
        });
        let (codes, follows, ledger) = match link.machine() {
            Machine::Host => (entries.iter().map(|_| None).collect::<Vec<_>>(), false, None),
            Machine::Cuda(context) => {
                // All ranks are here, so that no kernel that runs needs a launch that is to come: loading waits for those that run.
                let way = |e: &Entry| {
                    let full = e.protocol == Protocol::Local && facts.computes_packs(e.unroll);
                    let of_two = layout.world == 2 && e.protocol == Protocol::Ll128 && facts.folds();
                    Way { of_two, full }
                };
                let codes =
                    load(context, &entries, facts.most_threads(), way)?.into_iter().map(Some).collect();
                (codes, follows(context), Some(Ledger::of(context)?))
            }
        };
        let variants = entries.into_iter().zip(codes);
        let variants = variants.map(|(entry, code)| Variant { entry, code, resident: Vec::new() });
        let mut variants: Vec<Variant> = variants.collect();
        let part = agree_residency(link, ledger.as_deref(), &mut variants, facts.most_threads())?;
        Ok(Agreed {
            facts,
            link: Arc::clone(link),
            links: Used::by(link),
            number,
            kernel,
            tuned,
            key,
            variants,
            follows,
            part,
            ledger,
            aside: Mutex::default(),
        })
    }

    /// Takes other code for the kernels whose symbols `text` has.
    fn replace(&mut self, text: &str) -> Result<()> {
        let Machine::Cuda(context) = self.link.machine() else {
            return Err(Error::misuse(
                "PTX replaces the code of kernels on GPUs, but this launcher's run on CPU threads: prepare it on a transport of GPUs",
            ));
        };
        let module = cuda::Module::load_ptx(context, text, &cuda::JitOptions::default())?;
        let mut found = false;
        for variant in &mut self.variants {
            if let Ok(function) = module.function(variant.entry.symbol) {
                let function = ready(function, variant.entry)?;
                (variant.code, found) = (Some(Code { function, full: None }), true);
            }
        }
        if found {
            let most = self.facts.most_threads();
            agree_residency(&self.link, self.ledger.as_deref(), &mut self.variants, most)?;
            return Ok(());
        }
        let symbols: Vec<&str> = self.variants.iter().map(|v| v.entry.symbol).collect();
        Err(Error::misuse(format!("PTX without an entry for any of [{}]", symbols.join(", "))))
    }

    /// The key of launches with that many wire bytes.
    pub(crate) fn key(&self, wire_bytes: usize, layout: Layout) -> Key {
        Key { layout, bytes: bucket(wire_bytes), ..self.key.clone() }
    }

    pub(crate) fn world(&self) -> usize {
        self.link.world().size()
    }

    pub(crate) fn rank(&self) -> usize {
        self.link.world().rank()
    }

    pub(crate) fn device(&self) -> Device {
        Device(self.link.machine().clone())
    }

    pub(crate) fn on_host(&self) -> bool {
        matches!(self.link.machine(), Machine::Host)
    }

    fn variant(&self, protocol: Protocol, unroll: Option<u32>) -> Result<&Variant> {
        let fits = |v: &&Variant| v.entry.protocol == protocol && unroll.is_none_or(|u| v.entry.unroll == u);
        self.variants.iter().find(fits).ok_or_else(|| match unroll {
            Some(u) => Error::misuse(format!(
                "`{}` has no {protocol:?} variant with {u} packs in flight: name it in `unroll(..)`",
                self.facts.name
            )),
            None => Error::misuse(format!(
                "`{}` has no {protocol:?} kernel for this schedule and transport: {}",
                self.facts.name,
                if self.on_host() { protocol.needs_on_host() } else { protocol.needs() }
            )),
        })
    }

    pub(crate) fn has(&self, protocol: Protocol) -> bool {
        self.variants.iter().any(|v| v.entry.protocol == protocol)
    }

    /// Why this kernel does not go by domains.
    pub(super) fn no_domains(&self) -> Error {
        let Agreed { facts, link, .. } = self;
        let why = match link.domains() {
            Domains::Other(why) => why.clone(),
            _ => format!(
                "`{}` has no Hierarchical kernel for this schedule, transport and fold: {}",
                facts.name,
                Protocol::Hierarchical.needs()
            ),
        };
        Error::misuse(why)
    }

    /// The protocols that this kernel can run.
    pub(crate) fn protocols(&self) -> BTreeSet<Protocol> {
        self.variants.iter().map(|v| v.entry.protocol).collect()
    }

    /// The packs in flight of a protocol's variants.
    pub(crate) fn unrolls(&self, protocol: Protocol) -> Vec<u32> {
        self.variants.iter().filter(|v| v.entry.protocol == protocol).map(|v| v.entry.unroll).collect()
    }

    pub(crate) fn unroll(&self, protocol: Protocol, unroll: Option<u32>) -> Result<u32> {
        Ok(self.variant(protocol, unroll)?.entry.unroll)
    }

    /// Blocks of `threads` that every rank's device holds at once: plans depend on it, and all ranks must make the same.
    pub(crate) fn resident(&self, protocol: Protocol, unroll: Option<u32>, threads: u32) -> Result<u32> {
        let variant = self.variant(protocol, unroll)?;
        Ok(of_threads(&variant.resident, threads).unwrap_or(HOST_BLOCKS))
    }

    /// Blocks of `threads` that a rank alone's device holds at once at full occupancy, if the kernel can have that.
    pub(crate) fn resident_at_full(&self, unroll: Option<u32>, threads: u32) -> Result<Option<u32>> {
        let code = self.variant(Protocol::Local, unroll)?.code.as_ref();
        let full = code.and_then(|code| code.full.as_ref());
        Ok(full.and_then(|full| of_threads(&full.resident, threads)))
    }
}

/// That of blocks of `threads`, of what is listed by warps from one on.
fn of_threads(by_warps: &[u32], threads: u32) -> Option<u32> {
    by_warps.get((threads / WARP).saturating_sub(1) as usize).copied()
}

/// The kernel, and the transport it is for.
impl fmt::Display for Agreed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` on {:?}", self.facts.name, self.link)
    }
}

fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}
