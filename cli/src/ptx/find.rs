//! Finds the kernels of a package in its sources, without building it, and in what was recorded when it was built.

use std::{
    fs,
    path::{Path, PathBuf},
};

use fusewire_codegen::{Errors, InFile, Model, SourceFile, analyse_in, find_in, nearest, recorded, writers};
use fusewire_toolchain::expanded::sources;

use crate::Error;

/// A `#[comm_kernel]` item.
pub struct Kernel {
    /// File, modules in the file, name.
    pub path: String,
    /// The file, relative to the package.
    pub file: PathBuf,
    /// Line of its name.
    pub line: usize,
    /// What was read, or why it was refused.
    pub model: Result<Model, String>,
    /// Whether it is as the macro was given it, without the lines of the file.
    pub expanded: bool,
}

impl Kernel {
    /// Whether `name` is the kernel's path or the end of it.
    pub fn is(&self, name: &str) -> bool {
        self.path == name || self.path.strip_suffix(name).is_some_and(|rest| rest.ends_with("::"))
    }
}

/// A call of a macro that writes kernels, of which none is known by a name in the call.
pub struct Written {
    /// The macro's name.
    pub by: String,
    /// File and modules in the file.
    pub within: String,
    /// The file, relative to the package.
    pub file: PathBuf,
    /// Line of the call.
    pub line: usize,
}

/// What a package has.
pub struct Package {
    /// Every kernel that stands in its files, and those that macros wrote when it was built as it is; in the order of files and lines.
    pub kernels: Vec<Kernel>,
    /// Calls that may leave further ones, in that order.
    pub written: Vec<Written>,
}

/// The kernels of the package at `path`: its folder or its Cargo.toml.
pub fn kernels(path: &Path) -> Result<Package, Error> {
    let folder = if path.is_file() { path.parent().unwrap_or(path).to_owned() } else { path.to_owned() };
    let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
    if !folder.join("Cargo.toml").is_file() {
        return Err(Error::Misuse(format!(
            "there is no package at `{}`; name its Cargo.toml or its folder with `--manifest-path`",
            path.display()
        )));
    }
    let mut files = Vec::new();
    for path in sources(&folder, usize::MAX).map_err(|e| Error::Misuse(e.to_string()))? {
        let shown = path.strip_prefix(&folder).unwrap_or(&path).to_owned();
        // Compile-fail cases are nobody's kernels.
        if shown.iter().any(|part| part == "ui") {
            continue;
        }
        let text = fs::read_to_string(&path)
            .map_err(|e| Error::Misuse(format!("reading {}: {e}", path.display())))?;
        files.push((shown, text));
    }
    let mut kernels = Vec::new();
    let mut all: Vec<(PathBuf, InFile)> = Vec::new();
    // Where no file has a kernel, none has a macro that writes one either.
    let any = files.iter().any(|(_, text)| text.contains("comm_kernel"));
    for (shown, text) in files.into_iter().filter(|_| any) {
        let mut in_file = match find_in(&text) {
            Ok(in_file) => in_file,
            // It may be no part of the package.
            Err(_) if !text.contains("comm_kernel") => continue,
            Err(e) => {
                let at = e.span().start();
                let place = format!("{}:{}:{}", shown.display(), at.line, at.column + 1);
                return Err(Error::Misuse(format!("{place}: {e}")));
            }
        };
        for f in in_file.found.drain(..) {
            let source = SourceFile { path: shown.clone(), text: text.clone() };
            let (path, model) = (in_modules(&shown, &f.path), read(analyse_in(source, f.attribute, f.item)));
            kernels.push(Kernel { path, file: shown.clone(), line: f.line, model, expanded: false });
        }
        all.push((shown, in_file));
    }
    add_recorded(&folder, &all, &mut kernels);
    // A macro of one file may be called in any other.
    let writers = writers(all.iter().flat_map(|(_, in_file)| &in_file.rules));
    let mut written = Vec::new();
    for (file, in_file) in &all {
        for call in in_file.calls.iter().filter(|call| call.leaves_kernels(&writers)) {
            let here = |k: &Kernel| k.file == *file && (call.line..=call.end).contains(&k.line);
            if !kernels.iter().any(here) {
                let (by, within) = (call.name.clone(), in_modules(file, &call.path));
                written.push(Written { by, within, file: file.clone(), line: call.line });
            }
        }
    }
    Ok(Package { kernels, written })
}

