//! `#[comm_kernel]` items in the text of a file, for the command line.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::visit::{self, Visit};

/// A `#[comm_kernel]` item.
#[derive(Clone, Debug)]
pub struct Found {
    /// The attribute's options.
    pub attribute: TokenStream,
    /// The item without the attribute; its tokens have the lines and columns of the file.
    pub item: TokenStream,
    /// Modules around it in the file, and its name.
    pub path: Vec<String>,
    /// Line of its name.
    pub line: usize,
}

/// Every `#[comm_kernel]` item in a source file, also in modules and functions.
///
/// # Errors
/// If the text is not Rust.
pub fn find_kernels(text: &str) -> syn::Result<Vec<Found>> {
    let file = syn::parse_file(text)?;
    let mut finder = Finder::default();
    finder.visit_file(&file);
    Ok(finder.found)
}

#[derive(Default)]
struct Finder {
    path: Vec<String>,
    found: Vec<Found>,
}

impl Finder {
    /// Records the item if it has the attribute.
    fn take<I: ToTokens>(
        &mut self,
        attrs: &[syn::Attribute],
        name: &syn::Ident,
        without: impl FnOnce(usize) -> I,
    ) -> bool {
        let is_ours = |a: &syn::Attribute| a.path().segments.last().is_some_and(|s| s.ident == "comm_kernel");
        let Some(at) = attrs.iter().position(is_ours) else { return false };
        let attribute = match &attrs[at].meta {
            syn::Meta::List(list) => list.tokens.clone(),
            _ => TokenStream::new(),
        };
        let mut path = self.path.clone();
        path.push(name.to_string());
        let line = name.span().start().line;
        self.found.push(Found { attribute, item: without(at).into_token_stream(), path, line });
        true
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let without = |at| {
            let mut item = item.clone();
            item.attrs.remove(at);
            item
        };
        if !self.take(&item.attrs, &item.ident, without) {
            self.path.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.path.pop();
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        let without = |at| {
            let mut item = item.clone();
            item.attrs.remove(at);
            item
        };
        if !self.take(&item.attrs, &item.sig.ident, without) {
            visit::visit_item_fn(self, item);
        }
    }
}
