//! The cache: one folder with the compiler, its libraries and everything compiled.
//!
//! Entries are named by a hash of all that goes into them and appear by one rename, so a reader sees a whole entry or
//! none; a file lock keeps two processes from making the same entry twice. Removing the folder, whole or in part, is
//! always safe while nothing compiles. `trust.rs` says what is believed of what lies there.
//!
//! Compiled libraries, kernels and records of packages are bounded: once a day, when they take more than 512 MB, those
//! that were not used for 30 days are removed. The compiler itself is never removed.

use std::{
    env,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use tempfile::{NamedTempFile, TempDir};

use crate::{error::Error, trust};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const BOUND: u64 = 512 << 20;

/// The cache's folder: `$FUSEWIRE_CACHE`, else `$XDG_CACHE_HOME/fusewire`, else `~/.cache/fusewire`.
///
/// Without any of the three it is a folder of this user's under the system's one for temporary files.
pub fn dir() -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    let named = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    named("FUSEWIRE_CACHE")
        .or_else(|| Some(named("XDG_CACHE_HOME").filter(|path| path.is_absolute())?.join("fusewire")))
        .or_else(|| Some(env::home_dir().filter(|home| home.is_absolute())?.join(".cache/fusewire")))
        .unwrap_or_else(|| env::temp_dir().join(format!("fusewire-{user}")))
}

/// A held file lock; dropping it, or the end of the process, lets go.
pub(crate) struct Lock(#[expect(dead_code, reason = "closing the file is what releases the lock")] File);

/// A cache folder and its parts.
#[derive(Clone, Debug)]
pub(crate) struct Cache(PathBuf);

impl Cache {
    pub fn new(dir: PathBuf) -> Cache {
        // A relative folder would mean another one for every process's working folder; compilers want it absolute.
        Cache(std::path::absolute(&dir).unwrap_or(dir))
    }

    /// The cache of [`dir`], if nobody else can change it.
    pub fn open() -> Result<Cache, Error> {
        let cache = Cache::new(dir());
        trust::folder(&cache.0)?;
        Ok(cache)
    }

    pub fn compilers(&self) -> PathBuf {
        self.0.join("compilers")
    }

    pub fn sysroots(&self) -> PathBuf {
        self.0.join("sysroots")
    }

    pub fn versions(&self) -> PathBuf {
        self.0.join("versions")
    }

    pub fn ptxas(&self) -> PathBuf {
        self.0.join("ptxas")
    }

    pub fn library(&self, key: &str) -> PathBuf {
        self.0.join("libraries").join(key)
    }

    pub fn kernel(&self, key: &str) -> PathBuf {
        self.0.join("kernels").join(format!("{key}.ptx"))
    }

    /// What macros wrote in a package.
    pub fn expanded(&self, package: &str) -> PathBuf {
        self.0.join("expanded").join(package)
    }

    pub fn lock_path(&self, name: &str) -> PathBuf {
        self.0.join("locks").join(name)
    }

    /// Waits for the lock `name`; `waiting` is called before a wait.
    pub fn lock(&self, name: &str, waiting: impl FnOnce(&Path)) -> io::Result<Lock> {
        let path = self.lock_path(name);
        fs::create_dir_all(self.0.join("locks"))?;
        let file = trust::open(File::options().create(true).truncate(false).write(true), &path)?;
        if file.try_lock().is_err() {
            waiting(&path);
            file.lock()?;
        }
        Ok(Lock(file))
    }

    /// The lock of an entry. There are 256 of them: two entries that share one wait for each other, no more.
    pub fn entry_lock(&self, key: &str) -> io::Result<Lock> {
        self.lock(key.get(..2).unwrap_or(key), |_| ())
    }

    /// A private folder in the cache, so that a rename out of it stays on one file system.
    pub fn scratch(&self) -> io::Result<TempDir> {
        let parent = self.0.join("tmp");
        fs::create_dir_all(&parent)?;
        tempfile::Builder::new().prefix("work-").tempdir_in(parent)
    }

    /// Puts `text` at `path` in one step, for [`Cache::load`].
    pub fn store(&self, path: &Path, text: &[u8]) -> io::Result<()> {
        let scratch = self.scratch()?;
        let file = scratch.path().join("entry");
        fs::write(&file, trust::marked(text))?;
        publish(&file, path)
    }

    /// The same for what a crash of the machine may take: nothing waits for the disk.
    pub fn leave(&self, path: &Path, text: &[u8]) -> io::Result<()> {
        let parent = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(parent)?;
        // Only this user may read or change it.
        let mut file = NamedTempFile::new_in(parent)?;
        file.write_all(&trust::marked(text))?;
        file.persist(path)?;
        Ok(())
    }

    /// What [`Cache::store`] put there; `None` if there is nothing, or something else.
    pub fn load(&self, path: &Path) -> Option<String> {
        String::from_utf8(trust::unmarked(path)?).ok()
    }

    /// Marks an entry as used; at most once a day, for a write costs more than the look-up.
    pub fn touch(&self, path: &Path) {
        let old = |time: SystemTime| time.elapsed().is_ok_and(|age| age > DAY);
        if fs::metadata(path).and_then(|data| data.modified()).is_ok_and(old) {
            // An entry that cannot be marked is made again one day: no harm.
            let _ = trust::open(File::options().read(true), path)
                .and_then(|file| file.set_modified(SystemTime::now()));
        }
    }

    /// Removes what was not used for long, as the module's page says; looks at most once a day.
    pub fn prune(&self) {
        let stamp = self.0.join("pruned");
        let fresh = |time: SystemTime| time.elapsed().is_ok_and(|age| age < DAY);
        if fs::symlink_metadata(&stamp).and_then(|data| data.modified()).is_ok_and(fresh) {
            return;
        }
        // A cache that cannot be pruned still works: errors are left alone.
        let _ = self.store(&stamp, b"");
        self.prune_to(BOUND, KEPT);
        remove_older(&self.0.join("tmp"), DAY);
    }

    fn prune_to(&self, bound: u64, kept: Duration) {
        let folders = ["kernels", "libraries", "expanded"].map(|folder| self.0.join(folder));
        if folders.iter().map(|folder| size(folder)).sum::<u64>() > bound {
            folders.iter().for_each(|folder| remove_older(folder, kept));
        }
    }
}

/// Seals `from` and moves it to `to`, making the folder it goes into. A whole folder that is there already is kept: same key, same content.
/// A damaged one is replaced.
pub(crate) fn publish(from: &Path, to: &Path) -> io::Result<()> {
    trust::seal(from)?;
    let parent = to.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent)?;
    let is_folder = |path: &Path| fs::symlink_metadata(path).is_ok_and(|data| data.is_dir());
    if is_folder(from) && is_folder(to) {
        if trust::is_intact(to) {
            return Ok(());
        }
        fs::remove_dir_all(to)?;
    }
    fs::rename(from, to)?;
    File::open(parent)?.sync_all()
}

