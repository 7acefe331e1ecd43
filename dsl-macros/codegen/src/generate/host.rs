//! The host twin: the user's item, the shared glue, typed launch arguments and one function for each schedule.

mod functions;

use super::fingerprint::fingerprint;
use super::glue::angled;
use super::launch::{from_values, has_buffers, launch};
use super::tokens::{is_param, spanned};
use super::{compiled_for, glue, path, schedule_type, within};
use crate::device::Image;
use crate::model::{Entry, Given, Instance, Item, Kind, Model, Params};
use crate::tables::{Schedule, Transport};
use functions::{compiled, functions};
use proc_macro2::{Ident, Span, TokenStream};
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
            let raw = glue::raw_struct(&function.args.fields, &Params::default(), &d);
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

/// What a module's kernels are compiled for, in the user's crate.
struct Concrete {
    instance: Instance,
    given: Given,
    /// `f32, 4,`, for the parameters of `Hooks`.
    args: TokenStream,
    /// The same in brackets, if there are any.
    angled: Option<TokenStream>,
}

impl Concrete {
    fn all(model: &Model) -> Vec<Self> {
        let (krate, params) = (&model.options.krate, model.params());
        let of = |instance: Instance| {
            let given = instance.given(&quote!(#krate::device));
            let args = params.given(&given);
            let angled = angled(args.clone());
            Concrete { instance, given, args, angled }
        };
        model.instances().into_iter().map(of).collect()
    }
}

/// `Launch`, the marker `Hooks` and the schedule functions.
fn kernels(model: &Model) -> TokenStream {
    let krate = &model.options.krate;
    let Some(args) = model.args() else { return TokenStream::new() };
    let params = model.params();
    let param = params.element();
    let launch = launch(model, &args.fields, &params);
    let generic = angled(params.declared(&TokenStream::new()));
    let phantom = param.map_or_else(|| quote!(()), |t| quote!(#t));
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
    let asks_shape = matches!(&model.item, Item::Hooks(m) if m.asks_shape.is_some()).then(|| {
        quote!(
            const ASKS_SHAPE: ::core::primitive::bool = true;
        )
    });
    let by_index = model.by_index();
    let by_index = (!by_index.is_empty()).then(|| {
        quote!(
            const BY_INDEX: &'static [&'static ::core::primitive::str] = &[#(#by_index),*];
        )
    });
    let folds = model.options.reduce.as_ref().map(|reduce| {
        let text = reduce.text();
        quote!(
            const FOLD: &'static ::core::primitive::str = #text;
        )
    });
    let relays = |of: &TokenStream| {
        model.options.reduce.as_ref().map(|_| {
            quote!(
                const RESULT: &'static ::core::primitive::str = <<__Hooks<#of 1> as #krate::device::hooks::Hooks>::Folded as #krate::device::element::Element>::NAME;
                const RELAYS: ::core::primitive::usize = <__Hooks<#of 1> as #krate::device::hooks::Hooks>::RELAYS;
                const PARTIALS: ::core::primitive::usize = <__Hooks<#of 1> as #krate::device::hooks::Hooks>::PARTIALS;
            )
        })
    };
    let in_place = model.is_in_place().then(|| {
        quote!(
            const IN_PLACE: ::core::primitive::bool = true;
        )
    });
    let (sends, keeps) = model.as_is();
    let row = |of: &TokenStream| {
        let cols = model.options.row?.0;
        Some(quote! {
            const COLS: ::core::primitive::usize = #cols;
            const ROW_PACKS: ::core::primitive::usize = <__Hooks<#of 1> as #krate::device::hooks::Hooks>::ROW_PACKS;
        })
    };
    for of in &Concrete::all(model) {
        let (args, concrete, text) = (&of.args, &of.angled, of.instance.text());
        let wire = wire(model, of, param);
        let (row, relays) = (row(args), relays(args));
        out.extend(quote! {
            // SAFETY: `Launch` binds what the hooks of this module take; the wire is theirs.
            unsafe impl #krate::kernel::HookSet for Hooks #concrete {
                type Args<'a> = Launch<#life #args>;
                type Wire = #wire;
                const NAME: &'static ::core::primitive::str = ::core::concat!(::core::module_path!());
                const FILE: &'static ::core::primitive::str = ::core::concat!(::core::file!(), ":", ::core::line!());
                const ELEMENT: &'static ::core::primitive::str = #text;
                const FINGERPRINT: ::core::primitive::u64 = #fingerprint;
                #transposed
                #asks_shape
                #by_index
                #folds
                #relays
                #in_place
                #row
                const SENDS_AS_IS: ::core::primitive::bool = #sends;
                const KEEPS_AS_IS: ::core::primitive::bool = #keeps;
            }
        });
    }
    out.extend(functions(model, &params));
    out.extend(compiled(model, &params));
    out
}

/// The kernels as a table, for those who know their names alone; nothing where an argument is a handle, which has no such form.
fn by_name(model: &Model) -> TokenStream {
    let krate = &model.options.krate;
    let fields = model.args().map_or(&[][..], |args| &args.fields);
    if fields.iter().any(|f| matches!(f.kind, Kind::Handle(_))) {
        return TokenStream::new();
    }
    let (params, name) = (model.params(), model.ident().unraw().to_string());
    let (mut impls, mut kernels) = (TokenStream::new(), TokenStream::new());
    for of in &Concrete::all(model) {
        let concrete = &of.angled;
        impls.extend(from_values(model, fields, &params, &of.given));
        for (transport, _) in &model.options.transports {
            let transport = transport_type(transport, model);
            if let Item::Schedule(_) = &model.item {
                kernels
                    .extend(quote!(#krate::dynamic::Kernel::custom::<#transport, Hooks #concrete>(#name),));
                continue;
            }
            // Another crate's schedule has values of its own, which a call does not name.
            for schedule in model.options.schedules.iter().filter(|s| s.krate.is_none() && !s.is_within()) {
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

/// What each hook set was compiled for; and that what stands for the module's parameters fulfils the hooks' bounds, at its own name.
fn all_supports(model: &Model, images: &[Image]) -> TokenStream {
    let entries = model.entries();
    let mut out = TokenStream::new();
    for of in &Concrete::all(model) {
        let name = of.instance.name();
        let own: Vec<&Entry> = entries.iter().filter(|e| e.instance.name() == name).collect();
        out.extend(supports(model, &own, of, images));
        out.extend(nowhere(model, of));
        if let (Item::Hooks(module), Some(span)) = (&model.item, of.instance.span()) {
            let (krate, params, args) = (&model.options.krate, model.params(), &of.args);
            let (declared, bounds) =
                (params.declared(&TokenStream::new()), glue::bounds(model, module, &quote!(#krate::device)));
            out.extend(quote_spanned! { span=>
                const _: () = {
                    fn element<#declared>() where #bounds {}
                    let _ = element::<#args>;
                };
            });
        }
    }
    out
}

/// The wire type with the type parameter filled in.
fn wire(model: &Model, of: &Concrete, param: Option<&Ident>) -> TokenStream {
    let Some((wire, _)) = model.wire() else { return quote!(u8) };
    match (param, &of.given.element) {
        (Some(param), Some(element)) if is_param(&wire, param) => element.clone(),
        _ => quote!(#wire),
    }
}

fn supports(model: &Model, entries: &[&Entry], of: &Concrete, images: &[Image]) -> TokenStream {
    let (krate, concrete, name) = (&model.options.krate, &of.angled, of.instance.name());
    let own: Vec<_> = images.iter().filter(|i| i.instance == name).collect();
    let label = if name.is_empty() { name } else { format!("_{}", name.to_uppercase()) };
    let image_static = |part: usize| format_ident!("__IMAGES{label}_{part}");
    let first: Vec<&Image> = own.iter().copied().filter(|i| i.part == 0).collect();
    let mut out = agreed(model, of, &first);
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
            let host = if e.transport.host { host_entry(model, e, of, &ops) } else { quote!(::core::option::Option::None) };
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
fn agreed(model: &Model, of: &Concrete, images: &[&Image]) -> TokenStream {
    let krate = &model.options.krate;
    let d = quote!(#krate::device);
    let fields = model.args().map_or(&[][..], |args| &args.fields);
    let mut names: Vec<String> = fields.iter().map(|f| format!("argument `{}`", f.ident)).collect();
    let mut out = TokenStream::new();
    let (raw, wire) = match &model.item {
        Item::Hooks(module) => {
            let (args, concrete) = (&of.args, &of.angled);
            out.extend(quote! {
                const _: () = #krate::kernel::twins::<Hooks #concrete, __Hooks<#args 1>>();
            });
            if let Some(field) = module.in_place() {
                let span = field.ty.span();
                for schedule in model.options.schedules.iter().filter(|s| !s.is_within()) {
                    let (shipped, schedule) = (schedule.krate.is_none(), schedule_type(schedule, model, &d));
                    let check = quote!(#d::protocol::in_place::<#schedule, __Hooks<#args 1>>(#shipped));
                    let check = spanned(span, &check);
                    out.extend(quote_spanned!(span=> const _: () = #check;));
                }
            }
            names.push("what crosses the wire".to_owned());
            (glue::raw_type(module, |params| params.given(&of.given)), Some(glue::wire_code(args, &d)))
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
fn nowhere(model: &Model, of: &Concrete) -> TokenStream {
    let (krate, concrete) = (&model.options.krate, &of.angled);
    let schedules: Vec<_> = match &model.item {
        Item::Hooks(_) => model
            .offered()
            .chain(model.within())
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

fn host_entry(model: &Model, entry: &Entry, of: &Concrete, ops: &TokenStream) -> TokenStream {
    let krate = &model.options.krate;
    let d = quote!(#krate::device);
    match &model.item {
        Item::Hooks(module) => {
            let (unroll, args) = (entry.unroll as usize, &of.args);
            if let Some(name) =
                entry.schedule.filter(Schedule::is_within).map(|s| format_ident!("{}", s.name))
            {
                let raw = glue::raw_type(module, |params| params.given(&of.given));
                let run = within(&name, ops, &quote!(__Hooks<#args #unroll>), &d);
                return own_entry(&d, ops, &raw, &run);
            }
            let schedule = entry.schedule.map(|s| compiled_for(&s, model, &d));
            let protocol = format_ident!("{}", entry.protocol.host());
            // A function that is not generic: compiled once, with this module, and not again where another one changes.
            let code = quote!({
                unsafe fn __entry(__grid: #d::launch::Grid, __params: *const ::core::primitive::u8) -> #d::wait::Flow {
                    // SAFETY: the launcher passes parameters of this very type, made by a checked launch.
                    unsafe { #krate::kernel::host::<#schedule, #d::protocol::#protocol, #ops, __Hooks<#args #unroll>>(__grid, __params) }
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
            let run = quote! {
                let __raw = __params.raw;
                let __lent = #d::args::Lent::while_borrowed(&__raw);
                let _ = __lent;
                #name::<#ops>(__kernel, #(#values,)*)
            };
            own_entry(&d, ops, &quote!(__Raw), &run)
        }
    }
}

/// The entry of a schedule function, which `run` calls with `__kernel` and what it finds in `__params`.
fn own_entry(d: &TokenStream, ops: &TokenStream, raw: &TokenStream, run: &TokenStream) -> TokenStream {
    quote! {
        ::core::option::Option::Some({
            // No name that a user's function may have.
            unsafe fn __entry(__grid: #d::launch::Grid, __params: *const ::core::primitive::u8) -> #d::wait::Flow {
                // SAFETY: the launcher passes parameters of this very type, made by a checked launch.
                unsafe {
                    let __params = &*__params.cast::<#d::launch::Params<#ops, #d::kernel::Custom, #raw>>();
                    #d::kernel::custom(__grid, __params.ops, __params.control, __params.shape, |__kernel| {
                        #run
                    })
                }
            }
            __entry
        })
    }
}
