//! Device text to PTX, through the toolchain's cache.

use crate::Protocol;
use crate::crates::DeviceCrate;
use crate::diagnose;
use crate::errors::Errors;
use crate::generate::{self, device_source};
use crate::host;
use crate::model::{Entry, Instance, Model};
use crate::source::Text;
use fusewire_toolchain::{Arch, CompileError, Library, Ptx, Rlib, Target, Toolchain, Unit};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use syn::ext::IdentExt;

/// PTX for one architecture (and one instance of a generic module), of some of the entries.
#[derive(Clone, Debug)]
pub struct Image {
    /// `sm_80`, ...
    pub arch: String,
    /// Which part of the entries this is.
    pub part: usize,
    /// Their symbols.
    pub symbols: Vec<String>,
    /// The name of what stands for the parameters of a generic module.
    pub instance: String,
    /// The PTX.
    pub text: String,
    /// How the device's compiler understood the arguments and the wire: see `Crosses::CODE`.
    pub codes: Vec<u64>,
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
    /// The codes of arguments and wire.
    pub codes: Vec<u64>,
    /// Seconds it took, and whether it came from the cache.
    pub seconds: f64,
    /// Whether it came from the cache.
    pub from_cache: bool,
}

/// Most threads a block of ours has: written into every entry, so that registers are given out for it.
pub const MAX_THREADS: u32 = 512;
/// The same of kernels that work by tiles, since so many threads have scratch memory, and of those that fold, since these have more registers.
pub const MAX_TILE_THREADS: u32 = 256;
/// Elements of the longest rows of which a thread holds no more than 32.
const MOST_OF_TWO: usize = 8192;

/// The libraries of a kernel, each by the name that the kernel has for it; `None` where one is asked for from the cache and not there.
fn libraries(
    toolchain: &Toolchain,
    target: &Target,
    crates: &[DeviceCrate],
    cached: bool,
) -> Result<Option<Vec<(String, Rlib)>>, CompileError> {
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
    let externs = [("fusewire_device", &device)];
    let transports = Library {
        name: "fusewire_transports",
        root: Path::new(env!("FUSEWIRE_TRANSPORTS_ROOT")),
        externs: &externs,
        target,
        cfgs: &[],
    };
    let Some(transports) = build(&transports)? else { return Ok(None) };
    let mut built =
        vec![("fusewire_device".to_owned(), device), ("fusewire_transports".to_owned(), transports)];
    let mut left: Vec<&DeviceCrate> = crates.iter().collect();
    // A crate comes after those that it uses.
    while let Some(next) =
        left.iter().position(|c| c.uses.iter().all(|u| built.iter().any(|(name, _)| name == u)))
    {
        let krate = left.remove(next);
        let uses = |name: &str| name.starts_with("fusewire_") || krate.uses.iter().any(|u| u == name);
        let of = built.iter().filter(|(name, _)| uses(name)).map(|(name, rlib)| (name.as_str(), rlib));
        // What the host's `fusewire::device` has is there by the same path.
        let externs: Vec<_> = of.chain([("fusewire", &built[0].1)]).collect();
        let cfgs: Vec<&str> = krate.cfgs.iter().map(String::as_str).collect();
        let library =
            Library { name: &krate.name, root: &krate.root, externs: &externs, target, cfgs: &cfgs };
        let Some(rlib) = build(&library)? else { return Ok(None) };
        built.push((krate.name.clone(), rlib));
    }
    Ok(Some(built))
}

fn unit_name(model: &Model) -> String {
    format!("{}_kernels", model.ident().unraw())
}

/// What the device compiler calls a text that is of no file.
pub(crate) fn unit_file(model: &Model) -> String {
    format!("{}.rs", unit_name(model))
}

fn target(model: &Model, arch: &str, line_info: bool) -> Result<Target, Errors> {
    let arch: Arch = arch.parse().map_err(|e| {
        let mut errors = Errors::default();
        errors.span(model.options.span, format!("{e}"));
        errors
    })?;
    Ok(Target::new(arch).with_line_info(line_info))
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
    let target = target(model, &options.arch, options.line_info)?;
    let text = device_source(model, entries);
    let source = (text.text.as_str(), text.file.as_deref());
    let result = assemble(toolchain, &target, &unit_name(model), source, &model.options.crates);
    finish(model, entries, &text, result)
}

