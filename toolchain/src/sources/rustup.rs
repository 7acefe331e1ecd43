//! Toolchains that rustup installed.

use std::{
    env,
    path::{Path, PathBuf},
};

use crate::{
    cache::{self, Cache},
    error::Attempt,
    sysroot::{self, Compiler},
};

/// What a rustup toolchain offers.
pub(crate) struct Candidate {
    pub toolchain: PathBuf,
    pub compiler: Compiler,
    pub has_target: bool,
    /// The library source of `rust-src`.
    pub library: Option<PathBuf>,
}

/// `$RUSTUP_HOME`, else `~/.rustup`.
pub(crate) fn home() -> Option<PathBuf> {
    env::var_os("RUSTUP_HOME")
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
        .or_else(|| Some(env::home_dir()?.join(".rustup")))
}

/// Every toolchain under `home` that has the target or its source, newest first; why the others do not goes to
/// `tried`. The folders are read, for asking rustup costs more than a cached kernel.
pub(crate) fn candidates(cache: &Cache, home: Option<&Path>, tried: &mut Vec<Attempt>) -> Vec<Candidate> {
    let name = "rustup toolchains";
    let Some(home) = home else {
        tried.push(Attempt::new(name, "neither RUSTUP_HOME nor a home folder is set"));
        return Vec::new();
    };
    let toolchains = cache::entries(&home.join("toolchains"));
    if toolchains.is_empty() {
        tried.push(Attempt::new(name, format_args!("none in {}", home.display())));
    }
    let mut candidates = Vec::new();
    for toolchain in toolchains {
        match candidate(cache, &toolchain) {
            Ok(candidate) => candidates.push(candidate),
            Err(why) => {
                let name = toolchain.file_name().unwrap_or_default().to_string_lossy();
                tried.push(Attempt::new(format!("rustup toolchain {name}"), why));
            }
        }
    }
    candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.compiler.version.release));
    candidates
}

fn candidate(cache: &Cache, toolchain: &Path) -> Result<Candidate, String> {
    let has_target = sysroot::has_core(toolchain);
    let library = toolchain.join("lib/rustlib/src/rust/library");
    let library = library.join("core/src/lib.rs").is_file().then_some(library);
    if !has_target && library.is_none() {
        return Err(format!("it has neither the {} standard library nor rust-src", crate::DEVICE_TARGET));
    }
    let rustc = toolchain.join("bin").join(format!("rustc{}", env::consts::EXE_SUFFIX));
    let compiler = Compiler::probe(cache, &rustc)?;
    Ok(Candidate { toolchain: toolchain.to_owned(), compiler, has_target, library })
}
