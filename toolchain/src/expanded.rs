//! Items as macros wrote them, by package, for those who read its files and do not compile it.
//!
//! They lie under a digest of the package's Rust files. Who reads looks under the digest of the files as they are, and so finds nothing that an
//! older source wrote. What is found there was compiled of these files, with whichever of the package's features.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    cache::{self, Cache},
    hash::Hasher,
};

/// Files and folders of a package that are looked at; of one with more nothing is kept.
const MOST: usize = 20_000;

/// What macros wrote in one package, as its files are now.
#[derive(Debug)]
pub struct Expanded {
    cache: Cache,
    folder: PathBuf,
}

impl Expanded {
    /// Of the package in this folder. `None` if its files cannot be read or are too many, or if the cache is not to be had.
    pub fn of(package: &Path) -> Option<Expanded> {
        Expanded::within(Cache::open().ok()?, package)
    }

    fn within(cache: Cache, package: &Path) -> Option<Expanded> {
        let package = package.canonicalize().ok()?;
        let folder = cache.expanded(&Hasher::new("package 1").path(&package).finish());
        let folder = folder.join(digest(&package).ok()?);
        Some(Expanded { cache, folder })
    }

    /// Keeps a text. What goes wrong is not said: nobody's build needs it.
    pub fn keep(&self, text: &str) {
        let path = self.folder.join(Hasher::new("expanded 1").part(text).finish());
        if path.exists() {
            return;
        }
        if !self.folder.exists() {
            let older = self.folder.parent().map(cache::entries).unwrap_or_default();
            older.iter().for_each(|folder| drop(fs::remove_dir_all(folder)));
        }
        let _ = self.cache.leave(&path, text.as_bytes());
    }

    /// Every text that was kept.
    pub fn all(&self) -> Vec<String> {
        cache::entries(&self.folder).iter().filter_map(|path| self.cache.load(path)).collect()
    }
}

/// Names and contents of the package's Rust files.
fn digest(package: &Path) -> io::Result<String> {
    let mut hasher = Hasher::new("sources 1");
    for file in sources(package, MOST)? {
        let content = fs::read(&file)?;
        hasher = hasher.path(file.strip_prefix(package).unwrap_or(&file)).part(content);
    }
    Ok(hasher.finish())
}

/// Every Rust file of a package, in order; not of packages, build outputs and hidden folders within it.
///
/// # Errors
/// A folder that cannot be read, by its name, and more than so many files and folders.
pub fn sources(package: &Path, most: usize) -> io::Result<Vec<PathBuf>> {
    let (mut files, mut seen) = (Vec::new(), 0);
    sources_in(package, most, &mut files, &mut seen)?;
    files.sort();
    Ok(files)
}

fn sources_in(folder: &Path, most: usize, files: &mut Vec<PathBuf>, seen: &mut usize) -> io::Result<()> {
    let failed = |e: io::Error| io::Error::new(e.kind(), format!("reading {}: {e}", folder.display()));
    for entry in fs::read_dir(folder).map_err(failed)? {
        *seen += 1;
        if *seen > most {
            return Err(io::Error::other(format!("more than {most} files and folders")));
        }
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        if path.is_dir() {
            let ours = !name.starts_with(b".") && name != b"target" && !path.join("Cargo.toml").is_file();
            if ours {
                sources_in(&path, most, files, seen)?;
            }
        } else if path.extension().is_some_and(|e| e == "rs") && path.is_file() {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_there_while_the_sources_are_the_same() {
        let (cache, package) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let write = |file: &str, text: &str| {
            let path = package.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let of = || Expanded::within(Cache::new(cache.path().to_owned()), package.path()).unwrap();
        write("src/lib.rs", "one");
        let first = of();
        for text in ["mod a {}", "mod b {}", "mod a {}"] {
            first.keep(text);
        }
        let mut all = of().all();
        all.sort();
        assert_eq!(all, ["mod a {}", "mod b {}"]);
        // None of these is the package's.
        write("README.md", "changed");
        write("target/out.rs", "changed");
        write("inner/Cargo.toml", "");
        write("inner/src/lib.rs", "changed");
        assert_eq!(of().all().len(), 2);
        write("src/lib.rs", "two");
        assert!(of().all().is_empty());
        of().keep("mod c {}");
        assert_eq!(of().all(), ["mod c {}"]);
        // What was there before is gone for good.
        write("src/lib.rs", "one");
        assert!(of().all().is_empty());
    }
}
