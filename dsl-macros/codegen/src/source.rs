//! The user's text at the user's lines, with a record of every insertion, so that a place in device text leads back.

mod print;
mod said;

use crate::model::SourceFile;
use print::Printed;
use proc_macro2::{LineColumn, Span, TokenStream, TokenTree};
use std::path::PathBuf;

/// Tokens as text that reads as they do.
pub fn printed(tokens: &TokenStream) -> String {
    Printed::of(tokens).text
}

/// Device text that keeps the lines of the file it came from.
#[derive(Debug, Clone)]
pub struct Text {
    /// The text; its line `n` is line `n` of the file.
    pub text: String,
    /// The file, if the text is of one.
    pub file: Option<PathBuf>,
    origin: Origin,
    /// Lines before any were added that are nobody's.
    lines: usize,
}

#[derive(Debug, Clone)]
enum Origin {
    /// The text has the file's lines.
    File { outside: String, insertions: Vec<Insertion> },
    /// The text, after one line, is the printed item, whose tokens begin at these lines and columns.
    Printed { places: Vec<((usize, usize), Span)> },
}

#[derive(Debug, Clone)]
struct Insertion {
    line: usize,
    /// Column in the user's file, from 0, before which the text was inserted.
    column: usize,
    chars: usize,
}

/// What a device text is made of.
pub struct Parts<'a> {
    /// The item, without outer attributes.
    pub item: &'a TokenStream,
    /// The same with `#[inline(always)]` on its functions: printed where the file cannot be had.
    pub inlined: &'a TokenStream,
    /// Where `#[inline(always)]` goes in the file.
    pub inline: &'a [Span],
    /// Tokens for which blanks stand in the file.
    pub blank: &'a [Span],
    /// What goes before the closing brace of a module.
    pub tail: Option<&'a str>,
    /// Crate attributes.
    pub header: &'a str,
    /// The file of the tokens, where the compiler does not know it.
    pub file: Option<&'a SourceFile>,
}

impl Text {
    /// The text of an item: the file's own where that can be had, else printed.
    pub fn of(parts: &Parts<'_>) -> Text {
        Self::from_file(parts).unwrap_or_else(|| Self::printed(parts))
    }

    fn from_file(parts: &Parts<'_>) -> Option<Text> {
        let &Parts { item: tokens, inline, tail, header, .. } = parts;
        let trees: Vec<TokenTree> = tokens.clone().into_iter().collect();
        let (first, last) = (trees.first()?.span(), trees.last()?.span());
        let (file, content) = match parts.file {
            Some(file) => (file.path.clone(), file.text.clone()),
            None => {
                let path = first.local_file()?;
                let text = std::fs::read_to_string(&path).ok()?;
                (path, text)
            }
        };
        let (start, end) = (first.start(), last.end());
        if start.line == 0 || (start.line, start.column) >= (end.line, end.column) {
            return None;
        }
        // The compiler does not count a byte order mark.
        let lines: Vec<&str> = content.strip_prefix('\u{feff}').unwrap_or(&content).lines().collect();
        if end.line > lines.len() {
            return None;
        }
        // The file may have changed since the compiler read it, or the tokens may be another macro's.
        let slice = cut(&lines, start, end)?;
        let parsed: TokenStream = slice.parse().ok()?;
        if normal(&parsed) != normal(tokens) {
            return None;
        }
        let mut edits: Vec<(LineColumn, String)> =
            inline.iter().map(|s| (s.start(), "#[inline(always)] ".to_string())).collect();
        edits.extend(said::insertions(tokens).into_iter().map(|(at, text)| (at.start(), text)));
        if let Some(tail) = tail {
            edits.push((LineColumn { line: end.line, column: end.column - 1 }, tail.to_string()));
        }
        edits.push((start, if start.line == 1 { header.to_string() } else { String::new() }));
        edits.sort_by_key(|(at, _)| (at.line, at.column));
        let mut text = String::new();
        let mut insertions = Vec::new();
        for (n, line) in lines.iter().enumerate().take(end.line) {
            let number = n + 1;
            if number > 1 {
                text.push('\n');
            }
            if number == 1 && start.line > 1 {
                text.push_str(header);
            }
            if number < start.line {
                continue;
            }
            let mut chars: Vec<char> = line.chars().collect();
            // A token has no line break in it.
            for span in parts.blank.iter().filter(|s| s.start().line == number) {
                chars.get_mut(span.start().column..span.end().column)?.fill(' ');
            }
            let from = if number == start.line { start.column } else { 0 };
            let to = if number == end.line { end.column } else { chars.len() };
            text.extend(std::iter::repeat_n(' ', from));
            let mut at = from;
            for (place, insert) in edits.iter().filter(|(p, _)| p.line == number) {
                let column = place.column.clamp(at, to);
                text.extend(&chars[at..column]);
                text.push_str(insert);
                insertions.push(Insertion { line: number, column, chars: insert.chars().count() });
                at = column;
            }
            text.extend(&chars[at..to]);
        }
        let outside = lines[..start.line - 1]
            .iter()
            .chain(&lines[end.line..])
            .fold(String::new(), |text, l| text + l + "\n");
        let lines = text.lines().count();
        Some(Text { text, file: Some(file), origin: Origin::File { outside, insertions }, lines })
    }

