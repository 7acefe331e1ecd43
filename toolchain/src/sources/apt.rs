//! Reads and fetches a distribution's packages without root and without changing anything on the system.
//!
//! apt is given a configuration of its own: the system's, less the hooks that an update would run, with lists and
//! archives in a private folder. Sources, keys, pins and proxies are the system's own, so signatures are checked as
//! ever.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{command, error::Error};

/// A package as `apt-cache show` tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Package {
    pub name: String,
    pub version: String,
    pub depends: Vec<String>,
    /// Bytes of the archive.
    pub size: Option<u64>,
}

/// apt with private lists.
pub(crate) struct Apt {
    folder: PathBuf,
    config: PathBuf,
}

impl Apt {
    /// Fetches the lists into `folder`.
    pub fn update(folder: &Path) -> Result<Apt, Error> {
        for sub in ["state/lists/partial", "cache/archives/partial"] {
            let sub = folder.join(sub);
            fs::create_dir_all(&sub).map_err(Error::io("making a folder", &sub))?;
        }
        let dump = command::text("reading apt's configuration", Command::new("apt-config").arg("dump"))?;
        let config = folder.join("apt.conf");
        fs::write(&config, private_config(&dump, folder)).map_err(Error::io("writing", &config))?;
        let apt = Apt { folder: folder.to_owned(), config };
        command::run("fetching package lists", apt.command("apt-get").args(["-q", "update"]))?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        // apt's messages are quoted in errors and its fields are parsed: no translations.
        command.env("APT_CONFIG", &self.config).env("LC_ALL", "C").current_dir(&self.folder);
        command
    }

    /// Names of all packages that start with `prefix`.
    pub fn names(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let text = command::text(
            "listing packages",
            self.command("apt-cache").args(["--generate", "pkgnames", prefix]),
        )?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// The version of `name` that the system would install; `None` where there is none.
    pub fn show(&self, name: &str) -> Option<Package> {
        let mut command = self.command("apt-cache");
        // apt-cache fails for a name it does not know: the same as no candidate.
        let text =
            command::text("reading a package", command.args(["--no-all-versions", "show", name])).ok()?;
        parse_packages(&text).into_iter().next()
    }

    /// Whether the system has `name` installed.
    pub fn installed(&self, name: &str) -> bool {
        let mut query = Command::new("dpkg-query");
        command::text("asking for a package", query.args(["-W", "-f", "${db:Status-Status}\n", name]))
            .is_ok_and(|text| text.lines().any(|line| line == "installed"))
    }

    /// Downloads `package`; apt checks its signature chain. Gives the archive.
    pub fn download(&self, package: &Package) -> Result<PathBuf, Error> {
        let to = self.folder.join("downloads").join(&package.name);
        fs::create_dir_all(&to).map_err(Error::io("making a folder", &to))?;
        let what = format!("{}={}", package.name, package.version);
        let step = format!("downloading {what}");
        command::run(&step, self.command("apt-get").current_dir(&to).args(["-q", "download", &what]))?;
        let is_archive = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "deb");
        crate::cache::entries(&to).into_iter().find(is_archive).ok_or_else(|| Error::Command {
            step,
            program: "apt-get".to_owned(),
            why: format!("it left no archive in {}", to.display()),
        })
    }

    /// Unpacks `archive` into `folder`; with `only`, just what matches these tar patterns.
    pub fn unpack(&self, archive: &Path, folder: &Path, only: &[&str]) -> Result<(), Error> {
        fs::create_dir_all(folder).map_err(Error::io("making a folder", folder))?;
        let step = format!("unpacking {}", archive.display());
        if only.is_empty() {
            return command::run(&step, Command::new("dpkg-deb").arg("-x").arg(archive).arg(folder))
                .map(drop);
        }
        let tar = folder.join(".unpacking.tar");
        let file = fs::File::create(&tar).map_err(Error::io("writing", &tar))?;
        let mut list = Command::new("dpkg-deb");
        let status = list.arg("--fsys-tarfile").arg(archive).stdout(file).status();
        if !status.as_ref().is_ok_and(|status| status.success()) {
            let why = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            return Err(Error::Command { step, program: "dpkg-deb".to_owned(), why });
        }
        let mut extract = Command::new("tar");
        extract.arg("-xf").arg(&tar).arg("-C").arg(folder).args(["--no-same-owner", "--wildcards"]);
        let done = command::run(&step, extract.args(only.iter().map(OsString::from)));
        let _ = fs::remove_file(&tar);
        done.map(drop)
    }
}

