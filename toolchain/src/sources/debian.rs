//! The rustc packages of Debian and Ubuntu, unpacked into the cache.

use std::{
    collections::{BTreeSet, VecDeque},
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use super::apt::{Apt, Package};
use crate::{
    cache::{self, Cache},
    error::{Attempt, Error},
    progress::{Progress, Step},
    sysroot::{self, Compiler},
    trust,
    version::Release,
};

/// The name of this source in messages.
pub(crate) const NAME: &str = "Debian or Ubuntu packages";

/// The file in an unpacked compiler's folder that names its package.
const LABEL: &str = "package";

/// A compiler unpacked earlier, with its `core`.
pub(crate) struct Unpacked {
    pub package: String,
    pub folder: PathBuf,
    pub compiler: Compiler,
    pub sysroot: PathBuf,
}

/// The newest unpacked compiler whose `core` is built; why there is none goes to `tried`.
pub(crate) fn unpacked(cache: &Cache, tried: &mut Vec<Attempt>) -> Option<Unpacked> {
    let mut found = Vec::new();
    let mut refused = Vec::new();
    for folder in cache::entries(&cache.compilers()) {
        match open(cache, &folder) {
            Ok(unpacked) => found.push(unpacked),
            Err(why) => refused.push(Attempt::new(NAME, format_args!("{}: {why}", folder.display()))),
        }
    }
    if found.is_empty() {
        if refused.is_empty() {
            refused
                .push(Attempt::new(NAME, format_args!("none unpacked in {}", cache.compilers().display())));
        }
        tried.append(&mut refused);
    }
    found.into_iter().max_by_key(|unpacked| unpacked.compiler.version.release)
}

fn open(cache: &Cache, folder: &Path) -> Result<Unpacked, String> {
    if !trust::is_whole(folder) {
        return Err("it is damaged, or others may change it".to_owned());
    }
    let package = fs::read_to_string(folder.join(LABEL)).map_err(|error| format!("not readable: {error}"))?;
    let compiler = Compiler::probe(cache, &rustc_in(folder)?)?;
    let sysroot = compiler.built_sysroot(cache);
    if !sysroot::is_built(&sysroot) {
        return Err("its core is not built".to_owned());
    }
    Ok(Unpacked { package, folder: folder.to_owned(), compiler, sysroot })
}

/// `usr/bin/rustc`, or `usr/bin/rustc-1.95` and the like in a versioned package.
fn rustc_in(folder: &Path) -> Result<PathBuf, String> {
    let bin = folder.join("usr/bin");
    let is_rustc = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // A link may point to an absolute path of an installed package: only what is really here counts.
        (name == "rustc" || name.starts_with("rustc-")) && path.is_file()
    };
    cache::entries(&bin).into_iter().find(is_rustc).ok_or_else(|| format!("no rustc in {}", bin.display()))
}

/// A compiler's package with the one that holds its library source.
#[derive(Debug, PartialEq, Eq)]
struct Pair {
    compiler: Package,
    source: Package,
}

/// The name of the source package that goes with a compiler's package: `rustc` and `rust-src`, `rustc-web` and
/// `rust-web-src`, `rustc-1.95` and `rust-1.95-src`.
fn source_of(compiler: &str) -> Option<String> {
    let flavour = compiler.strip_prefix("rustc")?;
    let versioned = |text: &str| text.split('.').all(|part| part.parse::<u32>().is_ok());
    match flavour.strip_prefix('-') {
        None if flavour.is_empty() => Some("rust-src".to_owned()),
        Some(name) if name == "web" || name == "mozilla" || versioned(name) => {
            Some(format!("rust-{name}-src"))
        }
        _ => None,
    }
}

