//! One rule for each protocol, as automata over instructions. Each is followed over every path of an entry.

use crate::flow::{CONSTANT, Flow, OWN, PEER, Roots, STACK, Step};
use crate::parse::Instruction;

/// How an entry's bytes travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Through rings of staging: stores, a barrier, a release that is the flag. Loads come behind an acquire and a barrier.
    Simple,
    /// Straight into outputs: stores, a barrier, a system-scope fence, the flag.
    Direct,
    /// By bulk copies, awaited whole, then a fence and the flag.
    Bulk,
    /// LL: words that carry their flags. They are taken behind a barrier of threads that have seen all of them.
    Ll,
    /// LL128: lines that carry their flags, stored and loaded by whole warps.
    Ll128,
    /// A rank alone: nothing is stored at a peer.
    Local,
    /// What stands before and behind the copy engine's work: flags alone.
    Copy,
    /// Signals and barriers of a window: stores, a barrier, a release that is the signal.
    Window,
    /// By work queue entries that an adapter is told of: entries, a release that is the doorbell record, a fence, the doorbell.
    Posted,
}

/// What an instruction is to the rules.
struct Seen<'a> {
    i: &'a Instruction,
    from: u8,
}

impl Seen<'_> {
    fn load(&self) -> bool {
        self.i.is("ld") && !self.i.has("param")
    }

    fn store(&self) -> bool {
        self.i.is("st") && !self.i.has("param") || self.i.is("red")
    }

    /// Of global memory, as far as can be told.
    fn global(&self) -> bool {
        let other = ["shared", "local", "const", "shared::cta"].iter().any(|space| self.i.has(space));
        let access =
            self.load() || self.store() || self.i.is("atom") || self.i.is("cp.async.bulk.shared::cluster");
        access && !other && self.from & (STACK | CONSTANT) == 0
    }

    fn wide(&self) -> bool {
        self.i.has("v4") || self.i.has("v2") && self.i.has("b64")
    }

    fn strong(&self) -> bool {
        self.i.has("sys")
    }

    fn releases(&self) -> bool {
        self.strong() && (self.i.has("release") || self.i.has("acq_rel"))
    }

    /// A system-scope access of a peer's memory.
    fn flag(&self) -> bool {
        self.store() && self.strong() && self.from & PEER != 0
    }

    /// A plain store to a peer's memory.
    fn payload(&self) -> bool {
        self.store() && !self.strong() && self.from & PEER != 0
    }

    /// A line, or a row's part of one.
    fn line(&self) -> bool {
        self.flag() && self.wide()
    }

    /// A line, or a row's part of one, of this rank's buffers.
    fn looks_at_line(&self) -> bool {
        self.load() && self.wide() && self.strong() && self.i.has("relaxed") && self.from & OWN != 0
    }

    fn taken(&self) -> bool {
        self.load() && !self.strong() && self.wide() && self.from & OWN != 0
    }

    fn barrier(&self) -> bool {
        let warp = self.i.op.starts_with("bar.warp");
        (self.i.is("bar") || self.i.is("barrier")) && !warp
    }

    fn fence(&self) -> bool {
        self.i.is("fence") && self.strong()
    }

    /// A plain store to memory that is neither a peer's nor this rank's region: an output, or what is both input and output.
    fn keeps(&self) -> bool {
        self.store() && !self.strong() && self.global() && self.from & (PEER | OWN) == 0
    }

    /// Eight bytes that no release makes visible by themselves.
    fn doorbell(&self) -> bool {
        self.i.is("st.relaxed.sys.b64")
    }

    /// The warp is whole and converged behind it.
    fn vote(&self) -> bool {
        self.i.is("vote")
    }

    fn looks_for_panic(&self) -> bool {
        self.i.is("ld.volatile.shared")
    }

    /// The way out: nothing is published behind it.
    fn gives_up(&self) -> bool {
        self.i.is("call") && ["give_up", "pass_on_panic"].iter().any(|name| self.i.text.contains(name))
    }
}

