//! `reduce(..)`.

use super::options::{known, skip_value};
use crate::errors::Errors;
use crate::model::{Fold, Reduce};
use crate::tables::{FOLDS, ORDERS, list};
use proc_macro2::Ident;
use syn::parse::ParseStream;
use syn::{Path, Token};

/// `(sum, f32, order = tree)` or `(path::of::a::Fold)`.
pub fn reduce(input: ParseStream<'_>, key: &Ident, errors: &mut Errors) -> syn::Result<Option<Reduce>> {
    let form = "`reduce` names a fold and what it adds up in: `reduce(sum, f32)`, `reduce(sum, f32, order = ranks)`, \
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
    if content.is_empty() {
        if let Some(word) = path.get_ident()
            && let Some((name, _)) = FOLDS.iter().find(|(name, _)| word == name)
        {
            errors.at(
                word,
                format!("`reduce({name})` does not say in what: `reduce({name}, f32)` names the accumulator"),
            );
            return Ok(None);
        }
        return Ok(Some(Reduce { span: key.span(), fold: Fold::Own(path) }));
    }
    content.parse::<Token![,]>().map_err(|e| syn::Error::new(e.span(), form))?;
    let acc: syn::Type = content.parse().map_err(|e| syn::Error::new(e.span(), form))?;
    let mut ranks = false;
    if content.parse::<Option<Token![,]>>()?.is_some() && !content.is_empty() {
        let order = |input: ParseStream<'_>| {
            let word: Ident = input.parse()?;
            input.parse::<Token![=]>()?;
            Ok((word, input.parse::<Ident>()?))
        };
        let (word, order) = order(&content).map_err(|e: syn::Error| syn::Error::new(e.span(), form))?;
        match order.to_string().as_str() {
            _ if word != "order" => errors.at(&word, form),
            "tree" => {}
            "ranks" => ranks = true,
            "any" => errors.at(
                &order,
                "a fold has one order: no algorithm here would be faster with `any`. `tree`, the default, has the same bits everywhere",
            ),
            other => errors.at(
                &order,
                format!("there is no order `{other}` of a fold. There are {}", list(ORDERS.iter().copied())),
            ),
        }
    }
    if !content.is_empty() {
        return Err(syn::Error::new(content.span(), form));
    }
    let Some(word) = path.get_ident() else {
        errors.at(&path, "a fold of your own says itself in what it folds, and in which order: `reduce(path::of::the::Fold)`");
        return Ok(None);
    };
    let shipped = known(word, "fold", FOLDS, |f| f.0, errors);
    let fold = shipped.map(|(_, name)| Fold::Shipped(name, Box::new(acc), ranks));
    Ok(fold.map(|fold| Reduce { span: key.span(), fold }))
}
