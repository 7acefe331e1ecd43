//! All errors at once, each at the user's own tokens.

use crate::host;
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};

/// Collects errors; nothing stops at the first.
#[derive(Debug, Default)]
pub struct Errors {
    found: Option<syn::Error>,
    deferred: Vec<(Span, String)>,
}

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
        match &mut self.found {
            Some(all) => all.combine(error),
            none => *none = Some(error),
        }
    }

    /// Keeps the value, or the error.
    pub fn take<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    /// Adds an error that is to be seen only if the compiler of the host finds none: it would say the same in its own words.
    pub fn defer(&mut self, span: Span, message: impl std::fmt::Display) {
        self.deferred.push((span, message.to_string()));
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.found.is_none() && self.deferred.is_empty()
    }

    /// The messages, in order; deferred ones last.
    pub fn messages(&self) -> Vec<String> {
        let found = self.found.iter().flat_map(|all| all.clone()).map(|e| e.to_string());
        found.chain(self.deferred.iter().map(|(_, message)| message.clone())).collect()
    }

    /// How many are shown whatever the host's compiler finds.
    pub fn shown(&self) -> usize {
        self.found.iter().flat_map(|all| all.clone()).count()
    }

    /// The messages with line and column, as far as spans have them.
    pub fn placed(&self) -> Vec<(usize, usize, String)> {
        let found = self.found.iter().flat_map(|all| all.clone()).map(|e| (e.span(), e.to_string()));
        let place = |(span, message): (Span, String)| (span.start().line, span.start().column, message);
        found.chain(self.deferred.iter().cloned()).map(place).collect()
    }

    /// `compile_error!`s, and the deferred errors as lints: those run when nothing else is wrong. Where lints are no errors, all are
    /// `compile_error!`s: a kernel without an image must not pass.
    ///
    /// `unused_must_use` is the one lint that runs so late and says an author's text, if only below a headline of its own. `deprecated` has the text
    /// in its headline, but is found along with errors of types and borrows, and so beside the host's. So are errors of traits
    /// (`diagnostic::on_unimplemented`) and of constants. Of an array that lint proposes no `let _ =`.
    pub fn to_compile_errors(&self) -> TokenStream {
        self.as_tokens(host::told().capped)
    }

    fn as_tokens(&self, capped: bool) -> TokenStream {
        let mut tokens = self.found.as_ref().map(syn::Error::to_compile_error).unwrap_or_default();
        for (span, message) in &self.deferred {
            if capped {
                tokens.extend(syn::Error::new(*span, message).to_compile_error());
                continue;
            }
            let refused = quote_spanned!(*span=> [errors_of_the_device_compiler_as_noted_below]);
            tokens.extend(quote! {
                const _: () = {
                    #[allow(non_camel_case_types)]
                    #[must_use = #message]
                    struct errors_of_the_device_compiler_as_noted_below;
                    #[allow(dead_code, path_statements)]
                    #[deny(unused_must_use)]
                    fn report() {
                        #refused;
                    }
                };
            });
        }
        tokens
    }

    /// The first error inside a type, and `compile_error!`s of the others. Of what is of such a type rustc does not complain again.
    pub fn to_type_and_items(&self) -> (TokenStream, TokenStream) {
        let mut all = self.found.clone().into_iter().flatten();
        let first = all.next().map(|e| e.to_compile_error());
        (quote!([(); #first]), all.map(|e| e.to_compile_error()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::Errors;
    use proc_macro2::Span;

    #[test]
    fn deferred_errors_are_errors_where_lints_are_capped() {
        let mut errors = Errors::default();
        errors.defer(Span::call_site(), "no");
        let [lint, error] = [false, true].map(|capped| errors.as_tokens(capped).to_string());
        assert!(lint.contains("unused_must_use") && !lint.contains("compile_error"), "{lint}");
        assert!(error.contains("compile_error") && !error.contains("must_use"), "{error}");
    }
}
