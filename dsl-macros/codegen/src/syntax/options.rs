//! `transports(..)`, `schedules(..)`, `elements(..)`, `archs(..)`, `unroll(..)`, `layout(..)`, `line_info`, `crate = path`.

use crate::errors::Errors;
use crate::model::Options;
use crate::tables::{ARCHS, ELEMENTS, SCHEDULES, TRANSPORTS, list, nearest};
use proc_macro2::{Ident, Span, TokenStream};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{LitInt, Path, Token};

const KEYS: &[&str] =
    &["transports", "schedules", "elements", "archs", "unroll", "layout", "line_info", "crate"];

/// Reads the attribute; whatever is wrong falls back to its default.
pub fn parse(tokens: TokenStream, errors: &mut Errors) -> Options {
    let span = tokens.clone().into_iter().next().map_or_else(Span::call_site, |t| t.span());
    let mut options = Options {
        transports: Vec::new(),
        schedules: Vec::new(),
        archs: Vec::new(),
        elements: Vec::new(),
        unroll: Vec::new(),
        transposed: None,
        line_info: false,
        given: Vec::new(),
        krate: syn::parse_quote!(::fusewire),
        span,
    };
    let result = (|input: ParseStream<'_>| {
        while !input.is_empty() {
            one(input, &mut options, errors)?;
            if !input.is_empty() {
                let comma: syn::Result<Token![,]> = input.parse();
                comma.map_err(|e| {
                    syn::Error::new(e.span(), "a comma goes between options: `transports(Shm), line_info`")
                })?;
            }
        }
        Ok(())
    })
    .parse2(tokens);
    errors.take(result);
    let given = |name: &str| options.given.iter().any(|(n, _)| n == name);
    let (transports, schedules) = (given("transports"), given("schedules"));
    if !transports {
        options.transports = TRANSPORTS.iter().filter(|t| t.implied).map(|t| (*t, span)).collect();
    }
    if !schedules {
        options.schedules = SCHEDULES.to_vec();
    }
    if options.archs.is_empty() {
        options.archs = vec!["sm_80".into()];
    }
    options
}

