//! A function's control flow, where its addresses come from, and what a rule finds on its paths.

mod paths;

use crate::parse::{Body, Instruction, body, noreturn, parse, registers};
pub use paths::Step;
use std::collections::{HashMap, HashSet};

/// Where in an entry's first parameter things are, in bytes.
#[derive(Clone, Debug, Default)]
pub struct Roots {
    /// The address of this rank's own region.
    pub own: Vec<u64>,
    /// Addresses of tables of peers' addresses.
    pub tables: Vec<u64>,
}

/// Where an address may come from.
pub type From = u8;
/// This rank's region.
pub const OWN: From = 1;
/// A peer's memory: made from what a table holds.
pub const PEER: From = 2;
/// A table of peers' addresses.
const TABLE: From = 4;
/// The thread's own stack.
pub const STACK: From = 8;
/// A constant of the module.
pub const CONSTANT: From = 16;

/// A function.
#[derive(Debug)]
pub struct Flow {
    pub(crate) code: Vec<Instruction>,
    next: Vec<Vec<usize>>,
    from: HashMap<String, From>,
    numbers: HashMap<String, u32>,
    /// Whether a label is there.
    starts: Vec<bool>,
    /// Registers that are read before they are written again, before each instruction.
    live: Vec<HashSet<u32>>,
    /// Registers that each instruction writes.
    writes: Vec<Vec<u32>>,
    /// Predicates that say the same as others, or the opposite (`true`).
    alike: HashMap<u32, Vec<(u32, bool)>>,
}

impl Flow {
    /// Reads the function `name` of a module.
    pub fn of(ptx: &str, name: &str, roots: &Roots) -> Option<Flow> {
        let Body { code, labels, lists } = parse(body(ptx, name)?);
        let gone = noreturn(ptx);
        let next: Vec<Vec<usize>> =
            code.iter().enumerate().map(|(k, i)| next(k, i, &code, &labels, &lists, &gone)).collect();
        let from = origins(&code, roots);
        let mut numbers = HashMap::new();
        for register in code.iter().flat_map(|i| i.all()) {
            let number = numbers.len() as u32;
            numbers.entry(register).or_insert(number);
        }
        let live = live(&code, &next, &numbers);
        let mut starts = vec![false; code.len() + 1];
        labels.into_values().for_each(|at| starts[at] = true);
        let writes = code.iter().map(|i| i.writes.iter().map(|name| numbers[name]).collect()).collect();
        let mut flow = Flow { code, next, from, numbers, starts, live, writes, alike: HashMap::new() };
        flow.alike = flow.find_alike();
        Some(flow)
    }

    /// Comparisons for equality of one pair of operands that each have one value as long as the function runs: compilers make some of them twice.
    fn find_alike(&self) -> HashMap<u32, Vec<(u32, bool)>> {
        let mut writes: HashMap<u32, Vec<usize>> = HashMap::new();
        for (at, i) in self.code.iter().enumerate() {
            i.writes.iter().for_each(|name| writes.entry(self.numbers[name]).or_default().push(at));
        }
        let fixed =
            |operand: &String| match self.numbers.get(operand).and_then(|register| writes.get(register)) {
                Some(all) if all.len() == 1 => {
                    self.code[all[0]].guard.is_none() && !self.reached(all[0]).contains(&all[0])
                }
                Some(_) => false,
                None => operand.parse::<i64>().is_ok(),
            };
        let mut compared: HashMap<&[String], Vec<(u32, bool)>> = HashMap::new();
        for i in self.code.iter().filter(|i| i.is("setp.eq") || i.is("setp.ne")) {
            let [written] = &i.writes[..] else { continue };
            // With one that is no number, floats are neither.
            let whole = !i.has("f16") && !i.has("f32") && !i.has("f64");
            let once = whole && writes[&self.numbers[written]].len() == 1 && i.guard.is_none();
            if once && i.reads.iter().all(fixed) {
                compared.entry(&i.reads).or_default().push((self.numbers[written], i.is("setp.ne")));
            }
        }
        let mut alike = HashMap::new();
        for all in compared.values() {
            for (one, ne) in all {
                let others = all.iter().filter(|(other, _)| other != one);
                alike.insert(*one, others.map(|(other, theirs)| (*other, ne != theirs)).collect());
            }
        }
        alike
    }

    /// Where the address of an instruction may come from.
    pub fn origin(&self, i: &Instruction) -> From {
        let Some(address) = i.address() else { return 0 };
        let symbol = !address.contains('%');
        registers(address).iter().fold(if symbol { CONSTANT } else { 0 }, |all, register| {
            all | self.from.get(register).copied().unwrap_or(0)
        })
    }

    /// Whether a way from an instruction to itself leads over one of those that `over` names.
    pub(crate) fn turns_over(&self, at: usize, over: impl Fn(&Instruction) -> bool) -> bool {
        let behind = self.reached(at);
        behind.iter().any(|one| over(&self.code[*one]) && self.reached(*one).contains(&at))
    }

