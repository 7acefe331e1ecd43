//! The parameters of a generic module, and what stands for them in each of its kernels.

use super::{Args, HookModule, Model};
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::{GenericParam, Type};

/// The parameters of `Args` but its lifetimes, in order: an element type, a number, or both.
#[derive(Debug, Default)]
pub struct Params(Vec<Param>);

#[derive(Debug)]
enum Param {
    Element(Ident),
    Number(Ident, Box<Type>),
}

/// What stands for them.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// For the element type.
    pub element: Option<TokenStream>,
    /// For the number.
    pub number: Option<TokenStream>,
}

impl Params {
    /// Those of `Args`.
    fn of(args: &Args) -> Self {
        let known = args.generics.params.iter().filter_map(|param| match param {
            GenericParam::Type(t) => Some(Param::Element(t.ident.clone())),
            GenericParam::Const(c) => Some(Param::Number(c.ident.clone(), Box::new(c.ty.clone()))),
            GenericParam::Lifetime(_) => None,
        });
        Params(known.collect())
    }

    /// Those that `keep` says.
    pub fn only(mut self, keep: impl Fn(&Ident) -> bool) -> Self {
        self.0.retain(|param| keep(param.ident()));
        self
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &Ident> {
        self.0.iter().map(Param::ident)
    }

    /// The element type, if there is one.
    pub fn element(&self) -> Option<&Ident> {
        self.0.iter().find_map(|param| match param {
            Param::Element(ident) => Some(ident),
            Param::Number(..) => None,
        })
    }

    /// `T: bound, const N: usize,`
    pub fn declared(&self, bound: &TokenStream) -> TokenStream {
        let one = |param: &Param| match param {
            Param::Element(t) if bound.is_empty() => quote!(#t,),
            Param::Element(t) => quote!(#t: #bound,),
            Param::Number(n, ty) => quote!(const #n: #ty,),
        };
        self.0.iter().map(one).collect()
    }

    /// `T, N,` with what stands for them.
    pub fn given(&self, given: &Given) -> TokenStream {
        let one = |param: &Param| {
            let value = match param {
                Param::Element(_) => &given.element,
                Param::Number(..) => &given.number,
            };
            value.as_ref().map(|value| quote!(#value,))
        };
        self.0.iter().filter_map(one).collect()
    }

    /// `T, N,` where they are in scope.
    pub fn own(&self) -> TokenStream {
        self.names().map(|name| quote!(#name,)).collect()
    }

    /// `type T = f32; const N: usize = 4;`
    pub fn aliases(&self, given: &Given) -> TokenStream {
        let (element, number) = (&given.element, &given.number);
        let one = |param: &Param| match param {
            Param::Element(t) => quote!(type #t = #element;),
            Param::Number(n, ty) => quote!(const #n: #ty = #number;),
        };
        self.0.iter().map(one).collect()
    }
}

impl Param {
    fn ident(&self) -> &Ident {
        match self {
            Param::Element(ident) | Param::Number(ident, _) => ident,
        }
    }
}

/// What a kernel is compiled for: nothing where its module is not generic.
#[derive(Clone, Debug, Default)]
pub struct Instance {
    /// An element type: its name, its path below the device crate, and where the attribute names it.
    pub element: Option<(String, String, Span)>,
    /// A number, and where it stands.
    pub value: Option<(String, Span)>,
}

impl Instance {
    /// Of an element type by its name and path, and of a number, neither of which stands anywhere.
    pub fn of(element: Option<(&str, &str)>, value: Option<&str>) -> Self {
        let nowhere = Span::call_site();
        Instance {
            element: element.map(|(name, path)| (name.to_owned(), path.to_owned(), nowhere)),
            value: value.map(|value| (value.to_owned(), nowhere)),
        }
    }

    /// What the two are called together, as a part of a symbol: `f32`, `4`, `f32__4`.
    pub fn name(&self) -> String {
        self.join("__")
    }

    /// The same for readers: `f32`, `4`, `f32, 4`.
    pub fn text(&self) -> String {
        self.join(", ")
    }

    fn join(&self, between: &str) -> String {
        let words = [self.element.as_ref().map(|e| e.0.as_str()), self.value.as_ref().map(|v| v.0.as_str())];
        words.into_iter().flatten().collect::<Vec<_>>().join(between)
    }

    /// Where what it is compiled for stands in the attribute.
    pub fn span(&self) -> Option<Span> {
        self.element.as_ref().map(|e| e.2).or(self.value.as_ref().map(|v| v.1))
    }

    /// The element type's path for a compiler to whom the device crate is `d`, and the number, at their own places.
    pub fn given(&self, d: &TokenStream) -> Given {
        let at = |text: &str, span: Span| -> TokenStream {
            let tokens: TokenStream = text.parse().unwrap_or_default();
            let at = |mut tree: proc_macro2::TokenTree| {
                tree.set_span(span);
                tree
            };
            tokens.into_iter().map(at).collect()
        };
        let element = self.element.as_ref().map(|(_, path, span)| {
            let tokens = at(path, *span);
            if path.contains("::") { quote!(#d::#tokens) } else { tokens }
        });
        Given { element, number: self.value.as_ref().map(|(text, span)| at(text, *span)) }
    }
}

impl HookModule {
    /// The parameters of `Args`.
    pub fn params(&self) -> Params {
        self.args.as_ref().map(Params::of).unwrap_or_default()
    }
}

impl Model {
    /// What kernels are compiled for: each element type with each number.
    pub fn instances(&self) -> Vec<Instance> {
        fn or_none<T: Clone>(all: &[T]) -> Vec<Option<T>> {
            if all.is_empty() { vec![None] } else { all.iter().cloned().map(Some).collect() }
        }
        let values = or_none(&self.options.values);
        let of = |element: Option<_>| {
            let with = move |value: &Option<_>| Instance { element: element.clone(), value: value.clone() };
            values.iter().map(with).collect::<Vec<_>>()
        };
        or_none(&self.options.elements).into_iter().flat_map(of).collect()
    }

    /// The parameters of the module; a schedule function has none.
    pub fn params(&self) -> Params {
        match &self.item {
            super::Item::Hooks(module) => module.params(),
            super::Item::Schedule(_) => Params::default(),
        }
    }
}