/// Everything that is wrong with an entry. `headers` are offsets in line buffers that one lane may store alone.
pub fn wrong(ptx: &str, entry: &str, protocol: Protocol, roots: &Roots, headers: &[u64]) -> Vec<String> {
    let Some(flow) = Flow::of(ptx, entry, roots) else { return vec![format!("no `{entry}`")] };
    let mut all = flow.check(0, |state, i| follows(state, &seen(&flow, i)));
    if protocol == Protocol::Posted {
        all.extend(flow.check(0, |state, i| rings(state, &seen(&flow, i))));
        let doorbell = |i: &Instruction| seen(&flow, i).doorbell();
        if !flow.code.iter().any(doorbell) {
            all.push("rings no doorbell".into());
        }
        return all;
    }
    if protocol == Protocol::Local {
        let gives_nothing = |s: &Seen<'_>| !(s.payload() || s.flag() && !s.i.is("atom"));
        if !flow.code.iter().all(|i| gives_nothing(&seen(&flow, i))) {
            all.push("stores at a peer".into());
        }
        all.extend(flow.check(0, |state, i| ends_behind(state, &seen(&flow, i))));
        return all;
    }
    all.extend(flow.check(0, |state, i| barriers_of_copies(state, &seen(&flow, i))));
    all.extend(flow.check(0, |state, i| silent_behind_faults(state, &seen(&flow, i))));
    all.extend(flow.check(0, |state, i| looks_before_it_publishes(state, &seen(&flow, i))));
    if protocol == Protocol::Ll {
        all.extend(flow.check(0, |state, i| words(state, &seen(&flow, i), || waits(&flow, i))));
    } else if protocol == Protocol::Ll128 {
        let alone = |i: &Instruction| stores_at(&flow, i, headers);
        all.extend(flow.check(0, |state, i| lines(state, &seen(&flow, i), alone(i))));
    } else {
        all.extend(flow.check(0, |state, i| publishes(state, &seen(&flow, i))));
    }
    all.extend(flow.check(0, |state, i| gives_back(state, &seen(&flow, i))));
    if protocol != Protocol::Window {
        all.extend(polls(&flow, protocol));
    }
    let has = |what: fn(&Seen<'_>) -> bool| flow.code.iter().any(|i| what(&seen(&flow, i)));
    let moves = match protocol {
        Protocol::Simple | Protocol::Direct => has(|s| s.payload()),
        Protocol::Bulk => has(|s| s.i.is("cp.async.bulk.global.shared::cta")),
        Protocol::Ll | Protocol::Ll128 => has(|s| s.line()),
        Protocol::Copy | Protocol::Window | Protocol::Posted | Protocol::Local => true,
    };
    if !moves || !has(|s| s.flag()) {
        // The rules would hold of nothing.
        all.push("stores nothing at a peer that can be told".into());
    }
    all
}

/// What is wrong with an entry by LL or LL128 that stores what arrives where its block sends from, as an all-reduce in place does.
pub fn wrong_in_place(ptx: &str, entry: &str, roots: &Roots) -> Vec<String> {
    let Some(flow) = Flow::of(ptx, entry, roots) else { return vec![format!("no `{entry}`")] };
    let mut all = flow.check(0, |state, i| keeps_behind(state, &seen(&flow, i)));
    let has = |what: fn(&Seen<'_>) -> bool| flow.code.iter().any(|i| what(&seen(&flow, i)));
    if !has(|s| s.line()) || !has(|s| s.keeps()) {
        all.push("sends nothing, or stores nothing, that can be told".into());
    }
    all
}

fn seen<'a>(flow: &Flow, i: &'a Instruction) -> Seen<'a> {
    Seen { i, from: flow.origin(i) }
}

/// No access of global memory before the kernel before this one is done.
fn follows(state: u8, s: &Seen<'_>) -> Step {
    match state {
        0 if s.i.is("griddepcontrol.wait") => Ok(1),
        // Followers would fill the GPU while what this one waits for still needs a place.
        0 if s.i.is("griddepcontrol.launch_dependents") => {
            Err("dependents are launched before griddepcontrol.wait")
        }
        0 if s.global() => Err("global memory is accessed before griddepcontrol.wait"),
        _ => Ok(state),
    }
}

