//! Words of the attribute.

use crate::errors::Errors;
use crate::tables::{list, nearest};
use proc_macro2::{Ident, TokenStream};
use syn::Token;
use syn::parse::ParseStream;

/// The entry of a table by its name, or an error that names the nearest.
pub fn known<T: Copy>(
    word: &Ident,
    what: &str,
    all: &[T],
    name: fn(&T) -> &'static str,
    errors: &mut Errors,
) -> Option<T> {
    let found = all.iter().copied().find(|entry| word == name(entry));
    if found.is_none() {
        let names = all.iter().map(name);
        let hint = nearest(&word.to_string(), names.clone())
            .map(|k| format!(": did you mean `{k}`?"))
            .unwrap_or_else(|| ".".into());
        errors.at(word, format!("there is no {what} `{word}`{hint} There are {}", list(names)));
    }
    found
}

/// Whatever follows an option's name belongs to it.
pub fn skip_value(input: ParseStream<'_>) -> syn::Result<()> {
    if input.peek(syn::token::Paren) {
        let content;
        syn::parenthesized!(content in input);
        content.parse::<TokenStream>()?;
    } else if input.peek(Token![=]) {
        input.parse::<Token![=]>()?;
        input.parse::<syn::Expr>()?;
    }
    Ok(())
}
