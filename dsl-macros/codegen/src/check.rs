//! Every rule, all errors at once. Each message gives the rule and the accepted form, at the token that breaks it.

use crate::errors::Errors;
use crate::model::{Args, Hook, HookModule, Item, Kind, Model, ScheduleFn};
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::{FnArg, GenericParam, PathArguments, ReturnType, Signature, Type};

const PRODUCE: &str = "pub fn produce(ctx: &Produce, args: &Args) -> W";
const CONSUME: &str = "pub fn consume(ctx: &Consume, args: &Args, value: W)";

/// Checks the model.
pub fn check(model: &Model, errors: &mut Errors) {
    match &model.item {
        Item::Hooks(module) => hooks(model, module, errors),
        Item::Schedule(function) => schedule(model, function, errors),
    }
    if let Some(args) = model.args() {
        fields(args, matches!(model.item, Item::Hooks(_)), errors);
    }
}

fn hooks(model: &Model, module: &HookModule, errors: &mut Errors) {
    let Some(args) = &module.args else {
        errors.at(&module.ident, "a hook module needs its arguments: `pub struct Args<'a> { pub input: &'a [f32], pub output: Out<'a, f32> }`");
        return;
    };
    if let Some(produce) = &module.produce {
        qualifiers(&produce.sig, PRODUCE, errors);
        parameters(&produce.sig, &["Produce", "Args"], PRODUCE, errors);
        if let ReturnType::Default = produce.sig.output {
            errors.at(
                &produce.sig.ident,
                format!("`produce` gives what goes on the wire: `{PRODUCE}`, or `-> Pack<W>`"),
            );
        }
    }
    if let Some(consume) = &module.consume {
        qualifiers(&consume.sig, CONSUME, errors);
        parameters(&consume.sig, &["Consume", "Args", ""], CONSUME, errors);
        if let ReturnType::Type(_, ty) = &consume.sig.output
            && !matches!(&**ty, Type::Tuple(t) if t.elems.is_empty())
        {
            errors.at(
                ty,
                format!("`consume` returns nothing: `{CONSUME}`; write results to an `Out` of `Args`"),
            );
        }
    }
    same_wire(module, errors);
    copies(model, module, args, errors);
    generics(model, module, args, errors);
}

fn qualifiers(sig: &Signature, form: &str, errors: &mut Errors) {
    let name = &sig.ident;
    if let Some(t) = &sig.asyncness {
        errors.at(t, format!("`{name}` runs on a GPU thread and cannot be `async`: `{form}`"));
    }
    if let Some(t) = &sig.constness {
        errors.at(t, format!("`{name}` cannot be `const`: `{form}`"));
    }
    if matches!(sig.safety, syn::Safety::Unsafe(_)) {
        errors.at(&sig.safety, format!("`{name}` must be safe to call for every element: `{form}`; put `unsafe` blocks inside where needed"));
    }
    if let Some(abi) = &sig.abi {
        errors.at(abi, format!("`{name}` is an ordinary Rust function: `{form}`"));
    }
    if let Some(v) = &sig.variadic {
        errors.at(v, format!("`{name}` takes no variadic arguments: `{form}`"));
    }
}

/// The path's last segment behind a shared reference.
fn behind_ref(ty: &Type) -> Option<String> {
    let Type::Reference(r) = ty else { return None };
    let Type::Path(p) = &*r.elem else { return None };
    (r.mutability.is_none()).then(|| p.path.segments.last().map(|s| s.ident.to_string())).flatten()
}

fn parameters(sig: &Signature, wanted: &[&str], form: &str, errors: &mut Errors) {
    let name = &sig.ident;
    if sig.inputs.len() != wanted.len() {
        let at = if sig.inputs.is_empty() { name.to_token_stream() } else { sig.inputs.to_token_stream() };
        errors.at(at, format!("`{name}` takes {} parameters: `{form}`", wanted.len()));
        return;
    }
    for (input, want) in sig.inputs.iter().zip(wanted) {
        match input {
            FnArg::Receiver(r) => {
                errors.at(r, format!("`{name}` is a free function without `self`: `{form}`"))
            }
            FnArg::Typed(p) if !want.is_empty() && behind_ref(&p.ty).as_deref() != Some(*want) => {
                errors.at(&p.ty, format!("this parameter of `{name}` must be `&{want}`: `{form}`"));
            }
            FnArg::Typed(p) => {
                if let Type::ImplTrait(t) = &*p.ty {
                    errors.at(
                        t,
                        format!(
                            "the wire type must be named: `{form}` with an element type or `Pack` of one"
                        ),
                    );
                }
            }
        }
    }
}

