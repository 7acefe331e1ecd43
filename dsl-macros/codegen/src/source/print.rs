//! Tokens as text, where there is no file to take it from: those of another macro.

use proc_macro2::{Delimiter, Spacing, Span, TokenStream, TokenTree};
use syn::Expr;

/// The text, and where in it tokens begin: lines and columns, both from 0.
#[derive(Debug, Default)]
pub struct Printed {
    pub text: String,
    pub places: Vec<((usize, usize), Span)>,
    at: (usize, usize),
}

impl Printed {
    pub fn of(tokens: &TokenStream) -> Self {
        let mut printed = Printed::default();
        printed.tokens(tokens.clone(), false);
        printed
    }

    fn push(&mut self, text: &str, span: Option<Span>) {
        self.places.extend(span.map(|span| (self.at, span)));
        self.text.push_str(text);
        // Strings may have line breaks.
        for c in text.chars() {
            self.at = if c == '\n' { (self.at.0 + 1, 0) } else { (self.at.0, self.at.1 + 1) };
        }
    }

    fn tokens(&mut self, tokens: TokenStream, in_attribute: bool) {
        let mut attribute = false;
        for tree in tokens {
            match &tree {
                TokenTree::Group(group) => {
                    let (open, close) = match group.delimiter() {
                        Delimiter::Parenthesis => ("(", ")"),
                        Delimiter::Brace => ("{", "}"),
                        Delimiter::Bracket => ("[", "]"),
                        Delimiter::None if !in_attribute && binds(group.stream()) => ("(", ")"),
                        Delimiter::None => ("", ""),
                    };
                    self.push(open, (!open.is_empty()).then(|| group.span_open()));
                    let of_attribute = attribute && group.delimiter() == Delimiter::Bracket;
                    self.tokens(group.stream(), in_attribute || of_attribute);
                    self.push(close, None);
                    self.push(" ", None);
                    attribute = false;
                }
                TokenTree::Punct(punct) => {
                    self.push(&punct.to_string(), Some(punct.span()));
                    if punct.spacing() == Spacing::Alone {
                        self.push(" ", None);
                    }
                    // `#` and `#!`.
                    attribute = punct.as_char() == '#' || attribute && punct.as_char() == '!';
                }
                other => {
                    self.push(&other.to_string(), Some(other.span()));
                    self.push(" ", None);
                    attribute = false;
                }
            }
        }
    }
}

/// Whether a macro's argument without delimiters is an expression that its neighbours could tear apart.
fn binds(tokens: TokenStream) -> bool {
    tokens.clone().into_iter().nth(1).is_some()
        && matches!(
            syn::parse2(tokens),
            Ok(Expr::Binary(_)
                | Expr::Unary(_)
                | Expr::Cast(_)
                | Expr::Range(_)
                | Expr::Reference(_)
                | Expr::Closure(_))
        )
}
