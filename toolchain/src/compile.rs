//! Compiles device libraries and kernels, and keeps what came out.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use crate::{
    DEVICE_TARGET, cache, command,
    diagnostic::{self, Diagnostic, Level},
    error::CompileError,
    hash::Hasher,
    target::Target,
    toolchain::{Inner, Toolchain},
    trust,
};

// Names in the scratch folder. The compiler runs there and is given bare names: its options split at `,` and `=`, and
// a command line without the folder's name can be part of a key.
const ASM: &str = "out.ptx";
const DEPS: &str = "deps";
const LIBRARY_OUT: &str = "library";

/// A `no_std` library for the device.
#[derive(Clone, Debug)]
pub struct Library<'a> {
    /// The crate's name, an identifier: what `extern crate` calls it.
    pub name: &'a str,
    /// Its `lib.rs`. Every file of the folder it is in counts as part of the library.
    pub root: &'a Path,
    /// The libraries it uses, and under which names.
    pub externs: &'a [(&'a str, &'a Rlib)],
    /// What it is compiled for.
    pub target: &'a Target,
    /// `--cfg` values, such as `feature="half"`.
    pub cfgs: &'a [&'a str],
}

/// A compiled device library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rlib {
    name: String,
    path: PathBuf,
    key: String,
    folders: Vec<PathBuf>,
}

impl Rlib {
    /// The crate's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Stands for all that went into it.
    pub fn key(&self) -> &str {
        &self.key
    }
}

/// One kernel crate, as text. Crate attributes such as `#![no_std]` are the caller's.
#[derive(Clone, Debug)]
pub struct Unit<'a> {
    /// The crate's name, an identifier.
    pub name: &'a str,
    /// Its source.
    pub source: &'a str,
    /// The file that the source stands for: named in diagnostics, panics and line information.
    /// Without it that is `<name>.rs`.
    pub file: Option<&'a Path>,
    /// The libraries it uses, and under which names.
    pub externs: &'a [(&'a str, &'a Rlib)],
    /// What it is compiled for.
    pub target: &'a Target,
    /// What `--cfg` gives.
    pub cfgs: &'a [&'a str],
}

impl<'a> Unit<'a> {
    /// A unit without libraries and without a file of its own.
    pub fn new(name: &'a str, source: &'a str, target: &'a Target) -> Unit<'a> {
        Unit { name, source, file: None, externs: &[], target, cfgs: &[] }
    }
}

/// A compiled kernel crate.
#[derive(Clone, Debug, PartialEq)]
pub struct Ptx {
    /// The PTX.
    pub text: String,
    /// Whether it was in the cache.
    pub from_cache: bool,
    /// How long it took to compile or to look up.
    pub seconds: f64,
}

impl Toolchain {
    /// Compiles a device library, or finds it in the cache.
    ///
    /// # Errors
    /// [`CompileError::Diagnostics`] when the compiler refuses it; [`CompileError::Misuse`] when its name is no
    /// identifier or it reads a file outside its folder (which the cache would not see change).
    pub fn library(&self, library: &Library<'_>) -> Result<Rlib, CompileError> {
        check_name(library.name)?;
        let inner = self.inner();
        let rlib = self.describe(library)?;
        let whole = || trust::is_whole(&inner.cache.library(&rlib.key)) && rlib.path.is_file();
        if whole() {
            inner.cache.touch(&inner.cache.library(&rlib.key));
            return Ok(rlib);
        }
        let entry = inner.cache.library(&rlib.key);
        let _lock =
            inner.cache.entry_lock(&rlib.key).map_err(CompileError::io("locking the cache", &entry))?;
        if !whole() {
            inner.compile_library(library, &rlib)?;
            inner.cache.prune();
        }
        Ok(rlib)
    }

    /// The library if it is in the cache: for editors, where nothing may take long.
    pub fn cached_library(&self, library: &Library<'_>) -> Option<Rlib> {
        let whole =
            |rlib: &Rlib| trust::is_whole(&self.inner().cache.library(&rlib.key)) && rlib.path.is_file();
        self.describe(library).ok().filter(whole)
    }