/// The newest pair that is new enough and of one release; or what there is instead.
fn choose(pairs: Vec<(Package, Option<Package>)>) -> Result<Pair, String> {
    let mut best: Option<(Release, Pair)> = None;
    let mut refused = Vec::new();
    for (compiler, source) in pairs {
        let label = format!("{} {}", compiler.name, compiler.version);
        let Some(source) = source.filter(|source| source.version == compiler.version) else {
            refused.push(format!("{label} has no library source of the same version"));
            continue;
        };
        match Release::parse(&compiler.version) {
            Some(release) if release >= Release::OLDEST => {
                if best.as_ref().is_none_or(|(other, _)| release > *other) {
                    best = Some((release, Pair { compiler, source }));
                }
            }
            _ => refused.push(format!("{label} is older than {}", Release::OLDEST)),
        }
    }
    best.map(|(_, pair)| pair).ok_or_else(|| match refused.is_empty() {
        true => "the package lists name no rustc".to_owned(),
        false => refused.join("; "),
    })
}

/// Downloads and unpacks the newest compiler and builds its `core`.
pub(crate) fn fetch(cache: &Cache, progress: &mut dyn FnMut(Progress)) -> Result<Unpacked, String> {
    if !cfg!(target_os = "linux") {
        return Err("this is not Linux".to_owned());
    }
    fetch_packages(cache, progress).map_err(|error| error.to_string()).and_then(|fetched| fetched)
}

fn fetch_packages(
    cache: &Cache,
    progress: &mut dyn FnMut(Progress),
) -> Result<Result<Unpacked, String>, Error> {
    let scratch = cache.scratch().map_err(Error::io("making a folder in the cache", cache.compilers()))?;
    open_to_apt(scratch.path());
    let apt =
        timed(progress, Step::PackageLists, "of this system", None, &scratch.path().join("apt"), |to| {
            Apt::update(to)
        })?;
    let names = apt.names("rustc")?;
    let pairs = names.iter().filter_map(|name| {
        let source = source_of(name)?;
        Some((apt.show(name)?, apt.show(&source)))
    });
    let pair = match choose(pairs.collect()) {
        Ok(pair) => pair,
        Err(why) => return Ok(Err(why)),
    };

    let label = format!("{} {}", pair.compiler.name, pair.compiler.version);
    let to =
        cache.compilers().join(format!("{}-{}", pair.compiler.name, pair.compiler.version.replace(':', "_")));
    let mut archives = Vec::new();
    for package in closure(&apt, &pair.compiler).iter().chain([&pair.source]) {
        let what = format!("{} {}", package.name, package.version);
        archives.push(timed(progress, Step::Download, &what, package.size, scratch.path(), |_| {
            apt.download(package)
        })?);
    }
    let unpacked = scratch.path().join("compiler");
    let source = scratch.path().join("source");
    timed(progress, Step::Unpack, &label, None, &to, |_| {
        let (library, programs) = archives.split_last().expect("the source is always among them");
        programs.iter().try_for_each(|archive| apt.unpack(archive, &unpacked, &[]))?;
        // core reads these four; the rest of the source is ten times as much.
        apt.unpack(
            library,
            &source,
            &[
                "./usr/src/*/library/core",
                "./usr/src/*/library/compiler-builtins",
                "./usr/src/*/library/stdarch/crates/core_arch",
                "./usr/src/*/library/portable-simd",
            ],
        )?;
        // Documentation is not needed to compile.
        let _ = fs::remove_dir_all(unpacked.join("usr/share"));
        let label_file = unpacked.join(LABEL);
        fs::write(&label_file, &label).map_err(Error::io("writing", &label_file))?;
        if to.exists() && (rustc_in(&to).is_err() || !trust::is_intact(&to)) {
            fs::remove_dir_all(&to).map_err(Error::io("removing a broken compiler", &to))?;
        }
        cache::publish(&unpacked, &to).map_err(Error::io("putting the compiler into the cache", &to))
    })?;

    let compiler = match rustc_in(&to).and_then(|rustc| Compiler::probe(cache, &rustc)) {
        Ok(compiler) => compiler,
        Err(why) => return Ok(Err(format!("{label}, unpacked in {}, does not run: {why}", to.display()))),
    };
    let folders = cache::entries(&source.join("usr/src"));
    let Some(library) = folders.iter().map(|folder| folder.join("library")).find(|path| path.is_dir()) else {
        return Ok(Err(format!("{} {} holds no library source", pair.source.name, pair.source.version)));
    };
    let sysroot = sysroot::build(cache, &compiler, &library, progress)?;
    Ok(Ok(Unpacked { package: label, folder: to, compiler, sysroot }))
}

