//! `cargo fusewire new`: a kernel crate of one's own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use crate::Error;

/// What `new` takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder to make; its last part is the package's name.
    pub path: PathBuf,
    /// Depend on the newest commit of a git repository. Default: this program's own version, from crates.io.
    #[arg(long, value_name = "URL", conflicts_with = "checkout")]
    pub git: Option<String>,
    /// Depend on a checkout by its path. Default of DIR: the checkout that this program was built in.
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true)]
    pub checkout: Option<Option<PathBuf>>,
    /// A package for Python whose kernels are called from there.
    #[arg(long)]
    pub python: bool,
}

/// Files of a project, and where they go.
const FILES: &[(&str, &str)] = &[
    ("Cargo.toml", include_str!("../templates/Cargo.toml.in")),
    ("README.md", include_str!("../templates/README.md.in")),
    (".gitignore", include_str!("../templates/gitignore.in")),
    ("src/lib.rs", include_str!("../templates/lib.rs.in")),
    ("src/main.rs", include_str!("../templates/main.rs.in")),
    ("tests/kernels.rs", include_str!("../templates/kernels.rs.in")),
    ("tests/ui.rs", include_str!("../templates/ui.rs.in")),
    ("tests/ui/wire-types-differ.rs", include_str!("../templates/wire-types-differ.rs.in")),
    ("tests/ui/wire-types-differ.stderr", include_str!("../templates/wire-types-differ.stderr.in")),
];

/// The same of a package for Python; `{{crate}}` in a path is the package's name there.
const PYTHON: &[(&str, &str)] = &[
    ("Cargo.toml", include_str!("../templates/python/Cargo.toml.in")),
    ("README.md", include_str!("../templates/python/README.md.in")),
    (".gitignore", include_str!("../templates/python/gitignore.in")),
    ("pyproject.toml", include_str!("../templates/python/pyproject.toml.in")),
    ("src/lib.rs", include_str!("../templates/python/lib.rs.in")),
    ("python/{{crate}}/__init__.py", include_str!("../templates/python/init.py.in")),
    ("tests/test_kernels.py", include_str!("../templates/python/test.py.in")),
];

/// Begins a project.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let name = name(&args.path)?;
    if args.path.exists() {
        return Err(Error::Misuse(format!(
            "`{}` is there already; name a folder that is not there yet",
            args.path.display()
        )));
    }
    let source = source(args)?;
    for (file, template) in if args.python { PYTHON } else { FILES } {
        let path = args.path.join(fill(file, &name, &source));
        let text = fill(template, &name, &source);
        let made = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
        made.map_err(|e| Error::Misuse(format!("writing {}: {e}", path.display())))?;
    }
    println!("Made `{name}` in {}.", args.path.display());
    println!("{}", source.sentence());
    match args.python {
        true => println!("Next: README.md there says how it is installed and tested."),
        false => {
            println!("Next: `cargo run` there runs its all-to-all on CPU threads; README.md says the rest.")
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Where a project takes fusewire from.
#[derive(Debug, PartialEq, Eq)]
enum Source {
    /// crates.io, in this program's version.
    Registry,
    /// A repository's newest commit.
    Git(String),
    /// A checkout, by its absolute path.
    Checkout(PathBuf),
}

impl Source {
    /// What stands behind `fusewire = ` in the manifest.
    fn dependency(&self) -> String {
        match self {
            Source::Registry => quoted(env!("CARGO_PKG_VERSION")),
            Source::Git(_) | Source::Checkout(_) => format!("{{ {} }}", self.place("dsl-runtime")),
        }
    }

    /// The same of `fusewire-capi`, without the shipped collectives.
    fn interface(&self) -> String {
        format!("{{ {}, default-features = false }}", self.place("capi"))
    }

    fn place(&self, folder: &str) -> String {
        match self {
            Source::Registry => format!("version = {}", quoted(env!("CARGO_PKG_VERSION"))),
            Source::Git(url) => format!("git = {}", quoted(url)),
            Source::Checkout(root) => format!("path = {}", quoted(&root.join(folder).display().to_string())),
        }
    }

    /// What pip installs.
    fn wheel(&self) -> String {
        match self {
            Source::Registry => format!("fusewire=={}", env!("CARGO_PKG_VERSION")),
            Source::Git(url) => format!("'fusewire @ git+{url}#subdirectory=python'"),
            Source::Checkout(root) => format!("'{}'", root.join("python").display()),
        }
    }

    /// The same for a reader.
    fn sentence(&self) -> String {
        match self {
            Source::Registry => format!("fusewire {} comes from crates.io.", env!("CARGO_PKG_VERSION")),
            Source::Git(url) => {
                format!(
                    "fusewire comes from the git repository {url}; `cargo update` takes its newest commit."
                )
            }
            Source::Checkout(folder) => format!(
                "fusewire comes from the checkout {}: the project builds on this machine only.",
                folder.display()
            ),
        }
    }
}

/// A TOML string.
fn quoted(text: &str) -> String {
    let escape = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\u{:04x}", c as u32),
        c => c.to_string(),
    };
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}

fn fill(template: &str, name: &str, source: &Source) -> String {
    template
        .replace("{{name}}", name)
        .replace("{{crate}}", &name.replace('-', "_"))
        .replace("{{fusewire}}", &source.dependency())
        .replace("{{capi}}", &source.interface())
        .replace("{{pip}}", &source.wheel())
        .replace("{{source}}", &source.sentence())
}

/// The package's name, if Cargo and rustc take it.
fn name(path: &Path) -> Result<String, Error> {
    const TAKEN: &[&str] = &["fusewire", "core", "std", "alloc", "test", "proc_macro", "trybuild"];
    const KEYWORDS: &[&str] = &[
        "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do",
        "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let",
        "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "self",
        "static", "struct", "super", "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use",
        "virtual", "where", "while", "yield",
    ];
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let refuse = |why: &str| {
        Err(Error::Misuse(format!(
            "`{name}` cannot be a package's name: {why}; write letters, digits, `-` and `_`, such as `my-kernels`"
        )))
    };
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return refuse("it begins with no letter");
    }
    if let Some(c) = name.chars().find(|c| !c.is_ascii_alphanumeric() && !"-_".contains(*c)) {
        return refuse(&format!("there is `{c}` in it"));
    }
    let plain = name.replace('-', "_");
    if KEYWORDS.contains(&plain.as_str()) {
        return refuse("it is a word of Rust");
    }
    if TAKEN.contains(&plain.as_str()) {
        return refuse("a crate that it uses is called so");
    }
    Ok(name)
}

