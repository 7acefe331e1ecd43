//! What `rustc -vV` says.

use std::fmt;

/// The parts of `rustc -vV` that matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// The whole text: part of every cache key.
    pub text: String,
    /// The first line, as of `rustc -V`.
    pub line: String,
    pub release: Release,
    pub commit: Option<String>,
}

/// Major and minor release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Release(pub u32, pub u32);

impl Release {
    /// The device crate is written for the release that the workspace declares; an older compiler refuses it.
    pub const OLDEST: Release = Release(1, 95);

    /// The leading `major.minor` of `1.96.0-nightly` or of a package's `1.96.0+dfsg1-1`.
    pub fn parse(text: &str) -> Option<Release> {
        let mut parts = text.split('.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?;
        let digits = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
        Some(Release(major, minor[..digits].parse().ok()?))
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl Version {
    pub fn parse(text: &str) -> Option<Version> {
        let field = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).map(str::to_owned)
        };
        let line = text.lines().next().filter(|line| line.starts_with("rustc "))?.to_owned();
        let release = Release::parse(&field("release")?)?;
        let commit = field("commit-hash").filter(|hash| hash != "unknown");
        Some(Version { text: text.to_owned(), line, release, commit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEBIAN: &str = "rustc 1.96.0 (ac68faa20 2026-05-25) (built from a source tarball)\nbinary: rustc\n\
        commit-hash: ac68faa20c58cbccd01ee7208bf3b6e93a7d7f96\ncommit-date: 2026-05-25\n\
        host: x86_64-unknown-linux-gnu\nrelease: 1.96.0\nLLVM version: 22.1.8\n";

    #[test]
    fn reads_verbose_versions() {
        let version = Version::parse(DEBIAN).unwrap();
        assert_eq!(version.line, "rustc 1.96.0 (ac68faa20 2026-05-25) (built from a source tarball)");
        assert_eq!(version.release, Release(1, 96));
        assert_eq!(version.commit.as_deref(), Some("ac68faa20c58cbccd01ee7208bf3b6e93a7d7f96"));
        let nightly = DEBIAN.replace("release: 1.96.0", "release: 1.97.0-nightly");
        assert_eq!(Version::parse(&nightly).unwrap().release, Release(1, 97));
    }

    #[test]
    fn refuses_what_is_no_version() {
        for text in ["", "gcc 12", "rustc 1.96.0\nbinary: rustc\n", "rustc\nrelease: new\n"] {
            assert_eq!(Version::parse(text), None);
        }
        assert_eq!(Release::parse("1.96.0+dfsg1-1~deb12u2"), Some(Release(1, 96)));
        assert_eq!(Release::parse("2"), None);
    }
}