/// Bytes of all files under `path`, links not followed; 0 where it cannot be read.
pub fn size(path: &Path) -> u64 {
    let Ok(data) = fs::symlink_metadata(path) else { return 0 };
    if !data.is_dir() {
        return data.len();
    }
    entries(path).iter().map(|entry| size(entry)).sum()
}

/// What is in a folder, sorted; nothing where it cannot be read.
pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

fn remove_older(folder: &Path, age: Duration) {
    for entry in entries(folder) {
        let modified = fs::symlink_metadata(&entry).and_then(|data| data.modified());
        if modified.is_ok_and(|time| time.elapsed().is_ok_and(|old| old > age)) {
            let _ = if entry.is_dir() { fs::remove_dir_all(&entry) } else { fs::remove_file(&entry) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> (TempDir, Cache) {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path().to_owned());
        (dir, cache)
    }

    fn age(path: &Path, days: u32) {
        File::open(path).unwrap().set_modified(SystemTime::now() - DAY * days).unwrap();
    }

    #[test]
    fn prunes_only_old_entries_and_only_when_large() {
        let (_dir, cache) = cache();
        let (old, new) = (cache.kernel("old"), cache.kernel("new"));
        cache.store(&old, &[0; 1000]).unwrap();
        cache.store(&new, &[0; 1000]).unwrap();
        age(&old, 40);
        cache.prune_to(5000, KEPT);
        assert!(old.exists());
        cache.prune_to(1500, KEPT);
        assert!(!old.exists() && new.exists());
    }

    #[test]
    fn touching_keeps_an_entry() {
        let (_dir, cache) = cache();
        let path = cache.kernel("k");
        cache.store(&path, b"text").unwrap();
        age(&path, 40);
        cache.touch(&path);
        cache.prune_to(0, KEPT);
        assert!(path.exists());
    }

    #[test]
    fn prune_clears_left_scratch_and_waits_a_day() {
        let (dir, cache) = cache();
        let left = dir.path().join("tmp/work-left");
        fs::create_dir_all(&left).unwrap();
        age(&left, 2);
        cache.prune();
        assert!(!left.exists());
        fs::create_dir_all(&left).unwrap();
        age(&left, 2);
        cache.prune();
        assert!(left.exists());
    }

    /// What a link in the cache points to is neither emptied nor read.
    #[test]
    fn links_are_not_followed() {
        let (dir, cache) = cache();
        let precious = dir.path().join("precious");
        fs::write(&precious, "text").unwrap();
        std::os::unix::fs::symlink(&precious, dir.path().join("pruned")).unwrap();
        cache.prune();
        fs::create_dir_all(dir.path().join("locks")).unwrap();
        std::os::unix::fs::symlink(&precious, cache.lock_path("ab")).unwrap();
        assert!(cache.entry_lock("abcd").is_err());
        let kernel = cache.kernel("k");
        cache.store(&kernel, b"ptx").unwrap();
        assert_eq!(cache.load(&kernel).as_deref(), Some("ptx"));
        fs::remove_file(&kernel).unwrap();
        std::os::unix::fs::symlink(&precious, &kernel).unwrap();
        assert_eq!(cache.load(&kernel), None);
        cache.store(&kernel, b"ptx").unwrap();
        assert_eq!(cache.load(&kernel).as_deref(), Some("ptx"));
        assert_eq!(fs::read_to_string(&precious).unwrap(), "text");
    }

    #[test]
    fn a_lock_excludes_and_is_let_go() {
        let (_dir, cache) = cache();
        let held = cache.entry_lock("abcd").unwrap();
        assert!(File::open(cache.lock_path("ab")).unwrap().try_lock().is_err());
        drop(held);
        let mut waited = false;
        cache.lock("ab", |_| waited = true).unwrap();
        assert!(!waited);
    }

    #[test]
    fn publish_keeps_the_first_folder() {
        let (dir, _cache) = cache();
        let at = |name: &str| dir.path().join(name);
        for name in ["one", "two"] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("f"), name).unwrap();
            publish(&at(name), &at("sub/entry")).unwrap();
        }
        assert_eq!(fs::read_to_string(at("sub/entry/f")).unwrap(), "one");
        // One that is damaged is made again.
        fs::write(at("sub/entry/f"), "").unwrap();
        fs::create_dir(at("three")).unwrap();
        fs::write(at("three").join("f"), "three").unwrap();
        publish(&at("three"), &at("sub/entry")).unwrap();
        assert_eq!(fs::read_to_string(at("sub/entry/f")).unwrap(), "three");
    }
}
