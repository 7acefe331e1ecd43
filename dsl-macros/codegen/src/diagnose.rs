//! The device compiler's words, at the user's tokens.

mod elsewhere;

use crate::configured::differs;
use crate::errors::Errors;
use crate::model::Model;
use crate::source::{Text, bare};
use fusewire_toolchain::{CompileError, DiagSpan, Diagnostic, Level};

/// What does not exist on a device, and what to use instead.
const MISSING: &[(&str, &str)] = &[
    ("Vec", "there is no heap on the device: use fixed arrays, or pass a slice in `Args`"),
    ("vec", "there is no heap on the device: use fixed arrays, or pass a slice in `Args`"),
    ("String", "there are no strings on the device"),
    ("format", "there are no strings on the device"),
    ("Box", "there is no heap on the device"),
    ("println", "on the device a line is printed by `print_at!(ctx, \"{}\", value)`"),
    ("eprintln", "on the device a line is printed by `print_at!(ctx, \"{}\", value)`"),
    ("print", "on the device a line is printed by `print_at!(ctx, \"{}\", value)`"),
    ("dbg", "on the device a line is printed by `print_at!(ctx, \"{}\", value)`"),
    ("std", "the device has `core` only: write `core::` where it holds the same item"),
    ("x86_64", HOSTS),
    ("aarch64", HOSTS),
    ("HashMap", "there is no heap on the device: use fixed arrays, or pass a slice in `Args`"),
    ("super", STANDS_ALONE),
];

/// Of what stands beside a hook module.
pub const STANDS_ALONE: &str = "on the device a hook module stands alone: move what it needs into the module, or into a device crate \
    (`fusewire::device_crate!`) that the attribute names: `uses(that_crate)`";

const HOSTS: &str = "instructions of the host are none of the device's: write it with functions of `core` and of fusewire's device prelude";

/// Methods of floats that `std` has and `core` does not.
const FLOAT_METHODS: &str = "acos acosh asin asinh atan atan2 atanh cbrt cos cosh exp exp2 exp_m1 hypot ln ln_1p log log10 log2 powf \
    powi sin sin_cos sinh sqrt tan tanh ceil floor fract mul_add round round_ties_even trunc div_euclid rem_euclid abs_sub";

/// Those of them that device math has, under the same name or another.
const DEVICE_MATH: &str =
    "cos exp exp2 ln log2 powf=pow sin sqrt tanh ceil floor mul_add=fma round round_ties_even trunc";

/// What to write instead of such a method.
fn instead_of(method: &str) -> String {
    let ours = DEVICE_MATH.split(' ').map(|pair| pair.split_once('=').unwrap_or((pair, pair)));
    match ours.into_iter().find(|(theirs, _)| *theirs == method) {
        Some((_, ours)) => format!("`core` has no such function: write `math::{ours}(..)`"),
        None => {
            "`core` has no such function: write it with those of `math`, or pass a table in `Args`".into()
        }
    }
}

