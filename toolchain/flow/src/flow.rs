//! A function's control flow, where its addresses come from, and what a rule finds on its paths.

use crate::parse::{Body, Instruction, body, noreturn, parse, registers};
use std::collections::{BTreeSet, HashMap, HashSet};

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

/// Registers whose values are known on a path: few, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Known(Vec<(u32, i64)>);

impl Known {
    fn place(&self, register: u32) -> Result<usize, usize> {
        self.0.binary_search_by_key(&register, |(known, _)| *known)
    }

    fn get(&self, register: u32) -> Option<i64> {
        self.place(register).ok().map(|at| self.0[at].1)
    }

    fn insert(&mut self, register: u32, value: i64) {
        match self.place(register) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (register, value)),
        }
    }

    fn remove(&mut self, register: u32) {
        if let Ok(at) = self.place(register) {
            self.0.remove(at);
        }
    }

    fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        self.0.retain(|(register, _)| keep(*register));
    }
}

/// So many ways to come to an instruction are told apart.
const WAYS: usize = 200;

/// States that a rule has at most.
const STATES: usize = 8;

/// What a rule makes of an instruction: the state behind it, or what is wrong.
pub type Step = Result<u8, &'static str>;

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

    /// Follows every path from the beginning, and says what `rule` finds wrong. A rule is an automaton: it is given the state before an
    /// instruction, and what it makes of both is always the same. Paths remember constants, and which way they went at a predicate;
    /// beyond `WAYS` of them to one place they forget.
    pub fn check(&self, start: u8, rule: impl Fn(u8, &Instruction) -> Step) -> Vec<String> {
        let (mut wrong, mut told) = (BTreeSet::new(), HashSet::new());
        if self.code.is_empty() {
            return Vec::new();
        }
        let mut steps: Vec<[Option<Step>; STATES]> = vec![[None; STATES]; self.code.len()];
        // Of places where ways meet or part; what stands between two goes one way.
        let mut seen: Vec<HashSet<(u8, Known)>> = vec![HashSet::new(); self.code.len()];
        // Where each way came from.
        let mut ways: Vec<(usize, usize)> = vec![(0, 0)];
        let mut open = vec![(0usize, start, Known::default(), 0usize)];
        while let Some((mut at, mut state, mut known, way)) = open.pop() {
            known.retain(|register| self.live[at].contains(&register));
            if seen[at].len() > WAYS {
                known = Known::default();
            }
            if !seen[at].insert((state, known.clone())) {
                continue;
            }
            loop {
                let i = &self.code[at];
                let guard = i.guard.as_ref().map(|(name, wanted)| (self.numbers[name], i64::from(*wanted)));
                let value = guard.and_then(|(register, _)| known.get(register));
                let runs = guard.is_none_or(|(_, wanted)| value.is_none_or(|value| value == wanted));
                if runs {
                    let step = &mut steps[at][usize::from(state)];
                    match *step.get_or_insert_with(|| rule(state, i)) {
                        Ok(after) => state = after,
                        Err(why) => {
                            if told.insert((at, why)) {
                                let way = self.way(&ways, way);
                                wrong.insert(format!("{why}: `{}`, by way of {way}", i.text));
                            }
                            break;
                        }
                    }
                    self.learn(at, &mut known);
                }
                if i.targets.is_empty() && self.next[at] == [at + 1] && !self.starts[at + 1] {
                    at += 1;
                    continue;
                }
                for &to in &self.next[at] {
                    let mut known = known.clone();
                    if let (Some((register, wanted)), false) = (guard, i.targets.is_empty()) {
                        // The way on, or the way that the branch takes.
                        let way = if to == at + 1 { 1 - wanted } else { wanted };
                        if value.is_some_and(|value| value != way) {
                            continue;
                        }
                        self.went(at, register, way, &mut known);
                    }
                    let way = match to == at + 1 && i.targets.is_empty() {
                        true => way,
                        false => {
                            ways.push((at, way));
                            ways.len() - 1
                        }
                    };
                    open.push((to, state, known, way));
                }
                break;
            }
        }
        wrong.into_iter().collect()
    }

    /// What a way taken at the branch `at` says of the predicate, and of those it was made from in the lines before.
    fn went(&self, at: usize, register: u32, way: i64, known: &mut Known) {
        known.insert(register, way);
        for (other, opposite) in self.alike.get(&register).into_iter().flatten() {
            known.insert(*other, if *opposite { 1 - way } else { way });
        }
        let mut before = at;
        while before > 0 && !self.starts[before] && self.code[before - 1].targets.is_empty() {
            before -= 1;
            let i = &self.code[before];
            if !self.writes[before].contains(&register) {
                continue;
            }
            let tells = i.is("not.pred") || i.is("or.pred") && way == 0 || i.is("and.pred") && way == 1;
            let rewritten = |name: &String| self.code[before..at].iter().any(|i| i.writes.contains(name));
            for name in i.reads.iter().filter(|name| tells && i.guard.is_none() && !rewritten(name)) {
                if let Some(source) = self.numbers.get(name) {
                    known.insert(*source, if i.is("not.pred") { 1 - way } else { way });
                }
            }
            return;
        }
    }

    /// The last branches of a way.
    fn way(&self, ways: &[(usize, usize)], mut way: usize) -> String {
        let mut all = Vec::new();
        while way != 0 && all.len() < 12 {
            let (at, before) = ways[way];
            all.push(self.code[at].text.as_str());
            way = before;
        }
        all.reverse();
        all.join(" | ")
    }

    /// What is known behind an instruction that runs, perhaps.
    fn learn(&self, at: usize, known: &mut Known) {
        let i = &self.code[at];
        let value = |operand: &String| match self.numbers.get(operand) {
            Some(register) => known.get(*register),
            None => operand.parse().ok(),
        };
        let of = |k: usize| i.reads.get(k).and_then(value);
        let result = match i.op.split('.').next() {
            _ if i.guard.is_some() || i.writes.len() != 1 => None,
            Some("mov") if i.has("pred") => of(0).map(|v| i64::from(v != 0)),
            Some("mov" | "cvt") => of(0),
            Some("selp") => of(2).and_then(|p| of(usize::from(p == 0))),
            Some("not") if i.has("pred") => of(0).map(|v| 1 - v),
            Some("and") if i.has("pred") => match (of(0), of(1)) {
                (Some(0), _) | (_, Some(0)) => Some(0),
                (a, b) => a.and(b),
            },
            Some("or") if i.has("pred") => match (of(0), of(1)) {
                (Some(1), _) | (_, Some(1)) => Some(1),
                (Some(0), b) => b,
                _ => None,
            },
            // One thread's yes is everybody's.
            Some("vote") if i.has("any") => of(0).filter(|p| *p == 1),
            Some("bar") if i.has("or") => of(1).filter(|p| *p == 1),
            Some("setp") => of(0).zip(of(1)).and_then(|(a, b)| compare(&i.op, a, b)),
            _ => None,
        };
        for register in &self.writes[at] {
            match result {
                Some(value) => known.insert(*register, value),
                None => known.remove(*register),
            }
        }
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

/// Of numbers that are small and not negative signs make no difference.
fn compare(op: &str, a: i64, b: i64) -> Option<i64> {
    let holds = match op.split('.').nth(1)? {
        "eq" => a == b,
        "ne" => a != b,
        _ if a < 0 || b < 0 => return None,
        "lt" | "lo" => a < b,
        "le" | "ls" => a <= b,
        "gt" | "hi" => a > b,
        "ge" | "hs" => a >= b,
        _ => return None,
    };
    Some(i64::from(holds))
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
