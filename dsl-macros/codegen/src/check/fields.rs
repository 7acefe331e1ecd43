//! What may be an argument, and what may be an element.

use super::text;
use crate::errors::Errors;
use crate::model::{Args, Field, HookModule, Kind};
use crate::syntax::kind;
use crate::tables::ELEMENTS;
use syn::{PathArguments, Type};

const ELEMENT_TYPES: &str = "Element types are u8 to u64, i8 to i64, f32, f64, F16, Bf16, F8E4M3 and F8E5M2, and structs of these with \
                             `#[derive(Clone, Copy, Debug, Default, PartialEq, Element)] #[repr(C)]`";
const ARGUMENTS: &str = "accepted: `&'a [T]`, `Out<'a, T>`, `InOut<'a, T>`, `Accumulate<'a, T>`, numbers, `bool`, types with `#[derive(Plain)]`, and arrays and \
                         `Option`s of these";

/// What is certainly no element is refused here, in one message; names that only rustc can resolve are left to its trait solver.
pub fn element(ty: &Type, module: Option<&HookModule>, errors: &mut Errors) {
    let instead = match ty {
        Type::Path(p) => {
            let Some(last) = p.path.segments.last() else { return };
            let own = |i: &proc_macro2::Ident| {
                let element = |m: &HookModule| m.plain.iter().any(|p| p.element && p.ident == *i);
                module.is_some_and(|m| m.types.contains(i) && !element(m))
            };
            match (last.ident.to_string().as_str(), &last.arguments) {
                ("Pack", _) => "; a pack stands for its elements",
                (_, PathArguments::AngleBracketed(_)) => "",
                ("bool", _) => "; use `u8`",
                ("usize", _) => "; use `u64` or `u32`",
                ("isize", _) => "; use `i64` or `i32`",
                ("char" | "str" | "String" | "u128" | "i128", _) => "",
                _ if p.path.get_ident().is_some_and(own) => " as it is",
                _ => return,
            }
        }
        Type::Tuple(t) if t.elems.is_empty() => "",
        Type::Tuple(_) => "; make it a struct, or pass a slice for each part",
        Type::Array(_) => "; make it the field of a struct, or pass its elements",
        Type::Reference(_) | Type::Slice(_) | Type::Ptr(_) => "",
        _ => return,
    };
    errors.at(
        ty,
        format!("`{}` cannot stand in a slice or cross the wire{instead}. {ELEMENT_TYPES}", text(ty)),
    );
}

/// What any thread changes needs atomic operations.
fn sum(ty: &Type, module: Option<&HookModule>, errors: &mut Errors) {
    let name = text(ty);
    let generic = module
        .and_then(|m| m.args.as_ref())
        .is_some_and(|a| a.generics.type_params().any(|t| t.ident == name));
    let known = ELEMENTS.iter().any(|e| e.0 == name);
    let atomic = ["u32", "u64", "i32", "i64", "f32", "f64", "F16", "Bf16"];
    if generic || known && !atomic.contains(&name.as_str()) {
        errors.at(
            ty,
            format!(
                "there are no atomic operations for `{name}`: `Accumulate` is of `u32`, `u64`, `i32`, `i64`, `f32`, `f64`, `F16` or `Bf16`"
            ),
        );
    }
}

/// The fields of `Args`, or the arguments of a schedule.
pub fn fields(args: &Args, module: Option<&HookModule>, errors: &mut Errors) {
    if module.is_some() && args.generics.lifetimes().count() > 1 {
        errors.at(
            args.generics.lifetimes().nth(1),
            "`Args` has at most one lifetime, the launch's: `pub struct Args<'a>`",
        );
    }
    for field in &args.fields {
        if let Some(ty) = field.kind.element() {
            element(ty, module, errors);
        }
        if let Kind::Accumulate(ty) = &field.kind {
            sum(ty, module, errors);
        }
        if let (Kind::InOut(_), None) = (&field.kind, module) {
            errors.at(
                &field.ty,
                "`InOut` is for hook modules, whose protocols read an element before they store to it; a schedule takes `&'a [T]` and `Out<'a, T>`",
            );
        }
        if let Some(message) = refused(field, module) {
            errors.at(&field.ty, message);
        }
        if field.ident.to_string().starts_with("__") {
            errors.at(&field.ident, "names that begin with `__` are taken; choose another");
        }
    }
}

/// What certainly cannot be an argument, in one message; the rest is left to rustc's trait solver.
fn refused(field: &Field, module: Option<&HookModule>) -> Option<String> {
    match &field.ty {
        Type::Reference(r) if r.mutability.is_some() => Some(format!(
            "thousands of threads hold `Args` at once, so `{}` cannot be `&mut`; use `Out<'a, T>` for results, `Accumulate<'a, T>` for sums",
            field.ident
        )),
        Type::Reference(r) if matches!(field.kind, Kind::Plain) => {
            Some(format!("`&{}` cannot cross to the device; {ARGUMENTS}", text(&r.elem)))
        }
        Type::Ptr(_) => Some(format!("raw pointers cannot cross to the device; {ARGUMENTS}")),
        Type::Slice(_) | Type::TraitObject(_) | Type::ImplTrait(_) | Type::Tuple(_) | Type::FnPtr(_) => {
            Some(format!("`{}` cannot be a kernel argument; {ARGUMENTS}", text(&field.ty)))
        }
        Type::Path(p) => {
            let last = p.path.segments.last()?;
            let is = |names: &[&str]| names.iter().any(|n| last.ident == n);
            if is(&["Vec", "String", "Box", "Rc", "Arc", "HashMap"]) {
                return Some(format!("`{}` does not exist on the device; {ARGUMENTS}", last.ident));
            }
            let own = |i: &proc_macro2::Ident| {
                module.is_some_and(|m| m.types.contains(i) && !m.plain.iter().any(|p| p.ident == *i))
            };
            if p.path.get_ident().is_some_and(own) {
                return Some(format!(
                    "`{}` cannot be a kernel argument as it is: a struct of plain data is one with `#[derive(Clone, Copy, Plain)] #[repr(C)]` \
                     on it, and an enum without data with `#[derive(Clone, Copy, Plain)] #[repr(u32)]`",
                    last.ident
                ));
            }
            if let Kind::Option(inner) = &field.kind {
                return of_option(field, inner, module);
            }
            if is(&["char", "u128", "i128", "Option", "Result"]) {
                return Some(format!("`{}` cannot be a kernel argument; {ARGUMENTS}", text(&field.ty)));
            }
            let bare = is(&["Out", "InOut", "Accumulate"]) && field.kind.element().is_none();
            bare.then(|| format!("`{0}` needs its element type: `{0}<'a, f32>`", last.ident))
        }
        _ => None,
    }
}

/// An `Option` is of what crosses by value.
fn of_option(field: &Field, inner: &Type, module: Option<&HookModule>) -> Option<String> {
    let kind = kind(inner);
    if matches!(kind, Kind::Plain) {
        let (ident, docs) = (field.ident.clone(), Vec::new());
        return refused(&Field { ident, docs, ty: inner.clone(), kind }, module);
    }
    let instead = match kind {
        Kind::Option(_) => "an enum without data beside the value tells more cases apart",
        Kind::Slice(_) => "pass an empty slice for none",
        _ => "pass a `bool` beside it",
    };
    Some(format!("`Option` in arguments is of plain data, and `{}` is not: {instead}", text(inner)))
}