/// Turns a compile error into errors at the user's tokens.
pub fn report(error: &CompileError, text: &Text, model: &Model, errors: &mut Errors) {
    let CompileError::Diagnostics(diagnostics) = error else {
        errors.span(model.options.span, format!("the device compiler could not be run: {error}"));
        return;
    };
    let mut told = Vec::new();
    for (k, d) in diagnostics.iter().enumerate() {
        if d.level == Level::Error && d.primary().is_some() {
            let notes = diagnostics[k + 1..].iter().take_while(|d| d.level == Level::Note);
            one(d, &notes.collect::<Vec<_>>(), text, model, errors, &mut told);
        }
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

/// One error, and the notes behind it.
fn one(
    d: &Diagnostic,
    notes: &[&Diagnostic],
    text: &Text,
    model: &Model,
    errors: &mut Errors,
    told: &mut Vec<(String, usize, usize, String)>,
) {
    let shown =
        text.file.as_ref().map_or_else(|| crate::device::unit_file(model), |f| f.display().to_string());
    let Some(place) = d.primary_in(&shown).or(d.primary()) else { return };
    let key = (place.file.clone(), place.line, place.column, d.message.clone());
    if told.contains(&key) {
        return;
    }
    told.push(key);
    if d.primary_in(&shown).is_none() {
        if let Some((span, message)) = elsewhere::placed(d, notes, &shown, text, model) {
            errors.span(span, message);
        }
        return;
    }
    let mut message = format!("not on the device: {}", d.message);
    let unresolved = is_unresolved(d);
    let name = quoted(&d.message);
    if let Some((_, advice)) = missing(d, place).filter(|_| unresolved) {
        message += &format!("\n{advice}");
    } else if unresolved {
        message += "\na hook sees `core`, fusewire's device prelude and what stands in its own module: move it there, pass its value in `Args`, or \
                    put it into a device crate (`fusewire::device_crate!`) that the attribute names: `uses(that_crate)`";
    } else if let Some(label) = &place.label {
        message += &format!("\n{label}");
    }
    message += &elsewhere::notes(d, model);
    let span = text.span_at(&bare(&model.tokens), place.line, place.column).unwrap_or(model.options.span);
    let device_only = match d.code.as_deref() {
        _ if missing(d, place).is_some() && unresolved => true,
        Some("E0463") => true,
        _ if d.message.starts_with("couldn't read") => {
            message +=
                "\nthe device has the module's own text, and no files beside it: write out what is included";
            true
        }
        _ if d.message.contains("on this architecture") => {
            message += "\nwrite it with functions of `core` and of fusewire's device prelude";
            true
        }
        Some("E0433" | "E0432") => name.is_some_and(|n| {
            let first = n.split("::").next().unwrap_or(n);
            ["super", "crate", "self"].contains(&first) || text.host_may_know(first) || depends_on(first)
        }),
        _ if unresolved => {
            let elsewhere = ["in module", "in the crate root", "in crate"];
            elsewhere
                .iter()
                .any(|e| d.message.contains(e) || place.label.as_ref().is_some_and(|l| l.contains(e)))
                || name.is_some_and(|n| text.host_may_know(n))
        }
        Some("E0599" | "E0658") if name.is_some_and(|n| FLOAT_METHODS.split_whitespace().any(|m| m == n)) => {
            message += &format!("\n{}", instead_of(name.unwrap_or_default()));
            true
        }
        _ => false,
    };
    // Of anything else the host's compiler will say the same, at the same place and in its own words, unless it is given other text. Better twice
    // than below a lint's headline.
    if device_only || differs(&model.tokens) {
        errors.span(span, message)
    } else {
        errors.defer(span, message)
    }
}

/// Whether the device does not know a name.
fn is_unresolved(d: &Diagnostic) -> bool {
    matches!(d.code.as_deref(), Some("E0433" | "E0432" | "E0425" | "E0412" | "E0405" | "E0463"))
        || d.message.starts_with("cannot find macro")
}

/// Whether the package that is being compiled may know a crate by this name.
fn depends_on(name: &str) -> bool {
    let manifest =
        std::env::var_os("CARGO_MANIFEST_DIR").map(|folder| std::path::Path::new(&folder).join("Cargo.toml"));
    let text = manifest.and_then(|path| std::fs::read_to_string(path).ok());
    text.is_none_or(|text| text.contains(name) || text.contains(&name.replace('_', "-")))
}

fn missing(d: &Diagnostic, place: &DiagSpan) -> Option<&'static (&'static str, &'static str)> {
    MISSING.iter().find(|(name, _)| {
        let quoted = format!("`{name}`");
        d.message.contains(&quoted) || place.label.as_ref().is_some_and(|l| l.contains(&quoted))
    })
}

/// The first name in backticks.
fn quoted(message: &str) -> Option<&str> {
    message.split('`').nth(1)
}

#[cfg(test)]
mod tests;