/// What a text is compiled with, as the host's twin is; one that does not ask has one image for all features.
fn cfgs(text: &str) -> Vec<&'static str> {
    if text.contains("cfg") { host::told().cfgs.iter().map(String::as_str).collect() } else { Vec::new() }
}

/// Compiles a text, of a file or of none. Without the model, whose spans belong to one thread.
fn assemble(
    toolchain: &Toolchain,
    target: &Target,
    name: &str,
    (text, file): (&str, Option<&Path>),
    crates: &[DeviceCrate],
) -> Result<Ptx, CompileError> {
    let libraries = libraries(toolchain, target, crates, false)?;
    let Some(libraries) = libraries else { unreachable!("built when it was not there") };
    let externs: Vec<_> = libraries.iter().map(|(name, rlib)| (name.as_str(), rlib)).collect();
    let mut unit = Unit::new(name, text, target);
    unit.externs = &externs;
    let cfgs = cfgs(text);
    unit.cfgs = &cfgs;
    unit.file = file;
    toolchain.kernel(&unit)
}

/// What came of a text, in the user's terms.
fn finish(
    model: &Model,
    entries: &[Entry],
    text: &Text,
    result: Result<Ptx, CompileError>,
) -> Result<Compiled, Errors> {
    match result {
        Ok(ptx) => match take_codes(&ptx.text) {
            Some((text, codes)) => Ok(Compiled {
                symbols: entries.iter().map(|e| e.symbol(model.ident())).collect(),
                text: bound_threads(model, entries, &text),
                codes,
                seconds: ptx.seconds,
                from_cache: ptx.from_cache,
            }),
            None => {
                let mut errors = Errors::default();
                errors.span(
                    model.options.span,
                    format!("the PTX of `{}` lacks the table of its arguments' types: empty the cache of kernels and build again", model.ident()),
                );
                Err(errors)
            }
        },
        Err(error) => {
            let mut errors = Errors::default();
            diagnose::report(&error, text, model, &mut errors);
            Err(errors)
        }
    }
}

