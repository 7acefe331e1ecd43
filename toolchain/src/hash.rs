//! Content keys.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

/// Collects everything that decides what a compilation yields.
pub(crate) struct Hasher(Sha256);

impl Hasher {
    /// `kind` names what is hashed and the version of the recipe, so that a changed recipe never meets old entries.
    pub fn new(kind: &str) -> Hasher {
        Hasher(Sha256::new()).part(kind)
    }

    /// Adds one part; its length goes in first, so that no two lists of parts look alike.
    pub fn part(mut self, bytes: impl AsRef<[u8]>) -> Hasher {
        let bytes = bytes.as_ref();
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
        self
    }

    pub fn path(self, path: &Path) -> Hasher {
        self.part(path.as_os_str().as_encoded_bytes())
    }

    /// Adds every file of `folder`, by relative path and content; hidden entries and `target` are left out.
    pub fn folder(mut self, folder: &Path) -> io::Result<Hasher> {
        let mut files = Vec::new();
        list(folder, &mut files)?;
        files.sort();
        for file in files {
            let content = fs::read(&file)?;
            self = self.path(file.strip_prefix(folder).unwrap_or(&file)).part(content);
        }
        Ok(self)
    }

    /// 40 hexadecimal digits.
    pub fn finish(self) -> String {
        self.0.finalize()[..20].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(b".") || name == "target" {
            continue;
        }
        let path = entry.path();
        if fs::metadata(&path)?.is_dir() {
            list(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_together() {
        let one = Hasher::new("k").part("ab").part("c").finish();
        let two = Hasher::new("k").part("a").part("bc").finish();
        assert_ne!(one, two);
        assert_eq!(one.len(), 40);
    }

    #[test]
    fn folder_sees_names_and_contents() {
        let dir = tempfile::tempdir().unwrap();
        let key = || Hasher::new("k").folder(dir.path()).unwrap().finish();
        let empty = key();
        fs::write(dir.path().join("lib.rs"), "mod a;").unwrap();
        let one = key();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/mod.rs"), "").unwrap();
        let two = key();
        fs::write(dir.path().join(".hidden"), "").unwrap();
        assert_eq!(key(), two);
        assert!(empty != one && one != two);
    }
}