/// What the options ask for.
fn source(args: &Args) -> Result<Source, Error> {
    if let Some(url) = &args.git {
        return Ok(Source::Git(url.clone()));
    }
    let Some(given) = &args.checkout else { return Ok(Source::Registry) };
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let folder = given.as_deref().unwrap_or(own);
    let is_fusewire = fs::read_to_string(folder.join("dsl-runtime/Cargo.toml"))
        .is_ok_and(|manifest| manifest.contains("name = \"fusewire\""));
    if !is_fusewire {
        return Err(Error::Misuse(match given {
            Some(_) => format!(
                "there is no checkout of fusewire at `{}`; name one with `--checkout=DIR`",
                folder.display()
            ),
            None => {
                "this program was not built in a checkout of fusewire; name one with `--checkout=DIR`".into()
            }
        }));
    }
    let folder = folder.canonicalize();
    folder.map(Source::Checkout).map_err(|e| Error::Misuse(format!("resolving the checkout's path: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cargo_takes() {
        for good in ["kernels", "my-kernels", "a1_b", "some/where/k"] {
            assert!(name(Path::new(good)).is_ok(), "{good}");
        }
        for (bad, why) in [
            ("1st", "no letter"),
            ("-k", "no letter"),
            ("..", "no letter"),
            ("a b", "there is ` `"),
            ("größe", "there is `ö`"),
            ("fn", "a word of Rust"),
            ("fusewire", "is called so"),
            ("proc-macro", "is called so"),
        ] {
            let error = name(Path::new(bad)).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("such as `my-kernels`"), "{error}");
        }
    }

    #[test]
    fn every_blank_is_filled() {
        for (file, template) in FILES.iter().chain(PYTHON) {
            let text = fill(template, "my-kernels", &Source::Registry);
            assert!(!text.contains("{{"), "{file}: {text}");
        }
    }

    #[test]
    fn sources_are_toml() {
        assert_eq!(Source::Registry.dependency(), format!("\"{}\"", env!("CARGO_PKG_VERSION")));
        let git = Source::Git("https://host/a\"b".to_owned());
        assert_eq!(git.dependency(), r#"{ git = "https://host/a\"b" }"#);
        let checkout = Source::Checkout(PathBuf::from(r"C:\f"));
        assert!(checkout.dependency().starts_with(r#"{ path = "C:\\f"#), "{}", checkout.dependency());
    }

    #[test]
    fn a_checkout_is_taken_only_when_asked_for() {
        let args = |checkout| Args { path: "k".into(), git: None, checkout, python: false };
        assert_eq!(source(&args(None)).unwrap(), Source::Registry);
        let error = source(&args(Some(Some("/nowhere".into())))).unwrap_err().to_string();
        assert!(error.contains("no checkout of fusewire at `/nowhere`"), "{error}");
        let Source::Checkout(folder) = source(&args(Some(None))).unwrap() else { panic!("no checkout") };
        assert!(folder.is_absolute() && folder.join("dsl-runtime").exists());
    }
}
