//! From the model to code: the same glue on both sides, then what each side needs alone.

mod device;
mod fingerprint;
mod folds;
mod glue;
mod host;
mod launch;
mod rows;
mod tokens;
mod wired;

pub use device::{CODES, device_source};
pub use glue::names;
pub use host::host;

use crate::errors::Errors;
use crate::model::{Item, Model, Params};
use crate::tables::{SCHEDULES, Schedule};
use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use quote::{format_ident, quote};

/// The type of a schedule, where its module in fusewire is below `d`.
fn schedule_type(schedule: &Schedule, model: &Model, d: &TokenStream) -> TokenStream {
    if schedule.is_within() {
        let name = format_ident!("{}", schedule.name);
        return quote!(#name::Own);
    }
    let path = path(schedule.marker, model.span_of(schedule.marker));
    match schedule.krate {
        None => quote!(#d::schedule::#path),
        Some(_) => quote!(::#path),
    }
}

/// The schedule that its kernels are compiled for: with an `InOut`, the one whose input and output are one buffer.
fn compiled_for(schedule: &Schedule, model: &Model, d: &TokenStream) -> TokenStream {
    let schedule = schedule_type(schedule, model, d);
    if model.is_in_place() { quote!(#d::schedule::InPlace<#schedule>) } else { schedule }
}

/// Calls a hook module's schedule with `__kernel` and the arguments of `__params`, for as long as the call lasts; in an `unsafe` block of the entry.
fn within(name: &Ident, ops: &TokenStream, hooks: &TokenStream, d: &TokenStream) -> TokenStream {
    quote!({
        // Its lifetimes are any, so that the schedule can name none.
        #[inline(always)]
        fn __run(kernel: &#d::kernel::Kernel<#ops>, args: &<#hooks as #d::hooks::Hooks>::Args<'_>) -> #d::wait::Flow {
            #name(kernel, args)
        }
        __run(__kernel, &<#hooks as #d::launch::Unpack>::unpack(&__params.raw))
    })
}

/// A path of the tables.
fn path(text: &str, span: Span) -> TokenStream {
    let segments = text.split("::").map(|segment| Ident::new(segment, span));
    quote!(#(#segments)::*)
}

/// The user's item when there are errors, with the errors: as it is, with the prelude in reach and every generated name in place, so
/// that nothing else breaks.
///
/// Without `bodies` the contents of a module that was itself refused are left out: what rustc would say of them follows from what is
/// said already. Editors want them always.
pub fn fallback(model: Option<&Model>, item: TokenStream, errors: &Errors, bodies: bool) -> TokenStream {
    let krate = model.map_or_else(
        || quote!(::fusewire),
        |m| {
            let k = &m.options.krate;
            quote!(#k)
        },
    );
    let mut trees: Vec<TokenTree> = item.clone().into_iter().collect();
    let name_after = |word: &str| -> Option<Ident> {
        let at = trees.iter().position(|t| matches!(t, TokenTree::Ident(i) if i == word))?;
        match trees.get(at + 1) {
            Some(TokenTree::Ident(name)) => Some(name.clone()),
            _ => None,
        }
    };
    let whole = bodies || model.is_some_and(|m| errors.shown() == m.attribute_errors);
    let (module, function) = (name_after("mod"), name_after("fn"));
    let last = trees.pop();
    match (module, last) {
        (Some(_), Some(last)) => {
            let body = match last {
                TokenTree::Group(g) if whole && g.delimiter() == Delimiter::Brace => {
                    match model.map(|m| &m.item) {
                        // Without the derives that there are not.
                        Some(Item::Hooks(module)) => module.hosted.clone(),
                        _ => g.stream(),
                    }
                }
                _ => TokenStream::new(),
            };
            let generic = |m: &&Model| m.instances().iter().any(|i| i.span().is_some());
            let params = model.filter(generic).map(Model::params).unwrap_or_default();
            let (stubs, others) = stubs(model, &params, errors);
            let prelude = quote!(#[allow(unused_imports)] use #krate::device::prelude::*;);
            let rows =
                model.and_then(|m| m.options.row).map(|(cols, _)| rows::names(cols, &quote!(#krate::device)));
            quote!(#others #[allow(warnings)] #(#trees)* { #body #prelude #rows #stubs })
        }
        (None, Some(last)) if function.is_some() && model.is_some() => {
            let vis = model.map(|m| match &m.item {
                Item::Schedule(f) => f.vis.clone(),
                Item::Hooks(m) => m.vis.clone(),
            });
            let (stubs, others) = stubs(model, &Params::default(), errors);
            let item = whole.then(|| quote!(#[allow(warnings)] #(#trees)* #last));
            quote!(#others #item #[allow(warnings)] #vis mod #function { #stubs })
        }
        _ => {
            let errors = errors.to_compile_errors();
            quote!(#errors #item)
        }
    }
}

/// What the module would have offered, of a type that is itself the first error: rustc complains of no use of it.
fn stubs(model: Option<&Model>, params: &Params, errors: &Errors) -> (TokenStream, TokenStream) {
    let (first, others) = errors.to_type_and_items();
    let param = params.declared(&TokenStream::new());
    let is_function = model.is_some_and(|m| matches!(m.item, Item::Schedule(_)));
    let names: Vec<Ident> = match is_function {
        true => vec![format_ident!("on")],
        false => model.map_or_else(
            || SCHEDULES.iter().map(|s| format_ident!("{}", s.name)).collect(),
            |model| model.prepared_by().map(|name| format_ident!("{name}")).collect(),
        ),
    };
    let taken: Vec<String> = match model.map(|m| &m.item) {
        Some(Item::Hooks(m)) => m.names.iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    };
    let free = |name: &str| !taken.iter().any(|t| t == name);
    let functions = names.into_iter().filter(|n| free(&n.to_string()));
    let (own, of_type) = (params.own(), params.element());
    let hooks = free("Hooks").then(|| match params.is_empty() {
        true => quote!(
            pub type Hooks = __Refused;
        ),
        false => quote!(
            pub struct Hooks<#param>(::core::marker::PhantomData<(#of_type)>);
        ),
    });
    let compiled = (!params.is_empty() && free("Compiled")).then(|| {
        quote! {
            pub trait Compiled<#param Sched, X> {}
            impl<__H, #param Sched, X> Compiled<#own Sched, X> for __H {}
        }
    });
    let fields = model.and_then(Model::args).into_iter().flat_map(|a| &a.fields).map(|f| &f.ident);
    let launch = free("Launch").then(|| quote!(pub struct Launch { #(pub #fields: __Refused,)* }));
    let within = model.into_iter().flat_map(Model::within).map(|s| format_ident!("{}", s.name));
    let stubs = quote! {
        #(pub mod #within { pub fn on<X>(_: &X) -> super::__Refused { loop {} } })*
        type __Refused = #first;
        #hooks
        #compiled
        #launch
        #(pub fn #functions<#param X>(_: &X) -> __Refused { loop {} })*
    };
    (stubs, others)
}
