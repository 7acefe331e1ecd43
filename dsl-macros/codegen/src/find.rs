//! `#[comm_kernel]` items in the text of a file, for the command line.

use proc_macro2::{TokenStream, TokenTree};
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

/// What a source file says of kernels.
#[derive(Clone, Debug, Default)]
pub struct InFile {
    /// Its `#[comm_kernel]` items.
    pub found: Vec<Found>,
    /// Its `macro_rules!`.
    pub rules: Vec<Macro>,
    /// Its calls of macros.
    pub calls: Vec<Macro>,
}

/// A `macro_rules!` or a call of a macro.
#[derive(Clone, Debug)]
pub struct Macro {
    /// The macro's name, without a path.
    pub name: String,
    /// Modules around it in the file.
    pub path: Vec<String>,
    /// Line of its name.
    pub line: usize,
    /// Line of its last token.
    pub end: usize,
    /// Whether `#[comm_kernel]` stands between its braces.
    has_kernel: bool,
    /// Macros that are called between its braces.
    inner: Vec<String>,
}

/// Every `#[comm_kernel]` item in a source file, also in modules and functions.
///
/// # Errors
/// If the text is not Rust.
pub fn find_kernels(text: &str) -> syn::Result<Vec<Found>> {
    Ok(find_in(text)?.found)
}

/// Every `#[comm_kernel]` item in a source file, and the macros that may write further ones.
///
/// # Errors
/// If the text is not Rust.
pub fn find_in(text: &str) -> syn::Result<InFile> {
    let file = syn::parse_file(text)?;
    let mut finder = Finder::default();
    finder.visit_file(&file);
    Ok(finder.file)
}

/// The names of those of these `macro_rules!` that write kernels: by themselves, or by others of them that they call.
pub fn writers<'a>(rules: impl Iterator<Item = &'a Macro> + Clone) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        let before = names.len();
        for rule in rules.clone() {
            if !names.contains(&rule.name) && rule.writes(&names) {
                names.push(rule.name.clone());
            }
        }
        if names.len() == before {
            return names;
        }
    }
}

impl Macro {
    /// Whether kernels come of what stands between its braces, where `writers` write them.
    fn writes(&self, writers: &[String]) -> bool {
        self.has_kernel || self.inner.iter().any(|name| writers.contains(name))
    }

    /// Whether this call leaves kernels, where `writers` write them.
    pub fn leaves_kernels(&self, writers: &[String]) -> bool {
        writers.contains(&self.name) || self.writes(writers)
    }
}

/// Whether `comm_kernel` is in an attribute, behind a path or within `cfg_attr` as well.
fn mentions_kernel(attribute: TokenStream) -> bool {
    attribute.into_iter().any(|token| match token {
        TokenTree::Group(group) => mentions_kernel(group.stream()),
        TokenTree::Ident(name) => name == "comm_kernel",
        _ => false,
    })
}

/// Whether `#[comm_kernel]` is among these tokens, and the macros that are called there.
fn within(tokens: TokenStream, has_kernel: &mut bool, inner: &mut Vec<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is = |k: usize, c: char| matches!(tokens.get(k), Some(TokenTree::Punct(p)) if p.as_char() == c);
    for (k, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => {
                let attribute = k > 0 && is(k - 1, '#');
                *has_kernel |= attribute && mentions_kernel(group.stream());
                within(group.stream(), has_kernel, inner);
            }
            TokenTree::Ident(name)
                if is(k + 1, '!') && matches!(tokens.get(k + 2), Some(TokenTree::Group(_))) =>
            {
                inner.push(name.to_string());
            }
            _ => {}
        }
    }
}

#[derive(Default)]
struct Finder {
    path: Vec<String>,
    file: InFile,
}

impl Finder {
    fn record(&self, name: &syn::Ident, of: &syn::Macro) -> Macro {
        let (mut has_kernel, mut inner) = (false, Vec::new());
        within(of.tokens.clone(), &mut has_kernel, &mut inner);
        let (line, end) = (name.span().start().line, of.delimiter.span().close().end().line);
        Macro { name: name.to_string(), path: self.path.clone(), line, end, has_kernel, inner }
    }

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
        self.file.found.push(Found { attribute, item: without(at).into_token_stream(), path, line });
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

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        match &item.ident {
            Some(name) if item.mac.path.is_ident("macro_rules") => {
                let rule = self.record(name, &item.mac);
                self.file.rules.push(rule);
            }
            _ => visit::visit_item_macro(self, item),
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        if let Some(last) = call.path.segments.last() {
            let call = self.record(&last.ident, call);
            self.file.calls.push(call);
        }
    }
}
