//! The paths of a function, and what a rule finds on them.

use super::Flow;
use crate::parse::Instruction;
use std::collections::{BTreeSet, HashSet};

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

/// Before an instruction, or behind one, on a path.
struct Place {
    at: usize,
    state: u8,
    known: Known,
    /// How the path came here: a number of [`Paths::ways`].
    way: usize,
}

/// All paths, as far as they were followed.
struct Paths<'f, R> {
    flow: &'f Flow,
    rule: R,
    /// What the rule makes of a state at an instruction, where it was asked.
    steps: Vec<[Option<Step>; STATES]>,
    /// A branch, and the way that led there.
    ways: Vec<(usize, usize)>,
    told: HashSet<(usize, &'static str)>,
    wrong: BTreeSet<String>,
}

impl<R: Fn(u8, &Instruction) -> Step> Paths<'_, R> {
    /// Goes on while there is one way: to behind the instruction where ways part, or before one where they meet. `None` if the rule says that
    /// something is wrong.
    fn along(&mut self, mut place: Place) -> Option<Place> {
        loop {
            let Place { at, ref known, .. } = place;
            if self.flow.runs(at, known) {
                place.state = self.step(&place)?;
                self.flow.learn(at, &mut place.known);
            }
            if !self.flow.goes_on(at) {
                return Some(place);
            }
            place.at += 1;
        }
    }

    /// The state behind an instruction.
    fn step(&mut self, place: &Place) -> Option<u8> {
        let i = &self.flow.code[place.at];
        let step = &mut self.steps[place.at][usize::from(place.state)];
        match *step.get_or_insert_with(|| (self.rule)(place.state, i)) {
            Ok(after) => Some(after),
            Err(why) => {
                if self.told.insert((place.at, why)) {
                    let way = self.way(place.way);
                    self.wrong.insert(format!("{why}: `{}`, by way of {way}", i.text));
                }
                None
            }
        }
    }

    /// Where ways lead from there.
    fn on(&mut self, from: &Place, mut to: impl FnMut(Place)) {
        let (flow, at) = (self.flow, from.at);
        let branches = !flow.code[at].targets.is_empty();
        let guard = flow.guard(at).filter(|_| branches);
        for &next in &flow.next[at] {
            // The way on, or the way that the branch takes.
            let went =
                guard.map(|(register, wanted)| (register, if next == at + 1 { 1 - wanted } else { wanted }));
            if went.is_some_and(|(register, value)| from.known.get(register).is_some_and(|k| k != value)) {
                continue;
            }
            let mut known = from.known.clone();
            if let Some((register, value)) = went {
                flow.went(at, register, value, &mut known);
            }
            let mut way = from.way;
            if branches || next != at + 1 {
                self.ways.push((at, way));
                way = self.ways.len() - 1;
            }
            to(Place { at: next, state: from.state, known, way });
        }
    }

    /// The last branches of a way.
    fn way(&self, mut way: usize) -> String {
        let mut all = Vec::new();
        while way != 0 && all.len() < 12 {
            let (at, before) = self.ways[way];
            all.push(self.flow.code[at].text.as_str());
            way = before;
        }
        all.reverse();
        all.join(" | ")
    }
}

impl Flow {
    /// Follows every path from the beginning, and says what `rule` finds wrong. A rule is an automaton: it is given the state before an
    /// instruction, and what it makes of both is always the same. Paths remember constants, and which way they went at a predicate;
    /// beyond `WAYS` of them to one place they forget.
    pub fn check(&self, start: u8, rule: impl Fn(u8, &Instruction) -> Step) -> Vec<String> {
        if self.code.is_empty() {
            return Vec::new();
        }
        let mut paths = Paths {
            flow: self,
            rule,
            steps: vec![[None; STATES]; self.code.len()],
            ways: vec![(0, 0)],
            told: HashSet::new(),
            wrong: BTreeSet::new(),
        };
        // Of places where ways meet or part; what stands between two goes one way.
        let mut seen: Vec<HashSet<(u8, Known)>> = vec![HashSet::new(); self.code.len()];
        let mut open = vec![Place { at: 0, state: start, known: Known::default(), way: 0 }];
        while let Some(mut place) = open.pop() {
            let Place { at, state, ref mut known, .. } = place;
            known.retain(|register| self.live[at].contains(&register));
            if seen[at].len() > WAYS {
                *known = Known::default();
            }
            if seen[at].insert((state, known.clone()))
                && let Some(end) = paths.along(place)
            {
                paths.on(&end, |place| open.push(place));
            }
        }
        paths.wrong.into_iter().collect()
    }

    /// The predicate of an instruction, and the value with which it runs.
    fn guard(&self, at: usize) -> Option<(u32, i64)> {
        self.code[at].guard.as_ref().map(|(name, wanted)| (self.numbers[name], i64::from(*wanted)))
    }

    /// Whether an instruction runs, as far as is known.
    fn runs(&self, at: usize, known: &Known) -> bool {
        let other = |(register, wanted)| known.get(register).is_some_and(|value| value != wanted);
        !self.guard(at).is_some_and(other)
    }

    /// Whether the next instruction is the only one behind this one, and has no label.
    fn goes_on(&self, at: usize) -> bool {
        self.code[at].targets.is_empty() && self.next[at] == [at + 1] && !self.starts[at + 1]
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
