//! Finds or builds `core` and `compiler_builtins` for the device.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use crate::{
    DEVICE_TARGET,
    cache::{self, Cache},
    command,
    error::Error,
    hash::Hasher,
    progress::{Progress, Step},
    target::Arch,
    trust,
    version::{Release, Version},
};

/// A rustc that can be run, and how.
#[derive(Clone, Debug)]
pub(crate) struct Compiler {
    pub rustc: PathBuf,
    /// Where its shared libraries are, when it does not find them itself.
    pub library_path: Option<PathBuf>,
    pub version: Version,
}

impl Compiler {
    /// Asks `rustc` for its version. The answer is kept in the cache, for asking costs more than a cached kernel.
    pub fn probe(cache: &Cache, rustc: &Path) -> Result<Compiler, String> {
        let data = fs::metadata(rustc).map_err(|error| error.to_string())?;
        let stamp = data.modified().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        let key = Hasher::new("version 1")
            .path(rustc)
            .part(data.len().to_le_bytes())
            .part(stamp.unwrap_or_default().as_nanos().to_le_bytes())
            .finish();
        let kept = cache.versions().join(key);
        let library_path = library_path(rustc);
        let known = cache.load(&kept).and_then(|text| Version::parse(&text));
        let version = match known {
            Some(version) => version,
            None => {
                let mut ask = bare(rustc, library_path.as_deref());
                let text = command::text("asking for its version", ask.arg("-vV"))
                    .map_err(|error| error.to_string())?;
                let version = Version::parse(&text)
                    .ok_or_else(|| format!("`-vV` does not tell a rustc version: {text}"))?;
                // Not being able to keep the answer only costs the next caller the question.
                let _ = cache.store(&kept, text.as_bytes());
                version
            }
        };
        if version.release < Release::OLDEST {
            return Err(format!("it is {}; Rust {} or later is needed", version.line, Release::OLDEST));
        }
        Ok(Compiler { rustc: rustc.to_owned(), library_path, version })
    }

    /// A command for this compiler that may use unstable features and sees nothing of the caller's environment.
    pub fn command(&self) -> Command {
        bare(&self.rustc, self.library_path.as_deref())
    }

    /// Where `core` for this compiler is built. One for all architectures: LLVM inlines across `target-cpu` here.
    pub fn built_sysroot(&self, cache: &Cache) -> PathBuf {
        cache.sysroots().join(&Hasher::new("sysroot 1").part(&self.version.text).finish()[..20])
    }
}

fn bare(rustc: &Path, library_path: Option<&Path>) -> Command {
    let mut command = command::clean(rustc);
    // The targets, ABIs and intrinsics of device code are unstable in every release.
    command.env("RUSTC_BOOTSTRAP", "1");
    if let Some(path) = library_path {
        command.env("LD_LIBRARY_PATH", path);
    }
    command
}

/// The folder beside `rustc` that holds the compiler's own shared library: `lib`, or `lib/<multiarch>` in a package.
fn library_path(rustc: &Path) -> Option<PathBuf> {
    let lib = rustc.parent()?.parent()?.join("lib");
    let mut folders = cache::entries(&lib);
    folders.insert(0, lib);
    folders.into_iter().find(|folder| {
        let driver = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("librustc_driver-"))
        };
        folder.is_dir() && cache::entries(folder).iter().any(driver)
    })
}

/// The folder of `sysroot` where the target's libraries are.
pub(crate) fn libraries(sysroot: &Path) -> PathBuf {
    sysroot.join("lib/rustlib").join(DEVICE_TARGET).join("lib")
}

/// Whether `sysroot` has `core` and `compiler_builtins` for the device.
pub(crate) fn has_core(sysroot: &Path) -> bool {
    let files = cache::entries(&libraries(sysroot));
    let has = |start: &str| {
        files.iter().any(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(start) && name.ends_with(".rlib")
        })
    };
    has("libcore") && has("libcompiler_builtins")
}

