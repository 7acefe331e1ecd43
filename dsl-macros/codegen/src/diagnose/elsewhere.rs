//! Errors in other code than the kernel's own text: in that of device crates, and in fusewire's. The host's compiler does not say them:
//! it has compiled those crates already, and does not make of their generic functions what a kernel makes of them.

use super::{FLOAT_METHODS, instead_of, is_unresolved, missing, quoted};
use crate::crates::DeviceCrate;
use crate::model::Model;
use crate::source::{Text, bare};
use fusewire_toolchain::{DiagSpan, Diagnostic, Level};
use proc_macro2::Span;
use std::path::Path;

/// Where an error with no place in the kernel's text, which the compiler calls `shown`, is said, and how. `notes` follow it.
pub fn placed(
    d: &Diagnostic,
    notes: &[&Diagnostic],
    shown: &str,
    text: &Text,
    model: &Model,
) -> Option<(Span, String)> {
    let mut places = Vec::new();
    all_places(d, &mut places);
    notes.iter().for_each(|note| all_places(note, &mut places));
    let crates = &model.options.crates;
    let known = places.iter().find_map(|place| Some((*place, owner(place, crates)?)));
    let (place, krate) = match known {
        Some((place, krate)) => (place, Some(krate)),
        None => (d.primary()?, None),
    };
    // A note tells for which call a generic function was compiled, if the kernel itself has that call.
    let call = places.iter().find(|place| place.file == shown && text.is_of_user(place.line));
    let call = call.and_then(|call| text.span_at(&bare(&model.tokens), call.line, call.column));
    let named = || krate.and_then(|krate| model.span_of_crate(&krate.name));
    let span = call.or_else(named).unwrap_or(model.options.span);

    let mut message = format!("not on the device: {}", d.message);
    if let Some(label) = place.label.as_ref().or_else(|| d.primary()?.label.as_ref()) {
        message += &format!("\n{label}");
    }
    message += "\nat ";
    message += &match krate {
        Some(krate) => in_crate(place, krate),
        None if is_ours(&place.file) => format!("{}, in fusewire's own device code", numbered(place)),
        None => numbered(place),
    };
    if call.is_none() {
        let instantiated = notes.iter().filter(|note| note.message.contains("while instantiating"));
        instantiated.for_each(|note| message += &format!("\n{}", note.message));
    }
    if let Some(advice) = advice(d, place) {
        message += &format!("\n{advice}");
    }
    Some((span, message))
}

/// What the notes of an error in the kernel's own text say of places in device crates.
pub fn notes(d: &Diagnostic, model: &Model) -> String {
    let mut said = String::new();
    for note in d.children.iter().filter(|child| child.level == Level::Note) {
        let mut places = Vec::new();
        all_places(note, &mut places);
        let known = places.into_iter().find_map(|place| Some((place, owner(place, &model.options.crates)?)));
        if let Some((place, krate)) = known {
            said += &format!("\n{}: {}", note.message, in_crate(place, krate));
        }
    }
    said
}

fn in_crate(place: &DiagSpan, krate: &DeviceCrate) -> String {
    format!("{}, in the device crate `{}`", numbered(place), krate.name)
}

fn numbered(place: &DiagSpan) -> String {
    format!("{}:{}:{}", place.file, place.line, place.column)
}

fn advice(d: &Diagnostic, place: &DiagSpan) -> Option<String> {
    let method = quoted(&d.message).filter(|name| FLOAT_METHODS.split_whitespace().any(|m| m == *name));
    match d.code.as_deref() {
        Some("E0599" | "E0658") => method.map(instead_of),
        _ if !is_unresolved(d) => None,
        _ => match missing(d, place) {
            Some((name, advice)) if *name != "super" => Some((*advice).to_owned()),
            _ => Some(
                "a device crate sees `core`, `fusewire::device` and the device crates that it uses; what only the host has use for stands \
                 behind `#[cfg(not(target_arch = \"nvptx64\"))]`"
                    .to_owned(),
            ),
        },
    }
}

/// All places of an error, the one where the trouble is first, each followed by the calls of macros that led to it; those of notes last.
fn all_places<'a>(d: &'a Diagnostic, places: &mut Vec<&'a DiagSpan>) {
    let (primary, others): (Vec<_>, Vec<_>) = d.spans.iter().partition(|span| span.is_primary);
    for span in primary.into_iter().chain(others) {
        places.extend(std::iter::successors(Some(span), |span| span.call_site.as_deref()));
    }
    d.children.iter().filter(|child| child.level == Level::Note).for_each(|child| all_places(child, places));
}

/// The crate that a file is of.
fn owner<'a>(place: &DiagSpan, crates: &'a [DeviceCrate]) -> Option<&'a DeviceCrate> {
    let folder = |krate: &&DeviceCrate| krate.root.parent().map(Path::to_owned).unwrap_or_default();
    let holds = |krate: &&DeviceCrate| Path::new(&place.file).starts_with(folder(krate));
    // A crate's folder may lie in another's.
    crates.iter().filter(holds).max_by_key(|krate| folder(krate).as_os_str().len())
}

fn is_ours(file: &str) -> bool {
    let roots = [env!("FUSEWIRE_DEVICE_ROOT"), env!("FUSEWIRE_TRANSPORTS_ROOT")];
    roots
        .iter()
        .any(|root| Path::new(root).parent().is_some_and(|folder| Path::new(file).starts_with(folder)))
}
