//! Panics whose message has values. On a GPU a message is not formatted (`device/src/panics.rs`), so the device's text says which values there are: behind
//! the arguments of a panic goes `; @["{} of {}"; i, n]`, where the user wrote `"{i} of {}", n`.

use super::print::Printed;
use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::quote_spanned;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Expr, LitStr, Token};

/// Longest text, in bytes: what an abort record keeps of a message, less what comparisons say beside it.
const LONGEST: usize = 100;
/// Values at most; comparisons have two more.
const MOST: usize = 6;
/// In place of a value that is not said.
const UNSAID: &str = "..";

/// `core`'s macros that panic, and how many arguments stand before the message.
const PANICS: [(&str, usize); 5] =
    [("panic", 0), ("unreachable", 0), ("assert", 1), ("assert_eq", 2), ("assert_ne", 2)];

/// Every insertion in an item: before which closing delimiter, and what.
pub fn insertions(item: &TokenStream) -> Vec<(Span, String)> {
    let mut found = Vec::new();
    inserted(item, &mut found);
    let texts = found.into_iter().map(|(at, tokens)| (at, Printed::of(&tokens).text));
    // Lines stay where they are.
    texts.filter(|(_, text)| !text.contains('\n')).collect()
}

/// The item with its insertions.
pub fn with_insertions(item: &TokenStream) -> TokenStream {
    inserted(item, &mut Vec::new())
}

fn inserted(item: &TokenStream, found: &mut Vec<(Span, TokenStream)>) -> TokenStream {
    let mut others = Vec::new();
    named_otherwise(item, &mut others);
    let before = |name: &Ident| {
        let known = PANICS.iter().find(|(panic, _)| name == panic)?;
        (!others.iter().any(|other| other == known.0)).then_some(known.1)
    };
    walk(item, &before, found)
}

/// Names of panics that the item uses as something else, or gives another meaning: `use core::panic;`, `macro_rules! assert`, `core::assert!(..)`.
fn named_otherwise(tokens: &TokenStream, others: &mut Vec<String>) {
    let trees: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let is = |at: Option<usize>, mark| {
        let tree = at.and_then(|at| trees.get(at));
        matches!(tree, Some(TokenTree::Punct(p)) if p.as_char() == mark)
    };
    for (k, tree) in trees.iter().enumerate() {
        if let TokenTree::Group(group) = tree {
            named_otherwise(&group.stream(), others);
        }
        let panics = |name: &Ident| PANICS.iter().any(|(panic, _)| name == panic);
        let plain = is(Some(k + 1), '!') && !is(k.checked_sub(1), ':');
        if let TokenTree::Ident(name) = tree
            && panics(name)
            && !plain
        {
            others.push(name.to_string());
        }
    }
}

fn walk(
    tokens: &TokenStream,
    before: &impl Fn(&Ident) -> Option<usize>,
    found: &mut Vec<(Span, TokenStream)>,
) -> TokenStream {
    let mut out: Vec<TokenTree> = Vec::new();
    // Of what the compiler evaluates nothing is changed: `const fn`, `const { .. }`, `const NAME: .. = ..;`.
    let mut constant = false;
    for tree in tokens.clone() {
        let word = |back: usize, word: &str| {
            let at = out.len().checked_sub(back).and_then(|at| out.get(at));
            matches!(at, Some(TokenTree::Ident(name)) if name == word)
        };
        let tree = match tree {
            TokenTree::Group(group) if constant || word(1, "const") => {
                constant &= group.delimiter() != Delimiter::Brace;
                TokenTree::Group(group)
            }
            TokenTree::Group(group) => {
                let arguments = group.stream();
                let mut inside = walk(&arguments, before, found);
                if let Some(said) = called(&out).and_then(before).and_then(|skip| said(skip, &arguments)) {
                    inside.extend(said.clone());
                    found.push((group.span_close(), said));
                }
                let mut new = Group::new(group.delimiter(), inside);
                new.set_span(group.span());
                TokenTree::Group(new)
            }
            other => {
                match &other {
                    TokenTree::Ident(name) if name == "fn" => {
                        constant = word(1, "const") || word(2, "const");
                    }
                    TokenTree::Punct(mark) if mark.as_char() == ';' => constant = false,
                    TokenTree::Punct(mark) if mark.as_char() == '=' => constant |= is_const_item(&out),
                    _ => {}
                }
                other
            }
        };
        out.push(tree);
    }
    out.into_iter().collect()
}

