//! The device compiler, found or prepared.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    cache::{self, Cache},
    error::{Attempt, Error},
    hash::Hasher,
    progress::Progress,
    source::Source,
    sources::{
        debian,
        named::{self, Named},
        rustup,
    },
    sysroot::{self, Compiler},
    trust,
};

/// A device compiler that is ready. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Toolchain {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub cache: Cache,
    pub compiler: Compiler,
    pub sysroot: PathBuf,
    source: Source,
    fingerprint: String,
}

/// Where to look.
#[derive(Clone, Debug)]
struct Places {
    cache: Cache,
    named: Named,
    rustup: Option<PathBuf>,
}

impl Toolchain {
    /// The compiler that is there, in the order of the crate's page. Never downloads or builds; a few milliseconds.
    ///
    /// # Errors
    /// [`Error::NotPrepared`] when none is ready; [`Error::Override`] when the one that the environment names cannot
    /// be used.
    pub fn find() -> Result<Toolchain, Error> {
        Places::from_env()?.find()
    }

    /// The compiler that is there, or one made ready now: `core` built from rust-src, or the distribution's packages
    /// downloaded and unpacked into [`cache::dir`]. Installs nothing and changes nothing outside the cache. Of
    /// several processes one works and the others wait.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with every source tried and why it failed; [`Error::Override`] as for
    /// [`Toolchain::find`]; [`Error::Io`] when the cache cannot be written.
    pub fn prepare(progress: &mut dyn FnMut(Progress)) -> Result<Toolchain, Error> {
        Places::from_env()?.prepare(progress)
    }

    /// Where the compiler comes from.
    pub fn source(&self) -> &Source {
        &self.inner.source
    }

    /// What `rustc -V` says.
    pub fn version(&self) -> &str {
        &self.inner.compiler.version.line
    }

    /// The compiler's executable.
    pub fn rustc(&self) -> &Path {
        &self.inner.compiler.rustc
    }

    /// Stands for the compiler and its `core` in every cache key: two toolchains that could compile differently have
    /// different ones.
    pub fn fingerprint(&self) -> &str {
        &self.inner.fingerprint
    }

    /// Whether what it has in the cache is as it was made: every file is read.
    fn is_intact(&self, cache: &Cache) -> bool {
        self.parts(cache).all(trust::is_intact)
    }

    /// Removes what is not, so that it is made again.
    fn remove_damaged(&self, cache: &Cache) {
        for part in self.parts(cache).filter(|part| !trust::is_intact(part)) {
            // What cannot be removed fails again when it is replaced, and is told then.
            let _ = fs::remove_dir_all(part);
        }
    }

    /// The compiler and the sysroot, as far as they are entries of the cache.
    fn parts(&self, cache: &Cache) -> impl Iterator<Item = &Path> {
        let compiler = match &self.inner.source {
            Source::Debian { folder, .. } => Some(folder.as_path()),
            _ => None,
        };
        let sysroot = Some(self.inner.sysroot.as_path()).filter(|path| path.starts_with(cache.sysroots()));
        compiler.into_iter().chain(sysroot)
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    fn new(cache: &Cache, compiler: Compiler, sysroot: PathBuf, source: Source) -> Toolchain {
        // A released core is as old as its compiler; one that somebody named may be anything, so its files count.
        let mut hasher = Hasher::new("toolchain 1").part(&compiler.version.text);
        for file in cache::entries(&sysroot::libraries(&sysroot)) {
            let size = file.metadata().map_or(0, |data| data.len());
            hasher =
                hasher.part(file.file_name().unwrap_or_default().as_encoded_bytes()).part(size.to_le_bytes());
        }
        let fingerprint = hasher.finish();
        let cache = cache.clone();
        Toolchain { inner: Arc::new(Inner { cache, compiler, sysroot, source, fingerprint }) }
    }
}

impl Places {
    fn from_env() -> Result<Places, Error> {
        Ok(Places { cache: Cache::open()?, named: Named::from_env(), rustup: rustup::home() })
    }

    fn find(&self) -> Result<Toolchain, Error> {
        let mut tried = Vec::new();
        self.look(&mut tried)?.ok_or(Error::NotPrepared { tried })
    }

