//! The host twin: the user's item, the shared glue, typed launch arguments and one function for each schedule.

mod functions;

use super::fingerprint::fingerprint;
use super::launch::{from_values, has_buffers, launch};
use super::{compiled_for, glue, path, schedule_type};
use crate::device::Image;
use crate::model::{Entry, Item, Kind, Model};
use crate::tables::Transport;
use functions::{compiled, functions};
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;

/// The expansion on the host.
pub fn host(model: &Model, images: &[Image]) -> TokenStream {
    let krate = &model.options.krate;
    let d = quote!(#krate::device);
    match &model.item {
        Item::Hooks(module) => {
            let (vis, ident, attrs, body) = (&module.vis, &module.ident, &module.attrs, &module.hosted);
            let shared = glue::module_glue(model, module, &d);
            let assertions = glue::assertions(model, &d);
            let (own, supports) = (kernels(model), all_supports(model, images));
            let by_name = by_name(model);
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
                    #by_name
                    #supports
                }
            }
        }
        Item::Schedule(function) => {
            let (vis, ident, item) = (&function.vis, &function.sig.ident, &model.tokens);
            let raw = glue::raw_struct(&function.args.fields, None, &d);
            let assertions = glue::assertions(model, &d);
            let (own, by_name, capabilities) = (kernels(model), by_name(model), capabilities(model));
            let supports = all_supports(model, images);
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
                    #by_name
                }
                // Beside the function, which need not be an item of a module.
                const _: () = {
                    #[allow(unused_imports)]
                    use #ident::{Hooks, __Raw};
                    #supports
                };
                #assertions
                #capabilities
            }
        }
    }
}

/// Each named transport has the operations that a schedule function asks for: an error at the transport's name otherwise.
fn capabilities(model: &Model) -> TokenStream {
    let Item::Schedule(function) = &model.item else { return TokenStream::new() };
    let mut out = TokenStream::new();
    let (params, filter) = (&function.sig.generics.params, &function.sig.generics.where_clause);
    for (transport, span) in &model.options.transports {
        let ops = ops_type(transport, model);
        out.extend(quote_spanned! { *span=>
            const _: () = {
                fn has<#params>() #filter {}
                let _ = has::<#ops>;
            };
        });
    }
    out
}

