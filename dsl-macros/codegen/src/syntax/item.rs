//! A hook module, or a schedule function.

use super::calls;
use crate::configured::always;
use crate::errors::Errors;
use crate::model::{Args, Field, Hook, HookModule, Item, Kind, ScheduleFn};
use crate::plain::{self, derived};
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::parse::{ParseStream, Parser};
use syn::spanned::Spanned;
use syn::{Attribute, FnArg, GenericArgument, Pat, PathArguments, ReturnType, Signature, Type, Visibility};

/// Parses the item under the attribute.
pub fn parse(tokens: TokenStream, errors: &mut Errors) -> Option<Item> {
    let parsed = (|input: ParseStream<'_>| {
        let attrs = input.call(Attribute::parse_outer)?;
        let vis: Visibility = input.parse()?;
        let start = input.span();
        let attrs: Vec<TokenStream> = attrs.iter().map(ToTokens::to_token_stream).collect();
        if input.peek(syn::Token![mod]) {
            module(input, attrs, vis)
        } else if starts_fn(input) {
            let sig: Signature = input.parse()?;
            rest(input)?;
            Ok(Some((attrs, vis, Shape::Function(Box::new(sig), start))))
        } else {
            rest(input)?;
            Ok(None)
        }
    })
    .parse2(tokens.clone());
    match errors.take(parsed)? {
        None => {
            errors.at(
                tokens.into_iter().next(),
                "`#[comm_kernel]` goes on a module with `Args`, `produce` and `consume`, or on a schedule function \
                 `fn name<O: Ops>(kernel: &Kernel<O>, ..) -> Flow`",
            );
            None
        }
        Some((attrs, vis, Shape::Function(sig, start))) => {
            let args = fn_args(&sig, errors);
            let by_index = calls::by_index(&tokens, &[]);
            Some(Item::Schedule(Box::new(ScheduleFn { vis, attrs, sig: *sig, start, args, by_index })))
        }
        Some((attrs, vis, Shape::Module(ident, body))) => {
            let Some(body) = body else {
                errors.at(
                    &ident,
                    format!("hooks must be written in the module itself: `mod {ident} {{ .. }}`"),
                );
                return None;
            };
            let mut module = HookModule {
                vis,
                ident,
                attrs,
                args: None,
                produce: None,
                consume: None,
                fns: Vec::new(),
                others: Vec::new(),
                copies: Vec::new(),
                types: Vec::new(),
                plain: Vec::new(),
                asks_shape: None,
                bodies: Vec::new(),
                names: Vec::new(),
                inlined: TokenStream::new(),
                hosted: TokenStream::new(),
            };
            let contents = (|input: ParseStream<'_>| {
                let inner = input.call(Attribute::parse_inner)?;
                module.inlined.extend(quote!(#(#inner)*));
                module.hosted.extend(quote!(#(#inner)*));
                while !input.is_empty() {
                    inner_item(input, &mut module, errors)?;
                }
                Ok(())
            })
            .parse2(body);
            errors.take(contents)?;
            let copies = std::mem::take(&mut module.copies);
            if let Some(args) = &mut module.args {
                args.has.extend(copies);
            }
            Some(Item::Hooks(Box::new(module)))
        }
    }
}

/// The names of a hook module's functions but the hooks.
pub fn functions(item: &TokenStream) -> Vec<Ident> {
    let trees: Vec<TokenTree> = item.clone().into_iter().collect();
    let body = match trees.as_slice() {
        [.., TokenTree::Ident(word), TokenTree::Ident(_), TokenTree::Group(body)] if word == "mod" => {
            body.stream()
        }
        _ => return Vec::new(),
    };
    let within: Vec<TokenTree> = body.into_iter().collect();
    let named = within.windows(2).filter_map(|pair| match pair {
        [TokenTree::Ident(word), TokenTree::Ident(name)] if word == "fn" => Some(name.clone()),
        _ => None,
    });
    named.filter(|name| name != "produce" && name != "consume").collect()
}

enum Shape {
    Module(Ident, Option<TokenStream>),
    Function(Box<Signature>, Span),
}

type Parsed = syn::Result<Option<(Vec<TokenStream>, Visibility, Shape)>>;

fn module(input: ParseStream<'_>, attrs: Vec<TokenStream>, vis: Visibility) -> Parsed {
    input.parse::<syn::Token![mod]>()?;
    let ident = input.parse()?;
    if input.peek(syn::Token![;]) {
        input.parse::<syn::Token![;]>()?;
        return Ok(Some((attrs, vis, Shape::Module(ident, None))));
    }
    let content;
    syn::braced!(content in input);
    Ok(Some((attrs, vis, Shape::Module(ident, Some(content.parse()?)))))
}

/// Whether a function signature comes next.
fn starts_fn(input: ParseStream<'_>) -> bool {
    let mut cursor = input.cursor();
    for _ in 0..5 {
        match cursor.ident() {
            Some((word, next)) => {
                if word == "fn" {
                    return true;
                }
                if !["const", "async", "unsafe", "extern", "safe"].iter().any(|m| word == m) {
                    return false;
                }
                cursor = next;
            }
            None => match cursor.literal() {
                Some((_, next)) => cursor = next,
                None => return false,
            },
        }
    }
    false
}

/// Skips the rest of an item.
fn rest(input: ParseStream<'_>) -> syn::Result<()> {
    input.parse::<TokenStream>().map(|_| ())
}

fn inner_item(input: ParseStream<'_>, module: &mut HookModule, errors: &mut Errors) -> syn::Result<()> {
    let ahead = input.fork();
    ahead.call(Attribute::parse_outer)?;
    ahead.parse::<Visibility>()?;
    if !starts_fn(&ahead) {
        let mut item: syn::Item = input.parse()?;
        let is_args = matches!(&item, syn::Item::Struct(s) if s.ident == "Args");
        module.plain.extend((!is_args).then(|| plain::take(&mut item, errors)).flatten());
        item.to_tokens(&mut module.inlined);
        item.to_tokens(&mut module.hosted);
        match &item {
            syn::Item::Struct(s) if is_args => module.args = Some(struct_args(s, errors)),
            syn::Item::Impl(i) => module.copies.extend(copying(i)),
            other => {
                let name = name_of(other);
                if matches!(other, syn::Item::Struct(_) | syn::Item::Enum(_) | syn::Item::Union(_)) {
                    module.types.extend(name.clone());
                }
                module.names.extend(name);
            }
        }
        return Ok(());
    }
    let attrs = input.call(Attribute::parse_outer)?;
    let start = input.span();
    let vis: Visibility = input.parse()?;
    let sig: Signature = input.parse()?;
    let (mut peer, mut written) = (None, TokenStream::new());
    // The body stays what it is.
    if input.peek(syn::token::Brace) {
        let body: TokenTree = input.parse()?;
        written = body.to_token_stream();
        peer = field(written.clone(), "peer");
        let asks = || calls::of(&written, &["transposed", "transposed_index"]);
        module.asks_shape = module.asks_shape.or_else(asks);
        module.inlined.extend(quote!(#(#attrs)* #[inline(always)] #vis #sig #body));
        let says = attrs.iter().any(|a| a.path().is_ident("inline"));
        // A hook stands in few loops, which are vectorised only around what is inlined.
        let inline = match sig.ident == "produce" || sig.ident == "consume" {
            _ if says => None,
            true => Some(quote!(#[inline(always)])),
            false => Some(quote!(#[inline])),
        };
        module.hosted.extend(quote!(#(#attrs)* #inline #vis #sig #body));
    } else {
        errors.at(&sig.ident, format!("`{}` needs a body", sig.ident));
        input.parse::<Option<syn::Token![;]>>()?;
    }
    let slot = match sig.ident.to_string().as_str() {
        "produce" => &mut module.produce,
        "consume" => &mut module.consume,
        _ => {
            module.fns.push(start);
            module.names.push(sig.ident.clone());
            module.bodies.push((sig.ident.clone(), written));
            module.others.push(sig);
            return Ok(());
        }
    };
    always(&attrs, &format!("`{}`", sig.ident), errors);
    let wire = match sig.ident == "produce" {
        true => match &sig.output {
            ReturnType::Type(_, ty) => Some(wire(ty)),
            ReturnType::Default => None,
        },
        false => match sig.inputs.iter().nth(2) {
            Some(FnArg::Typed(p)) => Some(wire(&p.ty)),
            _ => None,
        },
    };
    let row = wire.as_ref().and_then(|(whole, ..)| is_row(whole).then(|| whole.clone()));
    let wire = wire.map(|(_, element, by_pack)| (element, by_pack));
    *slot = Some(Hook { start, sig, wire, row, peer, body: written });
    Ok(())
}

/// Where a field of this name is first asked for, in hooks or in macros that they call.
fn field(tokens: TokenStream, name: &str) -> Option<Span> {
    let mut behind_dot = false;
    for token in tokens {
        match &token {
            TokenTree::Ident(ident) if behind_dot && ident == name => return Some(ident.span()),
            TokenTree::Group(group) => {
                if let Some(found) = field(group.stream(), name) {
                    return Some(found);
                }
            }
            _ => {}
        }
        behind_dot = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '.');
    }
    None
}

const COPYING: [&str; 2] = ["Clone", "Copy"];

/// `Clone` or `Copy` where it is implemented for `Args` by hand.
fn copying(i: &syn::ItemImpl) -> Option<&'static str> {
    let path = &i.trait_.as_ref()?.0;
    let last = path.segments.last()?;
    let Type::Path(own) = &*i.self_ty else { return None };
    let of_args = own.path.segments.last().is_some_and(|s| s.ident == "Args");
    COPYING.into_iter().find(|c| of_args && last.ident == c)
}

/// The name that an item adds to its module's types and functions.
fn name_of(item: &syn::Item) -> Option<Ident> {
    match item {
        syn::Item::Struct(i) => Some(i.ident.clone()),
        syn::Item::Enum(i) => Some(i.ident.clone()),
        syn::Item::Union(i) => Some(i.ident.clone()),
        syn::Item::Type(i) => Some(i.ident.clone()),
        syn::Item::Trait(i) => Some(i.ident.clone()),
        syn::Item::Mod(i) => Some(i.ident.clone()),
        _ => None,
    }
}

/// The type as it is written, that of its elements, and whether there are several: `Pack<T>` and rows have them, anything else is one.
fn wire(ty: &Type) -> (Type, Type, bool) {
    match ["Pack", "Row", "Scaled"].iter().find_map(|name| generic(ty, name)) {
        Some(element) => (ty.clone(), element, true),
        None => (ty.clone(), ty.clone(), false),
    }
}

/// Whether a type is one of rows.
pub fn is_row(ty: &Type) -> bool {
    ["Row", "Scaled"].iter().any(|name| generic(ty, name).is_some())
}

/// `T` of `Name<'a, T>`.
pub fn generic(ty: &Type, name: &str) -> Option<Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last()?;
    let PathArguments::AngleBracketed(args) = &last.arguments else { return None };
    if last.ident != name {
        return None;
    }
    args.args.iter().find_map(|a| if let GenericArgument::Type(t) = a { Some(t.clone()) } else { None })
}

/// What kind of argument a type is.
pub fn kind(ty: &Type) -> Kind {
    if let Type::Reference(r) = ty
        && r.mutability.is_none()
        && let Type::Slice(s) = &*r.elem
    {
        return Kind::Slice((*s.elem).clone());
    }
    if let Some(t) = generic(ty, "Out") {
        return Kind::Out(t);
    }
    if let Some(t) = generic(ty, "InOut") {
        return Kind::InOut(t);
    }
    if let (Some(t), Type::Path(path)) = (generic(ty, "PerRow").or_else(|| generic(ty, "PerGroup")), ty) {
        // Without its arguments, which rustc finds.
        let mut path = path.path.clone();
        path.segments.iter_mut().for_each(|segment| segment.arguments = PathArguments::None);
        return Kind::OfRows(t, path);
    }
    if let Some(t) = generic(ty, "Accumulate") {
        return Kind::Accumulate(t);
    }
    if let Some(t) = generic(ty, "Option") {
        return Kind::Option(t);
    }
    if let Type::Path(p) = ty
        && p.path.segments.last().is_some_and(|s| {
            // What borrows and is neither slice nor output is a handle; of these two the lifetime is often left out.
            s.ident == "DeviceWindow" || s.ident == "DevicePeers" || lives(&s.arguments)
        })
    {
        return Kind::Handle(of_static(p));
    }
    Kind::Plain
}

fn lives(arguments: &PathArguments) -> bool {
    let PathArguments::AngleBracketed(args) = arguments else { return false };
    args.args.iter().any(|a| matches!(a, GenericArgument::Lifetime(life) if life.ident != "static"))
}

/// `Name<'static, T>` of `Name<T>` or `Name<'_, T>`.
fn of_static(path: &syn::TypePath) -> Type {
    let mut path = path.clone();
    if let Some(last) = path.path.segments.last_mut() {
        let rest = match &last.arguments {
            PathArguments::AngleBracketed(args) => {
                let types = args.args.iter().filter(|a| !matches!(a, GenericArgument::Lifetime(_)));
                quote!(#(, #types)*)
            }
            _ => TokenStream::new(),
        };
        last.arguments = PathArguments::AngleBracketed(syn::parse_quote!(<'static #rest>));
    }
    Type::Path(path)
}

fn docs(attrs: &[Attribute]) -> Vec<TokenStream> {
    attrs.iter().filter(|a| a.path().is_ident("doc")).map(ToTokens::to_token_stream).collect()
}

fn struct_args(s: &syn::ItemStruct, errors: &mut Errors) -> Args {
    always(&s.attrs, "`Args`", errors);
    let (mut fields, mut named) = (Vec::new(), true);
    match &s.fields {
        syn::Fields::Named(all) => {
            for f in &all.named {
                let Some(ident) = f.ident.clone() else { continue };
                always(&f.attrs, "the fields of `Args`", errors);
                fields.push(Field { ident, docs: docs(&f.attrs), ty: f.ty.clone(), kind: kind(&f.ty) });
            }
        }
        other => {
            named = false;
            errors.at(
                if other.is_empty() { s.ident.to_token_stream() } else { other.to_token_stream() },
                "`Args` must have named fields: `pub struct Args<'a> { pub input: &'a [f32], pub output: Out<'a, f32> }`",
            );
        }
    }
    let derived = derived(&s.attrs);
    let has = COPYING.into_iter().filter(|name| derived.iter().any(|d| d == name)).collect();
    Args { span: s.ident.span(), vis: s.vis.clone(), generics: s.generics.clone(), named, has, fields }
}

fn fn_args(sig: &Signature, errors: &mut Errors) -> Args {
    let mut fields = Vec::new();
    for arg in sig.inputs.iter().skip(1) {
        if let FnArg::Typed(p) = arg {
            always(&p.attrs, "a schedule's arguments", errors);
        }
        match arg {
            FnArg::Typed(p) => match &*p.pat {
                Pat::Ident(name) if name.by_ref.is_none() && name.subpat.is_none() => fields.push(Field {
                    ident: name.ident.clone(),
                    docs: docs(&p.attrs),
                    ty: (*p.ty).clone(),
                    kind: kind(&p.ty),
                }),
                other => errors.at(
                    other,
                    "an argument of a schedule needs a plain name: it becomes a field of `Launch`",
                ),
            },
            FnArg::Receiver(r) => errors.at(r, "a schedule is a free function; it has no `self`"),
        }
    }
    Args {
        span: sig.inputs.span(),
        vis: Visibility::Inherited,
        generics: sig.generics.clone(),
        named: true,
        has: Vec::new(),
        fields,
    }
}