/// Whether `const NAME:` begins the item whose value comes next, and no list of generic parameters does.
fn is_const_item(out: &[TokenTree]) -> bool {
    let begins = out.iter().rposition(|t| matches!(t, TokenTree::Punct(p) if p.as_char() == ';'));
    let own = &out[begins.map_or(0, |at| at + 1)..];
    matches!(own.first(), Some(TokenTree::Ident(name)) if name == "const" || name == "pub")
        && own.iter().any(|t| matches!(t, TokenTree::Ident(name) if name == "const"))
}

/// The macro whose name and `!` the tokens end with.
fn called(out: &[TokenTree]) -> Option<&Ident> {
    match out {
        [.., TokenTree::Ident(name), TokenTree::Punct(mark)] if mark.as_char() == '!' => Some(name),
        _ => None,
    }
}

/// What goes behind the arguments; nothing if none of a message's values is known.
fn said(skip: usize, arguments: &TokenStream) -> Option<TokenStream> {
    let arguments = Punctuated::<Argument, Token![,]>::parse_terminated.parse2(arguments.clone()).ok()?;
    let mut arguments = arguments.into_iter().skip(skip);
    let Argument { name: None, value: Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) } =
        arguments.next()?
    else {
        return None;
    };
    let span = text.span();
    let (text, values) = plain(&text.value(), &arguments.collect::<Vec<_>>())?;
    // `core` hands over a text without values.
    if values.is_empty() && skip < 2 {
        return None;
    }
    let text = LitStr::new(&text, span);
    Some(quote_spanned!(span=> ; @[#text; #(#values),*]))
}

/// `name = value`, or a value.
struct Argument {
    name: Option<Ident>,
    value: Expr,
}

impl Parse for Argument {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let named = input.peek(syn::Ident) && input.peek2(Token![=]) && !input.peek2(Token![==]);
        let name = if named { Some(input.parse()?) } else { None };
        if named {
            input.parse::<Token![=]>()?;
        }
        Ok(Argument { name, value: input.parse()? })
    }
}

/// The text with `{}` for every value, and the values in that order.
fn plain(text: &str, arguments: &[Argument]) -> Option<(String, Vec<Expr>)> {
    let (mut out, mut values, mut next) = (String::new(), Vec::new(), 0);
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, brace) = rest.split_at(at);
        out.push_str(before);
        if let Some(doubled) = ["{{", "}}"].into_iter().find(|d| brace.starts_with(d)) {
            out.push_str(doubled);
            rest = &brace[2..];
            continue;
        }
        let (inside, behind) = brace.strip_prefix('{')?.split_once('}')?;
        rest = behind;
        let (which, how) = inside.split_once(':').unwrap_or((inside, ""));
        // It takes an argument of its own.
        if how.contains('*') {
            return None;
        }
        let value = match which.trim() {
            "" => {
                next += 1;
                arguments.get(next - 1)?.value.clone()
            }
            number if number.starts_with(|c: char| c.is_ascii_digit()) => {
                arguments.get(number.parse::<usize>().ok()?)?.value.clone()
            }
            name => match arguments.iter().find(|a| a.name.as_ref().is_some_and(|n| n == name)) {
                Some(argument) => argument.value.clone(),
                None => syn::parse_str(name).ok()?,
            },
        };
        // Numbers are said in decimal.
        let known = !how.trim().ends_with(['x', 'X', 'b', 'o', 'e', 'E', 'p']);
        if known && values.len() < MOST && out.len() < LONGEST {
            out.push_str("{}");
            values.push(value);
        } else {
            out.push_str(UNSAID);
        }
    }
    out.push_str(rest);
    // Behind the last value.
    let least = out.rfind("{}").map_or(0, |at| at + 2).max(LONGEST);
    if let Some((end, _)) = out.char_indices().find(|(at, _)| *at > least) {
        // Doubled braces are not cut in half.
        out.truncate(end);
        let braces = out.chars().rev().take_while(|c| ['{', '}'].contains(c)).count();
        out.truncate(out.len() - braces);
        out.push_str(UNSAID);
    }
    Some((out, values))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(call: &str) -> Option<String> {
        let tokens: TokenStream = call.parse().unwrap();
        let found = insertions(&tokens);
        assert!(found.len() < 2);
        found.into_iter().next().map(|(_, text)| text.replace(' ', ""))
    }

    #[test]
    fn values_are_named_in_order() {
        for (call, text) in [
            (r#"panic!("{} of {}", a.b[1], n + 1)"#, r#";@["{}of{}";a.b[1],n+1]"#),
            (r#"panic!("{n} of {1:?} {0}", a, b)"#, r#";@["{}of{}{}";n,b,a]"#),
            (r#"panic!("{{{x:>8.3}}}", x = f::<A, B>(y),)"#, r#";@["{{{}}}";f::<A,B>(y)]"#),
            (r#"f(|| assert!(a < b, "{a} {b}"))"#, r#";@["{}{}";a,b]"#),
            (r#"assert_eq!(a, b, "said")"#, r#";@["said";]"#),
            (r#"assert_ne!{a, b == c, "{}", d}"#, r#";@["{}";d]"#),
            (r#"unreachable!("{e}")"#, r#";@["{}";e]"#),
            (r#"panic!("{a:#x} {b:e} {c:1$}", w)"#, r#";@["....{}";c]"#),
            (r#"panic!("{}{}{}{}{}{}{}", a, b, c, d, e, f, g)"#, r#";@["{}{}{}{}{}{}..";a,b,c,d,e,f]"#),
            ("fn f<const N: usize>() { panic!(\"{N}\") }", r#";@["{}";N]"#),
            ("const A: u32 = 3; fn f() { panic!(\"{A}\") }", r#";@["{}";A]"#),
        ] {
            assert_eq!(said(call).as_deref(), Some(text), "{call}");
        }
    }

    #[test]
    fn what_has_no_values_or_is_not_known_stays() {
        for call in [
            r#"panic!("text")"#,
            r#"panic!()"#,
            r#"assert!(a < b)"#,
            r#"assert_eq!(a, b)"#,
            r#"panic!("{:.*}", a, b)"#,
            r#"panic!("{} {}", a)"#,
            r#"panic!("{", a)"#,
            r#"panic!(concat!("{}", ""), a)"#,
            r#"mine!("{}", a)"#,
            r#"panic("{}", a)"#,
            // Of other crates, or of the module.
            r#"core::assert!(a < b, "{a}")"#,
            r#"use core::panic; fn f() { panic!("{a}") }"#,
            r#"macro_rules! panic { () => {} } fn f() { panic!("{a}") }"#,
            // Evaluated by the compiler.
            r#"const fn f(m: &str) { panic!("{}", m) }"#,
            r#"const unsafe fn f(m: &str) { panic!("{}", m) }"#,
            r#"const A: u32 = if B { panic!("{}", C) } else { 1 };"#,
        ] {
            assert_eq!(said(call), None, "{call}");
        }
    }

    #[test]
    fn long_texts_are_cut_behind_their_values() {
        let long = "é".repeat(2 * LONGEST);
        let text = said(&format!("panic!(\"{{x}} {long}{{y}}\")")).unwrap();
        assert!(text.starts_with("@[\"{}é",) || text.starts_with(";@[\"{}é"), "{text}");
        assert!(text.ends_with("é..\";x]") && text.len() < LONGEST + 20, "{text}");
        assert!(!text.contains('\n'));
    }

    #[test]
    fn tokens_have_what_the_text_has() {
        let item: TokenStream = r#"mod m { fn f() { if a { panic!("{a}", ) } } }"#.parse().unwrap();
        let want: TokenStream =
            r#"mod m { fn f() { if a { panic!("{a}", ; @["{}"; a]) } } }"#.parse().unwrap();
        assert_eq!(with_insertions(&item).to_string(), want.to_string());
    }
}
