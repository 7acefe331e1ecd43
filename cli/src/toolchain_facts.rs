//! The device compiler, `ptxas` and the cache, as `setup` and `doctor` tell them.

use fusewire_toolchain::{Error, Toolchain, cache, ptxas::Ptxas};

use crate::report::Finding;

/// The device compiler that was found, or why there is none.
pub fn compiler(found: &Result<Toolchain, Error>) -> Finding {
    let subject = "device compiler";
    let found = match found {
        Ok(found) => return Finding::good(subject, format!("{}\n{}", found.version(), found.source())),
        Err(Error::NotPrepared { tried }) => {
            let lines: String = tried.iter().map(|t| format!("\n{}: {}", t.source, t.why)).collect();
            format!("none is prepared{lines}")
        }
        Err(other) => other.to_string(),
    };
    let expected =
        "a Rust compiler with `core` for nvptx64-nvidia-cuda; kernels for GPUs are not built without it";
    Finding::bad(subject, found, expected, "run `cargo fusewire setup`")
}

/// The assembler, where there is one.
pub fn assembler(found: Option<&Ptxas>) -> Finding {
    let subject = "ptxas";
    match found {
        Some(found) => {
            let (major, minor) = found.release();
            Finding::good(subject, format!("CUDA {major}.{minor}, {}", found.path().display()))
        }
        None => Finding::absent(
            subject,
            "none that can be used",
            "CUDA 12.9 or later; only checks of PTX without a GPU need it",
            "run `cargo fusewire setup --ptxas`",
        ),
    }
}

/// The cache.
pub fn cache() -> Finding {
    let folder = cache::dir();
    Finding::good("cache", format!("{}, {:.0} MB", folder.display(), cache::size(&folder) as f64 / 1e6))
}
