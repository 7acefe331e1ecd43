//! Files of this user alone: where ranks of one host find each other's secrets.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::tcp::token::random;
use crate::{Error, Result};

/// The name of the file with the secret that all jobs of a user on a host share.
const SECRET: &str = "loopback-secret";
const SECRET_DIGITS: usize = 64;

/// Why a file is not read.
#[derive(Debug)]
pub(super) enum Unread {
    /// It is not there, or cannot be opened.
    No(io::Error),
    /// It is there, and is not such a file as this user's ranks write.
    Unfit(String),
}

/// The first `limit` bytes of a regular file of this user's. Never waits, and never follows a link.
pub(super) fn read(path: &Path, limit: u64) -> Result<String, Unread> {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path);
    let file =
        opened.map_err(|error| match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
            Some(rustix::io::Errno::LOOP) => Unread::Unfit("it is a symbolic link".to_owned()),
            Some(rustix::io::Errno::NXIO) => Unread::Unfit("it is not a regular file".to_owned()),
            _ => Unread::No(error),
        })?;
    let metadata = file.metadata().map_err(Unread::No)?;
    fit(&metadata).map_err(Unread::Unfit)?;
    if metadata.mode() & 0o077 != 0 {
        return Err(Unread::No(io::Error::new(
            ErrorKind::PermissionDenied,
            "other users may open it, and it holds a secret",
        )));
    }
    let mut text = String::new();
    file.take(limit).read_to_string(&mut text).map_err(Unread::No)?;
    Ok(text)
}

/// Whether what is at a path may be a file of this user's ranks.
fn fit(metadata: &fs::Metadata) -> Result<(), String> {
    let (owner, user) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if !metadata.is_file() {
        Err("it is not a regular file".to_owned())
    } else if owner != user {
        Err(format!("it belongs to user {owner}, and this is user {user}"))
    } else {
        Ok(())
    }
}

/// Whether a file may be put at a path: nothing is there, or a file of this user's.
pub(super) fn may_write(path: &Path) -> Result<(), String> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => fit(&metadata),
        Err(_) => Ok(()),
    }
}

/// Writes a file that only this user may open, under another name, and hands that to `publish`: nobody reads half of it.
pub(super) fn write(
    path: &Path,
    text: &str,
    publish: impl FnOnce(&Path, &Path) -> io::Result<()>,
) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    let random: [u8; 8] = random().map_err(io::Error::other)?;
    name.push(format!(".{:016x}", u64::from_le_bytes(random)));
    let temporary = path.with_file_name(name);
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        publish(&temporary, path)
    };
    let written = write();
    // Gone already where it was renamed.
    let _ = fs::remove_file(&temporary);
    written
}

/// A directory that only this user can enter.
pub(crate) fn directory() -> Result<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let (base, dir) = match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_dir())
    {
        Some(base) => (base.clone(), base.join("fusewire")),
        None => (std::env::temp_dir(), std::env::temp_dir().join(format!("fusewire-{user}"))),
    };
    let broken = |e: io::Error| {
        Error::fabric(
            format!("making the private directory {} under {}", dir.display(), base.display()),
            e,
            "set XDG_RUNTIME_DIR or TMPDIR to a directory of your own, or set FUSEWIRE_ADDR and FUSEWIRE_TOKEN",
        )
    };
    match DirBuilder::new().mode(0o700).create(&dir) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(broken(error)),
        _ => {}
    }
    let metadata = fs::symlink_metadata(&dir).map_err(broken)?;
    if !metadata.is_dir() || metadata.uid() != user || metadata.mode() & 0o077 != 0 {
        return Err(broken(io::Error::new(ErrorKind::PermissionDenied, "it is not private to this user")));
    }
    Ok(dir)
}

/// What this user's processes on this host know and nobody else: made by the first that asks, and kept.
pub(super) fn secret() -> Result<String> {
    secret_in(&directory()?)
}

fn secret_in(directory: &Path) -> Result<String> {
    let path = directory.join(SECRET);
    let advice = "remove it, or set FUSEWIRE_TOKEN to one secret on every rank";
    let broken = |e: io::Error| Error::fabric(format!("the secret in {}", path.display()), e, advice);
    loop {
        match read(&path, SECRET_DIGITS as u64 + 1) {
            Ok(text) if text.len() == SECRET_DIGITS && text.bytes().all(|c| c.is_ascii_hexdigit()) => {
                return Ok(text);
            }
            Ok(_) => return Err(broken(io::Error::new(ErrorKind::InvalidData, "it is not whole"))),
            Err(Unread::Unfit(why)) => return Err(broken(io::Error::new(ErrorKind::PermissionDenied, why))),
            Err(Unread::No(error)) if error.kind() == ErrorKind::NotFound => {}
            Err(Unread::No(error)) => return Err(broken(error)),
        }
        let bytes: [u8; SECRET_DIGITS / 2] = random()?;
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        // A link fails where another rank was first: then its secret is everybody's.
        match write(&path, &text, |temporary, path| fs::hard_link(temporary, path)) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(broken(error)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn unfit(path: &Path) -> String {
        match read(path, 100) {
            Err(Unread::Unfit(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_no_file_of_this_user_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(unfit(&fifo).contains("not a regular file"));
        assert!(may_write(&fifo).is_err());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/etc/hostname", &link).unwrap();
        assert!(unfit(&link).contains("symbolic link"));
        assert!(may_write(&link).is_err());
        assert!(unfit(dir.path()).contains("not a regular file"));
        let socket = dir.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(unfit(&socket).contains("not a regular file"));
        if rustix::process::geteuid().is_root() {
            let foreign = dir.path().join("foreign");
            fs::write(&foreign, "x").unwrap();
            std::os::unix::fs::chown(&foreign, Some(12345), None).unwrap();
            assert!(unfit(&foreign).contains("belongs to user 12345"));
            assert!(may_write(&foreign).is_err());
        }
    }

    #[test]
    fn a_file_that_others_may_open_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("open");
        fs::write(&path, "x").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(read(&path, 10), Err(Unread::No(_))));
        assert!(may_write(&path).is_ok());
        assert!(may_write(&dir.path().join("nothing")).is_ok());
    }

    #[test]
    fn all_who_ask_at_once_get_one_secret() {
        let dir = tempfile::tempdir().unwrap();
        let secrets: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| secret_in(dir.path()).unwrap())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(secrets.iter().all(|secret| *secret == secrets[0] && secret.len() == SECRET_DIGITS));
        assert_eq!(fs::metadata(dir.path().join(SECRET)).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
        fs::write(dir.path().join(SECRET), "short").unwrap();
        assert!(secret_in(dir.path()).unwrap_err().to_string().contains("not whole"));
    }
}