fn read((model, errors): (Option<Model>, Errors)) -> Result<Model, String> {
    match model {
        Some(model) if errors.is_empty() => Ok(model),
        _ => Err(errors.messages().join("; ")),
    }
}

/// Adds what the compiler has seen of the package as it is: kernels that macros wrote, and what other crates have answered.
fn add_recorded(folder: &Path, files: &[(PathBuf, InFile)], kernels: &mut Vec<Kernel>) {
    for record in recorded(folder) {
        let model = read(record.analyse());
        let is = |k: &&mut Kernel| {
            !k.expanded && k.file == record.file && k.line == record.line && k.is(&record.name)
        };
        if let Some(known) = kernels.iter_mut().find(is) {
            if known.model.is_err() && model.is_ok() {
                (known.model, known.expanded) = (model, true);
            }
            continue;
        }
        let in_file = files.iter().find(|(file, _)| *file == record.file).map(|(_, in_file)| in_file);
        let mut calls = in_file.map_or(&[][..], |in_file| &in_file.calls).iter();
        let call = calls.rfind(|call| (call.line..=call.end).contains(&record.line));
        let mut path = call.map_or_else(Vec::new, |call| call.path.clone());
        path.push(record.name);
        let path = in_modules(&record.file, &path);
        kernels.push(Kernel { path, file: record.file, line: record.line, model, expanded: true });
    }
    kernels.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
}

/// A path below the modules that a file's place suggests.
fn in_modules(file: &Path, path: &[String]) -> String {
    let mut all = modules(file);
    all.extend_from_slice(path);
    all.join("::")
}

/// The one kernel that `name` names.
pub fn one<'a>(package: &'a Package, name: &str) -> Result<&'a Kernel, Error> {
    let kernels = &package.kernels;
    let exact: Vec<&Kernel> = kernels.iter().filter(|k| k.path == name).collect();
    let all = match exact.as_slice() {
        [_] => exact,
        _ => kernels.iter().filter(|k| k.is(name)).collect(),
    };
    let beside = |w: &Written| format!("\n  what `{}!` writes at {}:{}", w.by, w.file.display(), w.line);
    let beside: String = package.written.iter().map(beside).collect();
    let listed = |all: &[&Kernel]| all.iter().map(|k| format!("\n  {}", k.path)).collect::<String>();
    match all.as_slice() {
        [one] => Ok(one),
        [] if kernels.is_empty() && !beside.is_empty() => Err(Error::Misuse(format!(
            "no kernel of this package is known. There is, if it is built,{beside}"
        ))),
        [] if kernels.is_empty() => Err(Error::Misuse("this package has no `#[comm_kernel]` item".into())),
        [] => {
            let beside = if beside.is_empty() {
                beside
            } else {
                format!("\nand, if the package is built as it is,{beside}")
            };
            let last = |k: &Kernel| k.path.rsplit("::").next().unwrap_or_default().to_owned();
            let names: Vec<String> = kernels.iter().map(last).collect();
            let hint = nearest(name, names.iter().map(String::as_str));
            let hint = hint.map(|n| format!(": did you mean `{n}`?")).unwrap_or_else(|| ".".into());
            let all: Vec<&Kernel> = kernels.iter().collect();
            Err(Error::Misuse(format!("there is no kernel `{name}`{hint} There are{}{beside}", listed(&all))))
        }
        several => Err(Error::Misuse(format!(
            "`{name}` may be any of these; name more of its path:{}",
            listed(several)
        ))),
    }
}

/// The module path that a file's place suggests: `src/a/b.rs` is `a::b`.
fn modules(file: &Path) -> Vec<String> {
    let mut parts: Vec<String> =
        file.with_extension("").iter().map(|p| p.to_string_lossy().into_owned()).collect();
    if parts.first().is_some_and(|p| p == "src") {
        parts.remove(0);
    }
    if parts.last().is_some_and(|p| ["lib", "main", "mod"].contains(&p.as_str())) {
        parts.pop();
    }
    parts
}
