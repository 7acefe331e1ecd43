//! PTX as LLVM prints it: functions, statements, labels.

use std::collections::{HashMap, HashSet};

/// An instruction.
#[derive(Clone, Debug, Default)]
pub struct Instruction {
    /// As it stands in the text.
    pub text: String,
    /// The predicate that guards it, and the value with which it runs.
    pub guard: Option<(String, bool)>,
    /// Its name with all qualifiers.
    pub op: String,
    /// Registers that it writes.
    pub writes: Vec<String>,
    /// Its other operands.
    pub reads: Vec<String>,
    /// Where it branches to.
    pub targets: Vec<String>,
}

impl Instruction {
    /// Whether the name has this qualifier.
    pub fn has(&self, qualifier: &str) -> bool {
        self.op.split('.').any(|part| part == qualifier)
    }

    /// Whether the name begins so.
    pub fn is(&self, op: &str) -> bool {
        self.op.strip_prefix(op).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }

    /// Every register that it names.
    pub fn all(&self) -> Vec<String> {
        let guard = self.guard.iter().map(|(name, _)| name.clone());
        let read = self.reads.iter().flat_map(|operand| registers(operand));
        guard.chain(self.writes.iter().cloned()).chain(read).collect()
    }

    /// What stands between brackets.
    pub fn address(&self) -> Option<&str> {
        let operand = self.reads.iter().find(|operand| operand.starts_with('['))?;
        Some(operand.trim_matches(['[', ']']))
    }
}

/// The statements of a function, and which of them labels stand before.
#[derive(Debug, Default)]
pub struct Body {
    pub code: Vec<Instruction>,
    pub labels: HashMap<String, usize>,
    /// Targets of indirect branches, by the label of their list.
    pub lists: HashMap<String, Vec<String>>,
}

/// The text between the braces of entry or function `name`.
pub fn body<'a>(ptx: &'a str, name: &str) -> Option<&'a str> {
    let is = |line: &&str| {
        (line.contains(".entry ") || line.contains(".func "))
            && line.split(|c: char| !(c.is_alphanumeric() || "_$".contains(c))).any(|word| word == name)
    };
    let mut at = 0;
    for line in ptx.split_inclusive('\n') {
        at += line.len();
        if !is(&line) {
            continue;
        }
        let rest = &ptx[at - line.len()..];
        let (open, end) = (rest.find("\n{\n"), rest.find(";\n").unwrap_or(rest.len()));
        // Without a body it is a declaration.
        if let Some(open) = open.filter(|open| *open < end) {
            let close = rest[open..].find("\n}\n").map_or(rest.len(), |close| open + close);
            return Some(&rest[open + 3..close]);
        }
    }
    None
}

/// Functions that do not return.
pub fn noreturn(ptx: &str) -> HashSet<&str> {
    let heads = ptx.split(".func").skip(1).map(|text| text.split(['{', ';']).next().unwrap_or(text));
    heads
        .filter(|head| head.contains(".noreturn"))
        .filter_map(|head| head.split_whitespace().find(|w| !w.starts_with('(')))
        .collect()
}

/// Names of a module's entries.
pub fn entries(ptx: &str) -> Vec<&str> {
    let name = |line: &'_ str| line.split_once(".entry ").map(|(_, rest)| rest.len());
    let lines = ptx.lines().filter(|line| name(line).is_some());
    lines.filter_map(|line| line.split_once(".entry ")?.1.split('(').next()).collect()
}

/// Reads statements.
pub fn parse(text: &str) -> Body {
    let text: String =
        text.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n");
    let mut body = Body::default();
    let (mut statement, mut depth, mut number) = (String::new(), 0usize, 0usize);
    // Registers that are a scope's own, by the scope's number.
    let mut scopes: Vec<(usize, Vec<String>)> = Vec::new();
    for c in text.chars() {
        match c {
            '{' if statement.trim().is_empty() => {
                number += 1;
                scopes.push((number, Vec::new()));
                statement.clear();
            }
            '}' if depth == 0 && statement.trim().is_empty() => {
                scopes.pop();
                statement.clear();
            }
            ';' => {
                add(&mut body, std::mem::take(&mut statement).trim(), &mut scopes);
            }
            ':' if is_label(statement.trim()) => {
                let name = std::mem::take(&mut statement).trim().to_owned();
                body.labels.insert(name, body.code.len());
            }
            _ => {
                depth = match c {
                    '{' => depth + 1,
                    '}' => depth.saturating_sub(1),
                    _ => depth,
                };
                statement.push(c);
            }
        }
    }
    body
}

