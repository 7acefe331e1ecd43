//! A compiler named by the environment.

use std::{
    env,
    path::{Path, PathBuf},
};

use crate::{
    cache::Cache,
    command,
    error::Error,
    source::Source,
    sysroot::{self, Compiler},
};

const RUSTC: &str = "FUSEWIRE_DEVICE_RUSTC";
const SYSROOT: &str = "FUSEWIRE_DEVICE_SYSROOT";

/// What the environment names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Named {
    pub rustc: Option<PathBuf>,
    pub sysroot: Option<PathBuf>,
}

/// A named compiler; `core_source` is where `core` can be built from when `found` is none.
pub(crate) struct Override {
    pub compiler: Compiler,
    pub sysroot: Option<PathBuf>,
    pub library: Option<PathBuf>,
}

impl Named {
    pub fn from_env() -> Named {
        let path = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Named { rustc: path(RUSTC), sysroot: path(SYSROOT) }
    }

    /// The named compiler; `None` where none is named. A compiler that is named but does not do is an error, for
    /// another one taken silently is not what was asked for.
    pub fn find(&self, cache: &Cache) -> Result<Option<Override>, Error> {
        let refuse = |variable, path: &Path, why: &str| Error::Override {
            variable,
            path: path.to_owned(),
            why: why.to_owned(),
        };
        let Some(rustc) = &self.rustc else {
            return match &self.sysroot {
                Some(path) => {
                    Err(refuse(SYSROOT, path, "FUSEWIRE_DEVICE_RUSTC, whose sysroot it is, is not set"))
                }
                None => Ok(None),
            };
        };
        let compiler = Compiler::probe(cache, rustc).map_err(|why| refuse(RUSTC, rustc, &why))?;
        if let Some(sysroot) = &self.sysroot {
            if !sysroot::has_core(sysroot) {
                let why = format!("{} has no libcore", sysroot::libraries(sysroot).display());
                return Err(refuse(SYSROOT, sysroot, &why));
            }
            return Ok(Some(Override { compiler, sysroot: Some(sysroot.clone()), library: None }));
        }
        let built = compiler.built_sysroot(cache);
        if sysroot::has_core(&built) {
            return Ok(Some(Override { compiler, sysroot: Some(built), library: None }));
        }
        let mut ask = compiler.command();
        let own = command::text("asking for its sysroot", ask.args(["--print", "sysroot"]))
            .map_err(|error| refuse(RUSTC, rustc, &error.to_string()))?;
        let own = PathBuf::from(own.trim_end());
        if sysroot::has_core(&own) {
            return Ok(Some(Override { compiler, sysroot: Some(own), library: None }));
        }
        let library = own.join("lib/rustlib/src/rust/library");
        if library.join("core/src/lib.rs").is_file() {
            return Ok(Some(Override { compiler, sysroot: None, library: Some(library) }));
        }
        let why = format!(
            "its sysroot {} has neither the {} standard library nor rust-src; add one, or set {SYSROOT}",
            own.display(),
            crate::DEVICE_TARGET
        );
        Err(refuse(RUSTC, rustc, &why))
    }
}

/// The source that a named compiler with its sysroot is.
pub(crate) fn source(compiler: &Compiler, sysroot: &Path) -> Source {
    Source::Override { rustc: compiler.rustc.clone(), sysroot: sysroot.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_compiler_that_does_not_do_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path().to_owned());
        let named = Named { rustc: Some("/nowhere/rustc".into()), sysroot: None };
        let Err(Error::Override { variable, .. }) = named.find(&cache) else { panic!() };
        assert_eq!(variable, RUSTC);
        let named = Named { rustc: None, sysroot: Some("/nowhere".into()) };
        let Err(Error::Override { variable, .. }) = named.find(&cache) else { panic!() };
        assert_eq!(variable, SYSROOT);
        assert!(Named::default().find(&cache).unwrap().is_none());
    }
}
