//! The user's text at the user's lines, with a record of every insertion, so that a place in device text leads back.

use proc_macro2::{LineColumn, Span, TokenStream, TokenTree};
use std::path::PathBuf;

/// Device text that keeps the lines of the file it came from.
#[derive(Debug, Clone)]
pub struct Text {
    /// The text; its line `n` is line `n` of the file.
    pub text: String,
    /// The file, if the text is of one.
    pub file: Option<PathBuf>,
    /// Whether lines and columns mean something.
    pub faithful: bool,
    insertions: Vec<Insertion>,
}

#[derive(Debug, Clone)]
struct Insertion {
    line: usize,
    /// Column in the user's file, from 0, before which the text was inserted.
    column: usize,
    chars: usize,
}

impl Text {
    /// The text of `tokens`, with `#[inline(always)]` before each of `inline` and `tail` before the closing brace of a module.
    pub fn of(tokens: &TokenStream, inline: &[Span], tail: Option<&str>, header: &str) -> Text {
        let tokens = &without_attributes(tokens);
        Self::from_file(tokens, inline, tail, header).unwrap_or_else(|| Self::printed(tokens, tail, header))
    }

    fn from_file(tokens: &TokenStream, inline: &[Span], tail: Option<&str>, header: &str) -> Option<Text> {
        let trees: Vec<TokenTree> = tokens.clone().into_iter().collect();
        let (first, last) = (trees.first()?.span(), trees.last()?.span());
        let file = first.local_file()?;
        let content = std::fs::read_to_string(&file).ok()?;
        let (start, end) = (first.start(), last.end());
        if start.line == 0 || (start.line, start.column) >= (end.line, end.column) {
            return None;
        }
        let lines: Vec<&str> = content.lines().collect();
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
            let chars: Vec<char> = line.chars().collect();
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
        Some(Text { text, file: Some(file), faithful: true, insertions })
    }

    fn printed(tokens: &TokenStream, tail: Option<&str>, header: &str) -> Text {
        let mut text = tokens.to_string();
        if let (Some(tail), Some(brace)) = (tail, text.rfind('}')) {
            text.insert_str(brace, tail);
        }
        Text { text: format!("{header}\n{text}"), file: None, faithful: false, insertions: Vec::new() }
    }

    /// Adds lines that are nobody's.
    pub fn push(&mut self, more: &str) {
        self.text.push('\n');
        self.text.push_str(more);
    }

    /// The user's line (from 1) and column (from 0) of a place in the text (line and column from 1).
    pub fn user_place(&self, line: usize, column: usize) -> (usize, usize) {
        let mut column = column.saturating_sub(1);
        for i in self.insertions.iter().filter(|i| i.line == line) {
            if column >= i.column + i.chars {
                column -= i.chars;
            } else if column > i.column {
                column = i.column;
            }
        }
        (line, column)
    }
}

/// The item without attributes before it: they may stand on both sides of `#[comm_kernel]`, which is not among the tokens.
fn without_attributes(tokens: &TokenStream) -> TokenStream {
    let mut trees: Vec<TokenTree> = tokens.clone().into_iter().collect();
    while let [TokenTree::Punct(hash), TokenTree::Group(_), ..] = trees.as_slice()
        && hash.as_char() == '#'
    {
        trees.drain(..2);
    }
    trees.into_iter().collect()
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

/// Tokens without spacing. Doc comments and their attributes read the same; groups without delimiters vanish.
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
            TokenTree::Literal(_) => out.push('0'),
            other => {
                out.push_str(&other.to_string());
                out.push(' ');
            }
        }
    }
}

/// The token at a user's place: the last one that begins at or before it.
pub fn span_at(tokens: &TokenStream, line: usize, column: usize) -> Option<Span> {
    let mut best: Option<(LineColumn, Span)> = None;
    visit(tokens.clone(), &mut |span| {
        let at = span.start();
        let before = (at.line, at.column) <= (line, column);
        if before && best.is_none_or(|(b, _)| (b.line, b.column) <= (at.line, at.column)) {
            best = Some((at, span));
        }
    });
    best.map(|(_, span)| span)
}

fn visit(tokens: TokenStream, see: &mut impl FnMut(Span)) {
    for tree in tokens {
        if let TokenTree::Group(g) = &tree {
            see(g.span_open());
            visit(g.stream(), see);
        } else {
            see(tree.span());
        }
    }
}