/// No end either: who waits for this one takes both to be over then. Of a rank alone, whose threads wait where each has work.
fn ends_behind(state: u8, s: &Seen<'_>) -> Step {
    match state {
        0 if s.i.is("griddepcontrol.wait") => Ok(1),
        0 if s.i.is("ret") => Err("a thread ends without griddepcontrol.wait"),
        _ => Ok(state),
    }
}

/// Bulk copies see the barriers that they complete on.
fn barriers_of_copies(state: u8, s: &Seen<'_>) -> Step {
    match state {
        _ if s.i.is("mbarrier.init") => Ok(1),
        1 if s.i.is("fence.mbarrier_init") => Ok(0),
        1 if s.i.is("cp") => Err("a bulk copy before the fence behind its barrier's making"),
        _ => Ok(state),
    }
}

/// Payload, barrier, release, flag. States: nothing is on its way; stored; stored, and all threads are there; behind a fence; a bulk copy
/// is under way.
fn publishes(state: u8, s: &Seen<'_>) -> Step {
    const CLEAN: u8 = 0;
    const STORED: u8 = 1;
    const SYNCED: u8 = 2;
    const FENCED: u8 = 3;
    const COPYING: u8 = 4;
    let near = ["gpu", "cta", "cluster"].iter().any(|scope| s.i.has(scope));
    if s.store() && near && s.from & PEER != 0 {
        return Err("an order or a scope that no peer is in");
    }
    if s.payload() {
        return Ok(STORED);
    }
    if s.i.is("cp.async.bulk.global.shared::cta") {
        return Ok(COPYING);
    }
    match state {
        // One thread copies, and publishes what it has copied.
        COPYING if s.i.is("cp.async.bulk.wait_group") && !s.i.has("read") => Ok(SYNCED),
        COPYING if s.flag() || s.fence() => Err("published while a bulk copy is under way"),
        STORED if s.barrier() => Ok(SYNCED),
        SYNCED if s.fence() => Ok(FENCED),
        STORED if s.flag() => Err("a flag without a barrier behind what all threads stored"),
        SYNCED if s.flag() && !s.releases() => Err("a flag without a system-scope release before it"),
        SYNCED | FENCED if s.flag() && s.releases() => Ok(CLEAN),
        _ => Ok(state),
    }
}

/// Entries, doorbell record, fence, doorbell.
fn rings(state: u8, s: &Seen<'_>) -> Step {
    match state {
        _ if s.store() && s.wide() => Ok(0),
        0 if s.i.is("st.release.sys.b32") => Ok(1),
        1 if s.fence() => Ok(2),
        2 if s.doorbell() => Ok(0),
        _ if s.doorbell() => Err("a doorbell without release of its record and a fence behind that"),
        _ => Ok(state),
    }
}

/// Room is given back behind a barrier of all that loaded.
fn gives_back(state: u8, s: &Seen<'_>) -> Step {
    match state {
        // Of lines, what is given back is a word.
        _ if s.taken() || s.looks_at_line() => Ok(1),
        1 if s.barrier() => Ok(0),
        1 if s.flag() && !s.wide() => Err("given back before all threads have loaded"),
        _ => Ok(state),
    }
}

/// Before a flag somebody looks whether a thread of the block has panicked.
fn looks_before_it_publishes(state: u8, s: &Seen<'_>) -> Step {
    match state {
        _ if s.payload() || s.taken() || s.looks_at_line() => Ok(1),
        1 if s.looks_for_panic() => Ok(0),
        1 if s.flag() && !s.line() => Err("published without a look whether a thread has panicked"),
        _ => Ok(state),
    }
}

/// A fault must not look like success to a peer.
fn silent_behind_faults(state: u8, s: &Seen<'_>) -> Step {
    match state {
        _ if s.gives_up() => Ok(1),
        1 if s.flag() && !s.wide() => Err("published behind a fault"),
        _ => Ok(state),
    }
}

