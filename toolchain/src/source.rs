//! Where a device compiler comes from.

use std::{fmt, path::PathBuf};

/// Where a device compiler comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// Named by `FUSEWIRE_DEVICE_RUSTC`.
    Override {
        /// The compiler.
        rustc: PathBuf,
        /// The folder whose `lib/rustlib/nvptx64-nvidia-cuda/lib` holds `core`.
        sysroot: PathBuf,
    },
    /// A rustup toolchain that has the target's standard library.
    RustupTarget {
        /// The toolchain's folder.
        toolchain: PathBuf,
    },
    /// A rustup toolchain's compiler, with `core` built from its `rust-src` component.
    RustupRustSrc {
        /// The toolchain's folder.
        toolchain: PathBuf,
        /// Where the built `core` is.
        sysroot: PathBuf,
    },
    /// Packages of Debian or Ubuntu, unpacked into the cache.
    Debian {
        /// The compiler's package and version, such as `rustc-web 1.96.0+dfsg1-1`.
        package: String,
        /// Where it was unpacked.
        folder: PathBuf,
        /// Where the built `core` is.
        sysroot: PathBuf,
    },
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Override { rustc, sysroot } => {
                write!(f, "FUSEWIRE_DEVICE_RUSTC {} with sysroot {}", rustc.display(), sysroot.display())
            }
            Source::RustupTarget { toolchain } => {
                write!(f, "rustup toolchain {} with {}", toolchain.display(), crate::DEVICE_TARGET)
            }
            Source::RustupRustSrc { toolchain, sysroot } => {
                write!(f, "rustup toolchain {} with core built in {}", toolchain.display(), sysroot.display())
            }
            Source::Debian { package, folder, sysroot } => {
                write!(
                    f,
                    "package {package} in {} with core built in {}",
                    folder.display(),
                    sysroot.display()
                )
            }
        }
    }
}
