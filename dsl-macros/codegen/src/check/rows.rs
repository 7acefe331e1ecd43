//! Hooks of `grain = row(N)`, and rows where there is no grain.

use super::{CONSUME, PRODUCE, text};
use crate::errors::Errors;
use crate::model::{Hook, HookModule, Item, Kind, Model};

const PRODUCE_ROW: &str = "pub fn produce(ctx: &ProduceRow, args: &Args) -> Row<W>";
const CONSUME_ROW: &str = "pub fn consume(ctx: &ConsumeRow, args: &Args, row: Row<W>)";

/// Whether hooks are of rows, or are meant to be.
fn by_rows(model: &Model) -> bool {
    let Item::Hooks(module) = &model.item else { return false };
    let hooks = [&module.produce, &module.consume];
    model.options.row.is_some()
        || hooks.iter().any(|hook| hook.as_ref().is_some_and(|hook| hook.row.is_some()))
}

/// Whether a hook's row has scales.
pub fn has_scales(hook: &Option<Hook>) -> bool {
    hook.as_ref().and_then(|hook| hook.row.as_ref()).is_some_and(is_scaled)
}

fn is_scaled(row: &syn::Type) -> bool {
    text(row).starts_with("Scaled")
}

/// What `produce` and `consume` look like.
pub fn forms(model: &Model) -> [&'static str; 2] {
    if by_rows(model) { [PRODUCE_ROW, CONSUME_ROW] } else { [PRODUCE, CONSUME] }
}

/// The types of their contexts.
pub fn contexts(model: &Model) -> [&'static str; 2] {
    if by_rows(model) { ["ProduceRow", "ConsumeRow"] } else { ["Produce", "Consume"] }
}

/// Rows need their length, and hooks of a length are of rows.
pub fn rows(model: &Model, module: &HookModule, errors: &mut Errors) {
    let hooks = [("produce", &module.produce, "gives"), ("consume", &module.consume, "takes")];
    let hooks = hooks.iter().filter_map(|(name, hook, verb)| Some((*name, hook.as_ref()?, *verb)));
    let Some((_, span)) = model.options.row else {
        for (name, hook, verb) in hooks {
            if let Some(row) = &hook.row {
                let row = text(row);
                errors.at(&hook.row, format!("`{name}` {verb} `{row}`, but nothing says how long a row is: `#[comm_kernel(grain = row(4096))]`"));
            }
        }
        for field in model.args().into_iter().flat_map(|args| &args.fields) {
            if let Kind::OfRows(_, path) = &field.kind {
                errors.at(
                    &field.ty,
                    format!("`{}` is an output of hooks of `grain = row(..)`; use `Out<'a, T>`", text(path)),
                );
            }
        }
        return;
    };
    for (name, hook, verb) in hooks.filter(|(_, hook, _)| hook.row.is_none()) {
        let form = forms(model)[usize::from(name == "consume")];
        if let Some((wire, _)) = &hook.wire {
            errors.at(wire, format!("with `grain = row(..)`, `{name}` {verb} a row: `{form}`, or `Scaled<W, G>` in place of `Row<W>`"));
        }
    }
    match (&module.produce, &module.consume) {
        (None, None) => {
            errors.span(span, "`grain = row(..)` is for hooks, and this module has none: leave `grain` out");
        }
        (Some(produce), Some(consume)) => {
            if let (Some(sent), Some(taken), None) = (&produce.row, &consume.row, &model.options.reduce)
                && text(sent) != text(taken)
            {
                let (s, t) = (text(sent), text(taken));
                errors.at(taken, format!("`produce` puts `{s}` on the wire, but `consume` takes `{t}`: both ends must name the same wire type"));
            }
        }
        (Some(Hook { row: Some(row), .. }), None) | (None, Some(Hook { row: Some(row), .. }))
            if model.options.reduce.is_none() && is_scaled(row) =>
        {
            let missing = if module.produce.is_none() { PRODUCE_ROW } else { CONSUME_ROW };
            let missing = missing.replace("Row<W>", &text(row));
            errors.at(row, format!("the other end of `{}` has scales too: write `{missing}`", text(row)));
        }
        _ => {}
    }
    if model.options.reduce.as_ref().is_some_and(|reduce| reduce.result.is_none())
        && let Some(Hook { row: Some(row), .. }) = &module.consume
        && is_scaled(row)
    {
        errors.at(row, format!("`consume` gets what was folded, which has no scales: `{CONSUME_ROW}`. With scales it is a result: `reduce(.., result = {})`", text(row)));
    }
    if let Some(transposed) = model.options.transposed {
        errors.span(transposed, "`layout(transposed)` is for a `produce` that gives one element, and rows are more: leave `layout` out");
    }
    if let Some((_, unroll)) = model.options.given.iter().find(|(name, _)| name == "unroll") {
        errors.span(*unroll, "`unroll` is of packs, and a thread has one row in flight: leave `unroll` out");
    }
    for field in model.args().into_iter().flat_map(|args| &args.fields) {
        let (what, instead) = match &field.kind {
            Kind::Accumulate(_) => ("adds", "write a value for each row to a `PerRow`"),
            Kind::Handle(_) => ("operates", "use it in a module of its own"),
            _ => continue,
        };
        errors.at(
            &field.ty,
            format!(
                "every thread that shares a row runs the hook, so `{}` {what} once in each: {instead}",
                field.ident
            ),
        );
    }
}