fn text(t: &impl ToTokens) -> String {
    t.to_token_stream().to_string()
}

fn same_wire(module: &HookModule, errors: &mut Errors) {
    let of = |h: &Option<Hook>| h.as_ref().and_then(|h| h.wire.clone());
    let (Some(sent), Some(taken)) = (of(&module.produce), of(&module.consume)) else { return };
    if text(&sent.0) != text(&taken.0) {
        let (s, t) = (text(&sent.0), text(&taken.0));
        errors.at(&taken.0, format!("`produce` puts `{s}` on the wire, but `consume` takes `{t}`: both ends must name the same wire type"));
    }
}

/// A hook that is left out is a copy, which needs `input` or `output` of the wire type.
fn copies(model: &Model, module: &HookModule, args: &Args, errors: &mut Errors) {
    let field = |name: &str| args.fields.iter().find(|f| f.ident == name);
    let wire = model.wire().map(|w| text(&w.0));
    if module.produce.is_none() {
        match field("input").map(|f| (f, &f.kind)) {
            Some((f, Kind::Slice(t))) if wire.as_ref().is_some_and(|w| *w != text(t)) => errors.at(
                &f.ty,
                format!("without `produce`, `input` is what goes on the wire, so it must be `&'a [{}]`", wire.unwrap_or_default()),
            ),
            Some((_, Kind::Slice(_))) => {}
            _ => errors.span(args.span, format!("without `produce`, `Args` must have a field `input: &'a [W]` to copy from; add it, or write `{PRODUCE}`")),
        }
    }
    let wire = model.wire().map(|w| text(&w.0));
    if module.consume.is_none() {
        match field("output").map(|f| (f, &f.kind)) {
            Some((f, Kind::Out(t))) if wire.as_ref().is_some_and(|w| *w != text(t)) => errors.at(
                &f.ty,
                format!("without `consume`, `output` takes what arrives, so it must be `Out<'a, {}>`", wire.unwrap_or_default()),
            ),
            Some((_, Kind::Out(_))) => {}
            _ => errors.span(args.span, format!("without `consume`, `Args` must have a field `output: Out<'a, W>` to copy to; add it, or write `{CONSUME}`")),
        }
    }
}

fn generics(model: &Model, module: &HookModule, args: &Args, errors: &mut Errors) {
    let given = !model.options.elements.is_empty();
    let types = |g: &syn::Generics| g.type_params().map(|t| t.ident.to_string()).collect::<Vec<_>>();
    for (what, generics) in [
        ("Args", Some(&args.generics)),
        ("produce", module.produce.as_ref().map(|h| &h.sig.generics)),
        ("consume", module.consume.as_ref().map(|h| &h.sig.generics)),
    ] {
        let Some(generics) = generics else { continue };
        if let Some(c) = generics.const_params().next() {
            errors.at(
                c,
                format!("`{what}` cannot have const parameters; pass the number as a field of `Args`"),
            );
        }
        match (given, types(generics).as_slice()) {
            (true, [_]) | (false, []) => {}
            (true, _) => errors.span(
                generics.span(),
                format!("with `elements(..)`, `{what}` has one type parameter: `Args<'a, T>` and `fn produce<T: Element>(ctx: &Produce, args: &Args<T>) -> T`"),
            ),
            (false, _) => errors.at(
                generics.type_params().next(),
                format!("a generic `{what}` needs the types it is compiled for: `#[comm_kernel(elements(f32, Bf16))]`"),
            ),
        }
    }
    let params: Vec<String> = [
        Some(&args.generics),
        module.produce.as_ref().map(|h| &h.sig.generics),
        module.consume.as_ref().map(|h| &h.sig.generics),
    ]
    .into_iter()
    .flatten()
    .flat_map(types)
    .collect();
    if given && params.windows(2).any(|w| w[0] != w[1]) {
        errors.span(
            args.span,
            "`Args`, `produce` and `consume` must give their type parameter the same name, such as `T`",
        );
    }
}

