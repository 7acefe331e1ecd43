//! What the host's compiler was told. A procedural macro runs inside it, so its command line is this process's.

use std::path::PathBuf;
use std::sync::OnceLock;

/// The part of the command line that counts for device code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Host {
    /// What `--cfg` gave: the package's features, and what RUSTFLAGS and build scripts add.
    pub cfgs: Vec<String>,
    /// The root file of the crate that is compiled.
    pub root: Option<PathBuf>,
    /// Whether lints that deny are no errors, as cargo has it for packages from registries and git.
    pub capped: bool,
}

/// Of the compiler that runs this macro; of any other program, nothing.
pub(crate) fn told() -> &'static Host {
    static HOST: OnceLock<Host> = OnceLock::new();
    HOST.get_or_init(|| {
        let arguments = std::env::args_os().map(|a| a.to_string_lossy().into_owned());
        // Long command lines go through files, a line for each argument.
        let all = arguments.flat_map(|argument| match argument.strip_prefix('@') {
            Some(path) => std::fs::read_to_string(path)
                .map(|text| text.lines().map(str::to_owned).collect())
                .unwrap_or_default(),
            None => vec![argument],
        });
        Host::of(all)
    })
}

impl Host {
    fn of(arguments: impl Iterator<Item = String>) -> Self {
        let mut host = Host::default();
        let mut arguments = arguments.peekable();
        while let Some(argument) = arguments.next() {
            let mut value = |name: &str| match argument.strip_prefix(name)? {
                "" => arguments.next(),
                rest => rest.strip_prefix('=').map(str::to_owned),
            };
            if argument.ends_with(".rs") && !argument.starts_with('-') && host.root.is_none() {
                host.root = std::path::absolute(&argument).ok();
            } else if let Some(cfg) = value("--cfg") {
                host.cfgs.push(cfg);
            } else if let Some(level) = value("--cap-lints") {
                host.capped = level == "allow" || level == "warn";
            }
        }
        host
    }
}

#[cfg(test)]
mod tests {
    use super::Host;

    #[test]
    fn features_and_caps_are_found() {
        let of = |text: &str| Host::of(text.split(' ').map(str::to_owned));
        let host =
            of(r#"rustc --cfg feature="extra" --cfg=fast --check-cfg cfg(docsrs) --cap-lints allow lib.rs"#);
        let root = std::path::absolute("lib.rs").ok();
        let cfgs = vec![r#"feature="extra""#.into(), "fast".into()];
        assert_eq!(host, Host { cfgs, root: root.clone(), capped: true });
        assert_eq!(of("rustc lib.rs --cap-lints=forbid --cfg"), Host { root, ..Host::default() });
        assert!(of("rustc --cap-lints=warn").capped);
    }
}