    /// Compiles a kernel crate to PTX, or finds it in the cache.
    ///
    /// # Errors
    /// [`CompileError::Diagnostics`] when the compiler refuses it; [`CompileError::Misuse`] when its name is no
    /// identifier or it reads another file (which the cache would not see change).
    pub fn kernel(&self, unit: &Unit<'_>) -> Result<Ptx, CompileError> {
        check_name(unit.name)?;
        let started = Instant::now();
        let inner = self.inner();
        let key = self.unit_key(unit);
        if let Some(ptx) = inner.kept(&key, started) {
            return Ok(ptx);
        }
        let entry = inner.cache.kernel(&key);
        let _lock = inner.cache.entry_lock(&key).map_err(CompileError::io("locking the cache", &entry))?;
        if let Some(ptx) = inner.kept(&key, started) {
            return Ok(ptx);
        }
        let text = inner.compile_kernel(unit)?;
        inner.cache.store(&entry, text.as_bytes()).map_err(CompileError::io("keeping the PTX", &entry))?;
        inner.cache.prune();
        Ok(Ptx { text, from_cache: false, seconds: started.elapsed().as_secs_f64() })
    }

    /// The PTX if it is in the cache: for editors, where nothing may take long.
    pub fn cached_kernel(&self, unit: &Unit<'_>) -> Option<Ptx> {
        self.inner().kept(&self.unit_key(unit), Instant::now())
    }

    fn describe(&self, library: &Library<'_>) -> Result<Rlib, CompileError> {
        let folder = folder_of(library)?;
        let hasher = Hasher::new("library").part(self.fingerprint());
        let hasher = arguments(hasher, &self.inner().library_command(library)?).folder(&folder);
        let key = hasher.map_err(CompileError::io("reading a device library", &folder))?.finish();
        let entry = self.inner().cache.library(&key);
        let path = entry.join(format!("lib{}-{}.rlib", library.name, &key[..16]));
        let mut folders = vec![entry];
        folders.extend(library.externs.iter().flat_map(|(_, rlib)| rlib.folders.iter().cloned()));
        folders.sort();
        folders.dedup();
        Ok(Rlib { name: library.name.to_owned(), path, key, folders })
    }

    fn unit_key(&self, unit: &Unit<'_>) -> String {
        let hasher = Hasher::new("kernel").part(self.fingerprint()).part(unit.source);
        arguments(hasher, &self.inner().kernel_command(unit)).finish()
    }
}

/// The whole command line counts, so that no option can be forgotten: externs are in it by a path with their key.
fn arguments(hasher: Hasher, command: &Command) -> Hasher {
    command.get_args().fold(hasher, |hasher, argument| hasher.part(argument.as_encoded_bytes()))
}

fn check_name(name: &str) -> Result<(), CompileError> {
    let mut chars = name.chars();
    let first = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    if first && chars.all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Ok(());
    }
    let why = "a crate's name is letters, digits and `_`, and does not begin with a digit".to_owned();
    Err(CompileError::Misuse { unit: name.to_owned(), why })
}

fn source_name(unit: &Unit<'_>) -> String {
    format!("{}.rs", unit.name)
}

fn folder_of(library: &Library<'_>) -> Result<PathBuf, CompileError> {
    let root = std::path::absolute(library.root).map_err(CompileError::io("resolving", library.root))?;
    match root.parent() {
        Some(folder) if root.is_file() => Ok(folder.to_owned()),
        _ => {
            let why = format!("there is no file {}: `root` names the library's lib.rs", root.display());
            Err(CompileError::Misuse { unit: library.name.to_owned(), why })
        }
    }
}

impl Inner {
    fn kept(&self, key: &str, started: Instant) -> Option<Ptx> {
        let path = self.cache.kernel(key);
        let text = self.cache.load(&path)?;
        self.cache.touch(&path);
        Some(Ptx { text, from_cache: true, seconds: started.elapsed().as_secs_f64() })
    }

    fn compile_library(&self, library: &Library<'_>, rlib: &Rlib) -> Result<(), CompileError> {
        let folder = folder_of(library)?;
        let scratch =
            self.cache.scratch().map_err(CompileError::io("making a folder in the cache", &rlib.path))?;
        let made = scratch.path().join(LIBRARY_OUT);
        fs::create_dir(&made).map_err(CompileError::io("making a folder", &made))?;
        let mut command = self.library_command(library)?;
        command
            .current_dir(scratch.path())
            .arg(format!("-Cmetadata={}", rlib.key))
            .arg(format!("-Cextra-filename=-{}", &rlib.key[..16]));
        compile(library.name, &mut command)?;
        let files = read_files(&scratch.path().join(DEPS));
        if let Some(file) = files.into_iter().find(|file| !file.starts_with(&folder)) {
            let why = format!("it reads {}, which is not in {}", file.display(), folder.display());
            return Err(CompileError::Misuse { unit: library.name.to_owned(), why });
        }
        let entry = self.cache.library(&rlib.key);
        cache::publish(&made, &entry).map_err(CompileError::io("keeping a device library", &entry))
    }