    fn printed(parts: &Parts<'_>) -> Text {
        let Printed { mut text, places, .. } = Printed::of(&said::with_insertions(parts.inlined));
        if let (Some(tail), Some(brace)) = (parts.tail, text.rfind('}')) {
            text.insert_str(brace, tail);
        }
        let origin = Origin::Printed { places };
        let text = format!("{}\n{text}", parts.header);
        let lines = text.lines().count();
        Text { text, file: None, origin, lines }
    }

    /// Adds lines that are nobody's.
    pub fn push(&mut self, more: &str) {
        self.text.push('\n');
        self.text.push_str(more);
    }

    /// Whether a line of the text (from 1) is the user's.
    pub fn is_of_user(&self, line: usize) -> bool {
        line <= self.lines
    }

    /// The user's token at a place in the text (line and column from 1). `item` is what the text was made of.
    pub fn span_at(&self, item: &TokenStream, line: usize, column: usize) -> Option<Span> {
        match &self.origin {
            Origin::File { .. } => {
                let (line, column) = self.user_place(line, column);
                span_at(item, line, column)
            }
            // Behind the header's line.
            Origin::Printed { places } => {
                let place = (line.checked_sub(2)?, column.checked_sub(1)?);
                let at = places.iter().rposition(|(from, _)| *from <= place)?;
                Some(places[at].1)
            }
        }
    }

    /// The user's line (from 1) and column (from 0) of a place in the text (line and column from 1).
    pub fn user_place(&self, line: usize, column: usize) -> (usize, usize) {
        let mut column = column.saturating_sub(1);
        let Origin::File { insertions, .. } = &self.origin else { return (line, column) };
        for i in insertions.iter().filter(|i| i.line == line) {
            if column >= i.column + i.chars {
                column -= i.chars;
            } else if column > i.column {
                column = i.column;
            }
        }
        (line, column)
    }

    /// Whether the host may know `name` although the device does not: it stands in the file outside the item, or may come from a glob.
    pub fn host_may_know(&self, name: &str) -> bool {
        let Origin::File { outside, .. } = &self.origin else { return true };
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let mut words = outside.split(|c| !word(c));
        // The prelude's names are known on both sides.
        let globs = outside.lines().any(|l| l.contains("::*") && !l.contains("fusewire::prelude::*"));
        globs || words.any(|w| w == name)
    }
}

fn cut(lines: &[&str], start: LineColumn, end: LineColumn) -> Option<String> {
    let mut out = String::new();
    for number in start.line..=end.line {
        let chars: Vec<char> = lines.get(number - 1)?.chars().collect();
        let from = if number == start.line { start.column } else { 0 };
        let to = if number == end.line { end.column } else { chars.len() };
        out.extend(chars.get(from..to)?);
        out.push('\n');
    }
    Some(out)
}

/// Tokens without spacing and without groups that have no delimiters.
fn normal(tokens: &TokenStream) -> String {
    let mut out = String::new();
    flatten(tokens.clone(), &mut out);
    out
}

fn flatten(tokens: TokenStream, out: &mut String) {
    for tree in tokens {
        match tree {
            TokenTree::Group(g) => {
                let (open, close) = match g.delimiter() {
                    proc_macro2::Delimiter::Parenthesis => ("(", ")"),
                    proc_macro2::Delimiter::Brace => ("{", "}"),
                    proc_macro2::Delimiter::Bracket => ("[", "]"),
                    proc_macro2::Delimiter::None => ("", ""),
                };
                out.push_str(open);
                flatten(g.stream(), out);
                out.push_str(close);
            }
            // Spellings of doc strings differ between the compiler's tokens and a parse of the text.
            TokenTree::Literal(_) if out.ends_with("[doc = ") => out.push_str(".."),
            other => {
                out.push_str(&other.to_string());
                out.push(' ');
            }
        }
    }
}

/// The token at a user's place: the last one that begins at or before it.
fn span_at(tokens: &TokenStream, line: usize, column: usize) -> Option<Span> {
    let mut best: Option<(LineColumn, Span)> = None;
    for span in spans(tokens) {
        let at = span.start();
        let before = (at.line, at.column) <= (line, column);
        if before && best.is_none_or(|(b, _)| (b.line, b.column) <= (at.line, at.column)) {
            best = Some((at, span));
        }
    }
    best.map(|(_, span)| span)
}

/// Every token's span in order; of a group, its opening delimiter's and its tokens'.
fn spans(tokens: &TokenStream) -> Vec<Span> {
    fn visit(tokens: TokenStream, out: &mut Vec<Span>) {
        for tree in tokens {
            if let TokenTree::Group(g) = &tree {
                if g.delimiter() != proc_macro2::Delimiter::None {
                    out.push(g.span_open());
                }
                visit(g.stream(), out);
            } else {
                out.push(tree.span());
            }
        }
    }
    let mut out = Vec::new();
    visit(tokens.clone(), &mut out);
    out
}

/// The tokens after the outer attributes and the visibility: on the device an item stands alone.
pub fn bare(tokens: &TokenStream) -> TokenStream {
    let mut trees = tokens.clone().into_iter().peekable();
    while trees.next_if(|t| matches!(t, TokenTree::Punct(p) if p.as_char() == '#')).is_some() {
        trees.next();
    }
    if trees.next_if(|t| matches!(t, TokenTree::Ident(i) if i == "pub")).is_some() {
        trees.next_if(
            |t| matches!(t, TokenTree::Group(g) if g.delimiter() == proc_macro2::Delimiter::Parenthesis),
        );
    }
    trees.collect()
}

#[cfg(test)]
mod tests;
