//! Conditional compilation, where host and device would decide differently.
//!
//! `cfg` in a hook's body is decided twice: by the host's compiler for the twin on CPU threads, and by the device's for the kernel. What
//! `--cfg` says is the same for both. What is of the target is the host's here and the device's there, so a kernel that asks for `unix`
//! would be one thing on a GPU and another on CPU threads.

use crate::errors::Errors;
use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use syn::Attribute;
use syn::ext::IdentExt;

/// How a body asks whether it is the device's. Outside of bodies it would make types and constants differ, which both sides must have
/// alike.
const ARCH: &str = "target_arch";

/// What is of the target beside [`ARCH`].
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

/// Whether an item asks for what differs between the two after all: an error of the device's may then be none of the host's.
pub fn differs(item: &TokenStream) -> bool {
    item.clone().into_iter().any(|token| match token {
        TokenTree::Ident(word) => word == ARCH || word == "debug_assertions",
        TokenTree::Group(group) => differs(&group.stream()),
        _ => false,
    })
}

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
    within(tokens, false, errors);
}

/// Tokens of a function's body, or of what stands outside of bodies.
fn within(tokens: &TokenStream, body: bool, errors: &mut Errors) {
    let (mut asks, mut function) = (None, false);
    let trees: Vec<TokenTree> = tokens.clone().into_iter().collect();
    for (k, token) in trees.iter().enumerate() {
        match token {
            // `cfg!(..)`, `#[cfg(..)]`, `#[cfg_attr(.., ..)]`.
            TokenTree::Ident(word) => {
                asks = ["cfg", "cfg_attr"].into_iter().find(|name| word.unraw() == name);
                function |= word == "fn";
            }
            TokenTree::Punct(mark) if mark.as_char() == '!' => {}
            TokenTree::Group(group) if asks.is_some() && group.delimiter() != Delimiter::None => {
                own(group.stream(), asks == Some("cfg_attr"), body, errors);
                asks = None;
            }
            TokenTree::Group(group) => {
                asks = None;
                let of_function = match group.delimiter() {
                    Delimiter::Brace => function,
                    // An attribute of a function decides as its body may.
                    Delimiter::Bracket => before_fn(&trees[k + 1..]),
                    _ => false,
                };
                within(&group.stream(), body || of_function, errors);
                function &= group.delimiter() != Delimiter::Brace;
            }
            TokenTree::Punct(mark) => {
                asks = None;
                function &= mark.as_char() != ';';
            }
            TokenTree::Literal(_) => asks = None,
        }
    }
}

/// Whether attributes and qualifiers are all that stands before `fn`.
fn before_fn(trees: &[TokenTree]) -> bool {
    let skipped = |token: &&TokenTree| match token {
        TokenTree::Ident(word) => {
            ["pub", "const", "unsafe", "extern", "async"].iter().any(|name| word == name)
        }
        TokenTree::Group(group) => matches!(group.delimiter(), Delimiter::Bracket | Delimiter::Parenthesis),
        TokenTree::Punct(mark) => mark.as_char() == '#',
        TokenTree::Literal(_) => true,
    };
    matches!(trees.iter().find(|token| !skipped(token)), Some(TokenTree::Ident(word)) if word == "fn")
}

/// Looks at a predicate; of `cfg_attr` at what stands before the first comma.
fn own(predicate: TokenStream, of_attr: bool, body: bool, errors: &mut Errors) {
    for token in predicate {
        match token {
            TokenTree::Ident(word) if OWN.iter().any(|own| word.unraw() == own) => refuse(&word, errors),
            TokenTree::Ident(word) if !body && word.unraw() == ARCH => outside(&word, errors),
            TokenTree::Group(group) => own(group.stream(), false, body, errors),
            TokenTree::Punct(mark) if of_attr && mark.as_char() == ',' => break,
            _ => {}
        }
    }
}

fn outside(word: &Ident, errors: &mut Errors) {
    errors.at(
        word,
        format!(
            "`cfg({word})` outside of a function's body would give host and device other types or constants, and both must understand a launch \
             alike: ask inside of bodies"
        ),
    );
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
