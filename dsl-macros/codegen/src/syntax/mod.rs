//! From tokens to the model. Bodies of functions stay tokens, so that half-typed hooks still have a shape.

pub mod calls;
pub mod item;
mod options;
mod reduce;
mod words;

pub use item::kind;

use crate::crates::{self, DeviceCrate};
use crate::errors::Errors;
use crate::model::Model;
use proc_macro2::TokenStream;

/// Parses attribute and item. Collects errors; returns what could be made out.
pub fn parse(
    attribute: TokenStream,
    item: TokenStream,
    crates: Vec<DeviceCrate>,
    errors: &mut Errors,
) -> Option<Model> {
    let named = crates::named_in(&attribute);
    let mut options = options::parse(attribute, &item::functions(&item), crates, errors);
    let attribute_errors = errors.shown();
    let parsed = item::parse(item.clone(), errors)?;
    if options.archs.is_empty() {
        options.archs = options::archs(&item);
    }
    Some(Model { options, item: parsed, tokens: item, named, attribute_errors, file: None })
}