/// The PTX without the table of codes, and the codes.
fn take_codes(ptx: &str) -> Option<(String, Vec<u64>)> {
    let mut codes = None;
    let mut text = String::with_capacity(ptx.len());
    for line in ptx.lines() {
        match table(line) {
            Some(found) => codes = Some(found),
            None => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    let (count, codes) = codes.as_ref()?.split_first()?;
    (codes.len() as u64 + 1 == *count).then(|| (text, codes.to_vec()))
}

/// The words of the table of codes, if the line declares it: their number, then the others.
fn table(line: &str) -> Option<Vec<u64>> {
    let (declared, values) = line.split_once('=')?;
    let name = declared.split_whitespace().find(|word| word.starts_with(generate::CODES))?;
    let by_bytes = declared.split_whitespace().any(|word| word == ".b8" || word == ".u8");
    if !name[generate::CODES.len()..].starts_with('[') && !declared.contains(".global") {
        return None;
    }
    let values = values.trim().trim_end_matches(';').trim().trim_start_matches('{').trim_end_matches('}');
    let values: Vec<u64> = values.split(',').map(|v| v.trim().parse().ok()).collect::<Option<_>>()?;
    Some(match by_bytes {
        true => values.chunks(8).map(|b| b.iter().rev().fold(0, |word, byte| word << 8 | byte)).collect(),
        false => values,
    })
}

/// Writes the largest block size into each entry, and how many such blocks a multiprocessor has registers for: two of rows, but of the longest, of which
/// threads have more to hold; and two where a rank is alone, whose blocks are all there at once then.
fn bound_threads(model: &Model, entries: &[Entry], ptx: &str) -> String {
    let options = &model.options;
    let few = options.transposed.is_some() || options.reduce.is_some() || options.row.is_some();
    let most = if few { MAX_TILE_THREADS } else { MAX_THREADS };
    let rows = options.row.is_some_and(|(cols, _)| cols <= MOST_OF_TWO);
    let alone: Vec<String> = entries
        .iter()
        .filter(|e| e.protocol == Protocol::Local && !few)
        .map(|e| e.symbol(model.ident()))
        .collect();
    let mut out = String::with_capacity(ptx.len() + 64);
    let mut entry = None;
    for line in ptx.lines() {
        if let Some((before, name)) = line.split_once(".entry ")
            && matches!(before.trim(), "" | ".visible")
        {
            entry = Some(name.trim_end_matches('('));
        }
        if line.trim() == "{"
            && let Some(name) = entry.take()
        {
            let two = rows || alone.iter().any(|symbol| symbol == name);
            out.push_str(&format!(".maxntid {most}, 1, 1\n.minnctapersm {}\n", if two { 2 } else { 1 }));
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}

/// Entries of an image at most: more are parts, which are compiled side by side. A part costs about as much again as one or two entries.
const TOGETHER: usize = 4;

/// What is compiled at once.
struct Part {
    arch: String,
    instance: String,
    number: usize,
    entries: Vec<Entry>,
}

/// The parts that an expansion needs, those of one architecture and instance together.
fn parts(model: &Model) -> Vec<Part> {
    let entries: Vec<Entry> = model.entries().into_iter().filter(|e| e.transport.cuda).collect();
    if entries.is_empty() {
        return Vec::new();
    }
    let instances: Vec<String> = model.instances().iter().map(Instance::name).collect();
    // Where there would be one part, the second core has half of it.
    let least = if model.options.archs.len() * instances.len() == 1 { 2 } else { 1 };
    let mut parts = Vec::new();
    for arch in &model.options.archs {
        for instance in &instances {
            let own: Vec<Entry> =
                entries.iter().filter(|e| e.instance.name() == *instance).cloned().collect();
            let count = own.len().div_ceil(TOGETHER).max(least).min(own.len());
            let mut dealt = vec![Vec::new(); count];
            for (k, entry) in own.into_iter().enumerate() {
                dealt[k % count].push(entry);
            }
            for (number, entries) in dealt.into_iter().enumerate() {
                parts.push(Part { arch: arch.clone(), instance: instance.clone(), number, entries });
            }
        }
    }
    parts
}

/// PTX for everything the attribute asks for.
pub fn images(model: &Model) -> Result<Vec<Image>, Errors> {
    let parts = parts(model);
    if parts.is_empty() {
        return Ok(Vec::new());
    }
    let toolchain = Toolchain::find().map_err(|e| {
        let mut errors = Errors::default();
        errors.span(model.options.span, format!("no device compiler for `#[comm_kernel]`: {e}"));
        errors
    })?;
    let mut texts = Vec::new();
    for Part { arch, entries, .. } in &parts {
        texts.push((target(model, arch, model.options.line_info)?, device_source(model, entries)));
    }
    // Text alone goes to other threads.
    let plain: Vec<_> =
        texts.iter().map(|(target, text)| (target, (text.text.as_str(), text.file.as_deref()))).collect();
    let name = unit_name(model);
    let crates = &model.options.crates;
    let alike = |p: &&Part| (&p.arch, &p.instance) == (&parts[0].arch, &parts[0].instance);
    let first = parts.iter().take_while(alike).count();
    let work = |k: usize| assemble(&toolchain, plain[k].0, &name, plain[k].1, crates);
    let compiled = first_ones_first(first, parts.len(), work);
    let mut images = Vec::new();
    for ((part, (_, text)), result) in parts.into_iter().zip(&texts).zip(compiled) {
        let Part { arch, instance, number, entries } = part;
        let Compiled { symbols, text, codes, .. } = finish(model, &entries, text, result)?;
        images.push(Image { arch, part: number, symbols, instance, text, codes });
    }
    Ok(images)
}

/// Results of `work` for `0..count`; of the `first` alone if one of those fails, since what is wrong with these is mostly wrong with all.
fn first_ones_first<T: Send, E: Send>(
    first: usize,
    count: usize,
    work: impl Fn(usize) -> Result<T, E> + Sync,
) -> Vec<Result<T, E>> {
    let mut done = side_by_side(0..first, &work);
    if done.iter().all(Result::is_ok) {
        done.extend(side_by_side(first..count, &work));
    }
    done
}

/// Results of `work` for each number, as many at once as there are cores.
fn side_by_side<T: Send>(numbers: Range<usize>, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    if numbers.len() < 2 {
        return numbers.map(work).collect();
    }
    let next = AtomicUsize::new(numbers.start);
    let mut done = Vec::new();
    std::thread::scope(|threads| {
        let worker = || {
            let mut own = Vec::new();
            loop {
                let k = next.fetch_add(1, Ordering::Relaxed);
                if k >= numbers.end {
                    return own;
                }
                own.push((k, work(k)));
            }
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..numbers.len().min(cores)).map(|_| threads.spawn(worker)).collect();
        for worker in workers {
            done.extend(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
    });
    done.sort_by_key(|(k, _)| *k);
    done.into_iter().map(|(_, result)| result).collect()
}

/// PTX as far as it is in the cache: for editors.
pub fn cached(model: &Model) -> Vec<Image> {
    let Ok(toolchain) = Toolchain::find() else { return Vec::new() };
    let mut images = Vec::new();
    for Part { arch, instance, number, entries } in parts(model) {
        let Ok(target) = arch.parse().map(|a| Target::new(a).with_line_info(model.options.line_info)) else {
            continue;
        };
        let libraries = libraries(&toolchain, &target, &model.options.crates, true);
        let Ok(Some(libraries)) = libraries else { continue };
        let text = device_source(model, &entries);
        let externs: Vec<_> = libraries.iter().map(|(name, rlib)| (name.as_str(), rlib)).collect();
        let name = unit_name(model);
        let mut unit = Unit::new(&name, &text.text, &target);
        unit.externs = &externs;
        let cfgs = cfgs(&text.text);
        unit.cfgs = &cfgs;
        unit.file = text.file.as_deref();
        if let Some((text, codes)) = toolchain.cached_kernel(&unit).and_then(|ptx| take_codes(&ptx.text)) {
            let symbols = entries.iter().map(|e| e.symbol(model.ident())).collect();
            let text = bound_threads(model, &entries, &text);
            images.push(Image { arch, part: number, symbols, instance, text, codes });
        }
    }
    images
}

#[cfg(test)]
mod tests {
    use super::{first_ones_first, side_by_side};
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn results_come_in_order() {
        for count in [0, 1, 2, 7, 40] {
            assert_eq!(
                side_by_side(3..3 + count, |k| 2 * k),
                (3..3 + count).map(|k| 2 * k).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn codes_are_taken_out_of_the_text() {
        for line in [
            ".visible .global .align 8 .u64 __fusewire_codes[3] = {3, 9, 18446744073709551615};",
            ".visible .global .align 8 .b8 __fusewire_codes[24] = {3, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255};",
        ] {
            let text = format!(".version 7.0\n{line}\n.visible .entry k()\n");
            let (rest, codes) = super::take_codes(&text).unwrap();
            assert_eq!((rest.as_str(), codes), (".version 7.0\n.visible .entry k()\n", vec![9, u64::MAX]));
        }
        for text in [
            "",
            ".visible .global .u64 other[1] = {1};",
            ".visible .global .u64 __fusewire_codes[2] = {3, 1};",
        ] {
            assert!(super::take_codes(text).is_none(), "{text}");
        }
    }

    #[test]
    fn nothing_follows_where_the_first_fail() {
        let calls = AtomicUsize::new(0);
        let results = first_ones_first(2, 9, |k| {
            calls.fetch_add(1, Ordering::Relaxed);
            Err::<(), _>(k)
        });
        assert_eq!((results, calls.into_inner()), (vec![Err(0), Err(1)], 2));
        let results = first_ones_first(2, 5, |k| if k == 3 { Err(k) } else { Ok(k) });
        assert_eq!(results, [Ok(0), Ok(1), Ok(2), Err(3), Ok(4)]);
    }
}
