//! What of the cache is executed or embedded: what nobody else can have changed, and what is whole.
//!
//! The cache's folder belongs to this user or to root, and so does every folder above it; no other user may write there. Entries that
//! are folders carry a manifest of their files, with sizes and SHA-256; entries that are one file begin with a line that has their
//! SHA-256. What does not agree is taken as not being there, and made again.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

use crate::error::Error;

/// The manifest's name in an entry.
const MANIFEST: &str = ".manifest";

/// What the first line of an entry that is one file begins with; a comment in PTX.
const MARK: &str = "// sha256 ";

/// May others write there.
const OTHERS_WRITE: u32 = 0o022;

/// In such a folder others may add files and not replace any.
const STICKY: u32 = 0o1000;

/// Makes the cache's folder, or checks the one that is there.
pub(crate) fn folder(path: &Path) -> Result<(), Error> {
    if let Err(error) = make(path)
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(Error::io("making the cache's folder", path)(error));
    }
    let real = path.canonicalize().map_err(Error::io("looking at the cache's folder", path))?;
    let refused = |at: &Path, why: String| Err(Error::Untrusted { path: at.to_owned(), why });
    for (depth, part) in real.ancestors().enumerate() {
        let data = fs::symlink_metadata(part).map_err(Error::io("looking at the cache's folder", part))?;
        if !is_ours(data.uid()) {
            return refused(part, format!("it belongs to user {}, not to you or to root", data.uid()));
        }
        let (mode, sticky) = (data.mode(), data.mode() & STICKY != 0 && depth > 0);
        if mode & OTHERS_WRITE != 0 && !sticky {
            return refused(part, format!("others may write there (mode {:o})", mode & 0o7777));
        }
    }
    Ok(())
}