    fn reached(&self, at: usize) -> HashSet<usize> {
        let (mut seen, mut open) = (HashSet::new(), self.next[at].clone());
        while let Some(one) = open.pop() {
            if seen.insert(one) {
                open.extend(&self.next[one]);
            }
        }
        seen
    }

    /// Whether an instruction can be reached from itself over none of those that `stops` names.
    pub(crate) fn turns_without(&self, at: usize, stops: impl Fn(&Instruction) -> bool) -> bool {
        let (mut seen, mut open) = (HashSet::new(), self.next[at].clone());
        while let Some(one) = open.pop() {
            if one == at {
                return true;
            }
            if !stops(&self.code[one]) && seen.insert(one) {
                open.extend(&self.next[one]);
            }
        }
        false
    }
}

/// Backwards over all paths, until nothing changes.
fn live(code: &[Instruction], next: &[Vec<usize>], numbers: &HashMap<String, u32>) -> Vec<HashSet<u32>> {
    let mut live: Vec<HashSet<u32>> = vec![HashSet::new(); code.len()];
    let read = |i: &Instruction| -> HashSet<u32> {
        let operands = i.reads.iter().flat_map(|r| registers(r));
        operands.chain(i.guard.iter().map(|(name, _)| name.clone())).map(|name| numbers[&name]).collect()
    };
    let mut before = vec![Vec::new(); code.len()];
    for (at, to) in next.iter().enumerate() {
        to.iter().for_each(|to: &usize| before[*to].push(at));
    }
    let mut open: Vec<usize> = (0..code.len()).collect();
    while let Some(at) = open.pop() {
        let mut all: HashSet<u32> = next[at].iter().flat_map(|to| &live[*to]).copied().collect();
        if code[at].guard.is_none() {
            code[at].writes.iter().for_each(|name| {
                all.remove(&numbers[name]);
            });
        }
        all.extend(read(&code[at]));
        if all.len() != live[at].len() {
            live[at] = all;
            open.extend(&before[at]);
        }
    }
    live
}

fn next(
    at: usize,
    i: &Instruction,
    code: &[Instruction],
    labels: &HashMap<String, usize>,
    lists: &HashMap<String, Vec<String>>,
    gone: &HashSet<&str>,
) -> Vec<usize> {
    let never = i.is("call") && i.reads.iter().any(|name| gone.contains(name.as_str()));
    let ends = never || i.is("ret") || i.is("exit") || i.is("trap");
    let leaves = (i.is("bra") || i.is("brx") || ends) && i.guard.is_none();
    let mut all: Vec<usize> = Vec::new();
    for target in &i.targets {
        let targets = lists.get(target).cloned().unwrap_or_else(|| vec![target.clone()]);
        all.extend(targets.iter().filter_map(|t| labels.get(t)));
    }
    if !leaves && at + 1 < code.len() {
        all.push(at + 1);
    }
    all.retain(|to| *to < code.len());
    all
}

/// For each register, without regard to order: what its value may be made from.
fn origins(code: &[Instruction], roots: &Roots) -> HashMap<String, From> {
    let mut from: HashMap<String, From> = HashMap::new();
    loop {
        let before = from.clone();
        for i in code {
            let mut origin = 0;
            for register in i.reads.iter().flat_map(|r| registers(r)) {
                origin |= from.get(&register).copied().unwrap_or(0);
                if register.starts_with("%SP") {
                    origin |= STACK;
                }
            }
            if i.is("ld.param") {
                origin = parameter(i, roots);
            } else if i.is("ld") || i.is("atom") {
                // What a table holds leads to a peer.
                origin = if origin & TABLE != 0 { PEER } else { 0 };
            } else if i.is("cvta.global") && i.reads.iter().all(|r| registers(r).is_empty()) {
                origin = CONSTANT;
            } else if i.is("setp") || i.is("vote") || i.is("bar") {
                origin = 0;
            }
            for register in &i.writes {
                *from.entry(register.clone()).or_insert(0) |= origin;
            }
        }
        if from == before {
            return from;
        }
    }
}

fn parameter(i: &Instruction, roots: &Roots) -> From {
    let Some((name, offset)) = i.address().map(|a| a.split_once('+').unwrap_or((a, "0"))) else { return 0 };
    let Ok(first) = offset.trim().parse::<u64>() else { return 0 };
    if !name.trim().ends_with("_param_0") {
        return 0;
    }
    // Two words at once, perhaps.
    let words = if i.has("v2") { 2 } else { 1 };
    (0..words).map(|k| first + 8 * k).fold(0, |all, at| {
        let own = if roots.own.contains(&at) { OWN } else { 0 };
        all | own | if roots.tables.contains(&at) { TABLE } else { 0 }
    })
}