/// The system's configuration with private folders and without what an update or a download would set off.
fn private_config(dump: &str, folder: &Path) -> String {
    // Hooks (docker-clean, update-notifier, appstream) would touch the system; the other lists are not needed.
    let dropped =
        ["APT::Update::", "DPkg::", "Dir::State", "Dir::Cache", "Dir::Etc::main", "Dir::Etc::parts"];
    let other_lists = ["Acquire::IndexTargets::deb::DEP-11", "Acquire::IndexTargets::deb::Contents"];
    let kept = |line: &&str| !dropped.iter().chain(&other_lists).any(|start| line.starts_with(start));
    let mut text: String = dump.lines().filter(kept).map(|line| format!("{line}\n")).collect();
    let folder = folder.display();
    text.push_str(&format!(
        "Dir::State \"{folder}/state\";\nDir::State::lists \"lists/\";\nDir::State::status \"/var/lib/dpkg/status\";\n\
         Dir::Cache \"{folder}/cache\";\nDir::Cache::archives \"archives/\";\nDir::Etc::main \"/dev/null\";\n\
         Dir::Etc::parts \"/dev/null\";\nAcquire::Languages \"none\";\n"
    ));
    // Whatever the system allows: what is fetched here is executed.
    for (option, value) in [
        ("Acquire::AllowInsecureRepositories", "false"),
        ("Acquire::AllowWeakRepositories", "false"),
        ("Acquire::AllowDowngradeToInsecureRepositories", "false"),
        ("APT::Get::AllowUnauthenticated", "false"),
    ] {
        text.push_str(&format!("{option} \"{value}\";\n"));
    }
    text
}

/// The stanzas of `apt-cache show`.
pub(crate) fn parse_packages(text: &str) -> Vec<Package> {
    text.split("\n\n").filter_map(parse_package).collect()
}

fn parse_package(stanza: &str) -> Option<Package> {
    let field = |name: &str| {
        stanza.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(|value| value.trim())
    };
    // Of alternatives the first is taken; versions are held together by the distribution.
    let name_of = |entry: &str| {
        let first = entry.split('|').next().unwrap_or(entry);
        first.split(['(', ':']).next().unwrap_or(first).trim().to_owned()
    };
    let depends = field("Depends").unwrap_or_default();
    Some(Package {
        name: field("Package")?.to_owned(),
        version: field("Version")?.to_owned(),
        depends: depends.split(',').map(name_of).filter(|name| !name.is_empty()).collect(),
        size: field("Size").and_then(|size| size.parse().ok()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_stanzas() {
        let text = "Package: libllvm22\nSource: llvm-toolchain-22\nVersion: 1:22.1.8-1~deb12u1\n\
            Depends: libc6 (>= 2.36), libedit2 (>= 2.11-20080614-0) | libedit3, zlib1g:any (>= 1:1.2.0)\n\
            Size: 29378692\nDescription: x\n .\n more\n\nPackage: rust-src\nVersion: 1.85.0+dfsg3-1\n\nVersion: 2\n";
        let packages = parse_packages(text);
        assert_eq!(packages.len(), 2);
        assert_eq!(packages[0].name, "libllvm22");
        assert_eq!(packages[0].version, "1:22.1.8-1~deb12u1");
        assert_eq!(packages[0].depends, ["libc6", "libedit2", "zlib1g"]);
        assert_eq!(packages[0].size, Some(29378692));
        assert_eq!(
            packages[1],
            Package {
                name: "rust-src".to_owned(),
                version: "1.85.0+dfsg3-1".to_owned(),
                ..Package::default()
            }
        );
        assert!(parse_packages("N: no packages found\n").is_empty());
    }

    #[test]
    fn private_configuration_keeps_sources_and_drops_hooks() {
        let dump = "APT \"\";\nAPT::Architecture \"amd64\";\nAPT::Update::Post-Invoke:: \"rm -f /x\";\n\
            DPkg::Post-Invoke:: \"rm\";\nDir::State \"var/lib/apt\";\nDir::State::lists \"lists/\";\n\
            Dir::Etc::sourcelist \"sources.list\";\nDir::Etc::parts \"apt.conf.d\";\n\
            Acquire::http::Proxy \"proxy\";\nAcquire::IndexTargets::deb::DEP-11::ShortDescription \"x\";\n";
        let config = private_config(dump, Path::new("/private"));
        assert!(!config.contains("rm") && !config.contains("DEP-11") && !config.contains("apt.conf.d"));
        for kept in [
            "amd64",
            "sources.list",
            "Proxy",
            "Dir::State \"/private/state\"",
            "Dir::Cache \"/private/cache\"",
            "AllowInsecureRepositories \"false\"",
            "AllowUnauthenticated \"false\"",
        ] {
            assert!(config.contains(kept), "{kept}: {config}");
        }
    }
}
