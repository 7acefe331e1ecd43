//! Rules of `reduce(..)`.

use super::{CONSUME, rows, text};
use crate::errors::Errors;
use crate::model::{Fold, HookModule, Kind, Model, Reduce};
use crate::syntax::item::is_row;
use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::FnArg;

/// What two calls leave as one call does.
const REPEATABLE: [&str; 5] = ["load", "fetch_max", "fetch_min", "len", "is_empty"];

/// A fold is for schedules that fold, which need one.
pub fn folds(model: &Model, module: &HookModule, errors: &mut Errors) {
    let options = &model.options;
    let [mut folding, mut other] =
        [true, false].map(|folds| options.schedules.iter().filter(move |s| s.folds == folds));
    let at =
        options.given.iter().find(|(name, _)| name == "schedules").map_or(options.span, |(_, span)| *span);
    let Some(reduce) = &options.reduce else {
        if let (Some(schedule), false) =
            (folding.next(), options.given.iter().any(|(name, _)| name == "reduce"))
        {
            errors.span(
                at,
                format!("`{}` folds what all ranks send: say how, `reduce(sum, f32)`", schedule.name),
            );
        }
        return;
    };
    if let Some(schedule) = other.next() {
        let why = match folding.next() {
            Some(folding) => format!(
                "`{}` folds; name `{}` in a second module, without `reduce`",
                folding.name, schedule.name
            ),
            None => "leave `reduce` out, or name `reduce_scatter`, `all_reduce` or `reduce`".to_owned(),
        };
        errors.span(
            at,
            format!("`{}` hands `consume` what each rank sent, and folds nothing: {why}", schedule.name),
        );
    }
    if let Some(transposed) = options.transposed {
        errors.span(transposed, "`layout(transposed)` and `reduce` do not go together: leave `layout` out");
    }
    if let Some(schedule) = options.schedules.iter().find(|s| s.name == "all_reduce") {
        counted(model, module, schedule.name, errors);
    }
    result(model, module, reduce, errors);
    let Some((taken, by_pack)) = module.consume.as_ref().and_then(|c| c.wire.as_ref()) else { return };
    let rows = options.row.is_some();
    if rows::has_scales(&module.consume) || reduce.result.is_some() {
        return;
    }
    if *by_pack && !rows {
        let whole = module.consume.as_ref().and_then(|c| c.sig.inputs.iter().nth(2));
        let at = match whole {
            Some(FnArg::Typed(p)) => &*p.ty,
            _ => taken,
        };
        let (ty, what) = match &reduce.fold {
            Fold::Shipped(_, acc, _) => (text(acc), ""),
            Fold::Own(_) => ("A".to_owned(), ", where `A` is the accumulator"),
        };
        let form = CONSUME.replace("W)", &format!("{ty})"));
        errors.at(at, format!("with `reduce`, `consume` takes one value, not a pack: `{form}`{what}"));
    } else if let Fold::Shipped(_, acc, _) = &reduce.fold
        && text(taken) != text(acc)
    {
        let (acc, taken_text) = (text(acc), text(taken));
        errors.at(
            taken,
            match rows {
                false => format!("`reduce` folds in `{acc}`, but `consume` takes `{taken_text}`: `value: {acc}`"),
                true => format!("`reduce` folds in `{acc}`, but `consume` takes a row of `{taken_text}`: `row: Row<{acc}>`"),
            },
        );
    }
}

/// What `consume` gets in place of the accumulator.
fn result(model: &Model, module: &HookModule, reduce: &Reduce, errors: &mut Errors) {
    let Some(result) = &reduce.result else { return };
    let Some(consume) = &module.consume else {
        let output = module.output().map_or_else(|| "the output".to_owned(), |f| format!("`{}`", f.ident));
        return errors.at(
            result,
            format!("`result` is what `consume` gets, and this module has none: leave it out. What is folded then becomes an element of {output}"),
        );
    };
    let (ty, by_rows) = (text(result), model.options.row.is_some());
    if by_rows != is_row(result) {
        if consume.row.is_some() && !by_rows {
            // The missing length is told.
            return;
        }
        errors.at(
            result,
            match by_rows {
                true => format!(
                    "with `grain = row(..)` the result is a row: `result = Row<{ty}>`, or `Scaled<T, G>`"
                ),
                false => "without `grain = row(..)` the result is one value: `result = Bf16`".to_owned(),
            },
        );
    } else if let Some(FnArg::Typed(taken)) = consume.sig.inputs.iter().nth(2)
        && text(&taken.ty) != ty
    {
        let name = if by_rows { "row" } else { "value" };
        errors.at(
            &taken.ty,
            format!(
                "`reduce(.., result = {ty})` gives `consume` that, but it takes `{}`: `{name}: {ty}`",
                text(&taken.ty)
            ),
        );
    }
}

/// On GPUs sending and receiving blocks of an all-reduce in one step both ask for this rank's contribution.
fn counted(model: &Model, module: &HookModule, schedule: &str, errors: &mut Errors) {
    let (Some(produce), Some(args)) = (&module.produce, &module.args) else { return };
    if !model.options.transports.iter().any(|(transport, _)| transport.cuda) {
        return;
    }
    let counters: Vec<&Ident> =
        args.fields.iter().filter(|f| matches!(f.kind, Kind::Accumulate(_))).map(|f| &f.ident).collect();
    if let Some(field) = changed(produce.body.clone(), &counters) {
        errors.at(
            &field,
            format!(
                "on GPUs `{schedule}` may call `produce` twice for an element, and `{field}` would count it twice: change `{field}` in \
                 `consume`, or name schedules without `{schedule}`, `schedules(reduce_scatter)`. In `produce`, only `{field}.load(..)`, `{field}.fetch_max(..)` \
                 and `{field}.fetch_min(..)` are accepted"
            ),
        );
    }
}

/// Where one of these fields is first named and not merely read, or moved to a bound.
fn changed(tokens: TokenStream, fields: &[&Ident]) -> Option<Ident> {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    let dot = |at: usize| matches!(trees.get(at), Some(TokenTree::Punct(p)) if p.as_char() == '.');
    for (k, tree) in trees.iter().enumerate() {
        match tree {
            TokenTree::Group(group) => {
                if let Some(found) = changed(group.stream(), fields) {
                    return Some(found);
                }
            }
            TokenTree::Ident(name) if k > 0 && dot(k - 1) && fields.contains(&name) => {
                let method = trees.get(k + 2).filter(|_| dot(k + 1));
                let repeatable =
                    matches!(method, Some(TokenTree::Ident(m)) if REPEATABLE.iter().any(|r| m == r));
                if !repeatable {
                    return Some(name.clone());
                }
            }
            _ => {}
        }
    }
    None
}
