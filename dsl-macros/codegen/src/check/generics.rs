//! The parameters of `Args` and of the hooks: an element type, a number.

use super::text;
use crate::errors::Errors;
use crate::model::{Args, Hook, HookModule, Model};
use proc_macro2::Span;
use syn::{Generics, Type};

/// What has parameters, where it is named, and they.
type Part = (&'static str, Span, Generics);

pub fn generics(model: &Model, module: &HookModule, args: &Args, errors: &mut Errors) {
    let hook = |name, hook: &'_ Option<Hook>| {
        hook.as_ref().map(|h| (name, h.sig.ident.span(), h.sig.generics.clone()))
    };
    let all: [Option<Part>; 3] = [
        Some(("Args", args.span, args.generics.clone())),
        hook("produce", &module.produce),
        hook("consume", &module.consume),
    ];
    numbers(model, &all, errors);
    let form = "`pub struct Args<'a, T>` and `fn produce<T: Element>(ctx: &Produce, args: &Args<T>) -> T`";
    let Some((_, _, first)) = model.options.elements.first() else {
        let generic = all.iter().flatten().find_map(|(what, _, g)| Some((what, g.type_params().next()?)));
        if let Some((what, param)) = generic {
            errors.at(
                param,
                format!("a generic `{what}` needs the types it is compiled for: `#[comm_kernel(elements(f32, Bf16))]`"),
            );
        }
        return;
    };
    for (what, _, generics) in all.iter().flatten() {
        let floats = generics.type_params().flat_map(|t| &t.bounds).any(|b| text(b) == "Float");
        for (element, path, span) in model.options.elements.iter().filter(|_| floats) {
            let float = path.contains("::") || element.starts_with('f');
            if !float {
                errors.span(*span, format!("`{element}` is not a floating-point element, and `{what}` asks for `T: Float`: name f32, f64, F16, Bf16, F8E4M3 or F8E5M2"));
            }
        }
    }
    let mut name: Option<String> = None;
    for (what, span, generics) in all.iter().flatten() {
        let types: Vec<_> = generics.type_params().map(|t| t.ident.to_string()).collect();
        match types.as_slice() {
            [one] if name.get_or_insert_with(|| one.clone()) == one => {}
            [one] => {
                let known = name.clone().unwrap_or_default();
                errors.span(
                    generics.type_params().next().map_or(*span, |t| t.ident.span()),
                    format!("`{what}` names the element type `{one}`, and `Args` names it `{known}`: give it one name in all three"),
                );
            }
            [] if *what == "Args" => {
                errors.span(
                    *first,
                    format!("`elements(..)` is for a module that is generic over its element type: {form}; or leave it out"),
                );
                return;
            }
            _ => errors.span(*span, format!("with `elements(..)`, `{what}` has one type parameter: {form}")),
        }
    }
}

/// One number, of one name and type in all three.
fn numbers(model: &Model, all: &[Option<Part>], errors: &mut Errors) {
    let form = "`pub struct Args<'a, const N: usize>` and `fn produce<const N: usize>(ctx: &Produce, args: &Args<N>) -> f32`";
    let Some((_, first)) = model.options.values.first() else {
        if model.options.given.iter().any(|(name, _)| name == "values") {
            return;
        }
        let param = all.iter().flatten().find_map(|(what, _, g)| Some((what, g.const_params().next()?)));
        if let Some((what, param)) = param {
            errors.at(
                param,
                format!(
                    "a number as a parameter of `{what}` needs the values it is compiled for: `#[comm_kernel(values(4, 8))]`; \
                     or pass it as a field of `Args`"
                ),
            );
        }
        return;
    };
    let mut known: Option<String> = None;
    for (what, span, generics) in all.iter().flatten() {
        let mut params = generics.const_params();
        match (params.next(), params.next()) {
            (Some(one), None) => {
                let one_text = format!("const {}: {}", one.ident, text(&one.ty));
                let known = known.get_or_insert_with(|| one_text.clone());
                if *known != one_text {
                    let text = format!(
                        "`{what}` has the parameter `{one_text}`, and `Args` has `{known}`: give it one name and type in all three"
                    );
                    errors.at(one, text);
                }
                if *what == "Args" {
                    kinds(model, &one.ty, errors);
                }
                if let Some((_, default)) = &one.default {
                    errors.at(default, "`values(..)` says what the number is: leave the default out");
                }
            }
            (None, _) if *what == "Args" => {
                errors.span(
                    *first,
                    format!(
                        "`values(..)` is for a module that is generic over a number: {form}; or leave it out"
                    ),
                );
                return;
            }
            (_, Some(second)) => {
                errors.at(second, format!("`{what}` has one number as a parameter at most: {form}"))
            }
            (None, None) => errors
                .span(*span, format!("with `values(..)`, `{what}` has one number as a parameter: {form}")),
        }
    }
}

/// Whether the numbers are of the parameter's type.
fn kinds(model: &Model, ty: &Type, errors: &mut Errors) {
    let name = text(ty);
    let bits = match name.trim_start_matches(['u', 'i']) {
        "size" => Some(64),
        bits => bits.parse::<u32>().ok(),
    };
    // None is below zero: one bit less of signed types.
    let most = bits.map(|bits| u128::MAX >> (128 - bits + u32::from(name.starts_with('i'))));
    for (value, span) in &model.options.values {
        let fits = match (&most, value.parse::<u128>()) {
            (Some(most), Ok(number)) => number <= *most,
            (None, Err(_)) => name == "bool",
            _ => false,
        };
        if !fits {
            errors.span(*span, format!("`{value}` is no value of `{name}`, which is the type of the parameter of `Args`: it is an integer type or `bool`"));
        }
    }
}
