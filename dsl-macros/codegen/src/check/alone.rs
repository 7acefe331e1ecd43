//! What the device compiler would not find, told where it is not asked: kernels that are only checked must not break where they are compiled.

use crate::diagnose::STANDS_ALONE;
use crate::errors::Errors;
use crate::model::Model;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Paths of a kernel for GPUs that lead out of its module by `super`. An import of everything may be of names that only the host uses.
pub fn stands_alone(model: &Model) -> Errors {
    let mut errors = Errors::default();
    if model.entries().iter().any(|entry| entry.transport.cuda) {
        outward(model.tokens.clone(), true, &mut errors);
    }
    errors
}

/// Of the item itself, whose own module is the one to stay in; or of what is within.
fn outward(tokens: TokenStream, item: bool, errors: &mut Errors) {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    let word =
        |at: usize, word: &str| matches!(trees.get(at), Some(TokenTree::Ident(found)) if found == word);
    let punct = |at: usize, sign: char| matches!(trees.get(at), Some(TokenTree::Punct(found)) if found.as_char() == sign);
    // On to a name: of several `super` the last one does.
    let leads = |at| punct(at, ':') && punct(at + 1, ':') && !punct(at + 2, '*') && !word(at + 2, "super");
    let mut at = 0;
    while at < trees.len() {
        match &trees[at] {
            // What stands behind a condition may be the host's alone: up to its end.
            TokenTree::Punct(sign) if sign.as_char() == '#' && !item && conditional(trees.get(at + 1)) => {
                let ends = |tree: &TokenTree| match tree {
                    TokenTree::Punct(sign) => [';', ','].contains(&sign.as_char()),
                    TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                    _ => false,
                };
                at += trees[at..].iter().position(ends).unwrap_or(trees.len());
            }
            // Its `super` is the kernel's module.
            TokenTree::Ident(found) if found == "mod" && !item => at += 2,
            TokenTree::Ident(found) if found == "super" && leads(at + 1) => {
                let name = trees.get(at + 3).map(ToString::to_string).unwrap_or_default();
                errors.span(found.span(), format!("not on the device: `super::{name}`\n{STANDS_ALONE}"));
            }
            TokenTree::Group(group) => outward(group.stream(), false, errors),
            _ => {}
        }
        at += 1;
    }
}

/// Whether an attribute is a `cfg`.
fn conditional(attribute: Option<&TokenTree>) -> bool {
    let Some(TokenTree::Group(group)) = attribute else { return false };
    matches!(group.stream().into_iter().next(), Some(TokenTree::Ident(name)) if name == "cfg")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyse;

    fn messages(transports: &str, extra: &str, body: &str) -> Vec<String> {
        let attribute = format!("transports({transports}), schedules(all_to_all)").parse().unwrap();
        let item = format!(
            "pub mod kernel {{
                {extra}
                pub struct Args<'a> {{ pub input: &'a [f32], pub output: Out<'a, f32> }}
                pub fn produce(ctx: &Produce, args: &Args) -> f32 {{ {body} }}
            }}"
        );
        let (model, errors) = analyse(attribute, item.parse().unwrap());
        assert!(errors.is_empty(), "{:?}", errors.messages());
        stands_alone(&model.unwrap()).messages()
    }

    #[test]
    fn what_leads_out_of_a_kernel_for_gpus_is_told_where_it_is_only_checked() {
        let read = "args.input[ctx.index()]";
        let of = |extra: &str, body: &str| messages("Shm, Nvl", extra, body);
        let told = |name: &str| vec![format!("not on the device: `super::{name}`\n{STANDS_ALONE}")];
        assert_eq!(of("use super::Linked;", read), told("Linked"));
        assert_eq!(of("use super::linked::Linked;", read), told("linked"));
        assert_eq!(of("", "super::twice(args.input[ctx.index()])"), told("twice"));
        assert_eq!(of("use super::super::other;", read), told("other"));
        assert_eq!(of("use super::{a, b};", read).len(), 1);
        // What stays within, what only the host has, and what the host compiler alone knows of.
        let within = [
            "pub(super) fn helper() {}",
            "mod inner { use super::Args; pub(super) fn f() -> f32 { super::g() } } fn g() -> f32 { 1.0 }",
            "fn told() { #[cfg(not(target_arch = \"nvptx64\"))] { super::tell(); } }",
            "#[cfg(test)] mod tests { use super::*; }",
            "use super::*;",
        ];
        within.into_iter().for_each(|extra| assert_eq!(of(extra, read), [""; 0], "{extra}"));
        assert_eq!(messages("Shm", "use super::Linked;", read), [""; 0]);
    }
}
