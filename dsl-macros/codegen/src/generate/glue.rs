//! What host twin and device crate share: the raw arguments and the hooks' trait implementations.

use super::tokens::{is_param, spanned, whole_output};
use super::wired::Wired;
use super::{folds, rows};
use crate::model::{Args, Field, Hook, HookModule, Kind, Model, Params};
use crate::syntax::calls::says;
use crate::tables::ELEMENTS;
use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;

/// `where` predicates of the module's type parameter, from all its users.
pub fn bounds(model: &Model, module: &HookModule, d: &TokenStream) -> TokenStream {
    let generics = [module.args.as_ref().map(|a| &a.generics)]
        .into_iter()
        .chain([&module.produce, &module.consume].map(|h| h.as_ref().map(|h| &h.sig.generics)))
        .flatten();
    let mut out = TokenStream::new();
    for g in generics {
        for t in g.type_params().filter(|t| !t.bounds.is_empty()) {
            let (ident, bounds) = (&t.ident, &t.bounds);
            out.extend(quote!(#ident: #bounds,));
        }
        for p in g.where_clause.iter().flat_map(|w| &w.predicates) {
            out.extend(quote!(#p,));
        }
    }
    out.extend(folds::bounds(model, module, d));
    out
}

/// `Args<'x, T, N>` as far as `Args` has those parameters.
pub fn args_type(module: &HookModule, lifetime: &TokenStream) -> TokenStream {
    let Some(args) = &module.args else { return quote!(Args) };
    let life = args.generics.lifetimes().next().map(|_| quote!(#lifetime,));
    let own = module.params().own();
    let given = angled(quote!(#life #own));
    quote!(Args #given)
}

/// The raw argument struct: slices as addresses with their element types, the rest by value.
///
/// `params` are the module's parameters that fields name.
pub fn raw_struct(fields: &[Field], params: &Params, d: &TokenStream) -> TokenStream {
    let members = fields.iter().map(|f| {
        let (name, ty) = (&f.ident, &f.ty);
        match &f.kind {
            Kind::Plain => quote!(pub #name: #ty),
            Kind::Handle(ty) => quote!(pub #name: #ty),
            Kind::Option(t) => quote!(pub #name: #d::args::RawOption<#t>),
            Kind::Slice(t) | Kind::Out(t) | Kind::InOut(t) | Kind::OfRows(t, _) | Kind::Accumulate(t) => {
                quote!(pub #name: #d::args::RawSlice<#t>)
            }
        }
    });
    let generic = angled(params.declared(&quote!(::core::marker::Copy)));
    quote! {
        #[doc(hidden)]
        #[derive(Clone, Copy)]
        #[repr(C)]
        pub struct __Raw #generic { #(#members,)* }
    }
}

/// The codes of the raw struct's fields, as whoever compiles this understands their types.
pub fn codes<'a>(
    fields: &'a [Field],
    raw: &'a TokenStream,
    d: &'a TokenStream,
) -> impl Iterator<Item = TokenStream> + 'a {
    fields.iter().map(move |f| {
        let name = &f.ident;
        quote!(#d::args::code_of(|raw: &#raw| &raw.#name))
    })
}

/// The code of what crosses the wire; `given` stands for the module's parameters.
pub fn wire_code(given: &TokenStream, d: &TokenStream) -> TokenStream {
    quote!(<<__Hooks<#given 1> as #d::hooks::Hooks>::Wire as #d::args::Crosses>::CODE)
}

/// The parameters of a generic module that its fields' types name.
pub fn raw_params(module: &HookModule) -> Params {
    let fields = module.args.as_ref().map_or(&[][..], |args| &args.fields);
    module.params().only(|param| fields.iter().any(|f| names(&f.ty, param)))
}

/// `__Raw`, with what stands for those.
pub fn raw_type(module: &HookModule, given: impl Fn(&Params) -> TokenStream) -> TokenStream {
    let given = angled(given(&raw_params(module)));
    quote!(__Raw #given)
}

/// Parameters in their brackets, if there are any.
pub fn angled(params: TokenStream) -> Option<TokenStream> {
    (!params.is_empty()).then(|| quote!(<#params>))
}

/// Whether `ident` stands in a type.
pub fn names(ty: &syn::Type, ident: &Ident) -> bool {
    says(quote!(#ty), ident)
}

/// The expression that turns `__raw.field` into what a hook sees, for as long as `__lent` says.
pub fn unpack_field(field: &Field, d: &TokenStream) -> TokenStream {
    let name = &field.ident;
    match &field.kind {
        Kind::Slice(_) => quote!(__raw.#name.slice(__lent)),
        Kind::Out(_) => quote!(#d::args::Out::from_raw(__raw.#name, __lent)),
        Kind::InOut(_) => quote!(#d::args::InOut::from_raw(__raw.#name, __lent)),
        Kind::OfRows(_, path) => quote!(#path::from_raw(__raw.#name, __lent)),
        Kind::Accumulate(_) => quote!(#d::args::Accumulate::from_raw(__raw.#name, __lent)),
        Kind::Handle(_) => quote!(__raw.#name.lend(__lent)),
        Kind::Option(_) => quote!(__raw.#name.get()),
        Kind::Plain => quote!(__raw.#name),
    }
}

/// Everything inside a hook module that both sides need. `d` is the device crate's path.
pub fn module_glue(model: &Model, module: &HookModule, d: &TokenStream) -> TokenStream {
    let Some(args) = &module.args else { return TokenStream::new() };
    let raw = raw_struct(&args.fields, &raw_params(module), d);
    let (wire, _) = model.wire().unwrap_or_else(|| (syn::parse_quote!(u8), false));
    let params = module.params();
    let param = params.element();
    let raw_type = raw_type(module, Params::own);
    let (bounds, life) = (bounds(model, module, d), quote!('x));
    let (args_x, args_elided) = (args_type(module, &life), args_type(module, &quote!('_)));
    let unpack = args.fields.iter().map(|f| {
        let (name, value) = (&f.ident, unpack_field(f, d));
        quote!(#name: #value)
    });
    let input = module.input().map_or_else(|| format_ident!("input"), |f| f.ident.clone());
    let output = module.output().map_or_else(|| format_ident!("output"), |f| f.ident.clone());
    let wired = Wired(model.wire_values());
    let wire_struct = wired.declared(d);
    let produce = call(
        &module.produce,
        quote!(args.#input.pack(ctx)),
        |name| {
            let value = wired.give(&quote!(#name(ctx, args)));
            quote!(#d::hooks::produce_each(ctx, |ctx| #value))
        },
        |name| quote!(#name(ctx, args)),
    );
    let consume = call(
        &module.consume,
        quote!(args.#output.at(ctx).set_pack(value)),
        |name| {
            let value = wired.take(quote!(value));
            quote!(#d::hooks::consume_each(ctx, value, |ctx, value| #name(ctx, args, #value)))
        },
        |name| quote!(#name(ctx, args, value)),
    );
    let by_rows = model
        .options
        .row
        .map(|(cols, _)| rows::hooks(module, cols, model.options.reduce.as_ref(), &wire, &args_elided, d));
    let (produce, consume) = match &by_rows {
        None => (produce, consume),
        // By rows alone.
        Some(_) => (quote!(let _ = (ctx, args); #d::pack::Pack::ZERO), quote!(let _ = (ctx, args, value);)),
    };
    let names = model.options.row.map(|(cols, _)| rows::names(cols, d));
    let fold = model.options.reduce.as_ref().map(|reduce| match &by_rows {
        None => folds::glue(reduce, module, &wire, &args_elided, d),
        Some(_) => quote!(
            const FOLDS: ::core::primitive::bool = true;
        ),
    });
    // Else the fold's glue has it.
    let folded = fold.is_none().then(|| {
        quote!(
            type Folded = Self::Wire;
        )
    });
    let consume =
        if fold.is_some() && by_rows.is_none() { quote!(let _ = (ctx, args, value);) } else { consume };
    let whole = whole_output(module);
    let as_is = [
        // In place there is no slice of it: see `InOut`.
        (module.produce.is_none() && module.in_place().is_none()).then(|| {
            quote! {
                #[inline(always)]
                fn sends_as_is<'x>(args: &<Self as #d::hooks::Hooks>::Args<'x>) -> ::core::option::Option<&'x [#wire]> {
                    ::core::option::Option::Some(args.input)
                }
            }
        }),
        (module.produce.is_none() && module.in_place().is_some() && fold.is_some()).then(|| {
            quote! {
                #[inline(always)]
                fn sends_in_place<'x>(
                    args: &<Self as #d::hooks::Hooks>::Args<'x>,
                ) -> ::core::option::Option<#d::args::Out<'x, #wire>> {
                    ::core::option::Option::Some(#whole)
                }
            }
        }),
        (module.consume.is_none() && fold.is_none()).then(|| {
            quote! {
                #[inline(always)]
                fn keeps_as_is<'x>(
                    args: &<Self as #d::hooks::Hooks>::Args<'x>,
                ) -> ::core::option::Option<#d::args::Out<'x, #wire>> {
                    ::core::option::Option::Some(#whole)
                }
            }
        }),
    ];
    let as_is = as_is.into_iter().flatten();
    let transposed = model.options.transposed.map(|_| {
        quote!(
            const TRANSPOSED: ::core::primitive::bool = true;
        )
    });
    let each = by_element(model, module).then(|| {
        let slices = args.fields.iter().filter(|f| matches!(f.kind, Kind::Slice(_))).map(|f| &f.ident);
        let reach = slices.map(|name| quote!(end <= args.#name.len())).reduce(|a, b| quote!(#a && #b));
        let reach = reach.unwrap_or_else(|| {
            quote!({
                let _ = (args, end);
                true
            })
        });
        quote! {
            const EACH: ::core::primitive::bool = true;
            #[inline(always)]
            fn reach(args: &#args_elided, end: ::core::primitive::usize) -> ::core::primitive::bool {
                #reach
            }
        }
    });
    let in_place = module.in_place().map(|_| {
        quote!(
            const IN_PLACE: ::core::primitive::bool = true;
        )
    });
    let hooks = format_ident!("__Hooks");
    let phantom = param.map_or_else(|| quote!(()), |t| quote!(#t));
    let (decl, own) = (params.declared(&TokenStream::new()), params.own());
    let unroll = format_ident!("{}", if params.names().any(|name| name == "U") { "__U" } else { "U" });
    let (generic, plain) = (quote!(<#decl const #unroll: ::core::primitive::usize>), quote!(<#own #unroll>));
    let static_bound = param.map(|t| quote!(#t: #d::element::Element,));
    let copy = copy(args, &params, &bounds, d);
    // Named by the trait of the arguments, and so seen by whoever sees these.
    let vis = model.within().next().map(|_| &args.vis);
    let hook_args = model.within().next().map(|_| {
        let unroll = model.unroll_within() as usize;
        let decl = params.declared(&TokenStream::new());
        quote! {
            impl<'x, #decl> #d::kernel::HookArgs<'x> for #args_x where #bounds #static_bound {
                type Hooks = #hooks<#own #unroll>;
            }
        }
    });
    let plain_types = module.plain.iter().map(|plain| {
        let parts = &plain.parts;
        let span = plain.ident.span();
        let (of, d) = (if plain.element { "__element" } else { "__plain" }, spanned(span, d));
        let of = format_ident!("{of}", span = span);
        quote_spanned!(span=> #d::#of! { #parts })
    });
    quote! {
        #raw
        #names
        #copy
        #(#plain_types)*
        #wire_struct
        #hook_args
        #[doc(hidden)]
        #vis struct #hooks #generic (::core::marker::PhantomData<#phantom>);
        impl #generic #d::hooks::Hooks for #hooks #plain where #bounds #static_bound {
            type Args<'x> = #args_x;
            type Wire = #wire;
            #folded
            const UNROLL: ::core::primitive::usize = #unroll;
            #transposed
            #in_place
            #each
            #[inline(always)]
            fn produce(ctx: &#d::ctx::Produce, args: &#args_elided) -> #d::pack::Pack<Self::Wire> {
                #[allow(unused_imports)]
                use #d::args::Packs as _;
                #produce
            }
            #[inline(always)]
            fn consume(ctx: &#d::ctx::Consume, args: &#args_elided, value: #d::pack::Pack<Self::Wire>) {
                #consume
            }
            #fold
            #by_rows
            #(#as_is)*
        }
        // SAFETY: the launch made each raw slice from a checked buffer that outlives it, exclusive where it is an output.
        unsafe impl #generic #d::launch::Unpack for #hooks #plain where #bounds #static_bound {
            type Raw = #raw_type;
            #[inline(always)]
            unsafe fn unpack<'x>(__raw: &#raw_type) -> <Self as #d::hooks::Hooks>::Args<'x> {
                let __lent = #d::args::Lent::<'x>::named();
                let _ = (__raw, __lent);
                // SAFETY: the caller's contract.
                unsafe { Args { #(#unpack,)* } }
            }
        }
    }
}

/// Arguments are copied into each thread's registers.
fn copy(args: &Args, params: &Params, bounds: &TokenStream, d: &TokenStream) -> TokenStream {
    let life = args.generics.lifetimes().next().map(|l| quote!(#l,));
    let (decl, own) = (params.declared(&TokenStream::new()), params.own());
    let element = params.element().map(|t| quote!(#t: #d::element::Element,));
    let mut out = TokenStream::new();
    if !args.has.contains(&"Clone") {
        out.extend(quote! {
            impl<#life #decl> ::core::clone::Clone for Args<#life #own> where #bounds #element {
                #[inline(always)]
                fn clone(&self) -> Self {
                    *self
                }
            }
        });
    }
    if !args.has.contains(&"Copy") {
        out.extend(
            quote!(impl<#life #decl> ::core::marker::Copy for Args<#life #own> where #bounds #element {}),
        );
    }
    out
}

/// Whether a module's hooks are of elements, so that no pack is needed between them.
fn by_element(model: &Model, module: &HookModule) -> bool {
    let options = &model.options;
    let by_elements = |h: &Hook| h.wire.as_ref().is_none_or(|w| !w.1);
    let hooks: Vec<&Hook> = [&module.produce, &module.consume].into_iter().flatten().collect();
    let others = options.row.is_some() || options.reduce.is_some() || options.transposed.is_some();
    !others && !hooks.is_empty() && hooks.into_iter().all(by_elements)
}

fn call(
    hook: &Option<Hook>,
    copy: TokenStream,
    by_element: impl Fn(&Ident) -> TokenStream,
    by_pack: impl Fn(&Ident) -> TokenStream,
) -> TokenStream {
    match hook {
        None => copy,
        Some(h) if h.wire.as_ref().is_some_and(|w| w.1) => by_pack(&h.sig.ident),
        Some(h) => by_element(&h.sig.ident),
    }
}

/// Bounds at the user's tokens: element types are elements, values are plain.
pub fn assertions(model: &Model, d: &TokenStream) -> TokenStream {
    let mut out = TokenStream::new();
    let params = model.params();
    let is_param = |ty: &syn::Type| params.element().is_some_and(|t| is_param(ty, t));
    for field in model.args().into_iter().flat_map(|a| &a.fields) {
        match field.kind.element() {
            None if matches!(field.kind, Kind::Handle(_)) => {}
            Some(t) if !is_param(t) && !is_known(t) => {
                out.extend(assertion(t.span(), t, quote!(#d::element::Element)))
            }
            Some(_) => {}
            None => {
                let ty = if let Kind::Option(t) = &field.kind { t } else { &field.ty };
                if !is_known(ty) && !params.names().any(|name| names(ty, name)) {
                    out.extend(assertion(ty.span(), ty, quote!(#d::args::Plain)));
                }
            }
        }
    }
    if let Some((wire, _)) = model.wire().filter(|(w, _)| !is_param(w) && !is_known(w)) {
        out.extend(assertion(wire.span(), &wire, quote!(#d::element::Element)));
        let by_tiles = model.options.transposed.is_some();
        let d = spanned(wire.span(), d);
        let refused = match model.options.row {
            Some(_) => quote_spanned!(wire.span()=> in_rows::<#wire>()),
            None => quote_spanned!(wire.span()=> on_the_wire::<#wire>(#by_tiles)),
        };
        out.extend(quote_spanned!(wire.span()=> const _: () = #d::element::#refused;));
    }
    out
}

/// Types that need no proof. (`usize` and `bool` as elements were refused before.)
fn is_known(ty: &syn::Type) -> bool {
    let syn::Type::Path(p) = ty else { return false };
    p.path.get_ident().is_some_and(|i| i == "usize" || i == "bool" || ELEMENTS.iter().any(|e| i == e.0))
}

fn assertion(span: Span, ty: &syn::Type, bound: TokenStream) -> TokenStream {
    quote_spanned! { span=>
        const _: () = {
            fn kernel_argument<X: #bound>() {}
            let _ = kernel_argument::<#ty>;
        };
    }
}
