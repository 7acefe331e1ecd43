//! A kernel's number, by which ranks find that theirs differ.

use super::folds;
use crate::model::Model;
use proc_macro2::{Group, Span, TokenStream, TokenTree};
use quote::quote;
use sha2::{Digest, Sha256};

/// A number that differs when the hooks' text or options do, or what they were configured with: compared over ranks before a launch.
pub fn fingerprint(model: &Model) -> u64 {
    let mut hash = Sha256::new();
    let text = plain(&model.tokens);
    hash.update(&text);
    if text.contains("cfg") {
        hash.update(crate::host::told().cfgs.join("\n"));
    }
    if let Some(reduce) = &model.options.reduce {
        hash.update(plain(&folds::fold_type(reduce, &quote!(fusewire))));
        hash.update(reduce.text());
    }
    hash.update(model.options.unroll.iter().map(u32::to_string).collect::<Vec<_>>().join(","));
    u64::from_le_bytes(hash.finalize()[..8].try_into().unwrap_or_default())
}

/// Tokens as text, the same on every machine.
fn plain(tokens: &TokenStream) -> String {
    fn strip(t: TokenTree) -> TokenTree {
        match t {
            TokenTree::Group(g) => {
                let mut inner = Group::new(g.delimiter(), g.stream().into_iter().map(strip).collect());
                inner.set_span(Span::call_site());
                inner.into()
            }
            other => other,
        }
    }
    tokens.clone().into_iter().map(strip).collect::<TokenStream>().to_string()
}