fn one(input: ParseStream<'_>, options: &mut Options, errors: &mut Errors) -> syn::Result<()> {
    let key = Ident::parse_any(input)?;
    let name = key.to_string();
    if options.given.iter().any(|(n, _)| *n == name) {
        errors.at(&key, format!("`{name}` is given twice; give each option once"));
    }
    options.given.push((name.clone(), key.span()));
    match name.as_str() {
        "transports" => {
            for word in words(input, &key, errors, "transports(Nvl, Shm)")? {
                match TRANSPORTS.iter().find(|t| word == t.name) {
                    Some(t) if options.transports.iter().any(|(o, _)| o == t) => twice(&word, errors),
                    Some(t) => options.transports.push((*t, word.span())),
                    None => unknown(&word, "transport", TRANSPORTS.iter().map(|t| t.name), errors),
                }
            }
        }
        "schedules" => {
            for word in words(input, &key, errors, "schedules(all_to_all)")? {
                match SCHEDULES.iter().find(|s| word == s.name) {
                    Some(s) if options.schedules.contains(s) => twice(&word, errors),
                    Some(s) => options.schedules.push(*s),
                    None => unknown(&word, "schedule", SCHEDULES.iter().map(|s| s.name), errors),
                }
            }
        }
        "elements" => {
            for word in words(input, &key, errors, "elements(f32, Bf16)")? {
                match ELEMENTS.iter().find(|e| word == e.0) {
                    Some(e) if options.elements.iter().any(|o| o.0 == e.0) => twice(&word, errors),
                    Some((n, path)) => options.elements.push((n.to_string(), path.to_string(), word.span())),
                    None => unknown(&word, "element type", ELEMENTS.iter().map(|e| e.0), errors),
                }
            }
        }
        "archs" => {
            for word in words(input, &key, errors, "archs(sm_80, sm_90)")? {
                match ARCHS.iter().find(|a| word == *a) {
                    Some(a) if options.archs.iter().any(|o| o == a) => twice(&word, errors),
                    Some(a) => options.archs.push(a.to_string()),
                    None => unknown(&word, "architecture", ARCHS.iter().copied(), errors),
                }
            }
        }
        "unroll" => {
            let content;
            if !input.peek(syn::token::Paren) {
                errors.at(&key, "`unroll` takes a list: `unroll(8)`, or several variants as `unroll(8, 4)`");
                return skip_value(input);
            }
            syn::parenthesized!(content in input);
            let numbers = Punctuated::<LitInt, Token![,]>::parse_terminated(&content)?;
            if numbers.is_empty() {
                errors.at(
                    &key,
                    "`unroll` names nothing; write `unroll(8)`, or leave `unroll` out for the default",
                );
            }
            for n in numbers {
                match n.base10_parse::<u32>() {
                    Ok(u @ (1 | 2 | 4 | 8)) if !options.unroll.contains(&u) => options.unroll.push(u),
                    Ok(1 | 2 | 4 | 8) => twice(&n, errors),
                    _ => errors.at(&n, "packs in flight must be 1, 2, 4 or 8: `unroll(8)`, or several variants as `unroll(8, 4)`"),
                }
            }
        }
        "layout" => {
            let form = "the one layout to name is `layout(transposed)`: `produce` reads the rows of a column side by side; \
                        leave `layout` out where packs follow each other";
            if !input.peek(syn::token::Paren) {
                errors.at(&key, form);
                return skip_value(input);
            }
            let content;
            syn::parenthesized!(content in input);
            let named: TokenStream = content.parse()?;
            match syn::parse2::<Ident>(named.clone()) {
                Ok(word) if word == "transposed" => options.transposed = Some(word.span()),
                _ if named.is_empty() => errors.at(&key, form),
                _ => errors.at(&named, form),
            }
        }
        "line_info" => options.line_info = true,
        "crate" => {
            let path = |input: ParseStream<'_>| {
                input.parse::<Token![=]>()?;
                input.call(Path::parse_mod_style)
            };
            let form = |e: syn::Error| {
                syn::Error::new(e.span(), "`crate` takes a path that holds anywhere: `crate = ::fusewire`")
            };
            options.krate = path(input).map_err(form)?;
        }
        other => {
            let hint = nearest(other, KEYS.iter().copied())
                .map(|k| format!(": did you mean `{k}`?"))
                .unwrap_or_else(|| ".".into());
            errors.at(
                &key,
                format!("there is no option `{other}`{hint} The options are {}", list(KEYS.iter().copied())),
            );
            skip_value(input)?;
        }
    }
    Ok(())
}

/// Whatever follows an option's name belongs to it.
fn skip_value(input: ParseStream<'_>) -> syn::Result<()> {
    if input.peek(syn::token::Paren) {
        let content;
        syn::parenthesized!(content in input);
        content.parse::<TokenStream>()?;
    } else if input.peek(Token![=]) {
        input.parse::<Token![=]>()?;
        input.parse::<syn::Expr>()?;
    }
    Ok(())
}

fn words(input: ParseStream<'_>, key: &Ident, errors: &mut Errors, form: &str) -> syn::Result<Vec<Ident>> {
    if !input.peek(syn::token::Paren) {
        errors.at(key, format!("`{key}` takes a list: `{form}`"));
        skip_value(input)?;
        return Ok(Vec::new());
    }
    let content;
    syn::parenthesized!(content in input);
    let words = Punctuated::<Ident, Token![,]>::parse_terminated_with(&content, Ident::parse_any)?;
    if words.is_empty() {
        errors
            .at(key, format!("`{key}` names nothing; write `{form}`, or leave `{key}` out for all of them"));
    }
    Ok(words.into_iter().collect())
}

fn twice(word: &impl quote::ToTokens, errors: &mut Errors) {
    errors.at(word, format!("`{}` is named twice; name each once", word.to_token_stream()));
}

fn unknown<'a>(word: &Ident, what: &str, known: impl Iterator<Item = &'a str> + Clone, errors: &mut Errors) {
    let hint = nearest(&word.to_string(), known.clone())
        .map(|k| format!(": did you mean `{k}`?"))
        .unwrap_or_else(|| ".".into());
    errors.at(word, format!("there is no {what} `{word}`{hint} There are {}", list(known)));
}
