//! The device crate's text: the user's item at its own lines, then one entry for each kernel.

use super::{compiled_for, glue, path, within};
use crate::model::{Entry, Item, Model, Params};
use crate::source::{Parts, Text, bare};
use crate::tables::Schedule;
use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};

/// The symbol of the table of codes.
pub const CODES: &str = "__fusewire_codes";

const HEADER: &str = "#![no_std] #![feature(abi_ptx)] #![allow(warnings)] #[macro_use] extern crate fusewire_device; extern crate fusewire_transports; \
                      extern crate fusewire_device as fusewire;";

/// Text of the device crate with the given entries.
pub fn device_source(model: &Model, entries: &[Entry]) -> Text {
    let d = quote!(::fusewire_device);
    let item = bare(&model.tokens);
    let file = model.file.as_ref();
    match &model.item {
        Item::Hooks(module) => {
            let glue = glue::module_glue(model, module, &d);
            // Entries stand in the module too, so that nothing in it needs to be public.
            let given = entries.first().map(|e| e.instance.given(&d)).unwrap_or_default();
            let raw = glue::raw_type(module, |params| params.given(&given));
            let fields = model.args().map_or(&[][..], |args| &args.fields);
            let codes =
                glue::codes(fields, &raw, &d).chain([glue::wire_code(&model.params().given(&given), &d)]);
            let codes = codes_static(codes.collect());
            let kernels: TokenStream = entries.iter().map(|e| entry(model, e)).collect();
            let tail = format!(" use ::fusewire_device::prelude::*; {glue} {kernels} {codes} ");
            let hooks = [&module.produce, &module.consume];
            let inline: Vec<Span> = hooks
                .iter()
                .filter_map(|h| Some(h.as_ref()?.start))
                .chain(module.fns.iter().copied())
                .collect();
            let (ident, body) = (&module.ident, &module.inlined);
            let inlined = quote!(mod #ident { #body });
            let blank: Vec<Span> = module.plain.iter().flat_map(|p| p.word.iter().copied()).collect();
            Text::of(&Parts {
                item: &item,
                inlined: &inlined,
                inline: &inline,
                blank: &blank,
                tail: Some(&tail),
                header: HEADER,
                file,
            })
        }
        Item::Schedule(function) => {
            let inline = [function.start];
            let inlined = quote!(#[inline(always)] #item);
            let mut text = Text::of(&Parts {
                item: &item,
                inlined: &inlined,
                inline: &inline,
                blank: &[],
                tail: None,
                header: HEADER,
                file,
            });
            let raw = glue::raw_struct(&function.args.fields, &Params::default(), &d);
            let codes = codes_static(glue::codes(&function.args.fields, &quote!(__Raw), &d).collect());
            let kernels: TokenStream = entries.iter().map(|e| entry(model, e)).collect();
            text.push(&format!(
                "use ::fusewire_device::prelude::*; use ::fusewire_transports::prelude::*; {raw} {kernels} {codes}"
            ));
            text
        }
    }
}

/// What [`take_codes`](crate::device) finds in the PTX: arguments and wire as the device's compiler understands them.
fn codes_static(codes: Vec<TokenStream>) -> TokenStream {
    // Their number goes first, itself counted: a table of zeros alone would not be written out.
    let (name, count) = (format_ident!("{CODES}"), codes.len() + 1);
    quote! {
        #[unsafe(no_mangle)]
        pub static #name: [::core::primitive::u64; #count] = [#count as ::core::primitive::u64, #(#codes),*];
    }
}

fn entry(model: &Model, entry: &Entry) -> TokenStream {
    let d = quote!(::fusewire_device);
    let symbol = format_ident!("{}", entry.symbol(model.ident()));
    let ops = path(entry.transport.ops, Span::call_site());
    let ops = match entry.transport.krate {
        None => quote!(::fusewire_transports::ops::#ops),
        Some(krate) => {
            let krate = format_ident!("{krate}");
            quote!(::#krate::#ops)
        }
    };
    match &model.item {
        Item::Hooks(module) => {
            let unroll = entry.unroll as usize;
            let given = entry.instance.given(&d);
            let (raw, given) =
                (glue::raw_type(module, |params| params.given(&given)), model.params().given(&given));
            if let Some(name) =
                entry.schedule.filter(Schedule::is_within).map(|s| format_ident!("{}", s.name))
            {
                let run = within(&name, &ops, &quote!(__Hooks<#given #unroll>), &d);
                return own_entry(&d, &symbol, &ops, &raw, &run);
            }
            let schedule = entry.schedule.map(|s| compiled_for(&s, model, &d));
            let protocol = format_ident!("{}", entry.protocol.device());
            quote! {
                #[unsafe(no_mangle)]
                pub unsafe extern "ptx-kernel" fn #symbol(params: #d::launch::Params<#ops, #schedule, #raw>) {
                    let grid = #d::launch::Grid::here();
                    let _ = unsafe {
                        #d::protocol::exchange::<#schedule, #d::protocol::#protocol, #ops, __Hooks<#given #unroll>>(grid, &params)
                    };
                }
            }
        }
        Item::Schedule(function) => {
            let name = &function.sig.ident;
            let values = function.args.fields.iter().map(|f| glue::unpack_field(f, &d));
            let values = values.map(|v| quote!(#v)).collect::<Vec<_>>();
            let run = quote!({
                let __raw = &__params.raw;
                let __lent = #d::args::Lent::while_borrowed(__raw);
                let _ = __lent;
                #name::<#ops>(__kernel, #(#values,)*)
            });
            own_entry(&d, &symbol, &ops, &quote!(__Raw), &run)
        }
    }
}

/// The kernel of a schedule function, which `run` calls with `__kernel` and what it finds in `__params`.
fn own_entry(
    d: &TokenStream,
    symbol: &Ident,
    ops: &TokenStream,
    raw: &TokenStream,
    run: &TokenStream,
) -> TokenStream {
    quote! {
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn #symbol(__params: #d::launch::Params<#ops, #d::kernel::Custom, #raw>) {
            let __grid = #d::launch::Grid::here();
            let __begun = unsafe {
                #d::kernel::Kernel::begin(__grid, __params.ops, __params.control, __params.shape)
            };
            if let ::core::result::Result::Ok(__kernel) = __begun {
                let __kernel = &__kernel;
                let _ = __kernel.end(unsafe { #run });
            }
        }
    }
}
