//! `Launch`: the typed arguments of a launch.

use super::glue;
use crate::model::{self, Field, Given, Item, Kind, Model, Params};
use proc_macro2::TokenStream;
use quote::{format_ident, quote};

/// `Launch`: what a user fills in to launch, buffers instead of slices.
pub fn launch(model: &Model, fields: &[Field], params: &Params) -> TokenStream {
    let krate = &model.options.krate;
    let mut members = TokenStream::new();
    let mut binds = TokenStream::new();
    let place = |field: Option<&Field>| match field.map(|f| &f.ident) {
        Some(name) => quote!(::core::option::Option::Some(self.#name.place())),
        None => quote!(::core::option::Option::None),
    };
    // One `Out` alone is the output, whatever its name.
    let mut outs = fields.iter().filter(|f| matches!(f.kind, Kind::Out(_)));
    let only = outs.next().filter(|_| outs.next().is_none());
    let (input, output) = (place(model::input(fields)), place(model::output(fields).or(only)));
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
            }
            Kind::Out(t) | Kind::InOut(t) | Kind::OfRows(t, _) | Kind::Accumulate(t) => {
                members.extend(quote!(#doc pub #name: #krate::ViewMut<'a, #t>,));
                binds.extend(quote!(#name: binder.write(#label, &self.#name)?,));
            }
            Kind::Handle(ty) => {
                let handle = quote!(<#ty as #krate::kernel::Handle>);
                members.extend(quote!(#doc pub #name: #handle::Owner<'a>,));
                binds.extend(quote!(#name: #handle::bind(self.#name, #label, binder)?,));
            }
            Kind::Option(_) | Kind::Plain => {
                let ty = &f.ty;
                members.extend(quote!(#doc pub #name: #ty,));
                binds.extend(match &f.kind {
                    Kind::Option(_) => quote!(#name: #krate::device::args::RawOption::new(self.#name),),
                    _ => quote!(#name: self.#name,),
                });
            }
        }
    }
    // A launch that borrows nothing has no lifetime either.
    let life = has_buffers(fields).then(|| quote!('a,));
    let (decl, own) = (params.declared(&quote!(#krate::device::element::Element)), params.own());
    let (decl, used) = (quote!(<#life #decl>), quote!(<#life #own>));
    let raw = match &model.item {
        Item::Hooks(m) => glue::raw_type(m, Params::own),
        Item::Schedule(_) => quote!(__Raw),
    };
    quote! {
        /// Arguments of one launch: buffers where hooks see slices.
        pub struct Launch #decl { #members }
        // SAFETY: each field crosses as the binder checked it, by value otherwise, and as what the hooks have.
        unsafe impl #decl #krate::kernel::Arguments for Launch #used {
            type Raw = #raw;
            fn bind(&self, binder: &mut #krate::kernel::Binder) -> #krate::Result<#raw> {
                let _ = &binder;
                ::core::result::Result::Ok(__Raw { #binds })
            }
            fn input(&self) -> ::core::option::Option<#krate::kernel::Place<'_>> { #input }
            fn output(&self) -> ::core::option::Option<#krate::kernel::Place<'_>> { #output }
        }
    }
}

/// How a launch is made of values; `given` is what stands for the parameters of a generic module.
pub fn from_values(model: &Model, fields: &[Field], params: &Params, given: &Given) -> TokenStream {
    let krate = &model.options.krate;
    let (mut described, mut taken) = (TokenStream::new(), TokenStream::new());
    for f in fields {
        let (name, label) = (&f.ident, f.ident.to_string());
        let (describe, take, ty) = match &f.kind {
            Kind::Slice(t) => ("read", "read", t),
            Kind::Out(t) | Kind::OfRows(t, _) => ("write", "write", t),
            Kind::InOut(t) => ("read_write", "write", t),
            Kind::Accumulate(t) => ("accumulate", "write", t),
            Kind::Option(t) => ("option", "option", t),
            Kind::Handle(_) | Kind::Plain => ("value", "value", &f.ty),
        };
        let (describe, take) = (format_ident!("{describe}"), format_ident!("{take}"));
        // Asked here, where the type is not generic.
        let any_bytes = matches!(f.kind, Kind::Option(_) | Kind::Handle(_) | Kind::Plain)
            .then(|| quote!(, #krate::dynamic::any_bytes!(#ty)));
        described.extend(quote!(#krate::dynamic::Field::#describe::<#ty>(#label #any_bytes),));
        taken.extend(quote!(#name: values.#take::<#ty>()?,));
    }
    let life = has_buffers(fields).then(|| quote!('v,));
    let (own, aliases) = (params.own(), params.aliases(given));
    quote! {
        const _: () = {
            #aliases
            impl<'v> #krate::dynamic::FromValues<'v> for Launch<#life #own> {
                const FIELDS: &'static [#krate::dynamic::Field] = &[#described];
                fn from_values(mut values: #krate::dynamic::Values<'_, 'v>) -> #krate::Result<Self> {
                    let _ = &mut values;
                    ::core::result::Result::Ok(Launch { #taken })
                }
            }
        };
    }
}

/// Whether a launch borrows anything.
pub fn has_buffers(fields: &[Field]) -> bool {
    fields.iter().any(|f| !matches!(f.kind, Kind::Option(_) | Kind::Plain))
}
