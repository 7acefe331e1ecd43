//! PTX as text: what of a module some of its kernels need.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// `ptx` without the kernels that are not among `entries`, and without the functions that these alone call.
///
/// The driver compiles all of a module before it runs any of it, and takes longer the more there is: seconds for a
/// module of many kernels. The layout is that of LLVM's back-end (a function's braces on lines of their own); of a
/// text that is laid out otherwise, or lacks one of `entries`, everything is kept.
///
/// ```
/// let ptx = ".target sm_80\n.visible .entry a(\n)\n{\n\tret;\n}\n.visible .entry b(\n)\n{\n\tret;\n}\n";
/// let part = fusewire_driver::ptx::part(ptx, &["b"]);
/// assert_eq!(part, ".target sm_80\n.visible .entry b(\n)\n{\n\tret;\n}\n");
/// ```
pub fn part<'a>(ptx: &'a str, entries: &[&str]) -> Cow<'a, str> {
    match needed(ptx, entries) {
        Some(pieces) => Cow::Owned(pieces.concat()),
        None => Cow::Borrowed(ptx),
    }
}

/// `ptx` for a GPU of compute capability `major`.0 at least: its target is raised to that, and its lines that are comments for older
/// ones, `// sm_90: INSTRUCTION`, become instructions. Nothing is changed where there is none of them for such a GPU.
///
/// ```
/// let ptx = ".target sm_80\n\t// sm_90: griddepcontrol.wait;\n";
/// assert_eq!(fusewire_driver::ptx::raised(ptx, 8), ptx);
/// assert_eq!(fusewire_driver::ptx::raised(ptx, 10), ".target sm_90\n\tgriddepcontrol.wait;\n");
/// ```
pub fn raised(ptx: &str, major: u32) -> Cow<'_, str> {
    const MARK: &str = "// sm_90: ";
    if major < 9 || !ptx.contains(MARK) {
        return Cow::Borrowed(ptx);
    }
    let raise = |line: &str| match line.strip_prefix(".target sm_") {
        // Those of a family (`sm_90a`) are as new.
        Some(number) if number.trim_end().parse().is_ok_and(|n: u32| n < 90) => {
            format!(".target sm_90{}", &number[number.trim_end().len()..])
        }
        _ => line.replace(MARK, ""),
    };
    Cow::Owned(ptx.split_inclusive('\n').map(raise).collect())
}

/// `ptx` whose kernels that say how many blocks of their largest size a multiprocessor holds (`.minnctapersm`) say `blocks`: they get fewer registers
/// for a thread, or more.
///
/// ```
/// let ptx = ".maxntid 512, 1, 1\n.minnctapersm 2\n{\n";
/// assert_eq!(fusewire_driver::ptx::with_blocks(ptx, 4), ".maxntid 512, 1, 1\n.minnctapersm 4\n{\n");
/// ```
pub fn with_blocks(ptx: &str, blocks: u32) -> String {
    let line = |line: &str| match line.starts_with(".minnctapersm ") {
        true => format!(".minnctapersm {blocks}\n"),
        false => line.into(),
    };
    ptx.split_inclusive('\n').map(line).collect()
}

/// `ptx` for kernels of two ranks alone: its lines that are comments for others, `// two: INSTRUCTION`, become instructions.
///
/// ```
/// let ptx = "{\nmov.u32 %r1, 0;\n\t// two: mov.u32 %r1, 1;\n";
/// assert_eq!(fusewire_driver::ptx::of_two(ptx), "{\nmov.u32 %r1, 0;\n\tmov.u32 %r1, 1;\n");
/// ```
pub fn of_two(ptx: &str) -> String {
    ptx.replace("// two: ", "")
}

/// A function's declaration or definition, or text between functions.
struct Piece<'a> {
    name: Option<&'a str>,
    text: &'a str,
}

fn needed<'a>(ptx: &'a str, entries: &[&str]) -> Option<Vec<&'a str>> {
    let pieces = pieces(ptx)?;
    let mut texts: HashMap<&str, Vec<&str>> = HashMap::new();
    for piece in &pieces {
        if let Some(name) = piece.name {
            texts.entry(name).or_default().push(piece.text);
        }
    }
    if entries.iter().any(|e| !texts.contains_key(e)) {
        return None;
    }
    let mut wanted: HashSet<&str> = HashSet::new();
    // Variables may hold the addresses of functions.
    let between = pieces.iter().filter(|p| p.name.is_none()).flat_map(|p| names(p.text));
    let mut open: Vec<&str> = entries.iter().copied().chain(between).collect();
    while let Some(name) = open.pop() {
        if let Some((&name, texts)) = texts.get_key_value(name)
            && wanted.insert(name)
        {
            open.extend(texts.iter().flat_map(|t| names(t)));
        }
    }
    Some(pieces.iter().filter(|p| p.name.is_none_or(|n| wanted.contains(n))).map(|p| p.text).collect())
}

