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
    /// The checkout of fusewire to depend on. Default: the one that this program was built from.
    #[arg(long, value_name = "DIR")]
    pub path_to_fusewire: Option<PathBuf>,
}

/// Files of a project, and where they go.
const FILES: &[(&str, &str)] = &[
    ("Cargo.toml", include_str!("../templates/Cargo.toml.in")),
    ("README.md", include_str!("../templates/README.md.in")),
    (".gitignore", include_str!("../templates/gitignore.in")),
    ("src/lib.rs", include_str!("../templates/lib.rs.in")),
    ("src/main.rs", include_str!("../templates/main.rs.in")),
    ("tests/ui.rs", include_str!("../templates/ui.rs.in")),
    ("tests/ui/wire-types-differ.rs", include_str!("../templates/wire-types-differ.rs.in")),
    ("tests/ui/wire-types-differ.stderr", include_str!("../templates/wire-types-differ.stderr.in")),
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
    let fusewire = checkout(args.path_to_fusewire.as_deref())?;
    for (file, template) in FILES {
        let path = args.path.join(file);
        let text = fill(template, &name, &fusewire);
        let made = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
        made.map_err(|e| Error::Misuse(format!("writing {}: {e}", path.display())))?;
    }
    println!("Made `{name}` in {}.", args.path.display());
    println!("Next: `cargo run` there runs its all-to-all on CPU threads; README.md says the rest.");
    Ok(ExitCode::SUCCESS)
}

fn fill(template: &str, name: &str, fusewire: &Path) -> String {
    // In a TOML string a backslash would begin an escape.
    let fusewire = fusewire.display().to_string().replace('\\', "/");
    template
        .replace("{{name}}", name)
        .replace("{{crate}}", &name.replace('-', "_"))
        .replace("{{fusewire}}", &fusewire)
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

/// The checkout to depend on, as an absolute path.
fn checkout(given: Option<&Path>) -> Result<PathBuf, Error> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let folder = given.unwrap_or(own);
    let is_fusewire = fs::read_to_string(folder.join("dsl-runtime/Cargo.toml"))
        .is_ok_and(|manifest| manifest.contains("name = \"fusewire\""));
    if !is_fusewire {
        return Err(Error::Misuse(format!(
            "there is no checkout of fusewire at `{}`; name one with `--path-to-fusewire DIR`",
            folder.display()
        )));
    }
    folder.canonicalize().map_err(|e| Error::Misuse(format!("resolving {}: {e}", folder.display())))
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
        for (file, template) in FILES {
            let text = fill(template, "my-kernels", Path::new("/there"));
            assert!(!text.contains("{{"), "{file}: {text}");
        }
    }
}