/// A folder for this user alone, with those above it.
fn make(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn is_ours(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

/// Opens a file that is no link.
pub(crate) fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    options.custom_flags(OFlags::NOFOLLOW.bits() as i32 | OFlags::NONBLOCK.bits() as i32).open(path)
}

/// Ends the making of an entry: only this user may change it, it is on the disk, and says what is in it.
pub(crate) fn seal(entry: &Path) -> io::Result<()> {
    let data = fs::symlink_metadata(entry)?;
    if !data.is_dir() {
        return keep(entry);
    }
    let mut lines = Vec::new();
    walk(entry, &mut |path, data| {
        if data.is_file() {
            keep(path)?;
            let name = path.strip_prefix(entry).unwrap_or(path);
            lines.push(format!("{} {} {}", hex(&fs::read(path)?), data.len(), name.display()));
        } else if data.is_dir() {
            let mode = data.mode() & !OTHERS_WRITE;
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        }
        Ok(())
    })?;
    lines.sort();
    let mut file = File::create_new(entry.join(MANIFEST))?;
    file.write_all((lines.join("\n") + "\n").as_bytes())?;
    file.sync_all()?;
    fs::set_permissions(entry, fs::Permissions::from_mode(data.mode() & !OTHERS_WRITE))?;
    File::open(entry)?.sync_all()
}

fn keep(file: &Path) -> io::Result<()> {
    let opened = open(OpenOptions::new().read(true), file)?;
    let mode = opened.metadata()?.mode() & !OTHERS_WRITE;
    opened.set_permissions(fs::Permissions::from_mode(mode))?;
    opened.sync_all()
}

/// Whether an entry's files are there, ours, unchangeable by others and as long as they were: cheap enough for every use.
pub(crate) fn is_whole(entry: &Path) -> bool {
    agrees(entry, false)
}

/// [`is_whole`], and the files' contents are what they were.
pub(crate) fn is_intact(entry: &Path) -> bool {
    agrees(entry, true)
}

fn agrees(entry: &Path, contents: bool) -> bool {
    let Some(manifest) = read(&entry.join(MANIFEST)).and_then(|bytes| String::from_utf8(bytes).ok()) else {
        return false;
    };
    let file = |line: &str| -> Option<bool> {
        let mut parts = line.splitn(3, ' ');
        let (hash, size, name) = (parts.next()?, parts.next()?.parse::<u64>().ok()?, parts.next()?);
        let path = entry.join(name);
        let data = fs::symlink_metadata(&path).ok()?;
        let same = data.is_file() && data.len() == size && unchangeable(&data);
        Some(same && (!contents || hex(&fs::read(&path).ok()?) == hash))
    };
    !manifest.trim().is_empty() && manifest.lines().all(|line| file(line) == Some(true))
}

fn unchangeable(data: &fs::Metadata) -> bool {
    is_ours(data.uid()) && data.mode() & OTHERS_WRITE == 0
}

/// Content with the line that [`unmarked`] looks for.
pub(crate) fn marked(content: &[u8]) -> Vec<u8> {
    let mut all = format!("{MARK}{}\n", hex(content)).into_bytes();
    all.extend_from_slice(content);
    all
}

/// The content of an entry that is one file; `None` where it is not there, damaged, or could be changed by others.
pub(crate) fn unmarked(path: &Path) -> Option<Vec<u8>> {
    let mut all = read(path)?;
    let end = all.iter().position(|byte| *byte == b'\n')? + 1;
    let content = all.split_off(end);
    let hash = all.strip_prefix(MARK.as_bytes())?.strip_suffix(b"\n")?;
    (hash == hex(&content).as_bytes()).then_some(content)
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let mut file = open(OpenOptions::new().read(true), path).ok()?;
    let data = file.metadata().ok()?;
    let mut content = Vec::new();
    (data.is_file() && unchangeable(&data)).then(|| file.read_to_end(&mut content).ok())??;
    Some(content)
}

fn hex(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn walk(folder: &Path, visit: &mut impl FnMut(&PathBuf, &fs::Metadata) -> io::Result<()>) -> io::Result<()> {
    for path in crate::cache::entries(folder) {
        let data = fs::symlink_metadata(&path)?;
        visit(&path, &data)?;
        if data.is_dir() {
            walk(&path, visit)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn folders_that_others_may_change_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("a/cache");
        folder(&cache).unwrap();
        assert_eq!(fs::metadata(&cache).unwrap().mode() & 0o777, 0o700);
        for bad in [0o770, 0o707, 0o1777] {
            mode(&cache, bad);
            let error = folder(&cache).unwrap_err().to_string();
            assert!(error.contains("others may write there") && error.contains("FUSEWIRE_CACHE"), "{error}");
        }
        mode(&cache, 0o755);
        folder(&cache).unwrap();
        // Whoever may write above it can put another one there.
        mode(&dir.path().join("a"), 0o777);
        assert!(folder(&cache).is_err());
        mode(&dir.path().join("a"), 0o700);
        // By way of a link, too.
        symlink(&cache, dir.path().join("link")).unwrap();
        folder(&dir.path().join("link")).unwrap();
        mode(&cache, 0o757);
        assert!(folder(&dir.path().join("link")).is_err());
    }

    #[test]
    fn another_users_folder_is_refused() {
        // Only root can give folders away; whoever is not root finds one that belongs to nobody else than root.
        if !rustix::process::geteuid().is_root() {
            eprintln!("left out: needs root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("cache");
        folder(&cache).unwrap();
        std::os::unix::fs::chown(&cache, Some(65534), None).unwrap();
        let error = folder(&cache).unwrap_err().to_string();
        assert!(error.contains("belongs to user 65534"), "{error}");
    }

    #[test]
    fn damaged_folders_are_found_out() {
        let made = || {
            let dir = tempfile::tempdir().unwrap();
            let entry = dir.path().join("entry");
            fs::create_dir_all(entry.join("sub")).unwrap();
            fs::write(entry.join("sub/rustc"), "#!/bin/true").unwrap();
            fs::write(entry.join("other"), "content").unwrap();
            mode(&entry.join("other"), 0o666);
            seal(&entry).unwrap();
            assert!(is_whole(&entry) && is_intact(&entry));
            (dir, entry)
        };
        let damages: [fn(&Path); 6] = [
            |entry| fs::write(entry.join("sub/rustc"), "").unwrap(),
            |entry| fs::remove_file(entry.join("other")).unwrap(),
            |entry| mode(&entry.join("other"), 0o646),
            |entry| {
                fs::rename(entry.join("other"), entry.join("moved")).unwrap();
                symlink(entry.join("moved"), entry.join("other")).unwrap();
            },
            |entry| fs::remove_file(entry.join(MANIFEST)).unwrap(),
            |entry| fs::write(entry.join(MANIFEST), "").unwrap(),
        ];
        for (number, damage) in damages.iter().enumerate() {
            let (_dir, entry) = made();
            damage(&entry);
            assert!(!is_whole(&entry) && !is_intact(&entry), "damage {number}");
        }
        let (_dir, entry) = made();
        fs::write(entry.join("sub/rustc"), "#!/bin/evil").unwrap();
        assert!(!is_intact(&entry));
    }

    #[test]
    fn damaged_files_are_found_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("k.ptx");
        fs::write(&path, marked(b".version 8.6\n")).unwrap();
        mode(&path, 0o644);
        assert_eq!(unmarked(&path).as_deref(), Some(&b".version 8.6\n"[..]));
        let whole = fs::read(&path).unwrap();
        for damaged in
            [&b""[..], b"\n", b".version 8.6\n", &whole[..whole.len() - 1], &[&whole[..], b"x"].concat()]
        {
            fs::write(&path, damaged).unwrap();
            assert_eq!(unmarked(&path), None);
        }
        fs::write(&path, &whole).unwrap();
        mode(&path, 0o666);
        assert_eq!(unmarked(&path), None);
        mode(&path, 0o644);
        symlink(&path, dir.path().join("link")).unwrap();
        assert_eq!(unmarked(&dir.path().join("link")), None);
    }
}
