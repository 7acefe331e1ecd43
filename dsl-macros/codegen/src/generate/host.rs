//! The host twin: the user's item, the shared glue, typed launch arguments and one function for each schedule.

use super::glue;
use crate::device::Image;
use crate::model::{Entry, Field, Item, Kind, Model};
use crate::tables::Schedule;
use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::{format_ident, quote, quote_spanned};
use sha2::{Digest, Sha256};

/// The expansion on the host.
pub fn host(model: &Model, images: &[Image]) -> TokenStream {
    let krate = &model.options.krate;
    let d = quote!(#krate::device);
    match &model.item {
        Item::Hooks(module) => {
            let (vis, ident, attrs, body) = (&module.vis, &module.ident, &module.attrs, &module.body);
            let shared = glue::module_glue(model, module, &d);
            let assertions = glue::assertions(model, &d);
            let own = kernels(model, images);
            quote! {
                #(#attrs)*
                #[allow(dead_code)]
                #vis mod #ident {
                    #body
                    #[allow(unused_imports)]
                    use #d::prelude::*;
                    #shared
                    #assertions
                    #own
                }
            }
        }
        Item::Schedule(function) => {
            let (vis, ident, item) = (&function.vis, &function.sig.ident, &model.tokens);
            let raw = glue::raw_struct(&function.args.fields, &d);
            let assertions = glue::assertions(model, &d);
            let (own, capabilities) = (kernels(model, images), capabilities(model));
            let doc = format!("Launching [`{ident}`](fn@{ident}).");
            quote! {
                #[allow(dead_code)]
                #item
                #[doc = #doc]
                #[allow(dead_code)]
                #vis mod #ident {
                    #[allow(unused_imports)]
                    use super::*;
                    #raw
                    #own
                }
                #assertions
                #capabilities
            }
        }
    }
}

/// Each named transport has the operations that a schedule function asks for: an error at the transport's name otherwise.
fn capabilities(model: &Model) -> TokenStream {
    let Item::Schedule(function) = &model.item else { return TokenStream::new() };
    let krate = &model.options.krate;
    let mut out = TokenStream::new();
    let (params, filter) = (&function.sig.generics.params, &function.sig.generics.where_clause);
    for (transport, span) in &model.options.transports {
        let ops = format_ident!("{}", transport.ops);
        out.extend(quote_spanned! { *span=>
            const _: () = {
                fn has<#params>() #filter {}
                let _ = has::<#krate::ops::#ops>;
            };
        });
    }
    out
}