/// Lines are stored by a warp that is whole, with nothing between; nothing plain goes to a peer.
fn lines(state: u8, s: &Seen<'_>, alone: bool) -> Step {
    match state {
        _ if s.payload() => Err("a plain store to a peer, which no line's flag tells of"),
        _ if s.vote() => Ok(1),
        0 if s.line() && !alone => Err("a line is stored by a warp that may be in parts"),
        0 if s.looks_at_line() && !alone => Err("a line is loaded by a warp that may be in parts"),
        1 if (s.load() || s.store()) && s.global() && !s.line() && !s.looks_at_line() => Ok(0),
        _ => Ok(state),
    }
}

/// Words are taken when all threads have met behind their waits; nothing plain goes to a peer.
fn words(state: u8, s: &Seen<'_>, waits: impl Fn() -> bool) -> Step {
    match state {
        _ if s.payload() => Err("a plain store to a peer, which no word's flag tells of"),
        _ if s.looks_at_line() && waits() => Ok(1),
        1 if s.barrier() => Ok(0),
        1 if s.looks_at_line() => Err("a word is taken that another thread may wait for"),
        _ => Ok(state),
    }
}

/// In place, what arrives is stored when all threads have read what they send.
fn keeps_behind(state: u8, s: &Seen<'_>) -> Step {
    match state {
        _ if s.line() => Ok(1),
        1 if s.barrier() => Ok(0),
        1 if s.keeps() => Err("stored where another thread may still read what it sends"),
        _ => Ok(state),
    }
}

/// Words of this rank's region that are looked at again and again are acquired; lines are looked at by whole warps.
fn polls(flow: &Flow, protocol: Protocol) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut acquires = false;
    for (at, i) in flow.code.iter().enumerate() {
        let s = seen(flow, i);
        if !(s.load() && s.strong() && s.from & OWN != 0) {
            continue;
        }
        let line = matches!(protocol, Protocol::Ll | Protocol::Ll128 | Protocol::Bulk) && s.wide();
        acquires |= i.has("acquire") || line;
        if !line && !i.has("acquire") && spins(flow, at) {
            wrong.push(format!("a wait that does not acquire: `{}` (instruction {at})", i.text));
        }
    }
    if !acquires {
        wrong.push("no wait acquires".into());
    }
    let acquires = |i: &Instruction| i.is("ld.acquire.sys") && seen(flow, i).from & OWN != 0;
    for (at, i) in flow.code.iter().enumerate() {
        // By LL it is a word for each of several peers.
        let flag = seen(flow, i).flag() && !seen(flow, i).wide() && protocol != Protocol::Ll;
        if flag && flow.turns_without(at, |_| false) && !flow.turns_over(at, acquires) {
            wrong.push(format!("published again and again without a wait: `{}` (instruction {at})", i.text));
        }
    }
    wrong
}

/// Whether this load is one of a loop that sleeps between two looks.
fn waits(flow: &Flow, i: &Instruction) -> bool {
    let at = flow.code.iter().position(|other| std::ptr::eq(other, i));
    at.is_some_and(|at| spins(flow, at) && flow.turns_over(at, |i| i.is("nanosleep")))
}

/// Whether a load is one of a loop that does nothing but wait.
fn spins(flow: &Flow, at: usize) -> bool {
    flow.turns_without(at, |i| {
        let s = seen(flow, i);
        s.barrier() || s.i.is("call") || s.store() && s.global()
    })
}

/// Whether the address is a register plus one of `offsets`.
fn stores_at(flow: &Flow, i: &Instruction, offsets: &[u64]) -> bool {
    let is = |register: &str| {
        flow.code.iter().filter(|d| d.is("add") && d.writes.iter().any(|w| w == register)).any(|d| {
            d.reads.last().and_then(|last| last.parse().ok()).is_some_and(|last: u64| offsets.contains(&last))
        })
    };
    let Some(address) = i.address() else { return false };
    // Behind the conversion to a global address.
    let before = flow.code.iter().find(|d| d.is("cvta.to.global") && d.writes.iter().any(|w| w == address));
    is(before.and_then(|d| d.reads.first()).map_or(address, String::as_str))
}
