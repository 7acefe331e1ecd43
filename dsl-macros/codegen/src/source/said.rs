//! Panics whose message has values. On a GPU a message is not formatted (`device/src/panics.rs`), so the device's text says which values there are: in
//! front of a panic's other arguments goes `@["{} of {}"; i, n]`, where the user wrote `"{i} of {}", n`.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Expr, Ident, LitStr, Token};

/// Longest text, in bytes: an abort record keeps about so many.
const LONGEST: usize = 100;
/// Values at most, of which comparisons have two of their own.
const MOST: usize = 6;

/// What goes before the arguments of the macro `name`; nothing if it is no panic, or none with values, or written in a way that is not known here.
pub fn of(name: &Ident, arguments: &TokenStream) -> Option<String> {
    let (before, compares) = match name.to_string().as_str() {
        "panic" | "unreachable" => (0, false),
        "assert" => (1, false),
        "assert_eq" | "assert_ne" => (2, true),
        _ => return None,
    };
    let arguments = Punctuated::<Argument, Token![,]>::parse_terminated.parse2(arguments.clone()).ok()?;
    let mut arguments = arguments.into_iter().skip(before);
    let Argument { name: None, value: Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) } =
        arguments.next()?
    else {
        return None;
    };
    let (text, values) = plain(&text.value(), &arguments.collect::<Vec<_>>())?;
    // `core` hands over what has no values.
    if text.len() > LONGEST || values.len() > MOST || values.is_empty() && !compares {
        return None;
    }
    let text = LitStr::new(&text, proc_macro2::Span::call_site());
    Some(quote::quote!(@[#text; #(#values),*]).to_string() + " ")
}

/// Every insertion in the tokens: before which one, and what.
pub fn insertions(tokens: &TokenStream) -> Vec<(TokenTree, String)> {
    let mut found = Vec::new();
    let mut last: [Option<TokenTree>; 2] = [None, None];
    for tree in tokens.clone() {
        if let TokenTree::Group(group) = &tree {
            let inside = group.stream();
            if let (Some(text), Some(first)) =
                (called(&last, group.delimiter(), &inside), inside.clone().into_iter().next())
            {
                found.push((first, text));
            }
            found.extend(insertions(&inside));
        }
        last = [last[1].take(), Some(tree)];
    }
    found
}

/// What goes into a group behind `last`, if those are a macro's name and `!`.
pub fn called(last: &[Option<TokenTree>; 2], delimiter: Delimiter, inside: &TokenStream) -> Option<String> {
    match last {
        [Some(TokenTree::Ident(name)), Some(TokenTree::Punct(mark))]
            if mark.as_char() == '!' && delimiter != Delimiter::None =>
        {
            of(name, inside)
        }
        _ => None,
    }
}

/// `name = value`, or a value.
struct Argument {
    name: Option<Ident>,
    value: Expr,
}

impl Parse for Argument {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let named = input.peek(Ident) && input.peek2(Token![=]) && !input.peek2(Token![==]);
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
        // Widths and precisions that are values themselves are not known here.
        if how.contains(['$', '*']) {
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
        out.push_str("{}");
        values.push(value);
    }
    Some((out + rest, values))
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
            (r#"panic!("{} of {}", a.b[1], n + 1)"#, r#"@["{}of{}";a.b[1],n+1]"#),
            (r#"panic!("{n} of {1:?} {0}", a, b)"#, r#"@["{}of{}{}";n,b,a]"#),
            (r#"panic!("{{{x:>8.3}}}", x = f::<A, B>(y),)"#, r#"@["{{{}}}";f::<A,B>(y)]"#),
            (r#"f(|| assert!(a < b, "{a} {b}"))"#, r#"@["{}{}";a,b]"#),
            (r#"assert_eq!(a, b, "said")"#, r#"@["said";]"#),
            (r#"assert_ne!{a, b == c, "{}", d}"#, r#"@["{}";d]"#),
            (r#"unreachable!("{e}")"#, r#"@["{}";e]"#),
        ] {
            assert_eq!(said(call).as_deref(), Some(text), "{call}");
        }
    }

    #[test]
    fn what_has_no_values_or_is_not_known_stays() {
        let long = format!("panic!(\"{}{{x}}\")", "a".repeat(LONGEST));
        for call in [
            r#"panic!("text")"#,
            r#"panic!()"#,
            r#"assert!(a < b)"#,
            r#"assert_eq!(a, b)"#,
            r#"panic!("{:1$}", a, b)"#,
            r#"panic!("{} {}", a)"#,
            r#"panic!("{", a)"#,
            r#"panic!(concat!("{}", ""), a)"#,
            r#"mine!("{}", a)"#,
            r#"panic("{}", a)"#,
            r#"panic!("{}{}{}{}{}{}{}", a, b, c, d, e, f, g)"#,
            &long,
        ] {
            assert_eq!(said(call), None, "{call}");
        }
    }
}