/// `Launch`, the marker `Hooks`, what it supports, and the schedule functions.
fn kernels(model: &Model, images: &[Image]) -> TokenStream {
    let krate = &model.options.krate;
    let Some(args) = model.args() else { return TokenStream::new() };
    let param = match &model.item {
        Item::Hooks(m) => glue::type_param(m),
        Item::Schedule(_) => None,
    };
    let launch = launch(model, &args.fields, param.as_ref());
    let generic = param.as_ref().map(|t| quote!(<#t>));
    let phantom = param.as_ref().map_or_else(|| quote!(()), |t| quote!(#t));
    let name = model.ident().to_string();
    let fingerprint = fingerprint(model);
    let marker_doc = format!("The kernels of `{name}`.");
    let mut out = quote! {
        #launch
        #[doc = #marker_doc]
        pub struct Hooks #generic (::core::marker::PhantomData<#phantom>);
    };
    let elements: Vec<Option<(String, TokenStream)>> = match model.options.elements.as_slice() {
        [] => vec![None],
        some => some
            .iter()
            .map(|(n, path, _)| {
                let path: TokenStream = path.parse().unwrap_or_default();
                let path = if path.to_string().contains("::") { quote!(#krate::device::#path) } else { path };
                Some((n.clone(), path))
            })
            .collect(),
    };
    let entries = model.entries();
    for element in &elements {
        let concrete = element.as_ref().map(|(_, path)| quote!(<#path>));
        let in_launch = element.as_ref().map(|(_, path)| quote!(, #path));
        let element_name = element.as_ref().map_or(String::new(), |e| e.0.clone());
        let wire = wire(model, element.as_ref(), param.as_ref());
        out.extend(quote! {
            impl #krate::kernel::HookSet for Hooks #concrete {
                type Args<'a> = Launch<'a #in_launch>;
                type Wire = #wire;
                const NAME: &'static str = ::core::concat!(::core::module_path!());
                const ELEMENT: &'static str = #element_name;
                const FINGERPRINT: u64 = #fingerprint;
            }
        });
        let own: Vec<&Entry> = entries
            .iter()
            .filter(|e| e.element.as_ref().map(|e| &e.0) == element.as_ref().map(|e| &e.0))
            .collect();
        out.extend(supports(model, &own, element.as_ref(), images));
    }
    out.extend(functions(model, param.as_ref()));
    out
}

/// The wire type with the type parameter filled in.
fn wire(model: &Model, element: Option<&(String, TokenStream)>, param: Option<&Ident>) -> TokenStream {
    let Some((wire, _)) = model.wire() else { return quote!(u8) };
    match (&wire, param, element) {
        (syn::Type::Path(p), Some(t), Some((_, path))) if p.path.is_ident(t) => path.clone(),
        _ => quote!(#wire),
    }
}

fn supports(
    model: &Model,
    entries: &[&Entry],
    element: Option<&(String, TokenStream)>,
    images: &[Image],
) -> TokenStream {
    let krate = &model.options.krate;
    let concrete = element.map(|(_, path)| quote!(<#path>));
    let own: Vec<_> =
        images.iter().filter(|i| i.element.as_deref() == element.map(|e| e.0.as_str())).collect();
    let texts = own.iter().map(|i| {
        let (arch, text) = (&i.arch, &i.text);
        quote!(#krate::kernel::Image { arch: #arch, text: #text })
    });
    let count = own.len();
    let image_static =
        format_ident!("__IMAGES{}", element.map(|e| format!("_{}", e.0.to_uppercase())).unwrap_or_default());
    let mut out = quote!(static #image_static: [#krate::kernel::Image; #count] = [#(#texts),*];);
    let mut done: Vec<(Option<&str>, &str)> = Vec::new();
    for entry in entries {
        let key = (entry.schedule.map(|s| s.name), entry.transport.name);
        if done.contains(&key) {
            continue;
        }
        done.push(key);
        let (transport, ops) =
            (format_ident!("{}", entry.transport.name), format_ident!("{}", entry.transport.ops));
        let marker = format_ident!("{}", entry.schedule.map_or("Custom", |s| s.marker));
        let variants = entries.iter().filter(|e| (e.schedule.map(|s| s.name), e.transport.name) == key).map(|e| {
            let (symbol, unroll) = (e.symbol(model.ident()), e.unroll);
            let protocol = format_ident!("{}", e.protocol.name());
            let host = if e.transport.host { host_entry(model, e, element, &ops) } else { quote!(::core::option::Option::None) };
            quote!(#krate::kernel::Entry { symbol: #symbol, protocol: #krate::schedule::Protocol::#protocol, unroll: #unroll, images: &#image_static, host: #host })
        });
        out.extend(quote! {
            impl #krate::kernel::Supports<#krate::schedule::#marker, #krate::#transport> for Hooks #concrete {
                const ENTRIES: &'static [#krate::kernel::Entry] = &[#(#variants),*];
            }
        });
    }
    out
}

fn host_entry(
    model: &Model,
    entry: &Entry,
    element: Option<&(String, TokenStream)>,
    ops: &Ident,
) -> TokenStream {
    let krate = &model.options.krate;
    let d = quote!(#krate::device);
    match &model.item {
        Item::Hooks(_) => {
            let (unroll, path) = (entry.unroll as usize, element.map(|(_, p)| quote!(#p,)));
            let call = format_ident!("host_{}", entry.function());
            quote!(::core::option::Option::Some(#krate::kernel::#call::<#krate::ops::#ops, __Hooks<#path #unroll>>))
        }
        Item::Schedule(function) => {
            let name = &function.sig.ident;
            let values = function.args.fields.iter().map(|f| glue::unpack_field(f, &d));
            quote! {
                ::core::option::Option::Some({
                    unsafe fn entry(grid: #d::schedule::Grid, params: *const u8) -> #d::wait::Flow {
                        // SAFETY: the launcher passes parameters of this very type, made by a checked launch.
                        unsafe {
                            let params = &*params.cast::<#d::schedule::Params<#krate::ops::#ops, __Raw>>();
                            let raw = &params.raw;
                            let _ = raw;
                            #d::schedule::custom(grid, params.ops, params.control, params.shape, |kernel| {
                                super::#name::<#krate::ops::#ops>(kernel, #(#values,)*)
                            })
                        }
                    }
                    entry
                })
            }
        }
    }
}

/// `Launch`: what a user fills in to launch, buffers instead of slices.
fn launch(model: &Model, fields: &[Field], param: Option<&Ident>) -> TokenStream {
    let krate = &model.options.krate;
    let mut members = TokenStream::new();
    let mut binds = TokenStream::new();
    let (mut input, mut output) =
        (quote!(::core::option::Option::None), quote!(::core::option::Option::None));
    let outs = fields.iter().filter(|f| matches!(f.kind, Kind::Out(_))).count();
    for f in fields {
        let (name, docs, label) = (&f.ident, &f.docs, f.ident.to_string());
        let doc = if docs.is_empty() {
            let text = format!("`{name}` of the hooks.");
            quote!(#[doc = #text])
        } else {
            quote!(#(#docs)*)
        };
        match &f.kind {
            Kind::Slice(t) => {
                members.extend(quote!(#doc pub #name: #krate::View<'a, #t>,));
                binds.extend(quote!(#name: binder.read(#label, &self.#name)?,));
                if name == "input" {
                    input = quote!(::core::option::Option::Some(self.#name.len()));
                }
            }
            Kind::Out(t) | Kind::Accumulate(t) => {
                members.extend(quote!(#doc pub #name: #krate::ViewMut<'a, #t>,));
                binds.extend(quote!(#name: binder.write(#label, &self.#name)?,));
                if matches!(f.kind, Kind::Out(_)) && (name == "output" || outs == 1) {
                    output = quote!(::core::option::Option::Some(self.#name.len()));
                }
            }
            Kind::Plain => {
                let ty = &f.ty;
                members.extend(quote!(#doc pub #name: #ty,));
                binds.extend(quote!(#name: self.#name,));
            }
        }
    }
    let (decl, used) = match param {
        Some(t) => (quote!(<'a, #t: #krate::device::element::Element>), quote!(<'a, #t>)),
        None => (quote!(<'a>), quote!(<'a>)),
    };
    // A struct without buffers still has the launch's lifetime.
    let marker = if fields.iter().any(|f| !matches!(f.kind, Kind::Plain)) {
        (TokenStream::new(), None)
    } else {
        (quote!(#[doc(hidden)] pub __launch: ::core::marker::PhantomData<&'a ()>,), Some(()))
    };
    let (extra, _) = marker;
    quote! {
        /// Arguments of one launch: buffers where hooks see slices.
        pub struct Launch #decl { #members #extra }
        impl #decl #krate::kernel::Arguments for Launch #used {
            type Raw = __Raw;
            fn bind(&self, binder: &mut #krate::kernel::Binder) -> #krate::Result<__Raw> {
                let _ = &binder;
                ::core::result::Result::Ok(__Raw { #binds })
            }
            fn input_len(&self) -> ::core::option::Option<usize> { #input }
            fn output_len(&self) -> ::core::option::Option<usize> { #output }
        }
    }
}

fn functions(model: &Model, param: Option<&Ident>) -> TokenStream {
    let krate = &model.options.krate;
    let schedules: Vec<Schedule> = match &model.item {
        Item::Hooks(_) => model.options.schedules.clone(),
        Item::Schedule(_) => Vec::new(),
    };
    let (decl, hooks) = match param {
        Some(t) => (quote!(#t,), quote!(Hooks<#t>)),
        None => (quote!(), quote!(Hooks)),
    };
    let mut out = TokenStream::new();
    for s in schedules {
        let (name, marker, launcher, doc) = (
            format_ident!("{}", s.name),
            format_ident!("{}", s.marker),
            format_ident!("{}", s.launcher),
            s.doc,
        );
        out.extend(quote! {
            #[doc = #doc]
            pub fn #name<#decl X>(transport: &X) -> #krate::Result<#krate::schedule::#launcher<X, #hooks>>
            where
                X: #krate::Transport,
                #hooks: #krate::kernel::Supports<#krate::schedule::#marker, X>,
            {
                #krate::schedule::#launcher::new(transport)
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

/// A number that differs when the hooks' text or options do: compared over ranks before a launch.
fn fingerprint(model: &Model) -> u64 {
    let mut hash = Sha256::new();
    hash.update(plain(&model.tokens));
    hash.update(model.unrolls().iter().map(u32::to_string).collect::<Vec<_>>().join(","));
    u64::from_le_bytes(hash.finalize()[..8].try_into().unwrap_or_default())
}

/// Tokens as text, the same on every machine.
fn plain(tokens: &TokenStream) -> String {
    fn strip(t: TokenTree) -> TokenTree {
        match t {
            TokenTree::Group(g) => {
                let mut inner = Group::new(g.delimiter(), g.stream().into_iter().map(strip).collect());
                inner.set_span(Span::call_site());
                inner.into()
            }
            other => other,
        }
    }
    tokens.clone().into_iter().map(strip).collect::<TokenStream>().to_string()
}