fn is_label(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "_$".contains(c))
}

fn add(body: &mut Body, statement: &str, scopes: &mut [(usize, Vec<String>)]) {
    if let Some(names) = statement.strip_prefix(".reg") {
        if let Some((_, own)) = scopes.last_mut() {
            let names = names.split_whitespace().skip(1).collect::<String>();
            own.extend(names.split(',').map(str::to_owned));
        }
        return;
    }
    if let Some(list) = statement.strip_prefix(".branchtargets") {
        // Its label stands before the statement that follows.
        let here = body.code.len();
        let name = body.labels.iter().find(|(_, at)| **at == here).map(|(name, _)| name.clone());
        let targets = list.split(',').map(|t| t.trim().to_owned()).collect();
        body.lists.extend(name.map(|name| (name, targets)));
        return;
    }
    if statement.is_empty() || statement.starts_with('.') {
        return;
    }
    let mut rest = statement.split_whitespace().collect::<Vec<_>>().join(" ");
    for (number, own) in scopes.iter() {
        for name in own {
            rest = renamed(&rest, name, &format!("%{name}.{number}"));
        }
    }
    let mut instruction = Instruction { text: rest.clone(), ..Instruction::default() };
    if let Some(guarded) = rest.strip_prefix('@') {
        let (guard, after) = guarded.split_once(' ').unwrap_or((guarded, ""));
        let name = guard.trim_start_matches('!').to_owned();
        instruction.guard = Some((name, !guard.starts_with('!')));
        rest = after.to_owned();
    }
    let (op, operands) = rest.split_once(' ').unwrap_or((&rest, ""));
    instruction.op = op.to_owned();
    let mut operands = split(operands);
    if instruction.is("bra") || instruction.is("brx") {
        instruction.targets = operands.pop().into_iter().collect();
        instruction.reads = operands;
    } else {
        let silent = [
            "st",
            "red",
            "bar",
            "barrier",
            "fence",
            "membar",
            "call",
            "ret",
            "exit",
            "trap",
            "cp",
            "nanosleep",
        ];
        let silent = silent.iter().any(|op| instruction.is(op)) || instruction.is("mbarrier.init");
        if !silent || op.starts_with("bar.red") || op.starts_with("barrier.cta.red") {
            let first = if operands.is_empty() { String::new() } else { operands.remove(0) };
            instruction.writes = registers(&first);
        }
        instruction.reads = operands;
    }
    body.code.push(instruction);
}

/// Operands: commas in brackets do not part them.
fn split(text: &str) -> Vec<String> {
    let (mut all, mut depth, mut one) = (Vec::new(), 0, String::new());
    for c in text.chars() {
        match c {
            '[' | '{' | '(' => depth += 1,
            ']' | '}' | ')' => depth -= 1,
            _ => {}
        }
        if c == ',' && depth == 0 {
            all.push(std::mem::take(&mut one).trim().to_owned());
        } else {
            one.push(c);
        }
    }
    if !one.trim().is_empty() {
        all.push(one.trim().to_owned());
    }
    all
}

/// Registers that an operand names.
pub fn registers(operand: &str) -> Vec<String> {
    let words = operand.split(|c: char| !(c.is_alphanumeric() || "%._$".contains(c)));
    words.filter(|word| word.starts_with('%')).map(str::to_owned).collect()
}

fn renamed(text: &str, name: &str, to: &str) -> String {
    let mut out = String::new();
    let mut word = String::new();
    for c in text.chars().chain(['\n']) {
        if c.is_alphanumeric() || "_%.$".contains(c) {
            word.push(c);
            continue;
        }
        out.push_str(if word == name { to } else { &word });
        word.clear();
        out.push(c);
    }
    out.trim_end().to_owned()
}
