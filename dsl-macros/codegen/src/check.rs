//! Every rule, all errors at once. Each message gives the rule and the accepted form, at the token that breaks it.

mod alone;
mod fields;
mod folds;
mod generics;
mod rows;

use crate::configured;
use crate::errors::Errors;
use crate::generate::names;
use crate::model::{Args, Hook, HookModule, Instance, Item, Kind, Model, Params, ScheduleFn, values};
use crate::tables::nearest;
pub use alone::stands_alone;
use fields::{element, fields};
use generics::generics;
use quote::ToTokens;
use syn::{FnArg, GenericParam, ReturnType, Signature, Type};

const PRODUCE: &str = "pub fn produce(ctx: &Produce, args: &Args) -> W";
const CONSUME: &str = "pub fn consume(ctx: &Consume, args: &Args, value: W)";

/// Names that `grain = row(..)` gives in a module.
pub const ROWS: [&str; 5] = ["Row", "Scaled", "Groups", "ProduceRow", "ConsumeRow"];

/// Checks the model.
pub fn check(model: &Model, errors: &mut Errors) {
    if !model.ident().to_string().is_ascii() {
        errors.at(model.ident(), "a kernel's name becomes a symbol in PTX: ASCII letters, digits and `_`");
    }
    configured::alike(&model.tokens, errors);
    match &model.item {
        Item::Hooks(module) => {
            hooks(model, module, errors);
            if let Some(span) = model.options.transposed {
                layout(module, span, errors);
            }
            within(model, module, errors);
            folds::folds(model, module, errors);
            in_place(model, module, errors);
            rows::rows(model, module, errors);
            if let Some(args) = &module.args {
                fields(args, Some(module), errors);
            }
        }
        Item::Schedule(function) => {
            schedule(model, function, errors);
            fields(&function.args, None, errors);
        }
    }
}

/// Tiles are of what `produce` gives element by element.
fn layout(module: &HookModule, span: proc_macro2::Span, errors: &mut Errors) {
    let form =
        "`pub fn produce(ctx: &Produce, args: &Args) -> W` that reads `args.input[ctx.transposed_index()]`";
    let by_element = |hook: &Hook| hook.wire.as_ref().is_none_or(|wire| !wire.1);
    let reason = match &module.produce {
        None => "without `produce` chunks are copied as they lie",
        Some(hook) if !by_element(hook) => "this one gives packs",
        Some(_) => return,
    };
    errors.span(
        span,
        format!("`layout(transposed)` is for a `produce` that gives one element: {form}; {reason}: leave `layout` out"),
    );
}

/// What is sent and overwritten in one launch must have been read before. Another crate's schedule says so by `Schedule::APART`, which rustc looks at.
fn in_place(model: &Model, module: &HookModule, errors: &mut Errors) {
    let Some(field) = module.in_place() else { return };
    let [produce, consume] = rows::forms(model);
    let other = model.options.schedules.iter().find(|s| !s.apart && s.name != "all_reduce");
    if let Some(schedule) = other {
        errors.at(
            &field.ty,
            format!(
                "`{}` stores what arrives for a chunk where it may not have sent that chunk yet, so it cannot be in place: take `input: &'a [T]` and \
                 `output: Out<'a, T>` in place of `InOut`",
                schedule.name
            ),
        );
    } else if let (None, Some(input)) =
        (&module.produce, module.input().filter(|input| input.ident != field.ident))
    {
        let (name, input) = (&field.ident, &input.ident);
        errors.at(
            &field.ty,
            format!("without `produce`, `{input}` is sent, and `{name}` is never read: make it `Out<'a, T>`, or write `{produce}`"),
        );
    } else if let (None, Some(output)) =
        (&module.consume, module.output().filter(|output| output.ident != field.ident))
    {
        let (name, output) = (&field.ident, &output.ident);
        errors.at(
            &field.ty,
            format!("without `consume`, what arrives goes to `{output}`, and `{name}` is never written: make it `&'a [T]`, or write `{consume}`"),
        );
    }
}