/// Whether `sysroot`, which [`build`] made, is whole.
pub(crate) fn is_built(sysroot: &Path) -> bool {
    trust::is_whole(sysroot) && has_core(sysroot)
}

/// Builds the sysroot of `compiler` from `library` (the folder with `core/`), unless it is there.
pub(crate) fn build(
    cache: &Cache,
    compiler: &Compiler,
    library: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<PathBuf, Error> {
    let sysroot = compiler.built_sysroot(cache);
    if is_built(&sysroot) {
        return Ok(sysroot);
    }
    let started = Instant::now();
    let what = format!("core for {DEVICE_TARGET} with {}", compiler.version.line);
    progress(Progress::Started {
        step: Step::BuildLibrary,
        what: what.clone(),
        bytes: None,
        to: sysroot.clone(),
    });

    let scratch = cache.scratch().map_err(Error::io("making a folder in the cache", cache.sysroots()))?;
    // Not the scratch folder itself: that one is private to this user, the cache need not be.
    let made = scratch.path().join("sysroot");
    let out = libraries(&made);
    fs::create_dir_all(&out).map_err(Error::io("making a folder", &out))?;
    let core = library.join("core/src/lib.rs");
    command::run("building core for the device", crate_of(compiler, library, &out, "core").arg(core))?;
    let mut builtins = crate_of(compiler, library, &out, "compiler_builtins");
    builtins
        .args(["--cfg", "feature=\"compiler-builtins\"", "--cfg", "feature=\"unmangled-names\""])
        .arg("--extern")
        .arg(format!("core={}", out.join("libcore.rlib").display()))
        .arg(library.join("compiler-builtins/compiler-builtins/src/lib.rs"));
    command::run("building compiler_builtins for the device", &mut builtins)?;

    cache::publish(&made, &sysroot).map_err(Error::io("putting core into the cache", &sysroot))?;
    let seconds = started.elapsed().as_secs_f64();
    let bytes = cache::size(&sysroot);
    progress(Progress::Finished { step: Step::BuildLibrary, what, bytes, to: sysroot.clone(), seconds });
    Ok(sysroot)
}

fn crate_of(compiler: &Compiler, library: &Path, out: &Path, name: &str) -> Command {
    let mut command = compiler.command();
    let public = format!("/rustc/{}/library", compiler.version.commit.as_deref().unwrap_or("unknown"));
    command
        .args(["--crate-name", name, "--edition=2024", "--crate-type=rlib", "--emit=link"])
        .args(["--target", DEVICE_TARGET, "-Copt-level=3", "-Cembed-bitcode=yes", "-Cpanic=abort"])
        .args(["--cap-lints=allow", "-Zforce-unstable-if-unmarked"])
        // The lowest one, so that one build serves all.
        .arg(format!("-Ctarget-cpu={}", Arch::SM_70))
        // As in a released core: panics and line information name no folder of this machine.
        .arg(format!("--remap-path-prefix={}={public}", library.display()))
        .arg("--out-dir")
        .arg(out);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_needs_both_libraries() {
        let dir = tempfile::tempdir().unwrap();
        let lib = libraries(dir.path());
        fs::create_dir_all(&lib).unwrap();
        fs::write(lib.join("libcore-0123.rlib"), "").unwrap();
        assert!(!has_core(dir.path()));
        fs::write(lib.join("libcompiler_builtins-0123.rlib"), "").unwrap();
        assert!(has_core(dir.path()));
    }

    #[test]
    fn shared_libraries_are_found_in_both_layouts() {
        for lib in ["lib", "lib/x86_64-linux-gnu"] {
            let dir = tempfile::tempdir().unwrap();
            let lib = dir.path().join(lib);
            fs::create_dir_all(&lib).unwrap();
            fs::write(lib.join("librustc_driver-1.so"), "").unwrap();
            assert_eq!(library_path(&dir.path().join("bin/rustc")), Some(lib));
        }
    }
}