    fn compile_kernel(&self, unit: &Unit<'_>) -> Result<String, CompileError> {
        let scratch = self.cache.scratch();
        let scratch = scratch.map_err(CompileError::io("making a folder in the cache", cache::dir()))?;
        let source = scratch.path().join(source_name(unit));
        fs::write(&source, unit.source).map_err(CompileError::io("writing the kernel's source", &source))?;
        let mut command = self.kernel_command(unit);
        command.current_dir(scratch.path());
        compile(unit.name, &mut command).map_err(|error| with_calls(error, unit, &mut command))?;
        let files = read_files(&scratch.path().join(DEPS));
        let own =
            |file: &PathBuf| *file == Path::new(&source_name(unit)) || Some(file.as_path()) == unit.file;
        if let Some(file) = files.into_iter().find(|file| !own(file)) {
            let why = format!("it reads {}; a kernel is one text and reads no other file", file.display());
            return Err(CompileError::Misuse { unit: unit.name.to_owned(), why });
        }
        let asm = scratch.path().join(ASM);
        let text = fs::read_to_string(&asm).map_err(CompileError::io("reading the PTX", &asm))?;
        let undefined = undefined_functions(&text);
        if undefined.is_empty() {
            return Ok(text);
        }
        let why =
            format!("it calls functions that are defined nowhere on the device: {}", undefined.join(", "));
        Err(CompileError::Misuse { unit: unit.name.to_owned(), why })
    }

    /// The command line for a library, less what tells its key. To be run in a scratch folder.
    fn library_command(&self, library: &Library<'_>) -> Result<Command, CompileError> {
        let root = std::path::absolute(library.root).map_err(CompileError::io("resolving", library.root))?;
        let mut command = self.rustc(library.name, library.target);
        command
            .args(["--crate-type=rlib", "-Cembed-bitcode=yes", "--cap-lints=warn"])
            .arg(format!("--emit=link,dep-info={DEPS}"))
            .arg(format!("--out-dir={LIBRARY_OUT}"));
        for cfg in library.cfgs {
            command.args(["--cfg", cfg]);
        }
        add_externs(&mut command, library.externs);
        command.arg(root);
        Ok(command)
    }

    /// The command line for a kernel. To be run in a scratch folder that holds its source.
    fn kernel_command(&self, unit: &Unit<'_>) -> Command {
        let name = source_name(unit);
        let shown = unit.file.unwrap_or(Path::new(&name));
        let mut command = self.rustc(unit.name, unit.target);
        command
            // Without fat LTO whatever of core was not inlined, every panic above all, stays unresolved in the PTX.
            .args(["--crate-type=cdylib", "-Clto=fat", "-Ccodegen-units=1"])
            // rustc does LTO only on the way to a link; the assembly is what is wanted, so the linker does nothing.
            .arg("-Clinker=true")
            .arg(format!("--emit=asm={ASM},link=unused,dep-info={DEPS}"));
        // rustc splits this option at its last `=`; a file with one keeps the scratch folder's name for it.
        if !shown.as_os_str().as_encoded_bytes().contains(&b'=') {
            command.arg(format!("--remap-path-prefix={name}={}", shown.display()));
        }
        for cfg in unit.cfgs {
            command.args(["--cfg", cfg]);
        }
        add_externs(&mut command, unit.externs);
        command.arg(name);
        command
    }

    /// What libraries and kernels have in common.
    fn rustc(&self, name: &str, target: &Target) -> Command {
        let mut command = self.compiler.command();
        command
            .args(["--crate-name", name, "--edition=2024", "--error-format=json"])
            .args(["--target", DEVICE_TARGET, "-Copt-level=3", "-Cpanic=abort"])
            // rustc does not know that barriers are convergent: threading a jump past one copies it into both sides of a branch.
            .arg("-Zmir-enable-passes=-JumpThreading")
            .arg(format!("-Ctarget-cpu={}", target.arch))
            .arg(format!("-Ctarget-feature=+ptx{}", target.ptx))
            .arg("--sysroot")
            .arg(&self.sysroot);
        if target.line_info {
            // `line-tables-only` adds DWARF sections that ptxas does not parse; this gives `.file` and `.loc` alone.
            command.arg("-Cdebuginfo=line-directives-only");
        }
        command
    }
}

