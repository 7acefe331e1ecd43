//! The device crate's text: the user's item at its own lines, then one entry for each kernel.

use super::glue;
use crate::model::{Entry, Item, Model};
use crate::source::Text;
use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};

const HEADER: &str = "#![no_std] #![feature(abi_ptx)] #![allow(warnings)] extern crate fusewire_device; extern crate fusewire_transports; \
                      extern crate fusewire_device as fusewire;";

/// Text of the device crate with the given entries.
pub fn device_source(model: &Model, entries: &[Entry]) -> Text {
    let d = quote!(::fusewire_device);
    let mut text = match &model.item {
        Item::Hooks(module) => {
            let glue = glue::module_glue(model, module, &d);
            let tail = format!(" use ::fusewire_device::prelude::*; {glue} ");
            let hooks = [&module.produce, &module.consume];
            let inline: Vec<Span> = hooks
                .iter()
                .filter_map(|h| Some(h.as_ref()?.start))
                .chain(module.fns.iter().copied())
                .collect();
            Text::of(&model.tokens, &inline, Some(&tail), HEADER)
        }
        Item::Schedule(function) => {
            let mut text = Text::of(&model.tokens, &[function.start], None, HEADER);
            let raw = glue::raw_struct(&function.args.fields, &d);
            text.push(&format!("use ::fusewire_device::prelude::*; {raw}"));
            text
        }
    };
    let entries: TokenStream = entries.iter().map(|e| entry(model, e)).collect();
    text.push(&entries.to_string());
    text
}

fn entry(model: &Model, entry: &Entry) -> TokenStream {
    let d = quote!(::fusewire_device);
    let symbol = format_ident!("{}", entry.symbol(model.ident()));
    let ops = format_ident!("{}", entry.transport.ops);
    let ops = quote!(::fusewire_transports::ops::#ops);
    match &model.item {
        Item::Hooks(module) => {
            let (m, unroll) = (&module.ident, entry.unroll as usize);
            let element = entry.element.as_ref().map(|(_, path)| {
                let path: TokenStream = path.parse().unwrap_or_default();
                if path.to_string().contains("::") { quote!(#d::#path,) } else { quote!(#path,) }
            });
            let schedule = format_ident!("{}", entry.function());
            quote! {
                #[unsafe(no_mangle)]
                pub unsafe extern "ptx-kernel" fn #symbol(params: #d::schedule::Params<#ops, #m::__Raw>) {
                    let _ = unsafe {
                        #d::schedule::#schedule::<#ops, #m::__Hooks<#element #unroll>>(#d::schedule::Grid::here(), &params)
                    };
                }
            }
        }
        Item::Schedule(function) => {
            let name = &function.sig.ident;
            let values = function.args.fields.iter().map(|f| glue::unpack_field(f, &d));
            let values = values.map(|v| quote!(#v)).collect::<Vec<_>>();
            quote! {
                #[unsafe(no_mangle)]
                pub unsafe extern "ptx-kernel" fn #symbol(params: #d::schedule::Params<#ops, __Raw>) {
                    let raw = &params.raw;
                    let _ = unsafe {
                        #d::schedule::custom(#d::schedule::Grid::here(), params.ops, params.control, params.shape, |kernel| {
                            #name::<#ops>(kernel, #(#values,)*)
                        })
                    };
                }
            }
        }
    }
}
