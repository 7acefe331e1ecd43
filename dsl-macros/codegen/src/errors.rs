//! All errors at once, each at the user's own tokens.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

/// Collects errors; nothing stops at the first.
#[derive(Debug, Default)]
pub struct Errors(Option<syn::Error>);

impl Errors {
    /// Adds an error at `at`. Word it as the rule, then the accepted form.
    pub fn at(&mut self, at: impl ToTokens, message: impl std::fmt::Display) {
        self.push(syn::Error::new_spanned(at, message));
    }

    /// Adds an error at a span.
    pub fn span(&mut self, span: Span, message: impl std::fmt::Display) {
        self.push(syn::Error::new(span, message));
    }

    /// Adds an error.
    pub fn push(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(all) => all.combine(error),
            none => *none = Some(error),
        }
    }

    /// Keeps the value, or the error.
    pub fn take<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The messages, in order.
    pub fn messages(&self) -> Vec<String> {
        self.0.iter().flat_map(|all| all.clone()).map(|e| e.to_string()).collect()
    }

    /// `compile_error!`s.
    pub fn to_compile_errors(&self) -> TokenStream {
        self.0.as_ref().map(syn::Error::to_compile_error).unwrap_or_default()
    }
}