/// All that may be a name in a text, but for its comments: the one before a kernel names it.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let code = text.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code));
    code.flat_map(|code| code.split(|c: char| !is_of_name(c))).filter(|word| !word.is_empty())
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$'
}

/// The module cut into functions and what lies between; `None` if a function does not end.
fn pieces(ptx: &str) -> Option<Vec<Piece<'_>>> {
    let mut pieces = Vec::new();
    let mut rest = ptx;
    let mut between = 0;
    while between < rest.len() {
        let line = rest[between..].split_inclusive('\n').next()?;
        let Some(name) = function(line) else {
            between += line.len();
            continue;
        };
        pieces.push(Piece { name: None, text: &rest[..between] });
        rest = &rest[between..];
        let end = end(rest)?;
        pieces.push(Piece { name: Some(name), text: &rest[..end] });
        (rest, between) = (&rest[end..], 0);
    }
    pieces.push(Piece { name: None, text: rest });
    Some(pieces)
}

/// The name of the function that begins with this line.
fn function(line: &str) -> Option<&str> {
    let mut rest = line.strip_prefix('.').map(|_| line)?;
    loop {
        let (word, after) = rest.split_at(rest.find(char::is_whitespace)?);
        rest = after.trim_start();
        match word {
            ".visible" | ".weak" | ".extern" => {}
            ".entry" => break,
            ".func" => {
                // What it returns.
                if let Some(returns) = rest.strip_prefix('(') {
                    rest = returns.split_once(')')?.1.trim_start();
                }
                break;
            }
            _ => return None,
        }
    }
    let name = &rest[..rest.find(|c| !is_of_name(c)).unwrap_or(rest.len())];
    (!name.is_empty()).then_some(name)
}

/// Where the function that `text` begins with ends: behind its closing brace, or behind the semicolon of a declaration.
fn end(text: &str) -> Option<usize> {
    let (mut end, mut inside) = (0, false);
    for line in text.split_inclusive('\n') {
        end += line.len();
        let line = line.trim_end();
        match inside {
            true if line == "}" => return Some(end),
            false if line.ends_with(';') => return Some(end),
            false if line == "{" => inside = true,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{part, raised};

    const MODULE: &str = "\
.version 8.6
.target sm_80
.func helper
(
\t.param .b64 helper_param_0
)
.noreturn;
.extern .func  (.param .b32 func_retval0) vprintf
(
\t.param .b64 a
)
;
.global .u64 table[1] = {generic(listed)};
.visible .entry one(
\t.param .u64 one_param_0
)
.maxntid 512
{
\t{ // callseq 0
\tcall.uni helper, (x);
\t} // callseq 0
\tret;
}
\t// .globl two
.visible .entry two(
)
{
\tcall.uni (r), other, (x);
\tret;
}
.func helper(
\t.param .b64 helper_param_0
)
{
\ttrap;
}
.func  (.param .b32 func_retval0) other(
)
{
\tret;
}
.func listed(
)
{
\tret;
}
";

    fn definitions(text: &str) -> Vec<&str> {
        let named = ["entry one(", "entry two(", "func helper(", "other(", "func listed("];
        named.into_iter().filter(|n| text.contains(n)).collect()
    }

    #[test]
    fn keeps_what_an_entry_reaches() {
        let one = part(MODULE, &["one"]);
        assert_eq!(definitions(&one), ["entry one(", "func helper(", "func listed("]);
        assert!(!one.contains("vprintf"), "declared, but not called");
        assert!(one.contains(".noreturn;") && one.contains(".target sm_80") && one.contains("table[1]"));
        let two = part(MODULE, &["two"]);
        assert_eq!(definitions(&two), ["entry two(", "other(", "func listed("]);
        assert!(!two.contains("helper"));
    }

    #[test]
    fn keeps_all_of_what_it_does_not_know() {
        assert_eq!(part(MODULE, &["one", "three"]), MODULE);
        let odd = ".visible .entry one( ) { ret; }";
        assert_eq!(part(odd, &["one"]), odd);
        assert_eq!(part("", &[]), "");
    }

    #[test]
    fn all_entries_are_all_of_it() {
        let all = part(MODULE, &["two", "one"]);
        assert_eq!(definitions(&all), definitions(MODULE));
    }

    #[test]
    fn a_text_that_ends_with_its_target_keeps_its_end() {
        assert_eq!(raised("// sm_90: ret;\n.target sm_80", 9), "ret;\n.target sm_90");
        assert_eq!(raised("// sm_90: ret;\n.target sm_80\r\n", 9), "ret;\n.target sm_90\r\n");
        assert_eq!(raised("// sm_90: ret;\n.target sm_90a\n", 9), "ret;\n.target sm_90a\n");
    }
}
