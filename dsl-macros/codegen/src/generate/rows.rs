//! `grain = row(N)`: the names that a module has for its rows, and its hooks by them.

use super::folds::fold_type;
use super::tokens::spanned;
use crate::model::{Field, HookModule, Kind, Reduce};
use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::Type;
use syn::spanned::Spanned;

/// The types of rows of `cols` elements. Constants, so that hooks do not write them.
pub fn names(cols: usize, d: &TokenStream) -> TokenStream {
    let slots = quote!({ #d::row::slots(#cols) });
    quote! {
        /// A row of this module.
        #[allow(dead_code)]
        pub type Row<T> = #d::row::Row<T, #cols, #slots>;
        /// One value for each `G` elements of a row.
        #[allow(dead_code)]
        pub type Groups<T, const G: ::core::primitive::usize> = #d::row::Groups<T, G, #cols, #slots>;
        /// A row of 8-bit floats with a scale for each `G` of them.
        #[allow(dead_code)]
        pub type Scaled<T, const G: ::core::primitive::usize, F = ::core::primitive::f32> = #d::row::Scaled<T, F, G, #cols, #slots>;
        /// Where `produce` is.
        #[allow(dead_code)]
        pub type ProduceRow = #d::row::ProduceRow<#cols, #slots>;
        /// Where `consume` is.
        #[allow(dead_code)]
        pub type ConsumeRow = #d::row::ConsumeRow<#cols, #slots>;
    }
}

/// What is added to the implementation of `Hooks`.
pub fn hooks(
    module: &HookModule,
    cols: usize,
    reduce: Option<&Reduce>,
    wire: &Type,
    args: &TokenStream,
    d: &TokenStream,
) -> TokenStream {
    // What `consume` takes of a fold does not cross the wire.
    let taken = if reduce.is_some() { &None } else { &module.consume };
    let written = [&module.produce, taken].into_iter().flatten().find_map(|hook| hook.row.clone());
    let row = written.map_or_else(|| quote!(Row<#wire>), |row| quote!(#row));
    let produce = match &module.produce {
        Some(hook) => {
            let name = &hook.sig.ident;
            quote!(#name(&from, args))
        }
        None => match module.input() {
            Some(Field { ident, kind: Kind::InOut(_), .. }) => quote!(args.#ident.get_row(&from)),
            _ => quote!(#d::row::Rows::row(args.input, &from)),
        },
    };
    let consume = match &module.consume {
        Some(hook) => {
            let name = &hook.sig.ident;
            quote!(#name(&to, args, row))
        }
        None => {
            let name = module.output().map_or_else(|| format_ident!("output"), |f| f.ident.clone());
            quote!(args.#name.row(&to).set(&row))
        }
    };
    let [at, put] = [
        quote!(#d::row::RowAt),
        quote!(&impl ::core::ops::Fn(::core::primitive::u32, #d::pack::Pack<#wire>)),
    ];
    let take = match reduce {
        None => quote! {
            #[inline(always)]
            fn consume_row(
                at: #at,
                args: &#args,
                get: &impl ::core::ops::Fn(::core::primitive::u32) -> #d::pack::Pack<#wire>,
            ) {
                let row: #row = #d::row::RowWire::take(get);
                // SAFETY: as above; each row arrives once.
                let to = unsafe { ConsumeRow::new(at) };
                #consume
            }
            #[inline(always)]
            fn keep_row(at: [#at; 2], args: &#args, put: ::core::option::Option<#put>) {
                let [from, to] = at;
                // SAFETY: as above; a row is kept, or arrives.
                let (from, to) = unsafe { (ProduceRow::new(from), ConsumeRow::new(to)) };
                let row: #row = #produce;
                if let ::core::option::Option::Some(put) = put {
                    #d::row::RowWire::hand(&row, put);
                }
                #consume
            }
        },
        Some(reduce) => {
            let fold = fold_type(reduce, d);
            let accumulator = quote!(<#fold as #d::fold::Fold<<#row as #d::row::RowWire>::Value>>::Acc);
            let settled = module.output().and_then(|f| f.kind.element()).filter(|_| module.consume.is_none());
            let (folded, at_result) = match (&reduce.result, settled) {
                (Some(result), _) => (quote!(#result), result.span()),
                (None, Some(element)) => (quote!(Row<#element>), element.span()),
                (None, None) => (quote!(Row<#accumulator>), reduce.span),
            };
            // An error of the result, and not of the glue, stands at its name.
            let there = spanned(at_result, d);
            let settle = quote_spanned!(at_result=> <#folded as #there::row::SettledRow<#accumulator, #cols, { #there::row::slots(#cols) }>>::settled);
            let own = quote! {
                let own = own.map(|(me, from)| {
                    // SAFETY: as above.
                    let from = unsafe { ProduceRow::new(from) };
                    let row: #row = #produce;
                    (me, row)
                });
                let row = #d::row::fold::<#fold, #row, #cols, { #d::row::slots(#cols) }, RANKS>(ranks, own, of);
            };
            let [own_at, of] = [
                quote!(::core::option::Option<(::core::primitive::u32, #at)>),
                quote!(&impl ::core::ops::Fn(::core::primitive::u32, ::core::primitive::u32) -> #d::pack::Pack<#wire>),
            ];
            quote! {
                type Folded = <#folded as #d::row::RowWire>::Element;
                const RELAYS: ::core::primitive::usize = #d::row::relays::<#row, #folded>();
                #[inline(always)]
                fn relay_row<const RANKS: ::core::primitive::usize>(
                    at: #at,
                    args: &#args,
                    (ranks, takes): (::core::primitive::u32, ::core::primitive::bool),
                    own: #own_at,
                    of: #of,
                    put: &impl ::core::ops::Fn(::core::primitive::u32, #d::pack::Pack<Self::Folded>),
                ) {
                    #own
                    // SAFETY: as above; each row is folded once.
                    let to = unsafe { ConsumeRow::new(at) };
                    let row = #settle(row, &to);
                    #d::row::RowWire::hand(&row, put);
                    if takes {
                        #consume
                    }
                }
                #[inline(always)]
                fn take_row(
                    at: #at,
                    args: &#args,
                    get: &impl ::core::ops::Fn(::core::primitive::u32) -> #d::pack::Pack<Self::Folded>,
                ) {
                    let row = <#folded as #d::row::RowWire>::take(get);
                    // SAFETY: as above; each row arrives once.
                    let to = unsafe { ConsumeRow::new(at) };
                    #consume
                }
                #[inline(always)]
                fn fold_row<const RANKS: ::core::primitive::usize>(
                    at: #at,
                    args: &#args,
                    ranks: ::core::primitive::u32,
                    own: #own_at,
                    of: #of,
                ) {
                    #own
                    // SAFETY: as above; each row is folded once.
                    let to = unsafe { ConsumeRow::new(at) };
                    let row = #settle(row, &to);
                    #consume
                }
            }
        }
    };
    quote! {
        const COLS: ::core::primitive::usize = #cols;
        const ROW_PACKS: ::core::primitive::usize = <#row as #d::row::RowWire>::PACKS;
        #[inline(always)]
        fn produce_row(at: #at, args: &#args, put: #put) {
            // SAFETY: the threads that share the row are here.
            let from = unsafe { ProduceRow::new(at) };
            let row: #row = #produce;
            #d::row::RowWire::hand(&row, put);
        }
        #take
    }
}