fn fields(args: &Args, needs_lifetime: bool, errors: &mut Errors) {
    if needs_lifetime && args.generics.lifetimes().count() > 1 {
        errors.at(
            args.generics.lifetimes().nth(1),
            "`Args` has at most one lifetime, the launch's: `pub struct Args<'a>`",
        );
    }
    for field in &args.fields {
        match &field.ty {
            Type::Reference(r) if r.mutability.is_some() => errors.at(
                &field.ty,
                format!("thousands of threads hold `Args` at once, so `{}` cannot be `&mut`; use `Out<'a, T>` for results, `Accumulate<'a, T>` for sums", field.ident),
            ),
            Type::Reference(r) if matches!(field.kind, Kind::Plain) => {
                let what = text(&r.elem);
                errors.at(&field.ty, format!("`&{what}` cannot cross to the device; accepted: `&'a [T]`, `Out<'a, T>`, `Accumulate<'a, T>`, numbers by value"));
            }
            Type::Ptr(_) => errors.at(&field.ty, "raw pointers cannot cross to the device; pass `&'a [T]`, `Out<'a, T>` or `Accumulate<'a, T>`"),
            Type::Slice(_) | Type::TraitObject(_) | Type::ImplTrait(_) | Type::Tuple(_) => errors.at(
                &field.ty,
                format!("`{}` cannot be a kernel argument; accepted: `&'a [T]`, `Out<'a, T>`, `Accumulate<'a, T>`, numbers, `bool` and arrays of them", text(&field.ty)),
            ),
            Type::Path(p) => {
                let last = p.path.segments.last();
                let owned = last.filter(|s| ["Vec", "String", "Box", "Rc", "Arc", "HashMap", "Option"].iter().any(|n| s.ident == n));
                if let Some(segment) = owned {
                    errors.at(&field.ty, format!("`{}` does not exist on the device; accepted: `&'a [T]`, `Out<'a, T>`, `Accumulate<'a, T>`, numbers, `bool` and arrays of them", segment.ident));
                }
                let output = last.filter(|s| s.ident == "Out" || s.ident == "Accumulate");
                if let Some(segment) = output
                    && matches!(segment.arguments, PathArguments::None)
                {
                    errors.at(&field.ty, format!("`{0}` needs its element type: `{0}<'a, f32>`", segment.ident));
                }
            }
            _ => {}
        }
        if field.ident.to_string().starts_with("__") {
            errors.at(&field.ident, "names that begin with `__` are taken; choose another");
        }
    }
}

fn schedule(model: &Model, function: &ScheduleFn, errors: &mut Errors) {
    let sig = &function.sig;
    let form = format!("pub fn {}<O: Ops>(kernel: &Kernel<O>, ..) -> Flow", sig.ident);
    qualifiers(sig, &form, errors);
    if !model.options.elements.is_empty() {
        errors.span(
            model.options.elements[0].2,
            "`elements` is for hook modules; a schedule function names its types",
        );
    }
    let types: Vec<_> = sig.generics.type_params().collect();
    let param = match types.as_slice() {
        [one] if !one.bounds.is_empty() => Some(one.ident.to_string()),
        _ => {
            let at = if sig.generics.params.is_empty() {
                sig.ident.to_token_stream()
            } else {
                sig.generics.params.to_token_stream()
            };
            errors.at(at, format!("a schedule is generic over the transport's operations, and nothing else: `{form}`; `O: Put` or `O: Get` where it needs them"));
            None
        }
    };
    for other in sig.generics.params.iter().filter(|p| !matches!(p, GenericParam::Type(_))) {
        errors.at(other, format!("a schedule has no lifetime or const parameters: `{form}`"));
    }
    match sig.inputs.first() {
        Some(FnArg::Typed(p)) if behind_ref(&p.ty).as_deref() == Some("Kernel") => {
            if let (Some(param), Type::Reference(r)) = (&param, &*p.ty)
                && !text(&r.elem).replace(' ', "").ends_with(&format!("<{param}>"))
            {
                errors.at(&p.ty, format!("the first parameter is the running kernel on the function's own operations: `kernel: &Kernel<{param}>`"));
            }
        }
        Some(other) => errors.at(other, format!("the first parameter is the running kernel: `{form}`")),
        None => errors.at(&sig.ident, format!("the first parameter is the running kernel: `{form}`")),
    }
    let flows = matches!(&sig.output, ReturnType::Type(_, ty) if text(ty).ends_with("Flow"));
    if !flows {
        let at = match &sig.output {
            ReturnType::Type(_, ty) => ty.to_token_stream(),
            ReturnType::Default => sig.ident.to_token_stream(),
        };
        errors.at(at, format!("a schedule returns `Flow`, so that an expired wait ends it: `{form}`"));
    }
}
