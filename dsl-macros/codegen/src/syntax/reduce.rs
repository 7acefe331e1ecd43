//! `reduce(..)`.

use super::words::{known, skip_value};
use crate::errors::Errors;
use crate::model::{Fold, Reduce};
use crate::tables::{FOLDS, list};
use proc_macro2::{Ident, TokenStream};
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Path, Token};

/// What a fold of the user's own is told of accumulators, orders and results.
const OWN: &str = "a fold of your own stands alone: its `impl Fold` has the accumulator, which `consume` gets, and the order: `reduce(path::of::the::Fold)`";

/// `(sum, f32, order = tree, result = Bf16)` or `(path::of::a::Fold)`.
pub fn reduce(input: ParseStream<'_>, key: &Ident, errors: &mut Errors) -> syn::Result<Option<Reduce>> {
    let form = "`reduce` names a fold and its accumulator: `reduce(sum, f32)`, `reduce(sum, f32, order = ranks)`, `reduce(sum, f32, result = Bf16)`, \
                or a type that implements `Fold`: `reduce(Farthest)`";
    if !input.peek(syn::token::Paren) {
        errors.at(key, form);
        skip_value(input)?;
        return Ok(None);
    }
    let content;
    syn::parenthesized!(content in input);
    if content.is_empty() {
        errors.at(key, form);
        return Ok(None);
    }
    let path = content.call(Path::parse_mod_style)?;
    let shipped =
        path.get_ident().and_then(|word| Some((word, FOLDS.iter().find(|(name, _)| word == name)?.0)));
    let alone = content.is_empty();
    if !alone {
        content.parse::<Token![,]>().map_err(|e| syn::Error::new(e.span(), form))?;
    }
    if alone || content.peek(Ident::peek_any) && content.peek2(Token![=]) {
        content.parse::<TokenStream>()?;
        match shipped {
            Some((word, name)) => errors.at(
                word,
                format!("`reduce({name})` lacks the accumulator, the type that values are folded in: `reduce({name}, {})`", if accumulators(name).contains(&"f32") { "f32" } else { "u32" }),
            ),
            None if alone => return Ok(Some(Reduce { span: key.span(), fold: Fold::Own(path), result: None })),
            None => errors.at(&path, OWN),
        }
        return Ok(None);
    }
    let acc: syn::Type = content.parse().map_err(|e| syn::Error::new(e.span(), form))?;
    let (mut ranks, mut result) = (false, None);
    while content.parse::<Option<Token![,]>>()?.is_some() && !content.is_empty() {
        let named = |input: ParseStream<'_>| {
            let word: Ident = input.parse()?;
            input.parse::<Token![=]>()?;
            Ok(word)
        };
        let word = named(&content).map_err(|e: syn::Error| syn::Error::new(e.span(), form))?;
        if word == "order" {
            let order = content.parse().map_err(|e: syn::Error| syn::Error::new(e.span(), form))?;
            ranks = from_rank_zero(&order, errors);
        } else if word == "result" {
            result = Some(content.parse().map_err(|e: syn::Error| syn::Error::new(e.span(), form))?);
        } else {
            errors.at(&word, format!("`reduce` has no `{word}`. There are `order`, `reduce(sum, f32, order = ranks)`, and `result`, `reduce(sum, f32, result = Bf16)`"));
            // Whatever it may be.
            content.parse::<TokenStream>()?;
            return Ok(None);
        }
    }
    if !content.is_empty() {
        return Err(syn::Error::new(content.span(), form));
    }
    let Some(word) = path.get_ident() else {
        errors.at(&path, OWN);
        return Ok(None);
    };
    let shipped = known(word, "fold", FOLDS, |f| f.0, errors);
    if let Some((name, _)) = shipped {
        accumulator(name, &acc, errors);
    }
    let fold = shipped.map(|(_, name)| Fold::Shipped(name, Box::new(acc), ranks));
    Ok(fold.map(|fold| Reduce { span: key.span(), fold, result }))
}

/// Whether a fold of that order goes from rank 0 up, and not by a tree.
fn from_rank_zero(order: &Ident, errors: &mut Errors) -> bool {
    match order.to_string().as_str() {
        "tree" => {}
        "ranks" => return true,
        "any" => errors.at(
            order,
            "there is no order `any`: a fold without an order would be no faster here. Leave `order` out: `tree`, the default, gives every \
             rank the same bits in every run",
        ),
        other => errors.at(
            order,
            format!("a fold has no order `{other}`. There are `tree`, the default, and `ranks`, which goes from rank 0 up"),
        ),
    }
    false
}

const INTEGERS: [&str; 8] = ["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"];
const FLOATS: [&str; 2] = ["f32", "f64"];
/// Floats that are no accumulators: `f32` holds every value of theirs.
const NARROW: [&str; 6] = ["F16", "Bf16", "F8E4M3", "F8E5M2", "f16", "bf16"];
/// Other types that hold a number or a bit and are none.
const OTHERS: [&str; 7] = ["f128", "usize", "isize", "u128", "i128", "bool", "char"];

/// Accumulators of a fold.
fn accumulators(fold: &str) -> Vec<&'static str> {
    match fold {
        "and" | "or" | "xor" => INTEGERS.to_vec(),
        "average" => FLOATS.to_vec(),
        _ => FLOATS.into_iter().chain(INTEGERS).collect(),
    }
}

/// Refuses an accumulator that is known by its name and does not fit; of other types rustc knows more.
fn accumulator(fold: &str, acc: &syn::Type, errors: &mut Errors) {
    let syn::Type::Path(path) = acc else { return };
    let Some(name) = path.path.get_ident().map(Ident::to_string) else { return };
    let taken = accumulators(fold);
    let known = INTEGERS.iter().chain(&FLOATS).chain(&NARROW).chain(&OTHERS).any(|known| name == *known);
    if !known || taken.contains(&name.as_str()) {
        return;
    }
    let hint = match fold {
        _ if NARROW.contains(&name.as_str()) && taken.contains(&"f32") => {
            format!(". f32 holds every value of a narrow float: `reduce({fold}, f32)`")
        }
        "average" if INTEGERS.contains(&name.as_str()) => {
            format!(". Of integers take `reduce(sum, {name})`, and divide in `consume`")
        }
        _ => String::new(),
    };
    let all = list(taken.into_iter());
    errors.at(acc, format!("`{fold}` does not fold in `{name}`. Its accumulators are {all}{hint}"));
}