    fn look(&self, tried: &mut Vec<Attempt>) -> Result<Option<Toolchain>, Error> {
        let cache = &self.cache;
        if let Some(found) = self.named.find(cache)? {
            let Some(sysroot) = found.sysroot else {
                tried.push(Attempt::new("FUSEWIRE_DEVICE_RUSTC", "core is not built from its rust-src yet"));
                return Ok(None);
            };
            let source = named::source(&found.compiler, &sysroot);
            return Ok(Some(Toolchain::new(cache, found.compiler, sysroot, source)));
        }
        tried.push(Attempt::new("FUSEWIRE_DEVICE_RUSTC", "not set"));

        let mut unbuilt = Vec::new();
        let candidates = rustup::candidates(cache, self.rustup.as_deref(), tried);
        let (ready, from_source): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|c| c.has_target);
        if let Some(first) = ready.into_iter().next() {
            let source = Source::RustupTarget { toolchain: first.toolchain.clone() };
            return Ok(Some(Toolchain::new(cache, first.compiler, first.toolchain, source)));
        }
        for candidate in from_source {
            let sysroot = candidate.compiler.built_sysroot(cache);
            if sysroot::is_built(&sysroot) {
                let source =
                    Source::RustupRustSrc { toolchain: candidate.toolchain, sysroot: sysroot.clone() };
                return Ok(Some(Toolchain::new(cache, candidate.compiler, sysroot, source)));
            }
            let name = format!("rustup toolchain {}", candidate.toolchain.display());
            unbuilt.push(Attempt::new(name, "core is not built from its rust-src yet"));
        }
        tried.append(&mut unbuilt);
        Ok(debian::unpacked(cache, tried).map(|unpacked| from_packages(cache, unpacked)))
    }

    fn prepare(&self, progress: &mut dyn FnMut(Progress)) -> Result<Toolchain, Error> {
        let cache = &self.cache;
        if let Some(found) = self.look(&mut Vec::new())? {
            if found.is_intact(cache) {
                return Ok(found);
            }
            found.remove_damaged(cache);
        }
        let lock = cache.lock("prepare", |path| progress(Progress::Waiting { lock: path.to_owned() }));
        let _lock = lock.map_err(Error::io("locking the cache", cache.lock_path("prepare")))?;
        let mut tried = Vec::new();
        // Whoever held the lock may have done the work.
        if let Some(found) = self.look(&mut tried)? {
            return Ok(found);
        }
        tried.iter().for_each(|attempt| refused(progress, attempt));

        if let Some(found) = self.named.find(cache)?
            && let Some(library) = found.library
        {
            let sysroot = sysroot::build(cache, &found.compiler, &library, progress)?;
            let source = named::source(&found.compiler, &sysroot);
            return Ok(Toolchain::new(cache, found.compiler, sysroot, source));
        }
        for candidate in rustup::candidates(cache, self.rustup.as_deref(), &mut Vec::new()) {
            let Some(library) = &candidate.library else { continue };
            match sysroot::build(cache, &candidate.compiler, library, progress) {
                Ok(sysroot) => {
                    let source =
                        Source::RustupRustSrc { toolchain: candidate.toolchain, sysroot: sysroot.clone() };
                    return Ok(Toolchain::new(cache, candidate.compiler, sysroot, source));
                }
                Err(error) => {
                    let name = format!("rustup toolchain {}", candidate.toolchain.display());
                    tried.push(Attempt::new(name, error));
                    refused(progress, &tried[tried.len() - 1]);
                }
            }
        }
        match debian::fetch(cache, progress) {
            Ok(unpacked) => Ok(from_packages(cache, unpacked)),
            Err(why) => {
                tried.push(Attempt::new(debian::NAME, why));
                Err(Error::Unavailable { tried })
            }
        }
    }
}

fn refused(progress: &mut dyn FnMut(Progress), attempt: &Attempt) {
    progress(Progress::Refused { source: attempt.source.clone(), why: attempt.why.clone() });
}

fn from_packages(cache: &Cache, unpacked: debian::Unpacked) -> Toolchain {
    let debian::Unpacked { package, folder, compiler, sysroot } = unpacked;
    let source = Source::Debian { package, folder, sysroot: sysroot.clone() };
    Toolchain::new(cache, compiler, sysroot, source)
}

