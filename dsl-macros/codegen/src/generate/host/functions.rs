//! The functions that prepare a kernel, one for each schedule.

use crate::generate::{glue::angled, schedule_type};
use crate::model::{Item, Model, Params};
use proc_macro2::TokenStream;
use quote::{format_ident, quote};

pub(super) fn functions(model: &Model, params: &Params) -> TokenStream {
    let krate = &model.options.krate;
    // Also those that were not named: asking for one then says how to name it.
    let schedules = match &model.item {
        Item::Hooks(_) => model.offered().collect(),
        Item::Schedule(_) => Vec::new(),
    };
    let (decl, own) = (params.declared(&TokenStream::new()), params.own());
    let own = angled(own);
    let hooks = quote!(Hooks #own);
    let mut out = TokenStream::new();
    for s in schedules {
        let (name, launcher, doc) = (format_ident!("{}", s.name), format_ident!("{}", s.launcher), s.doc);
        let marker = schedule_type(&s, model, &quote!(#krate));
        let launcher = match s.krate {
            None => quote!(#krate::schedule::#launcher<X, #hooks>),
            Some(_) => quote!(#krate::schedule::#launcher<#marker, X, #hooks>),
        };
        let hidden = (!model.options.schedules.contains(&s)).then(|| quote!(#[doc(hidden)]));
        out.extend(quote! {
            #[doc = #doc]
            #hidden
            pub fn #name<#decl X>(transport: &X) -> #krate::Result<#launcher>
            where
                X: #krate::Transport,
                #hooks: #krate::kernel::Supports<#marker, X>,
            {
                <#launcher>::new(transport)
            }
        });
    }
    if let Item::Schedule(_) = &model.item {
        out.extend(quote! {
            /// Prepares the schedule on a transport. Collective: all ranks call it, in the same order.
            pub fn on<X>(transport: &X) -> #krate::Result<#krate::schedule::CustomLauncher<X, Hooks>>
            where
                X: #krate::Transport,
                Hooks: #krate::kernel::Supports<#krate::schedule::Custom, X>,
            {
                #krate::schedule::CustomLauncher::new(transport)
            }
        });
    }
    out
}