fn hooks(model: &Model, module: &HookModule, errors: &mut Errors) {
    let before = errors.shown();
    let ([give, take], [producing, consuming]) = (rows::forms(model), rows::contexts(model));
    let given = if model.options.row.is_some() { &ROWS[..] } else { &[] };
    let bound = if module.params().is_empty() { &[][..] } else { &["Compiled"] };
    for name in &module.names {
        let mut given =
            ["Launch", "Hooks"].iter().chain(given).chain(bound).copied().chain(model.prepared_by());
        let taken = given.any(|n| name == n);
        if taken || name.to_string().starts_with("__") {
            errors.at(
                name,
                format!("`{name}` is a name that `#[comm_kernel]` gives in this module; choose another"),
            );
        }
    }
    if let Some(produce) = &module.produce {
        if let ReturnType::Type(_, ty) = &produce.sig.output {
            named_wire(ty, give, errors);
        }
        qualifiers(&produce.sig, give, errors);
        parameters(&produce.sig, &[producing, "Args"], give, errors);
        if let ReturnType::Default = produce.sig.output {
            errors.at(
                &produce.sig.ident,
                match model.options.row {
                    None => format!("`produce` gives what goes on the wire: `{give}`, or `-> Pack<W>`"),
                    Some(_) => {
                        format!("`produce` gives what goes on the wire: `{give}`, or `-> Scaled<W, G>`")
                    }
                },
            );
        }
    }
    let schedules = &model.options.schedules;
    let [once, each] = [true, false].map(|once| schedules.iter().find(|s| s.once == once));
    if let (Some(schedule), Some(peer)) = (once, module.produce.as_ref().and_then(|p| p.peer)) {
        let name = schedule.name;
        let instead = match each {
            Some(_) => format!("leave it out, or name `{name}` in a second module"),
            None => "leave it out".to_owned(),
        };
        errors.span(
            peer,
            format!("`{name}` calls `produce` once for all peers, so `produce` has no `peer`: {instead}. This rank is `ctx.rank`"),
        );
    }
    if let Some(consume) = &module.consume {
        qualifiers(&consume.sig, take, errors);
        parameters(&consume.sig, &[consuming, "Args", ""], take, errors);
        if let ReturnType::Type(_, ty) = &consume.sig.output
            && !matches!(&**ty, Type::Tuple(t) if t.elems.is_empty())
        {
            errors
                .at(ty, format!("`consume` returns nothing: `{take}`; write results to an `Out` of `Args`"));
        }
    }
    let wires = [&module.produce, &module.consume].map(|h| h.as_ref().and_then(|h| h.wire.as_ref()));
    let folds = model.options.reduce.is_some();
    match wires {
        [Some((sent, by_pack)), Some((taken, _))] if text(sent) == text(taken) => {
            wire(sent, *by_pack || folds, module, errors)
        }
        wires => {
            wires.into_iter().flatten().for_each(|(ty, by_pack)| wire(ty, *by_pack || folds, module, errors))
        }
    }
    match &module.args {
        Some(args) if args.named => {
            generics(model, module, args, errors);
            // If the fold was refused, nothing is known of what `consume` takes.
            let refused = model.options.reduce.is_none() && model.options.gives("reduce");
            if errors.shown() == before && !refused {
                if model.options.reduce.is_none() {
                    same_wire(module, errors);
                }
                if ![&module.produce, &module.consume].into_iter().any(rows::has_scales) {
                    copies(model, module, args, errors);
                }
            }
        }
        Some(_) => {}
        None => errors.at(
            &module.ident,
            "a hook module needs its arguments: `pub struct Args<'a> { pub input: &'a [f32], pub output: Out<'a, f32> }`",
        ),
    }
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
        errors.at(
            &sig.safety,
            format!("`{name}` must be a safe function: `{form}`; put `unsafe` blocks inside where needed"),
        );
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

fn named_wire(ty: &Type, form: &str, errors: &mut Errors) {
    if let Type::ImplTrait(t) = ty {
        errors.at(t, format!("the wire type must be named: `{form}` with an element type or `Pack` of one"));
    }
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

/// Tokens as people write them.
fn text(t: &impl ToTokens) -> String {
    let mut text = t.to_token_stream().to_string();
    for (spaced, written) in
        [(" < ", "<"), (" >", ">"), (" :: ", "::"), ("& ", "&"), (" ;", ";"), (" ,", ","), ("< ", "<")]
    {
        text = text.replace(spaced, written);
    }
    text
}

fn same_wire(module: &HookModule, errors: &mut Errors) {
    // Rows are compared as they are written.
    let of = |h: &Option<Hook>| h.as_ref().filter(|h| h.row.is_none()).and_then(|h| h.wire.clone());
    let (Some(sent), Some(taken)) = (of(&module.produce), of(&module.consume)) else { return };
    if [&sent.0, &taken.0].iter().any(|w| matches!(w, Type::ImplTrait(_))) {
        return;
    }
    if text(&sent.0) != text(&taken.0) {
        let (s, t) = (text(&sent.0), text(&taken.0));
        errors.at(&taken.0, format!("`produce` puts `{s}` on the wire, but `consume` takes `{t}`: both ends must name the same wire type"));
    }
}

/// What crosses the wire is an element, or some of them: unless it is `one`, a tuple or an array.
fn wire(ty: &Type, one: bool, module: &HookModule, errors: &mut Errors) {
    let Some(values) = values(ty).filter(|_| !one) else { return element(ty, Some(module), errors) };
    for value in &values {
        let mut value = value;
        while let Type::Array(array) = value {
            value = &array.elem;
        }
        element(value, Some(module), errors);
    }
    let params = module.params();
    if let Some(param) = params.names().find(|param| names(ty, param)) {
        let ty_text = text(ty);
        errors.at(ty, format!("`{ty_text}` on the wire is of types that are known here, not of `{param}`: write a module for each"));
    }
}

/// A hook that is left out is a copy, which needs `input` or `output` of the wire type.
fn copies(model: &Model, module: &HookModule, args: &Args, errors: &mut Errors) {
    if let (Some(several), true) = (model.wire_values(), module.produce.is_none() || module.consume.is_none())
    {
        let (form, ty) = (if module.produce.is_none() { PRODUCE } else { CONSUME }, text(&several));
        errors.at(
            &several,
            format!(
                "`{ty}` is what crosses the wire, and lies in no buffer: write both hooks, `{form}` as well"
            ),
        );
        return;
    }
    let wire = model.wire().map(|w| text(&w.0));
    if module.produce.is_none() {
        match module.input().map(|f| (f, &f.kind)) {
            Some((f, Kind::InOut(t))) if wire.as_ref().is_some_and(|w| *w != text(t)) => errors.at(
                &f.ty,
                format!("without `produce`, this is what goes on the wire, so it must be `InOut<'a, {}>`", wire.unwrap_or_default()),
            ),
            Some((_, Kind::InOut(_))) => {}
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
        match module.output().map(|f| (f, &f.kind)) {
            Some((_, Kind::Out(_) | Kind::InOut(_))) if model.options.reduce.is_some() => {}
            Some((f, Kind::InOut(t))) if wire.as_ref().is_some_and(|w| *w != text(t)) => errors.at(
                &f.ty,
                format!("without `consume`, this takes what arrives, so it must be `InOut<'a, {}>`", wire.unwrap_or_default()),
            ),
            Some((_, Kind::InOut(_))) => {}
            Some((f, Kind::Out(t))) if wire.as_ref().is_some_and(|w| *w != text(t)) => errors.at(
                &f.ty,
                format!("without `consume`, `output` takes what arrives, so it must be `Out<'a, {}>`", wire.unwrap_or_default()),
            ),
            Some((_, Kind::Out(_))) => {}
            _ => errors.span(args.span, format!("without `consume`, `Args` must have a field `output: Out<'a, W>` to copy to; add it, or write `{CONSUME}`")),
        }
    }
}

fn schedule(model: &Model, function: &ScheduleFn, errors: &mut Errors) {
    let sig = &function.sig;
    let form = format!("pub fn {}<O: Ops>(kernel: &Kernel<O>, ..) -> Flow", sig.ident);
    if let Some(span) = model.instances().first().and_then(Instance::span) {
        let what = if model.options.elements.is_empty() { "values" } else { "elements" };
        errors.span(
            span,
            format!("`{what}` is for hook modules; a schedule function names its types and numbers"),
        );
    }
    let of_modules = |name: &str| ["schedules", "unroll", "layout", "reduce"].contains(&name);
    for (name, span) in model.options.given.iter().filter(|(name, _)| of_modules(name)) {
        errors.span(*span, format!("`{name}` is for hook modules; this function is the schedule"));
    }
    running(sig, &form, &Params::default(), errors);
}

/// The schedules that are functions of the module: their tiles are by element or by pack.
fn within(model: &Model, module: &HookModule, errors: &mut Errors) {
    for schedule in model.within() {
        let Some(sig) = module.others.iter().find(|sig| sig.ident == schedule.name) else {
            let all: Vec<String> = module.others.iter().map(|sig| sig.ident.to_string()).collect();
            let near = nearest(schedule.name, all.iter().map(String::as_str)).unwrap_or_default();
            let text = format!(
                "there is no schedule `{}`: did you mean the module's function `{near}`?",
                schedule.name
            );
            errors.span(model.span_of(schedule.name), text);
            continue;
        };
        let name = &sig.ident;
        let form = format!("pub fn {name}<O: Ops>(kernel: &Kernel<O>, args: &Args) -> Flow");
        running(sig, &form, &module.params(), errors);
        let text = format!("a schedule in a hook module takes the module's arguments: `{form}`");
        match sig.inputs.iter().nth(1) {
            Some(FnArg::Typed(p))
                if sig.inputs.len() == 2 && behind_ref(&p.ty).as_deref() == Some("Args") => {}
            Some(other) => errors.at(other, text),
            None => errors.at(name, text),
        }
    }
    if let Some(schedule) = model.within().next() {
        tiles(model, module, schedule.name, errors);
    }
}

/// What hooks of tiles cannot be: the schedule `name` is the module's own.
fn tiles(model: &Model, module: &HookModule, name: &str, errors: &mut Errors) {
    if let Some(field) = module.in_place() {
        errors.at(
            &field.ty,
            format!(
                "`InOut` is for shipped schedules, which read an element before they store to it; `{name}` is a schedule of one's own: take `input: &'a [T]` \
                 and `output: Out<'a, T>`"
            ),
        );
    }
    if let Some(span) = module.asks_shape {
        errors.span(
            span,
            format!(
                "tiles of a schedule of one's own, `{name}`, have one row, and nothing to transpose: `transposed_index()` and `transposed(ctx)` are for \
                 shipped schedules"
            ),
        );
    }
    let options = [
        (model.options.row.map(|(_, span)| span), "grain = row(..)"),
        (model.options.transposed, "layout(transposed)"),
    ];
    for (span, option) in options {
        if let Some(span) = span {
            errors.span(span, format!("tiles of a schedule of one's own, `{name}`, are of elements and packs: `{option}` is for shipped schedules"));
        }
    }
}

/// The signature of a schedule function. `params` are those of the module that it stands in.
fn running(sig: &Signature, form: &str, params: &Params, errors: &mut Errors) {
    qualifiers(sig, form, errors);
    let own = |ident: &proc_macro2::Ident| params.names().any(|name| name == ident);
    let types: Vec<_> = sig.generics.type_params().filter(|t| !own(&t.ident)).collect();
    let param = match types.as_slice() {
        [one] if !one.bounds.is_empty() || sig.generics.where_clause.is_some() => Some(one.ident.to_string()),
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
    let other = |p: &&GenericParam| match p {
        GenericParam::Type(_) => false,
        GenericParam::Const(c) => !own(&c.ident),
        GenericParam::Lifetime(_) => true,
    };
    for other in sig.generics.params.iter().filter(other) {
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
    let flows = matches!(&sig.output, ReturnType::Type(_, ty)
        if matches!(&**ty, Type::Path(p) if p.path.segments.last().is_some_and(|s| s.ident == "Flow")));
    if !flows {
        let at = match &sig.output {
            ReturnType::Type(_, ty) => ty.to_token_stream(),
            ReturnType::Default => sig.ident.to_token_stream(),
        };
        errors.at(at, format!("a schedule returns `Flow`, so that an expired wait ends it: `{form}`"));
    }
}