#[cfg(all(test, unix))]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;
    use crate::{Arch, Target, Unit};

    const KERNEL: &str = "#![no_std]\n#![feature(abi_ptx)]\n\
        #[panic_handler] fn panic(_: &core::panic::PanicInfo) -> ! { loop {} }\n\
        #[unsafe(no_mangle)] pub extern \"ptx-kernel\" fn k() {}\n";

    /// A `core` that is just enough to be built and to be named as one.
    const TINY_CORE: &str = "#![feature(no_core, lang_items)]\n#![no_core]\n\
        #[lang = \"pointee_sized\"] pub trait PointeeSized {}\n\
        #[lang = \"meta_sized\"] pub trait MetaSized: PointeeSized {}\n\
        #[lang = \"sized\"] pub trait Sized: MetaSized {}\n";
    const TINY_BUILTINS: &str = "#![feature(no_core)]\n#![no_core]\nextern crate core;\n";

    fn prepared() -> Toolchain {
        Toolchain::prepare(&mut |event| eprintln!("{event}")).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A rustup home with one toolchain whose compiler is the prepared one.
    struct Home {
        folder: tempfile::TempDir,
        places: Places,
    }

    fn home() -> Home {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("rustup/toolchains/test/bin");
        fs::create_dir_all(&bin).unwrap();
        let compiler = &prepared().inner.compiler;
        let libraries = compiler.library_path.clone().unwrap_or_default();
        let script = format!(
            "#!/bin/sh\nexport LD_LIBRARY_PATH='{}'\nexec '{}' \"$@\"\n",
            libraries.display(),
            compiler.rustc.display()
        );
        fs::write(bin.join("rustc"), script).unwrap();
        fs::set_permissions(bin.join("rustc"), fs::Permissions::from_mode(0o755)).unwrap();
        let places = Places {
            cache: Cache::new(folder.path().join("cache")),
            named: Named::default(),
            rustup: Some(folder.path().join("rustup")),
        };
        Home { folder, places }
    }

    impl Home {
        fn toolchain(&self) -> PathBuf {
            self.folder.path().join("rustup/toolchains/test")
        }

        fn add_target(&self) {
            let lib = sysroot::libraries(&self.toolchain());
            fs::create_dir_all(lib.parent().unwrap()).unwrap();
            symlink(sysroot::libraries(&prepared().inner.sysroot), lib).unwrap();
        }

        fn add_source(&self, core: &str) {
            let library = self.toolchain().join("lib/rustlib/src/rust/library");
            for (folder, text) in [("core", core), ("compiler-builtins/compiler-builtins", TINY_BUILTINS)] {
                fs::create_dir_all(library.join(folder).join("src")).unwrap();
                fs::write(library.join(folder).join("src/lib.rs"), text).unwrap();
            }
        }
    }

    #[test]
    fn a_rustup_target_is_used_as_it_is() {
        let home = home();
        home.add_target();
        let found = home.places.find().unwrap();
        assert_eq!(found.source(), &Source::RustupTarget { toolchain: home.toolchain() });
        let target = Target::new(Arch::SM_90);
        assert!(found.kernel(&Unit::new("k", KERNEL, &target)).unwrap().text.contains(".visible .entry k("));
    }

    #[test]
    fn core_is_built_from_rust_src_once() {
        let home = home();
        home.add_source(TINY_CORE);
        let error = home.places.find().unwrap_err().to_string();
        assert!(error.contains("core is not built from its rust-src yet"), "{error}");
        assert!(error.contains("cargo fusewire setup"), "{error}");

        let builds = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let found = home.places.prepare(&mut |event| {
                        if let Progress::Started { .. } = event {
                            builds.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        }
                    });
                    assert!(matches!(found.unwrap().source(), Source::RustupRustSrc { .. }));
                });
            }
        });
        assert_eq!(builds.into_inner(), 1);
        assert!(matches!(home.places.find().unwrap().source(), Source::RustupRustSrc { .. }));
    }

    #[test]
    fn a_named_compiler_comes_first() {
        let mut home = home();
        home.add_target();
        let rustc = home.toolchain().join("bin/rustc");
        let sysroot = prepared().inner.sysroot.clone();
        home.places.named = Named { rustc: Some(rustc.clone()), sysroot: Some(sysroot.clone()) };
        assert_eq!(home.places.find().unwrap().source(), &Source::Override { rustc, sysroot });
        home.places.named.sysroot = Some(home.folder.path().to_owned());
        assert!(matches!(
            home.places.find(),
            Err(Error::Override { variable: "FUSEWIRE_DEVICE_SYSROOT", .. })
        ));
    }

    #[test]
    fn nothing_found_names_every_source() {
        let home = home();
        let error = home.places.find().unwrap_err().to_string();
        for part in
            ["FUSEWIRE_DEVICE_RUSTC: not set", "rustup toolchain test", "Debian or Ubuntu packages: none"]
        {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
