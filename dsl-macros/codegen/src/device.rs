//! Device text to PTX, through the toolchain's cache.

use crate::diagnose;
use crate::errors::Errors;
use crate::generate::device_source;
use crate::model::{Entry, Model};
use fusewire_toolchain::{Arch, CompileError, Library, Rlib, Target, Toolchain, Unit};
use std::path::Path;
use syn::ext::IdentExt;

/// PTX for one architecture (and one element type of a generic module).
#[derive(Clone, Debug)]
pub struct Image {
    /// `sm_80`, ...
    pub arch: String,
    /// Element type's name for generic modules.
    pub element: Option<String>,
    /// The PTX.
    pub text: String,
}

/// What to compile, for the command line.
#[derive(Clone, Debug)]
pub struct CompileOptions {
    /// `sm_90`, ...
    pub arch: String,
    /// Keep line information.
    pub line_info: bool,
}

/// PTX of one kernel.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// Entry symbols in it.
    pub symbols: Vec<String>,
    /// The text.
    pub text: String,
    /// Seconds it took, and whether it came from the cache.
    pub seconds: f64,
    /// Whether it came from the cache.
    pub from_cache: bool,
}

/// Most threads a block of ours has: written into every entry, so that registers are given out for it.
pub const MAX_THREADS: u32 = 512;

fn libraries(
    toolchain: &Toolchain,
    target: &Target,
    cached: bool,
) -> Result<Option<(Rlib, Rlib)>, CompileError> {
    let build = |library: &Library<'_>| {
        if cached { Ok(toolchain.cached_library(library)) } else { toolchain.library(library).map(Some) }
    };
    let device = Library {
        name: "fusewire_device",
        root: Path::new(env!("FUSEWIRE_DEVICE_ROOT")),
        externs: &[],
        target,
        cfgs: &[],
    };
    let Some(device) = build(&device)? else { return Ok(None) };
    let externs = [device.clone()];
    let transports = Library {
        name: "fusewire_transports",
        root: Path::new(env!("FUSEWIRE_TRANSPORTS_ROOT")),
        externs: &externs,
        target,
        cfgs: &[],
    };
    Ok(build(&transports)?.map(|t| (device, t)))
}

fn unit_name(model: &Model) -> String {
    format!("{}_kernels", model.ident().unraw())
}

/// What the device compiler calls a text that is of no file.
pub(crate) fn unit_file(model: &Model) -> String {
    format!("{}.rs", unit_name(model))
}

/// Compiles the given entries of a kernel.
///
/// # Errors
/// What the device compiler said, at the user's tokens.
pub fn compile(
    toolchain: &Toolchain,
    model: &Model,
    entries: &[Entry],
    options: &CompileOptions,
) -> Result<Compiled, Errors> {
    let mut errors = Errors::default();
    let arch: Arch = match options.arch.parse() {
        Ok(arch) => arch,
        Err(e) => {
            errors.span(model.options.span, format!("{e}"));
            return Err(errors);
        }
    };
    let target = Target::new(arch).with_line_info(options.line_info);
    let text = device_source(model, entries);
    let result = libraries(toolchain, &target, false).and_then(|libraries| {
        let Some((device, transports)) = libraries else { unreachable!("built when it was not there") };
        let externs = [("fusewire_device", &device), ("fusewire_transports", &transports)];
        let name = unit_name(model);
        let mut unit = Unit::new(&name, &text.text, &target);
        unit.externs = &externs;
        unit.file = text.file.as_deref();
        toolchain.kernel(&unit)
    });
    match result {
        Ok(ptx) => Ok(Compiled {
            symbols: entries.iter().map(|e| e.symbol(model.ident())).collect(),
            text: bound_threads(&ptx.text),
            seconds: ptx.seconds,
            from_cache: ptx.from_cache,
        }),
        Err(error) => {
            diagnose::report(&error, &text, model, &mut errors);
            Err(errors)
        }
    }
}

/// Writes the largest block size into each entry.
fn bound_threads(ptx: &str) -> String {
    let mut out = String::with_capacity(ptx.len() + 64);
    let mut in_entry = false;
    for line in ptx.lines() {
        in_entry |= line.starts_with(".visible .entry") || line.starts_with(".entry");
        if in_entry && line.trim() == "{" {
            out.push_str(&format!(".maxntid {MAX_THREADS}, 1, 1\n.minnctapersm 1\n"));
            in_entry = false;
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}

/// The units that an expansion needs: (architecture, element, entries).
fn units(model: &Model) -> Vec<(String, Option<String>, Vec<Entry>)> {
    let entries: Vec<Entry> = model.entries().into_iter().filter(|e| e.transport.cuda).collect();
    if entries.is_empty() {
        return Vec::new();
    }
    let mut elements: Vec<Option<String>> = Vec::new();
    for e in &entries {
        let name = e.element.as_ref().map(|e| e.0.clone());
        if !elements.contains(&name) {
            elements.push(name);
        }
    }
    let mut units = Vec::new();
    for arch in &model.options.archs {
        for element in &elements {
            let own = entries
                .iter()
                .filter(|e| e.element.as_ref().map(|e| &e.0) == element.as_ref())
                .cloned()
                .collect();
            units.push((arch.clone(), element.clone(), own));
        }
    }
    units
}

/// PTX for everything the attribute asks for.
pub fn images(model: &Model) -> Result<Vec<Image>, Errors> {
    let units = units(model);
    if units.is_empty() {
        return Ok(Vec::new());
    }
    let toolchain = Toolchain::find().map_err(|e| {
        let mut errors = Errors::default();
        errors.span(model.options.span, format!("no device compiler for `#[comm_kernel]`: {e}"));
        errors
    })?;
    let mut images = Vec::new();
    for (arch, element, entries) in units {
        let options = CompileOptions { arch: arch.clone(), line_info: model.options.line_info };
        let compiled = compile(&toolchain, model, &entries, &options)?;
        images.push(Image { arch, element, text: compiled.text });
    }
    Ok(images)
}

/// PTX as far as it is in the cache: for editors.
pub fn cached(model: &Model) -> Vec<Image> {
    let Ok(toolchain) = Toolchain::find() else { return Vec::new() };
    let mut images = Vec::new();
    for (arch, element, entries) in units(model) {
        let Ok(target) = arch.parse().map(|a| Target::new(a).with_line_info(model.options.line_info)) else {
            continue;
        };
        let Ok(Some((device, transports))) = libraries(&toolchain, &target, true) else { continue };
        let text = device_source(model, &entries);
        let externs = [("fusewire_device", &device), ("fusewire_transports", &transports)];
        let name = unit_name(model);
        let mut unit = Unit::new(&name, &text.text, &target);
        unit.externs = &externs;
        unit.file = text.file.as_deref();
        if let Some(ptx) = toolchain.cached_kernel(&unit) {
            images.push(Image { arch, element, text: bound_threads(&ptx.text) });
        }
    }
    images
}
