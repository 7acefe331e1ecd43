//! Small pieces that all glue is made of.

use crate::model::{HookModule, Kind};
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{format_ident, quote};

/// Whether a type is that parameter.
pub fn is_param(ty: &syn::Type, param: &Ident) -> bool {
    matches!(ty, syn::Type::Path(p) if p.path.is_ident(param))
}

/// The output, as an `Out`.
pub fn whole_output(module: &HookModule) -> TokenStream {
    let output = module.output();
    let name = output.map_or_else(|| format_ident!("output"), |f| f.ident.clone());
    match output.map(|f| &f.kind) {
        Some(Kind::InOut(_)) => quote!(args.#name.out()),
        _ => quote!(args.#name),
    }
}

/// The same tokens at a place of the user's, where errors of what they name then stand.
pub fn spanned(span: Span, tokens: &TokenStream) -> TokenStream {
    let at = |mut tree: TokenTree| {
        tree.set_span(span);
        tree
    };
    tokens.clone().into_iter().map(at).collect()
}
