//! A tuple or an array on the wire.

use super::tokens::spanned;
use crate::model::values;
use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;

/// A wire that is a tuple or an array, if it is: a struct of its own, since neither is an element.
pub struct Wired(pub Option<syn::Type>);

impl Wired {
    /// The struct.
    pub fn declared(&self, d: &TokenStream) -> Option<TokenStream> {
        let ty = self.0.as_ref()?;
        let (types, name, span) = (values(ty)?, ty.to_token_stream().to_string(), ty.span());
        let d = spanned(span, d);
        let numbers = (0..types.len()).map(syn::Index::from);
        Some(quote_spanned! {span=>
            #[doc(hidden)]
            #[derive(Clone, Copy, Debug, Default, PartialEq)]
            #[repr(C)]
            pub struct __Wire(#(#types),*);
            #d::__element! { struct __Wire { #(#numbers: #types,)* } #name }
        })
    }

    /// The struct of what `value` is.
    pub fn give(&self, value: &TokenStream) -> TokenStream {
        match &self.0 {
            None => value.clone(),
            Some(syn::Type::Tuple(tuple)) => {
                let names: Vec<_> = (0..tuple.elems.len()).map(|k| format_ident!("__{k}")).collect();
                quote!({ let (#(#names,)*) = #value; __Wire(#(#names),*) })
            }
            Some(_) => quote!(__Wire(#value)),
        }
    }

    /// What the struct `value` holds.
    pub fn take(&self, value: TokenStream) -> TokenStream {
        match &self.0 {
            None => value,
            Some(syn::Type::Tuple(tuple)) => {
                let numbers = (0..tuple.elems.len()).map(syn::Index::from);
                quote!((#(#value.#numbers,)*))
            }
            Some(_) => quote!(#value.0),
        }
    }
}
