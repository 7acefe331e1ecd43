//! What a fold adds to a module's hooks.

use super::tokens::{is_param, spanned, whole_output};
use crate::model::{Fold, HookModule, Model, Reduce};
use crate::syntax::item::generic;
use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;

/// `where` predicates of a generic module, for what the attribute's fold does with elements that no hook touches.
pub fn bounds(model: &Model, module: &HookModule, d: &TokenStream) -> TokenStream {
    let mut out = TokenStream::new();
    let params = module.params();
    let (Some(reduce), Some(param)) = (&model.options.reduce, params.element()) else { return out };
    // A fold of the module's own says by its implementations what it takes.
    let Fold::Shipped(_, accumulator, _) = &reduce.fold else { return out };
    if model.wire().is_some_and(|(wire, _)| is_param(&wire, param)) {
        out.extend(quote!(#param: #d::fold::Lift<#accumulator>,));
    }
    let settled = match &reduce.result {
        Some(result) => Some(generic(result, "Row").unwrap_or_else(|| result.clone())),
        None if module.consume.is_none() => module.output().and_then(|f| f.kind.element()).cloned(),
        None => None,
    };
    if settled.is_some_and(|ty| is_param(&ty, param)) {
        out.extend(quote!(#param: #d::fold::Settle<#accumulator>,));
    }
    out
}

/// What a fold does with each element: the user's `consume`, or what settles in `output`.
pub fn glue(
    reduce: &Reduce,
    module: &HookModule,
    wire: &syn::Type,
    args: &TokenStream,
    d: &TokenStream,
) -> TokenStream {
    // An error of the fold, and not of the glue, stands at the word.
    let fold = fold_type(reduce, d);
    let at_fold = match &reduce.fold {
        Fold::Own(path) => path.span(),
        Fold::Shipped(..) => reduce.span,
    };
    // All at one place, so that what is wrong is told once.
    let there = spanned(at_fold, d);
    let folds = quote_spanned!(at_fold=> <#fold as #there::fold::Fold<#wire>>);
    let accumulator = quote_spanned!(at_fold=> #folds::Acc);
    let accumulators = quote_spanned!(at_fold=> #there::pack::Pack<#accumulator>);
    let output = module.output();
    let settled = output.and_then(|f| f.kind.element()).map_or_else(|| quote!(#wire), |t| quote!(#t));
    let name = output.map_or_else(|| format_ident!("output"), |f| f.ident.clone());
    let out = whole_output(module);
    let keeps = module.consume.is_none().then(|| {
        quote! {
            #[inline(always)]
            fn keeps_folded<'x>(
                args: &<Self as #d::hooks::Hooks>::Args<'x>,
            ) -> ::core::option::Option<#d::args::Out<'x, Self::Folded>> {
                ::core::option::Option::Some(#out)
            }
        }
    });
    let (folded, passed, as_passed, take) = match &module.consume {
        Some(hook) => {
            let name = &hook.sig.ident;
            let (value, passed, as_passed) = match &reduce.result {
                None => (quote!(value), accumulator.clone(), quote!(|folded| folded)),
                Some(result) => {
                    // An error of the result, and not of the glue, stands at its name.
                    let d = spanned(result.span(), d);
                    let settle =
                        quote_spanned!(result.span()=> <#result as #d::fold::Settle<#accumulator>>::settle);
                    // The user's lints are not of this closure.
                    let call = quote_spanned!(result.span()=> (folded));
                    let passed = quote!(|folded| #settle #call);
                    (quote_spanned!(result.span()=> #settle(value)), quote!(#result), passed)
                }
            };
            (
                quote_spanned!(at_fold=> #there::fold::each::<#fold, #wire>(ctx, ranks, of, |ctx, value| #name(ctx, args, #value))),
                passed,
                as_passed,
                quote!(#d::hooks::consume_each(ctx, folded, |ctx, value| #name(ctx, args, value))),
            )
        }
        None => (
            quote_spanned!(at_fold=> #there::fold::settle::<#fold, #wire, _>(ctx, ranks, of, #out, #there::fold::Settle::settle)),
            settled,
            quote_spanned!(at_fold=> #there::fold::Settle::settle),
            quote!(args.#name.at(ctx).set_pack(folded)),
        ),
    };
    let relay = quote_spanned!(at_fold=> #there::fold::relay::<#fold, #wire, Self::Folded>(ranks, of, #as_passed, put));
    let partial = quote_spanned!(at_fold=> #there::fold::partial::<#fold, #wire>(ranks, of, &|number, pack: #accumulators| put(number, pack.words())));
    let join = quote_spanned!(at_fold=> #there::fold::join::<#fold, #wire, Self::Folded>(ranks, of, #as_passed, put));
    let run = quote_spanned!(at_fold=> #there::fold::run::<#fold, #wire, Self::Folded>(from, to, #as_passed));
    let partials = quote_spanned!(at_fold=> #there::fold::partials::<#wire, #accumulator>(#folds::ORDER));
    quote! {
        type Folded = #passed;
        const RELAYS: ::core::primitive::usize = #d::fold::relays::<#wire, Self::Folded>();
        #[inline(always)]
        fn relay(
            ranks: ::core::primitive::u32,
            of: &impl #d::fold::Contributions<#wire>,
            put: &impl ::core::ops::Fn(::core::primitive::usize, #d::pack::Pack<Self::Folded>),
        ) -> ::core::primitive::bool {
            #relay
        }
        const PARTIALS: ::core::primitive::usize = #partials;
        #[inline(always)]
        fn partial(
            ranks: ::core::primitive::u32,
            of: &impl #d::fold::Contributions<#wire>,
            put: &impl ::core::ops::Fn(::core::primitive::usize, [::core::primitive::u32; 4]),
        ) -> ::core::primitive::bool {
            #partial
        }
        #[inline(always)]
        fn join(
            ranks: (::core::primitive::u32, ::core::primitive::u32),
            of: &impl #d::fold::Partials,
            put: &impl ::core::ops::Fn(::core::primitive::usize, #d::pack::Pack<Self::Folded>),
        ) {
            #join;
        }
        #[cfg(not(target_arch = "nvptx64"))]
        fn fold_run(from: &[&[#wire]], to: &mut [Self::Folded]) {
            #run
        }
        #[inline(always)]
        fn take(ctx: &#d::ctx::Consume, args: &#args, folded: #d::pack::Pack<Self::Folded>) {
            #take
        }
        #keeps
        const FOLDS: ::core::primitive::bool = true;
        #[inline(always)]
        fn fold(
            ctx: &#d::ctx::Consume,
            args: &#args,
            ranks: ::core::primitive::u32,
            of: &impl #d::fold::Contributions<#wire>,
        ) -> ::core::primitive::bool {
            #folded
        }
    }
}

/// The fold's type.
pub fn fold_type(reduce: &Reduce, d: &TokenStream) -> TokenStream {
    match &reduce.fold {
        Fold::Own(path) => quote!(#path),
        Fold::Shipped(name, acc, ranks) => {
            let name = format_ident!("{name}", span = reduce.span);
            let fold = quote_spanned!(reduce.span=> #d::fold::#name<#acc>);
            if *ranks { quote!(#d::fold::FromRankZero<#fold>) } else { fold }
        }
    }
}