/// The host type of a transport.
fn transport_type(transport: &Transport, model: &Model) -> TokenStream {
    let krate = &model.options.krate;
    let path = path(transport.name, model.span_of(transport.name));
    match transport.krate {
        None => quote!(#krate::#path),
        Some(_) => quote!(::#path),
    }
}

/// Its device half.
fn ops_type(transport: &Transport, model: &Model) -> TokenStream {
    let krate = &model.options.krate;
    match transport.krate {
        None => {
            let ops = path(transport.ops, Span::call_site());
            quote!(#krate::ops::#ops)
        }
        Some(_) => {
            let transport = transport_type(transport, model);
            quote!(<#transport as #krate::Transport>::Ops)
        }
    }
}

/// The element types that a module is compiled for: name in the attribute and path from the user's crate.
fn elements(model: &Model) -> Vec<Option<Concrete>> {
    let krate = &model.options.krate;
    match model.options.elements.as_slice() {
        [] => vec![None],
        some => some
            .iter()
            .map(|(name, path, span)| {
                let tokens: TokenStream = path.parse().unwrap_or_default();
                let at_name = |mut tree: TokenTree| {
                    tree.set_span(*span);
                    tree
                };
                let tokens: TokenStream = tokens.into_iter().map(at_name).collect();
                let path = if path.contains("::") { quote!(#krate::device::#tokens) } else { tokens };
                Some(Concrete { name: name.clone(), path, span: *span })
            })
            .collect(),
    }
}

/// An element type of a generic module.
struct Concrete {
    name: String,
    path: TokenStream,
    span: Span,
}

/// `Launch`, the marker `Hooks` and the schedule functions.
fn kernels(model: &Model) -> TokenStream {
    let krate = &model.options.krate;
    let Some(args) = model.args() else { return TokenStream::new() };
    let param = type_param(model);
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
    let life = has_buffers(&args.fields).then(|| quote!('a,));
    let transposed = model.options.transposed.map(|_| {
        quote!(
            const TRANSPOSED: ::core::primitive::bool = true;
        )
    });
    let asks_shape = matches!(&model.item, Item::Hooks(m) if m.asks_shape).then(|| {
        quote!(
            const ASKS_SHAPE: ::core::primitive::bool = true;
        )
    });
    let folds = model.options.reduce.as_ref().map(|reduce| {
        let text = reduce.fold.text();
        quote!(
            const FOLD: &'static ::core::primitive::str = #text;
        )
    });
    let relays = |path: Option<&TokenStream>| {
        let comma = path.map(|_| quote!(,));
        model.options.reduce.as_ref().map(|_| {
            quote!(
                const RELAYS: ::core::primitive::usize = <__Hooks<#path #comma 1> as #krate::device::hooks::Hooks>::RELAYS;
            )
        })
    };
    let in_place = model.is_in_place().then(|| {
        quote!(
            const IN_PLACE: ::core::primitive::bool = true;
        )
    });
    let (sends, keeps) = model.as_is();
    let row = |path: Option<&TokenStream>| {
        let (cols, comma) = (model.options.row?.0, path.map(|_| quote!(,)));
        Some(quote! {
            const COLS: ::core::primitive::usize = #cols;
            const ROW_PACKS: ::core::primitive::usize = <__Hooks<#path #comma 1> as #krate::device::hooks::Hooks>::ROW_PACKS;
        })
    };
    for element in &elements(model) {
        let path = element.as_ref().map(|e| &e.path);
        let concrete = path.map(|path| quote!(<#path>));
        let element_name = element.as_ref().map_or(String::new(), |e| e.name.clone());
        let wire = wire(model, element.as_ref(), param.as_ref());
        let (row, relays) = (row(path), relays(path));
        out.extend(quote! {
            // SAFETY: `Launch` binds what the hooks of this module take; the wire is theirs.
            unsafe impl #krate::kernel::HookSet for Hooks #concrete {
                type Args<'a> = Launch<#life #path>;
                type Wire = #wire;
                const NAME: &'static ::core::primitive::str = ::core::concat!(::core::module_path!());
                const FILE: &'static ::core::primitive::str = ::core::concat!(::core::file!(), ":", ::core::line!());
                const ELEMENT: &'static ::core::primitive::str = #element_name;
                const FINGERPRINT: ::core::primitive::u64 = #fingerprint;
                #transposed
                #asks_shape
                #folds
                #relays
                #in_place
                #row
                const SENDS_AS_IS: ::core::primitive::bool = #sends;
                const KEEPS_AS_IS: ::core::primitive::bool = #keeps;
            }
        });
    }
    out.extend(functions(model, param.as_ref()));
    out.extend(compiled(model, param.as_ref()));
    out
}

/// The kernels as a table, for those who know their names alone; nothing where an argument is a handle, which has no such form.
fn by_name(model: &Model) -> TokenStream {
    let krate = &model.options.krate;
    let fields = model.args().map_or(&[][..], |args| &args.fields);
    if fields.iter().any(|f| matches!(f.kind, Kind::Handle(_))) {
        return TokenStream::new();
    }
    let (param, name) = (type_param(model), model.ident().unraw().to_string());
    let (mut impls, mut kernels) = (TokenStream::new(), TokenStream::new());
    for element in &elements(model) {
        let path = element.as_ref().map(|e| &e.path);
        let concrete = path.map(|path| quote!(<#path>));
        impls.extend(from_values(model, fields, param.as_ref().zip(path)));
        for (transport, _) in &model.options.transports {
            let transport = transport_type(transport, model);
            if let Item::Schedule(_) = &model.item {
                kernels
                    .extend(quote!(#krate::dynamic::Kernel::custom::<#transport, Hooks #concrete>(#name),));
                continue;
            }
            // Another crate's schedule has values of its own, which a call does not name.
            for schedule in model.options.schedules.iter().filter(|s| s.krate.is_none()) {
                let schedule = schedule_type(schedule, model, &quote!(#krate));
                kernels.extend(
                    quote!(#krate::dynamic::Kernel::new::<#schedule, #transport, Hooks #concrete>(#name),),
                );
            }
        }
    }
    quote! {
        #impls
        #[doc(hidden)]
        pub const __KERNELS: &[#krate::dynamic::Kernel] = &[#kernels];
    }
}

fn type_param(model: &Model) -> Option<Ident> {
    match &model.item {
        Item::Hooks(m) => glue::type_param(m),
        Item::Schedule(_) => None,
    }
}

/// What each hook set was compiled for; and that each element type fulfils the hooks' bounds, at its own name.
fn all_supports(model: &Model, images: &[Image]) -> TokenStream {
    let entries = model.entries();
    let mut out = TokenStream::new();
    for element in &elements(model) {
        let own: Vec<&Entry> = entries
            .iter()
            .filter(|e| e.element.as_ref().map(|e| &e.0) == element.as_ref().map(|e| &e.name))
            .collect();
        out.extend(supports(model, &own, element.as_ref(), images));
        out.extend(nowhere(model, element.as_ref()));
        if let (Item::Hooks(module), Some(Concrete { path, span, .. })) = (&model.item, element) {
            let krate = &model.options.krate;
            let (param, bounds) =
                (glue::type_param(module), glue::bounds(model, module, &quote!(#krate::device)));
            out.extend(quote_spanned! { *span=>
                const _: () = {
                    fn element<#param>() where #bounds {}
                    let _ = element::<#path>;
                };
            });
        }
    }
    out
}

/// The wire type with the type parameter filled in.
fn wire(model: &Model, element: Option<&Concrete>, param: Option<&Ident>) -> TokenStream {
    let Some((wire, _)) = model.wire() else { return quote!(u8) };
    match (param, element) {
        (Some(param), Some(element)) if glue::is_param(&wire, param) => element.path.clone(),
        _ => quote!(#wire),
    }
}

fn supports(model: &Model, entries: &[&Entry], element: Option<&Concrete>, images: &[Image]) -> TokenStream {
    let krate = &model.options.krate;
    let concrete = element.map(|e| {
        let path = &e.path;
        quote!(<#path>)
    });
    let own: Vec<_> =
        images.iter().filter(|i| i.element.as_deref() == element.map(|e| e.name.as_str())).collect();
    let of = element.map(|e| format!("_{}", e.name.to_uppercase())).unwrap_or_default();
    let image_static = |part: usize| format_ident!("__IMAGES{of}_{part}");
    let first: Vec<&Image> = own.iter().copied().filter(|i| i.part == 0).collect();
    let mut out = agreed(model, element, &first);
    for part in 0..own.iter().map(|i| i.part + 1).max().unwrap_or(0) {
        let texts = own.iter().filter(|i| i.part == part).map(|i| {
            let (arch, text) = (&i.arch, &i.text);
            quote!(#krate::kernel::Image { arch: #arch, text: #text })
        });
        let (image_static, count) = (image_static(part), texts.clone().count());
        out.extend(quote!(static #image_static: [#krate::kernel::Image; #count] = [#(#texts),*];));
    }
    let mut done: Vec<(Option<&str>, &str)> = Vec::new();
    for entry in entries {
        let key = (entry.schedule.map(|s| s.name), entry.transport.name);
        if done.contains(&key) {
            continue;
        }
        done.push(key);
        let (transport, ops) = (transport_type(&entry.transport, model), ops_type(&entry.transport, model));
        let marker = match &entry.schedule {
            Some(schedule) => schedule_type(schedule, model, &quote!(#krate)),
            None => quote!(#krate::schedule::Custom),
        };
        let variants = entries.iter().filter(|e| (e.schedule.map(|s| s.name), e.transport.name) == key).map(|e| {
            let protocol = format_ident!("{}", e.protocol.name());
            let (symbol, unroll) = (e.symbol(model.ident()), e.unroll);
            let images = match own.iter().find(|i| i.symbols.contains(&symbol)) {
                Some(image) => {
                    let image_static = image_static(image.part);
                    quote!(&#image_static)
                }
                None => quote!(&[]),
            };
            let host = if e.transport.host { host_entry(model, e, element, &ops) } else { quote!(::core::option::Option::None) };
            quote!(#krate::kernel::Entry { symbol: #symbol, protocol: #krate::schedule::Protocol::#protocol, unroll: #unroll, images: #images, host: #host })
        });
        out.extend(quote! {
            // SAFETY: the entries were compiled from these hooks, for this schedule and transport.
            unsafe impl #krate::kernel::Supports<#marker, #transport> for Hooks #concrete {
                const ENTRIES: &'static [#krate::kernel::Entry] = &[#(#variants),*];
            }
        });
    }
    out
}

/// That both compilers understand the arguments and the wire alike, and that `Launch` is of what the hooks take.
fn agreed(model: &Model, element: Option<&Concrete>, images: &[&Image]) -> TokenStream {
    let krate = &model.options.krate;
    let d = quote!(#krate::device);
    let path = element.map(|e| &e.path);
    let fields = model.args().map_or(&[][..], |args| &args.fields);
    let mut names: Vec<String> = fields.iter().map(|f| format!("argument `{}`", f.ident)).collect();
    let mut out = TokenStream::new();
    let (raw, wire) = match &model.item {
        Item::Hooks(module) => {
            let (comma, concrete) = (path.map(|_| quote!(,)), path.map(|path| quote!(<#path>)));
            out.extend(quote! {
                const _: () = #krate::kernel::twins::<Hooks #concrete, __Hooks<#path #comma 1>>();
            });
            if let Some(field) = module.in_place() {
                let span = field.ty.span();
                for schedule in &model.options.schedules {
                    let (shipped, schedule) = (schedule.krate.is_none(), schedule_type(schedule, model, &d));
                    let check =
                        quote!(#d::protocol::in_place::<#schedule, __Hooks<#path #comma 1>>(#shipped));
                    let check = glue::spanned(span, &check);
                    out.extend(quote_spanned!(span=> const _: () = #check;));
                }
            }
            names.push("what crosses the wire".to_owned());
            (glue::raw_type(module, path), Some(glue::wire_code(path, &d)))
        }
        Item::Schedule(_) => (quote!(__Raw), None),
    };
    let codes: Vec<_> = glue::codes(fields, &raw, &d).chain(wire).collect();
    for image in images {
        let device = &image.codes;
        let checks = codes.iter().zip(device).zip(&names).map(|((host, device), name)| {
            let message = format!(
                "{name} of `{}` is of one type for the host and of another for the device: what is behind its name, or a constant in it, \
                 must be the same on both sides",
                model.ident()
            );
            quote!(::core::assert!(#host == #device, #message);)
        });
        out.extend(quote!(const _: () = { #(#checks)* };));
    }
    out
}

/// With one transport named, rustc would conclude that any transport asked for is that one, and complain of the types instead.
fn nowhere(model: &Model, element: Option<&Concrete>) -> TokenStream {
    let krate = &model.options.krate;
    let concrete = element.map(|e| {
        let path = &e.path;
        quote!(<#path>)
    });
    let schedules: Vec<_> = match &model.item {
        Item::Hooks(_) => model
            .offered()
            .map(|s| (schedule_type(&s, model, &quote!(#krate)), model.options.schedules.contains(&s)))
            .collect(),
        Item::Schedule(_) => vec![(quote!(#krate::schedule::Custom), true)],
    };
    // With none named, one impl of another would be taken for it too.
    let all = schedules
        .iter()
        .flat_map(|(marker, named)| (0..if *named { 1usize } else { 2 }).map(move |n| (marker.clone(), n)));
    let (markers, numbers): (Vec<_>, Vec<_>) = all.unzip();
    quote! {
        #(
            // SAFETY: without entries.
            #[diagnostic::do_not_recommend]
            unsafe impl #krate::kernel::Supports<#markers, #krate::kernel::Nowhere<#numbers>> for Hooks #concrete {
                const ENTRIES: &'static [#krate::kernel::Entry] = &[];
            }
        )*
    }
}

fn host_entry(model: &Model, entry: &Entry, element: Option<&Concrete>, ops: &TokenStream) -> TokenStream {
    let krate = &model.options.krate;
    let d = quote!(#krate::device);
    match &model.item {
        Item::Hooks(_) => {
            let (unroll, path) = (
                entry.unroll as usize,
                element.map(|e| {
                    let path = &e.path;
                    quote!(#path,)
                }),
            );
            let schedule = entry.schedule.map(|s| compiled_for(&s, model, &d));
            let protocol = format_ident!("{}", entry.protocol.host());
            // A function that is not generic: compiled once, with this module, and not again where another one changes.
            let code = quote!({
                unsafe fn __entry(__grid: #d::launch::Grid, __params: *const ::core::primitive::u8) -> #d::wait::Flow {
                    // SAFETY: the launcher passes parameters of this very type, made by a checked launch.
                    unsafe { #krate::kernel::host::<#schedule, #d::protocol::#protocol, #ops, __Hooks<#path #unroll>>(__grid, __params) }
                }
                __entry
            });
            match entry.protocol.by_default_on_host() {
                true => quote!(::core::option::Option::Some(#code)),
                false => quote!(#krate::host_by_name!(#code)),
            }
        }
        Item::Schedule(function) => {
            let name = &function.sig.ident;
            let values = function.args.fields.iter().map(|f| glue::unpack_field(f, &d));
            quote! {
                ::core::option::Option::Some({
                    // No name that a user's function may have.
                    unsafe fn __entry(__grid: #d::launch::Grid, __params: *const ::core::primitive::u8) -> #d::wait::Flow {
                        // SAFETY: the launcher passes parameters of this very type, made by a checked launch.
                        unsafe {
                            let __params = &*__params.cast::<#d::launch::Params<#ops, #d::kernel::Custom, __Raw>>();
                            let __raw = __params.raw;
                            let __lent = #d::args::Lent::while_borrowed(&__raw);
                            let _ = __lent;
                            #d::kernel::custom(__grid, __params.ops, __params.control, __params.shape, |__kernel| {
                                #name::<#ops>(__kernel, #(#values,)*)
                            })
                        }
                    }
                    __entry
                })
            }
        }
    }
}
