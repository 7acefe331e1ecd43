//! Kernels as the macro was given them, kept for the command line. It reads files, in which the kernels that a macro writes do not stand, nor what
//! other crates declare.

use crate::crates::Asked;
use crate::errors::Errors;
use crate::model::Model;
use crate::source::printed;
use fusewire_toolchain::expanded::Expanded;
use proc_macro2::{Ident, TokenStream, TokenTree};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A kernel of a package that was compiled since its sources were edited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Its name.
    pub name: String,
    /// The file in which the name stands, relative to the package.
    pub file: PathBuf,
    /// The line.
    pub line: usize,
    /// What the device crates that it names have answered, the attribute and the item.
    asked: String,
}

/// The package that is compiled.
fn package() -> Option<&'static (PathBuf, Expanded)> {
    static PACKAGE: OnceLock<Option<(PathBuf, Expanded)>> = OnceLock::new();
    let of = || {
        let folder = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?).canonicalize().ok()?;
        let expanded = Expanded::of(&folder)?;
        Some((folder, expanded))
    };
    PACKAGE.get_or_init(of).as_ref()
}

/// Keeps a kernel whose name stands in the package that is compiled. One that another package's macro names may change when that package does,
/// of which this one's sources tell nothing.
pub fn keep(asked: &Asked) -> Option<()> {
    let name = name(&asked.item)?;
    let (folder, expanded) = package()?;
    let file = name.span().local_file()?.canonicalize().ok()?;
    let file = file.strip_prefix(folder).ok()?;
    expanded.keep(&text(&name.to_string(), file, name.span().start().line, asked));
    Some(())
}

fn text(name: &str, file: &Path, line: usize, asked: &Asked) -> String {
    format!("{line} {name} {}\n{}", file.display(), printed(&asked.answered()))
}

/// The name of a module or a function.
fn name(item: &TokenStream) -> Option<Ident> {
    let mut trees = item.clone().into_iter();
    trees.find(|tree| matches!(tree, TokenTree::Ident(word) if word == "mod" || word == "fn"))?;
    ident(trees.next()?)
}

fn ident(tree: TokenTree) -> Option<Ident> {
    match tree {
        TokenTree::Ident(name) => Some(name),
        // What a macro was given may be a group of its own.
        TokenTree::Group(group) => ident(group.stream().into_iter().next()?),
        _ => None,
    }
}

/// Every kernel of the package in `folder` that was compiled from its sources as they are.
pub fn recorded(folder: &Path) -> Vec<Recorded> {
    let all = Expanded::of(folder).map(|expanded| expanded.all()).unwrap_or_default();
    let mut all: Vec<Recorded> = all.iter().filter_map(|text| Recorded::read(text)).collect();
    all.sort_by(|a, b| (&a.file, a.line, &a.asked).cmp(&(&b.file, b.line, &b.asked)));
    all
}

impl Recorded {
    fn read(text: &str) -> Option<Self> {
        let (head, asked) = text.split_once('\n')?;
        let mut head = head.splitn(3, ' ');
        let (line, name, file) = (head.next()?.parse().ok()?, head.next()?.to_owned(), head.next()?.into());
        Some(Recorded { name, file, line, asked: asked.to_owned() })
    }

    /// As [`crate::analyse`]; crates that the attribute names have been asked.
    pub fn analyse(&self) -> (Option<Model>, Errors) {
        let asked = self.asked.parse().ok().and_then(|tokens| Asked::from_answer(tokens).ok());
        let Some(Asked { crates, attribute, item, .. }) = asked else { return (None, Errors::default()) };
        crate::analyse_with(crates, attribute, item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quote::quote;

    #[test]
    fn a_kernel_is_read_as_it_was_kept() {
        let item = quote! {
            /// Copies.
            pub(crate) mod copy {
                pub struct Args<'a> { pub input: &'a [f32], pub output: Out<'a, f32> }
            }
        };
        let answered = quote! {
            [{ tube "/src/lib.rs" [] [base [$crate::__fusewire_uses_base]] [Tube = TubeOps: gpus] } { base "/b.rs" [] [] [] }] []
            [transports(tube::Tube)]
        };
        let asked = Asked::from_answer(quote!(#answered #item)).unwrap();
        let copy = name(&asked.item).unwrap().to_string();
        let read = Recorded::read(&text(&copy, Path::new("src/a b.rs"), 7, &asked)).unwrap();
        assert_eq!((read.name.as_str(), read.file.to_str(), read.line), ("copy", Some("src/a b.rs"), 7));
        let (model, errors) = read.analyse();
        assert!(errors.is_empty(), "{:?}", errors.messages());
        let model = model.unwrap();
        assert_eq!((model.ident().to_string(), model.options.crates.len()), ("copy".into(), 2));
        assert!(Recorded::read("7 copy").is_none());
    }
}
