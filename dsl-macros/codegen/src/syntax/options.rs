//! `transports(..)`, `schedules(..)`, `uses(..)`, `elements(..)`, `values(..)`, `archs(..)`, `unroll(..)`, `layout(..)`, `grain = row(..)`, `reduce(..)`, `line_info`, `crate = path`.

use super::reduce::reduce;
use super::words::{known, skip_value};
use crate::crates::{DeviceCrate, interned};
use crate::errors::Errors;
use crate::model::Options;
use crate::tables::{ARCHS, ELEMENTS, SCHEDULES, Schedule, TRANSPORTS, Transport, list, nearest};
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Lit, LitInt, Path, Token};

const KEYS: &[&str] = &[
    "transports",
    "schedules",
    "uses",
    "elements",
    "values",
    "archs",
    "unroll",
    "layout",
    "grain",
    "reduce",
    "line_info",
    "crate",
];

/// Reads the attribute; whatever is wrong falls back to its default. `functions` are the item's, which may be schedules, `crates` the device crates that it
/// names.
pub fn parse(
    tokens: TokenStream,
    functions: &[Ident],
    crates: Vec<DeviceCrate>,
    errors: &mut Errors,
) -> Options {
    let span = tokens.clone().into_iter().next().map_or_else(Span::call_site, |t| t.span());
    let mut options = Options {
        transports: Vec::new(),
        schedules: Vec::new(),
        archs: Vec::new(),
        elements: Vec::new(),
        values: Vec::new(),
        unroll: Vec::new(),
        transposed: None,
        row: None,
        reduce: None,
        line_info: false,
        given: Vec::new(),
        krate: syn::parse_quote!(::fusewire),
        paths: Vec::new(),
        crates,
        span,
    };
    let result = (|input: ParseStream<'_>| {
        while !input.is_empty() {
            one(input, functions, &mut options, errors)?;
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
    if !options.gives("transports") {
        options.transports = TRANSPORTS.iter().filter(|t| t.implied).map(|t| (*t, span)).collect();
    }
    if !options.gives("schedules") {
        let folds = options.gives("reduce");
        let implied = |s: &&Schedule| if folds { s.folds && s.mutual } else { s.implied };
        options.schedules = SCHEDULES.iter().filter(implied).copied().collect();
    }
    options
}

/// The architectures of an item whose attribute names none. GPUs convert 8-bit floats from sm_89 on; before, that takes ten
/// instructions each. (Not for the sake of `elements`: their kernels would all be compiled twice.)
pub fn archs(item: &TokenStream) -> Vec<String> {
    fn converts(tokens: &TokenStream) -> bool {
        tokens.clone().into_iter().any(|token| match token {
            TokenTree::Ident(word) => word == "F8E4M3" || word == "F8E5M2",
            TokenTree::Group(group) => converts(&group.stream()),
            _ => false,
        })
    }
    let all: &[&str] = if converts(item) { &["sm_80", "sm_90"] } else { &["sm_80"] };
    all.iter().map(|&arch| arch.into()).collect()
}

fn one(
    input: ParseStream<'_>,
    functions: &[Ident],
    options: &mut Options,
    errors: &mut Errors,
) -> syn::Result<()> {
    let key = Ident::parse_any(input)?;
    let name = key.to_string();
    if options.gives(&name) {
        errors.at(&key, format!("`{name}` is given twice; give each option once"));
    }
    options.given.push((name.clone(), key.span()));
    match name.as_str() {
        "transports" => {
            for path in listed(input, &key, errors, "transports(Nvl, Shm)", Path::parse_mod_style)? {
                let named = match path.get_ident() {
                    Some(word) => known(word, "transport", TRANSPORTS, |t| t.name, errors),
                    None => foreign_transport(&path, &options.crates, errors),
                };
                match named {
                    Some(t) if options.transports.iter().any(|(o, _)| *o == t) => twice(&path, errors),
                    Some(t) => {
                        options.transports.push((t, path.span()));
                        options.paths.extend(t.krate.map(|_| (t.name, path.span())));
                    }
                    None => {}
                }
            }
        }
        "schedules" => {
            for path in listed(input, &key, errors, "schedules(all_to_all)", Path::parse_mod_style)? {
                let named = match path.get_ident() {
                    Some(word) => schedule(word, functions, errors),
                    None => foreign_schedule(&path, &options.crates, errors),
                };
                match named {
                    Some(s) if options.schedules.contains(&s) => twice(&path, errors),
                    Some(s) if options.schedules.iter().any(|o| o.name == s.name) => errors.at(
                        &path,
                        format!("two schedules would be prepared by a function `{}`; name one of them in a second module", s.name),
                    ),
                    Some(s) => {
                        options.schedules.push(s);
                        let path_of = s.krate.map(|_| s.marker).or(s.is_within().then_some(s.name));
                        options.paths.extend(path_of.map(|text| (text, path.span())));
                    }
                    None => {}
                }
            }
        }
        "uses" => {
            for word in listed(input, &key, errors, "uses(some_device_crate)", Ident::parse_any)? {
                if !options.crates.iter().any(|c| word == c.name) {
                    errors.at(&word, beyond(&word.to_string()));
                }
            }
        }
        "elements" => {
            for word in listed(input, &key, errors, "elements(f32, Bf16)", Ident::parse_any)? {
                match known(&word, "element type", ELEMENTS, |e| e.0, errors) {
                    Some((n, _)) if options.elements.iter().any(|o| o.0 == n) => twice(&word, errors),
                    Some((n, path)) => options.elements.push((n.to_string(), path.to_string(), word.span())),
                    None => {}
                }
            }
        }
        "values" => {
            for lit in listed(input, &key, errors, "values(4, 8)", Lit::parse)? {
                let text = match &lit {
                    Lit::Int(n) => n.base10_digits().to_owned(),
                    Lit::Bool(b) => b.value.to_string(),
                    _ => {
                        errors.at(&lit, "a value is a whole number, `true` or `false`: `values(4, 8)`");
                        continue;
                    }
                };
                match options.values.iter().any(|(other, _)| *other == text) {
                    true => twice(&lit, errors),
                    false => options.values.push((text, lit.span())),
                }
            }
        }
        "archs" => {
            for word in listed(input, &key, errors, "archs(sm_80, sm_90)", Ident::parse_any)? {
                match known(&word, "architecture", ARCHS, |a| a, errors) {
                    Some(a) if options.archs.iter().any(|o| o == a) => twice(&word, errors),
                    Some(a) => options.archs.push(a.to_string()),
                    None => {}
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
        "grain" => options.row = grain(input, &key, errors)?,
        "reduce" => options.reduce = reduce(input, &key, errors)?,
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

/// `= row(4096)`.
fn grain(input: ParseStream<'_>, key: &Ident, errors: &mut Errors) -> syn::Result<Option<(usize, Span)>> {
    let form = "the one grain to name is a row of so many elements: `grain = row(4096)`; leave `grain` out for hooks of elements or packs";
    let parsed = |input: ParseStream<'_>| {
        input.parse::<Token![=]>()?;
        let word: Ident = input.parse()?;
        let content;
        syn::parenthesized!(content in input);
        let cols: LitInt = content.parse()?;
        if word == "row" && content.is_empty() { Ok(cols) } else { Err(syn::Error::new(word.span(), form)) }
    };
    if !input.peek(Token![=]) {
        errors.at(key, form);
        skip_value(input)?;
        return Ok(None);
    }
    let named = |input: ParseStream<'_>| {
        input.parse::<Token![=]>()?;
        input.parse::<Ident>()?;
        let content;
        syn::parenthesized!(content in input);
        content.parse::<Ident>()
    };
    if let Ok(name) = named(&input.fork()) {
        errors.at(
            &name,
            format!("a row's length is a number, and `{name}` is none here: write it out; for several lengths have a `macro_rules!` write a module for each"),
        );
        skip_value(input)?;
        return Ok(Some((MOST_COLS, key.span())));
    }
    let cols = parsed(input).map_err(|e| syn::Error::new(e.span(), form))?;
    let n = cols.base10_parse().unwrap_or(MOST_COLS + 1);
    // A row that can be, so that hooks of rows are not refused as well.
    let near = n.clamp(16, MOST_COLS) / 16 * 16;
    if n != near {
        errors.at(
            &cols,
            format!("a row has a multiple of 16 elements, and {MOST_COLS} at most: `grain = row({near})`"),
        );
    }
    Ok(Some((near, key.span())))
}

/// Elements of the longest row: `fusewire_device::row::MOST_COLS`.
const MOST_COLS: usize = 16384;

/// What stands in the parentheses behind an option's name.
fn listed<T>(
    input: ParseStream<'_>,
    key: &Ident,
    errors: &mut Errors,
    form: &str,
    one: fn(ParseStream<'_>) -> syn::Result<T>,
) -> syn::Result<Vec<T>> {
    if !input.peek(syn::token::Paren) {
        errors.at(key, format!("`{key}` takes a list: `{form}`"));
        skip_value(input)?;
        return Ok(Vec::new());
    }
    let content;
    syn::parenthesized!(content in input);
    let all = Punctuated::<T, Token![,]>::parse_terminated_with(&content, one)?;
    if all.is_empty() {
        errors
            .at(key, format!("`{key}` names nothing; write `{form}`, or leave `{key}` out for all of them"));
    }
    Ok(all.into_iter().collect())
}

/// What is said of a crate that was not asked what it declares.
fn beyond(name: &str) -> String {
    format!("`{name}` is another crate, and only the compiler can ask it what it declares: run `cargo build`")
}

/// The crate that a path begins with, and the path as text without leading colons.
fn from_crate<'a>(
    path: &Path,
    crates: &'a [DeviceCrate],
    errors: &mut Errors,
) -> Option<(&'a DeviceCrate, String)> {
    let segments: Vec<_> = path.segments.iter().map(|s| s.ident.to_string()).collect();
    if ["crate", "self", "super"].contains(&segments[0].as_str()) {
        errors.at(
            path,
            format!(
                "`{}` is in this crate; a transport or schedule stands in a device crate of its own, and its path begins with that crate's name",
                segments.join("::")
            ),
        );
        return None;
    }
    let found = crates.iter().find(|c| c.name == segments[0]);
    if found.is_none() {
        errors.at(path, beyond(&segments[0]));
    }
    Some((found?, segments.join("::")))
}

fn foreign_transport(path: &Path, crates: &[DeviceCrate], errors: &mut Errors) -> Option<Transport> {
    let (krate, text) = from_crate(path, crates, errors)?;
    let within = text.split_once("::").map_or("", |(_, rest)| rest);
    let Some(declared) = krate.transports.iter().find(|t| t.path == within) else {
        let names: Vec<_> =
            krate.transports.iter().map(|t| format!("`{}::{}`", krate.name, t.path)).collect();
        let declared = match names.as_slice() {
            [] => "it declares none".to_owned(),
            names => format!("it declares {}", names.join(", ")),
        };
        errors.at(
            path,
            format!("`{}` declares no transport `{within}` in its `device_crate!`: {declared}", krate.name),
        );
        return None;
    };
    Some(Transport {
        name: interned(&text),
        krate: Some(interned(&krate.name)),
        ops: interned(&declared.ops),
        label: interned(&snake(&text)),
        cuda: declared.cuda,
        host: declared.threads,
        direct: declared.stores,
        domains: false,
        implied: false,
    })
}

/// A shipped schedule, or a function of the module; also a name that is spelled like one, of which the check of the module tells.
fn schedule(word: &Ident, functions: &[Ident], errors: &mut Errors) -> Option<Schedule> {
    let (text, shipped) = (word.to_string(), SCHEDULES.iter().map(|s| s.name));
    let own: Vec<String> = functions.iter().map(ToString::to_string).collect();
    let within = match nearest(&text, shipped.clone()) {
        None => nearest(&text, own.iter().map(String::as_str)).is_some(),
        Some(_) => own.contains(&text) && !shipped.clone().any(|name| name == text),
    };
    if within {
        Some(Schedule::within(interned(&text)))
    } else {
        known(word, "schedule", SCHEDULES, |s| s.name, errors)
    }
}

fn foreign_schedule(path: &Path, crates: &[DeviceCrate], errors: &mut Errors) -> Option<Schedule> {
    let (krate, text) = from_crate(path, crates, errors)?;
    let last = path.segments.last().map(|s| s.ident.to_string()).unwrap_or_default();
    Some(Schedule {
        name: interned(&snake(&last)),
        krate: Some(interned(&krate.name)),
        marker: interned(&text),
        launcher: "Launcher",
        implied: false,
        own: true,
        once: false,
        folds: false,
        mutual: true,
        // Whether it is, rustc sees.
        apart: true,
        two_steps: false,
        doc: interned(&format!("Prepares [`{text}`]. Collective: all ranks call it, in the same order.")),
    })
}

/// `ring_kit::RingShift` as `ring_kit_ring_shift`.
fn snake(path: &str) -> String {
    let mut out = String::new();
    for part in path.split("::") {
        for c in part.chars() {
            if c.is_uppercase() || out.is_empty() {
                if !out.is_empty() && !out.ends_with('_') {
                    out.push('_');
                }
                out.extend(c.to_lowercase());
            } else {
                out.push(c);
            }
        }
        out.push('_');
    }
    out.trim_end_matches('_').to_owned()
}

fn twice(word: &impl quote::ToTokens, errors: &mut Errors) {
    errors.at(word, format!("`{}` is named twice; name each once", word.to_token_stream()));
}

#[cfg(test)]
mod tests {
    use super::archs;
    use quote::quote;

    #[test]
    fn eight_bit_floats_have_an_image_that_converts_them() {
        let copies = quote!(
            mod copy {
                pub struct Args<'a> {
                    input: &'a [Bf16],
                    output: Out<'a, Bf16>,
                }
            }
        );
        assert_eq!(archs(&copies), ["sm_80"]);
        let narrow = quote!(
            mod narrow {
                pub fn produce(x: &Args) -> Row<F8E5M2> {
                    x.input.row(ctx).to()
                }
            }
        );
        assert_eq!(archs(&narrow), ["sm_80", "sm_90"]);
    }
}
