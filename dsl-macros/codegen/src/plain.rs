//! `#[derive(Clone, Copy, Plain)]` and `#[derive(.., Element)]` in a hook module: its structs and enums as by-value arguments, its structs as elements.
//!
//! No such derives exist: the device has no procedural macros. The word is taken out of both texts, and `__plain!` or `__element!` of the device
//! crate, which implements the traits, is called with the type's parts.

use crate::configured::always;
use crate::errors::Errors;
use crate::model::PlainType;
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::spanned::Spanned;
use syn::{Attribute, Fields, Generics, Item, Meta};

/// The traits that are derived.
pub fn derived(attrs: &[Attribute]) -> Vec<String> {
    let mut found = Vec::new();
    for a in attrs.iter().filter(|a| a.path().is_ident("derive")) {
        // What is no list of paths is rustc's to refuse.
        let _ = a.parse_nested_meta(|meta| {
            found.extend(meta.path.segments.last().map(|s| s.ident.to_string()));
            Ok(())
        });
    }
    found
}

/// Takes `Plain` and `Element` out of what a type derives, if one is there, and checks the rest of it.
pub fn take(item: &mut Item, errors: &mut Errors) -> Option<PlainType> {
    let (attrs, ident, generics) = match item {
        Item::Struct(i) => (&mut i.attrs, &i.ident, &i.generics),
        Item::Enum(i) => (&mut i.attrs, &i.ident, &i.generics),
        Item::Union(i) => (&mut i.attrs, &i.ident, &i.generics),
        _ => return None,
    };
    let (mut found, mut word) = ([None; 2], Vec::new());
    for (name, found) in ["Plain", "Element"].iter().zip(&mut found) {
        let Some((at, rest, tokens)) = attrs.iter().enumerate().find_map(|(k, attr)| {
            let Meta::List(list) = &attr.meta else { return None };
            let (rest, tokens) = without(&list.tokens, name).filter(|_| attr.path().is_ident("derive"))?;
            Some((k, rest, tokens))
        }) else {
            continue;
        };
        *found = tokens.first().copied();
        word.extend(tokens);
        if rest.is_empty() {
            attrs.remove(at);
        } else if let Meta::List(list) = &mut attrs[at].meta {
            list.tokens = rest;
        }
    }
    let [plain, element] = found;
    let derive = element.or(plain)?;
    let element = element.is_some();
    let (ident, attrs) = (ident.clone(), attrs.clone());
    common(&attrs, &ident, generics, element, errors);
    let parts = match item {
        Item::Struct(i) => {
            layout(&attrs, &ident, &["C", "transparent"], "`#[repr(C)]`", errors);
            let fields = fields(&i.fields, errors);
            quote!(struct #ident { #fields })
        }
        Item::Enum(_) if element => {
            errors.span(
                derive,
                format!("`{ident}` is an enum, and not every bit pattern is one of its values: an element is a struct, in which its number stands"),
            );
            // So that nothing else is said of it.
            return Some(PlainType { ident, parts: TokenStream::new(), element, word });
        }
        Item::Enum(i) => {
            layout(&attrs, &ident, &NUMBERS, "`#[repr(u8)]` or `#[repr(u32)]`", errors);
            for variant in &i.variants {
                always(&variant.attrs, "the values of a plain enum", errors);
                if !variant.fields.is_empty() {
                    errors.at(
                        &variant.fields,
                        format!(
                            "a value of a plain enum has no data, and `{ident}::{}` has: put the data into a struct beside the enum",
                            variant.ident
                        ),
                    );
                }
            }
            let values = i.variants.iter().map(|v| &v.ident);
            quote!(enum #ident { #(#values,)* })
        }
        _ => {
            errors.span(
                derive,
                format!("`{ident}` is a union: plain data is a struct, or an enum without data"),
            );
            return None;
        }
    };
    Some(PlainType { ident, parts, element, word })
}

/// What is said of the derive `Plain` or `Element` where no `#[comm_kernel]` sees it.
pub fn elsewhere(derive: &str, item: TokenStream) -> TokenStream {
    let name = syn::parse2::<syn::DeriveInput>(item)
        .map_or_else(|_| Ident::new("it", Span::call_site()), |i| i.ident);
    let why = format!(
        "`#[derive({derive})]` is for types at the top of a hook module, which the device sees: move `{name}` into the module that takes it, or into \
         a device crate, in `fusewire::device::{}! {{ .. }}`",
        derive.to_lowercase()
    );
    syn::Error::new(name.span(), why).to_compile_error()
}

const NUMBERS: [&str; 8] = ["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"];

/// A list of derives without `name`, and the tokens that were taken.
fn without(list: &TokenStream, name: &str) -> Option<(TokenStream, Vec<Span>)> {
    let mut trees: Vec<TokenTree> = list.clone().into_iter().collect();
    let is_comma = |t: &TokenTree| matches!(t, TokenTree::Punct(p) if p.as_char() == ',');
    let at = trees.iter().position(|t| matches!(t, TokenTree::Ident(i) if i == name))?;
    let from = trees[..at].iter().rposition(is_comma).map_or(0, |k| k + 1);
    let to = trees[at..].iter().position(is_comma).map_or(trees.len(), |k| at + k + 1);
    let mut word: Vec<Span> = trees.drain(from..to).map(|t| t.span()).collect();
    // The name first: errors stand there.
    word.swap(0, at - from);
    Some((trees.into_iter().collect(), word))
}

fn common(attrs: &[Attribute], ident: &Ident, generics: &Generics, element: bool, errors: &mut Errors) {
    always(attrs, "a plain type", errors);
    if !generics.params.is_empty() {
        errors.at(
            generics,
            format!(
                "`{ident}` is plain data and has no parameters: name its types, or make what depends on the element type a field of `Args`"
            ),
        );
    }
    let derived = derived(attrs);
    let missing = |names: &[&str]| !names.iter().all(|name| derived.iter().any(|d| d == name));
    if element && missing(&["Clone", "Copy", "Debug", "Default", "PartialEq"]) {
        errors.at(
            ident,
            format!(
                "`{ident}` is copied, compared and printed as numbers are, and has a zero: `#[derive(Clone, Copy, Debug, Default, PartialEq, Element)]`"
            ),
        );
    } else if missing(&["Clone", "Copy"]) {
        errors.at(ident, format!("each thread has a copy of `{ident}`: `#[derive(Clone, Copy, Plain)]`"));
    }
}

/// That the layout is the one that is asked for, and no other.
fn layout(attrs: &[Attribute], ident: &Ident, good: &[&str], form: &str, errors: &mut Errors) {
    let mut found = false;
    for attr in attrs.iter().filter(|a| a.path().is_ident("repr")) {
        let Meta::List(list) = &attr.meta else { continue };
        let word = list.tokens.to_string();
        found |= good.contains(&word.as_str());
        if !good.contains(&word.as_str()) {
            errors.at(
                &list.tokens,
                format!(
                    "`{ident}` is plain data, which has one layout on host and device: {form}, not `{word}`"
                ),
            );
            return;
        }
    }
    if !found {
        errors.at(
            ident,
            format!(
                "host and device lay out `{ident}` alike only where that is asked for: write {form} above it"
            ),
        );
    }
}

/// `name: type,` of each field; the name of a field without one is its number.
fn fields(fields: &Fields, errors: &mut Errors) -> TokenStream {
    let mut out = TokenStream::new();
    for (k, field) in fields.iter().enumerate() {
        always(&field.attrs, "the fields of a plain type", errors);
        let (number, ty) = (syn::Index { index: k as u32, span: field.ty.span() }, &field.ty);
        let name = field.ident.as_ref().map_or_else(|| number.to_token_stream(), ToTokens::to_token_stream);
        out.extend(quote!(#name: #ty,));
    }
    out
}
