//! The device compiler's words, at the user's tokens.

use crate::errors::Errors;
use crate::model::Model;
use crate::source::{Text, span_at};
use fusewire_toolchain::{CompileError, Diagnostic, Level};

/// What does not exist on a device, and what to use instead.
const MISSING: &[(&str, &str)] = &[
    ("Vec", "there is no heap on the device: use fixed arrays, or pass a slice in `Args`"),
    ("vec", "there is no heap on the device: use fixed arrays, or pass a slice in `Args`"),
    ("String", "there are no strings on the device"),
    ("format", "there are no strings on the device"),
    ("Box", "there is no heap on the device"),
    ("println", "there is no output on the device: write to an `Out` or `Accumulate` of `Args`, or panic"),
    ("eprintln", "there is no output on the device: write to an `Out` or `Accumulate` of `Args`, or panic"),
    ("print", "there is no output on the device: write to an `Out` or `Accumulate` of `Args`, or panic"),
    ("dbg", "there is no output on the device: write to an `Out` or `Accumulate` of `Args`, or panic"),
    ("std", "the device has `core` only: write `core::` where it holds the same item"),
    ("HashMap", "there is no heap on the device: use fixed arrays, or pass a slice in `Args`"),
    ("super", "on the device a hook module stands alone: move what it needs into the module"),
];

/// Turns a compile error into errors at the user's tokens.
pub fn report(error: &CompileError, text: &Text, model: &Model, errors: &mut Errors) {
    let CompileError::Diagnostics(diagnostics) = error else {
        errors.span(model.options.span, format!("the device compiler could not be run: {error}"));
        return;
    };
    let mut told = Vec::new();
    for d in diagnostics.iter().filter(|d| d.level == Level::Error && d.primary().is_some()) {
        one(d, text, model, errors, &mut told);
    }
    if errors.is_empty() {
        // Never silent: whatever could not be placed is shown as the compiler printed it.
        let all: Vec<&str> = diagnostics.iter().map(|d| d.rendered.as_str()).collect();
        errors.span(
            model.options.span,
            format!("this kernel does not compile for the device:\n{}", all.join("\n")),
        );
    }
}

fn one(
    d: &Diagnostic,
    text: &Text,
    model: &Model,
    errors: &mut Errors,
    told: &mut Vec<(usize, usize, String)>,
) {
    let Some(place) = d.primary() else { return };
    let (line, column) = text.user_place(place.line, place.column);
    let key = (line, column, d.message.clone());
    if told.contains(&key) {
        return;
    }
    told.push(key);
    let mut message = format!("not on the device: {}", d.message);
    let missing = MISSING.iter().find(|(name, _)| {
        let quoted = format!("`{name}`");
        d.message.contains(&quoted) || place.label.as_ref().is_some_and(|l| l.contains(&quoted))
    });
    if let Some((_, advice)) = missing {
        message += &format!("\n{advice}");
    } else if matches!(d.code.as_deref(), Some("E0433" | "E0432" | "E0425" | "E0412" | "E0405" | "E0463")) {
        message += "\na hook sees `core`, fusewire's device prelude and what stands in its own module: move it there, or pass its value in `Args`";
    } else if let Some(label) = &place.label {
        message += &format!("\n{label}");
    }
    let span = if text.faithful { span_at(&model.tokens, line, column) } else { None };
    errors.span(span.unwrap_or(model.options.span), message);
}