fn add_externs(command: &mut Command, externs: &[(&str, &Rlib)]) {
    for (name, rlib) in externs {
        command.arg("--extern").arg(format!("{name}={}", rlib.path.display()));
        for folder in &rlib.folders {
            command.arg("-L").arg(format!("dependency={}", folder.display()));
        }
    }
}

/// Runs the compiler; its errors, or how it ended, become a [`CompileError`]. Warnings are dropped: the same source
/// is compiled for the host as well, and warned about there.
fn compile(unit: &str, command: &mut Command) -> Result<(), CompileError> {
    let tool = |why: String| CompileError::Tool { unit: unit.to_owned(), why };
    let output = command.stdin(std::process::Stdio::null()).output();
    let output = output.map_err(|error| {
        tool(format!("{} does not start: {error}", Path::new(command.get_program()).display()))
    })?;
    if output.status.success() {
        return Ok(());
    }
    let (diagnostics, rest) = diagnostic::parse(&String::from_utf8_lossy(&output.stderr));
    if diagnostics.iter().any(|diagnostic| diagnostic.level == Level::Error) {
        return Err(CompileError::Diagnostics(diagnostics));
    }
    Err(tool(format!("{}\n{}", output.status, command::tail(rest.as_bytes()))))
}

/// An error of a kernel, with its calls. Where a constant fails for what a generic function of a library was given, the compiler tells the call
/// that gave it, but only if it has not inlined that function before.
fn with_calls(error: CompileError, unit: &Unit<'_>, command: &mut Command) -> CompileError {
    let CompileError::Diagnostics(diagnostics) = &error else { return error };
    let own = unit.file.map_or_else(|| source_name(unit), |file| file.display().to_string());
    let lacks = |d: &Diagnostic| d.code.as_deref() == Some("E0080") && d.primary_in(&own).is_none();
    if !diagnostics.iter().any(lacks) {
        return error;
    }
    match compile(unit.name, command.arg("-Zinline-mir=no")) {
        Err(again @ CompileError::Diagnostics(_)) => again,
        _ => error,
    }
}

/// Functions that the PTX declares and neither it nor the driver defines: such a module does not load.
fn undefined_functions(ptx: &str) -> Vec<&str> {
    const DRIVER: [&str; 4] = ["vprintf", "malloc", "free", "__assertfail"];
    ptx.lines()
        .filter_map(|line| line.strip_prefix(".extern .func"))
        .filter_map(|rest| rest.trim_end_matches(['(', ')', ' ', ';']).rsplit([' ', ')']).next())
        .filter(|name| !DRIVER.contains(name))
        .collect()
}

/// The source files named in a dep-info file: one `path:` line each, spaces escaped.
fn read_files(deps: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(deps).unwrap_or_default();
    let name = |line: &str| Some(PathBuf::from(line.strip_suffix(':')?.replace("\\ ", " ")));
    text.lines().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_identifiers() {
        for name in ["k", "_k9", "transpose_add"] {
            check_name(name).unwrap();
        }
        for name in ["", "9k", "a-b", "a b", "ä", "../x"] {
            assert!(matches!(check_name(name), Err(CompileError::Misuse { .. })), "{name}");
        }
    }

    #[test]
    fn undefined_functions_are_named() {
        let ptx = ".visible .entry k()\n.extern .func  (.param .b32 func_retval0) vprintf\n(\n.extern .func far\n(\n\
            .extern .func  (.param .b32 func_retval0) near(\n.extern .func none();\n.extern .shared .b8 s[];\n";
        assert_eq!(undefined_functions(ptx), ["far", "near", "none"]);
    }

    #[test]
    fn dep_info_lists_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deps");
        fs::write(&path, "out.rlib: a.rs b\\ c.rs\n\na.rs:\nb\\ c.rs:\n# env-dep:X\n").unwrap();
        assert_eq!(read_files(&path), [PathBuf::from("a.rs"), PathBuf::from("b c.rs")]);
    }
}
