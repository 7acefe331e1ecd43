//! Conditional compilation, where host and device would decide differently.
//!
//! `cfg` in a hook's body is decided twice: by the host's compiler for the twin on CPU threads, and by the device's for the kernel. What
//! `--cfg` says is the same for both. What is of the target is the host's here and the device's there, so a kernel that asks for `unix`
//! would be one thing on a GPU and another on CPU threads.

use crate::errors::Errors;
use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use syn::Attribute;
use syn::ext::IdentExt;

/// What is of the target, but `target_arch`, which is how a body asks whether it is the device's.
const OWN: [&str; 11] = [
    "target_abi",
    "target_endian",
    "target_env",
    "target_family",
    "target_feature",
    "target_has_atomic",
    "target_os",
    "target_pointer_width",
    "target_vendor",
    "unix",
    "windows",
];

/// Whatever the macro itself reads must be there whatever `cfg` says: that is decided behind it.
pub fn always(attrs: &[Attribute], what: &str, errors: &mut Errors) {
    let configured = |a: &&Attribute| a.path().is_ident("cfg") || a.path().is_ident("cfg_attr");
    if let Some(attr) = attrs.iter().find(configured) {
        let name = if attr.path().is_ident("cfg") { "cfg" } else { "cfg_attr" };
        errors.at(
            attr,
            format!(
                "`{name}` is decided after `#[comm_kernel]` has read {what}: put it inside bodies, or write it above `#[comm_kernel]` on one of \
                 two modules or functions of the same name"
            ),
        );
    }
}

/// Refuses what would be decided differently for the device.
pub fn alike(tokens: &TokenStream, errors: &mut Errors) {
    let mut asks = None;
    for token in tokens.clone() {
        match token {
            // `cfg!(..)`, `#[cfg(..)]`, `#[cfg_attr(.., ..)]`.
            TokenTree::Ident(word) => asks = ["cfg", "cfg_attr"].into_iter().find(|name| word == name),
            TokenTree::Punct(mark) if mark.as_char() == '!' => {}
            TokenTree::Group(group) if asks.is_some() && group.delimiter() == Delimiter::Parenthesis => {
                own(group.stream(), asks == Some("cfg_attr"), errors);
                asks = None;
            }
            TokenTree::Group(group) => {
                asks = None;
                alike(&group.stream(), errors);
            }
            _ => asks = None,
        }
    }
}

/// Looks at a predicate; of `cfg_attr` at what stands before the first comma.
fn own(predicate: TokenStream, of_attr: bool, errors: &mut Errors) {
    for token in predicate {
        match token {
            TokenTree::Ident(word) if OWN.iter().any(|own| word.unraw() == own) => refuse(&word, errors),
            TokenTree::Group(group) => own(group.stream(), false, errors),
            TokenTree::Punct(mark) if of_attr && mark.as_char() == ',' => break,
            _ => {}
        }
    }
}

fn refuse(word: &Ident, errors: &mut Errors) {
    errors.at(
        word,
        format!(
            "`cfg({word})` is decided for the device where a GPU runs this, and for the host where CPU threads do: ask for a feature of the package, or \
             for `target_arch = \"nvptx64\"` if that is what is meant"
        ),
    );
}
