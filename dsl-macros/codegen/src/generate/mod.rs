//! From the model to code: the same glue on both sides, then what each side needs alone.

mod device;
mod glue;
mod host;

pub use device::device_source;
pub use host::host;

use proc_macro2::{TokenStream, TokenTree};
use quote::quote;

/// The user's item when there are errors: as it is, with the prelude in reach, so that nothing else breaks.
pub fn fallback(item: TokenStream) -> TokenStream {
    let mut trees: Vec<TokenTree> = item.clone().into_iter().collect();
    let Some(TokenTree::Group(body)) = trees.pop() else { return item };
    let is_module = trees.iter().any(|t| matches!(t, TokenTree::Ident(i) if i == "mod"));
    if body.delimiter() != proc_macro2::Delimiter::Brace || !is_module {
        return item;
    }
    let inner = body.stream();
    quote!(#(#trees)* { #inner #[allow(unused_imports)] use ::fusewire::device::prelude::*; })
}