/// The compiler's package and every library it needs that the system lacks. What only linking for the host needs
/// (gcc, binutils, the host's standard library) is left out.
fn closure(apt: &Apt, compiler: &Package) -> Vec<Package> {
    let mut wanted = vec![compiler.clone()];
    let mut seen = BTreeSet::new();
    let mut queue: VecDeque<String> = compiler.depends.iter().cloned().collect();
    while let Some(name) = queue.pop_front() {
        let library = name.starts_with("lib") && !name.starts_with("libc6") && name != "libc-dev";
        if !library && !name.starts_with("zlib") || !seen.insert(name.clone()) {
            continue;
        }
        // The compiler's own libraries are taken even where they are installed: an upgrade must not change them
        // behind the cache's back.
        let own = name.starts_with("libstd-rust") || name.to_lowercase().starts_with("libllvm");
        if !own && apt.installed(&name) {
            continue;
        }
        let Some(package) = apt.show(&name) else { continue };
        queue.extend(package.depends.iter().cloned());
        let host_std = name.starts_with("libstd-rust") && name.ends_with("-dev");
        if !host_std {
            wanted.push(package);
        }
    }
    wanted
}

/// apt, run by root, downloads as its own user, who must be able to reach the folder. Where that fails apt says so and
/// goes on as root.
fn open_to_apt(folder: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o755));
    }
}

/// Runs one step between its two events.
fn timed<T>(
    progress: &mut dyn FnMut(Progress),
    step: Step,
    what: &str,
    bytes: Option<u64>,
    to: &Path,
    work: impl FnOnce(&Path) -> Result<T, Error>,
) -> Result<T, Error> {
    let started = Instant::now();
    progress(Progress::Started { step, what: what.to_owned(), bytes, to: to.to_owned() });
    let done = work(to)?;
    let bytes = bytes.unwrap_or_else(|| cache::size(to));
    let seconds = started.elapsed().as_secs_f64();
    progress(Progress::Finished { step, what: what.to_owned(), bytes, to: to.to_owned(), seconds });
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, version: &str) -> Package {
        Package { name: name.to_owned(), version: version.to_owned(), ..Package::default() }
    }

    #[test]
    fn source_packages_are_named_after_the_compiler() {
        assert_eq!(source_of("rustc").as_deref(), Some("rust-src"));
        assert_eq!(source_of("rustc-web").as_deref(), Some("rust-web-src"));
        assert_eq!(source_of("rustc-1.95").as_deref(), Some("rust-1.95-src"));
        assert_eq!(source_of("rustc-1.95-dbgsym"), None);
        assert_eq!(source_of("rustc-bpf"), None);
        assert_eq!(source_of("gcc"), None);
    }

    #[test]
    fn the_newest_matching_pair_is_taken() {
        let pair = |name: &str, version: &str| {
            (package(name, version), Some(package(&source_of(name).unwrap(), version)))
        };
        let pairs = vec![
            pair("rustc", "1.63.0+dfsg1-2"),
            pair("rustc-web", "1.96.0+dfsg1-1"),
            pair("rustc-1.95", "1.95.0"),
        ];
        assert_eq!(choose(pairs).unwrap().compiler.name, "rustc-web");
    }

    #[test]
    fn a_refusal_names_what_there_is() {
        let mismatch = (package("rustc", "1.96.0-1"), Some(package("rust-src", "1.95.0-1")));
        let old = (package("rustc-web", "1.63.0"), Some(package("rust-web-src", "1.63.0")));
        let why = choose(vec![mismatch, old]).unwrap_err();
        assert!(why.contains("rustc 1.96.0-1 has no library source"), "{why}");
        assert!(why.contains("rustc-web 1.63.0 is older than 1.95"), "{why}");
        assert!(choose(Vec::new()).unwrap_err().contains("no rustc"));
    }
}
