//! Which methods a function's text names: it stays tokens, so this goes by words.

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};

/// Where one of `names` is first called as a method, or named behind `::`; not where it is a field.
pub fn of(tokens: &TokenStream, names: &[&str]) -> Option<Span> {
    let trees: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let punct = |at: usize, c: char| matches!(trees.get(at), Some(TokenTree::Punct(p)) if p.as_char() == c);
    let path = |at: usize| punct(at, ':') && punct(at + 1, ':');
    trees.iter().enumerate().find_map(|(at, tree)| match tree {
        TokenTree::Group(group) => of(&group.stream(), names),
        TokenTree::Ident(ident) if names.iter().any(|name| ident == name) => {
            let of_type = at >= 2 && path(at - 2);
            let parenthesis = matches!(trees.get(at + 1), Some(TokenTree::Group(g)) if g.delimiter() == Delimiter::Parenthesis);
            let method = at >= 1 && punct(at - 1, '.') && (parenthesis || path(at + 1));
            (of_type || method).then(|| ident.span())
        }
        _ => None,
    })
}

/// Whether tiles travel on the channels of their blocks' indices: there are some, and the schedule asks neither for another channel nor how many there are.
/// `functions` are those that it may call.
pub fn by_index(body: &TokenStream, functions: &[(Ident, TokenStream)]) -> bool {
    let mut reached = vec![body];
    let mut at = 0;
    while let Some(body) = reached.get(at).copied() {
        let new = |body: &&TokenStream| !reached.iter().any(|known| std::ptr::eq(*known, *body));
        let called: Vec<_> =
            functions.iter().filter(|(name, _)| says(body.clone(), name)).map(|f| &f.1).filter(new).collect();
        reached.extend(called);
        at += 1;
    }
    let asks = |names: &[&str]| reached.iter().any(|body| of(body, names).is_some());
    asks(&["send_tile", "recv_tile", "forward_tile"]) && !asks(&["take_channel", "channels"])
}

/// Whether a word stands in a text.
pub fn says(tokens: TokenStream, word: &Ident) -> bool {
    tokens.into_iter().any(|tree| match tree {
        TokenTree::Ident(ident) => ident == *word,
        TokenTree::Group(group) => says(group.stream(), word),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quote::{format_ident, quote};

    #[test]
    fn a_call_is_no_field() {
        let said = |tokens: TokenStream| of(&tokens, &["channels"]).is_some();
        assert!(said(quote!(kernel.channels())) && said(quote!(let n = { f(kernel.channels()) };)));
        assert!(said(quote!(Kernel::channels(kernel))) && said(quote!(let f = Kernel::<O>::channels;)));
        assert!(said(quote!(kernel.channels())));
        assert!(
            !said(quote!(args.channels + channels))
                && !said(quote!(channels(3)))
                && !said(quote!(Args { channels: 3 }))
        );
    }

    #[test]
    fn a_schedule_that_takes_channels_is_told_from_one_that_does_not() {
        let none = |body: TokenStream| by_index(&body, &[]);
        let tile = quote!(kernel.send_tile(0, tile, |_| 1u8)?;);
        assert!(none(tile.clone()));
        assert!(none(quote!(#tile let c = args.channels;)));
        assert!(none(quote!(kernel.ll128().recv_tile::<f32>(0, tile, take)?;)));
        assert!(
            !none(quote!(#tile Kernel::take_channel(kernel, 1);)) && !none(quote!(#tile kernel.channels();))
        );
        assert!(!none(quote!(kernel.barrier(0))));
    }

    /// What another schedule of the module says is not said of this one, unless this one calls it.
    #[test]
    fn what_a_schedule_calls_counts() {
        let functions = [
            (
                format_ident!("around"),
                quote!({
                    kernel.send_tile(0, tile, give)?;
                    around(kernel)
                }),
            ),
            (
                format_ident!("moved"),
                quote!({
                    kernel.take_channel(1);
                    around(kernel)
                }),
            ),
        ];
        assert!(by_index(&quote!({ around(kernel) }), &functions));
        assert!(!by_index(&quote!({ moved(kernel) }), &functions));
        assert!(!by_index(&quote!({ kernel.barrier(0) }), &functions));
    }
}
