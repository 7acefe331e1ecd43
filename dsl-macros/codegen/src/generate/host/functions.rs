//! The functions that prepare a kernel, one for each schedule; and what a caller asks who is as generic as the module.

use crate::generate::launch::has_buffers;
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
    for s in model.within() {
        let name = format_ident!("{}", s.name);
        let (text, doc) = (s.name, format!("Launching [`{0}`](fn@{0}).", s.name));
        let hooks = quote!(super::#hooks);
        out.extend(quote! {
            #[doc = #doc]
            pub mod #name {
                /// The schedule as a type.
                #[doc(hidden)]
                pub struct Own;
                /// Prepares the schedule on a transport. Collective: all ranks call it, in the same order.
                pub fn on<#decl X>(transport: &X) -> #krate::Result<#krate::schedule::CustomLauncher<X, #hooks, Own>>
                where
                    X: #krate::Transport,
                    #hooks: #krate::kernel::Supports<Own, X>,
                {
                    #krate::schedule::CustomLauncher::named(transport, #text)
                }
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

/// `Compiled`: a module's bound for functions of the host that are generic as the module is. A bound on `Hooks<T>` hides from the compiler
/// which launch its implementation has, so this one says it.
pub(super) fn compiled(model: &Model, params: &Params) -> TokenStream {
    let Some(args) = model.args().filter(|_| !params.is_empty()) else {
        return TokenStream::new();
    };
    let krate = &model.options.krate;
    let own = params.own();
    let life = has_buffers(&args.fields).then(|| quote!('a,));
    let bound = quote!(#krate::kernel::Supports<Sched, X> + for<'a> #krate::kernel::HookSet<Args<'a> = Launch<#life #own>>);
    let name = model.ident();
    let doc = format!(
        "The bound of a function that is as generic as the module: `{name}::Hooks<{0}>: {name}::Compiled<{0}, Sched, X>`. It holds for whatever \
         the module is compiled for, on each of its schedules and transports.",
        params.names().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    );
    let decl = params.declared(&quote!(#krate::device::element::Element));
    let decl = quote!(#decl Sched, X: #krate::Transport);
    quote! {
        #[doc = #doc]
        #[diagnostic::on_unimplemented(
            message = "`{Self}` was not compiled for `{Sched}` on transport `{X}`",
            label = "there is no kernel for this",
            note = "name what it is to be compiled for in the attribute: `#[comm_kernel(transports(..), schedules(..), elements(..), values(..))]`"
        )]
        pub trait Compiled<#decl>: #bound {}
        impl<__H: #bound, #decl> Compiled<#own Sched, X> for __H {}
    }
}
