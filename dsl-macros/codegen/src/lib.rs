//! The compiler behind `#[comm_kernel]`, as a plain library: token streams in, token streams out.
//!
//! ```text
//! syntax    attribute and item -> model        no judgement but on form
//! check     model -> errors                    every rule, all errors at once
//! generate  model -> host tokens, device text  the same hooks twice
//! device    device text -> PTX                 through fusewire-toolchain, cached by content
//! diagnose  device errors -> user's spans
//! ```
//!
//! `expand` is what the macro calls. The command line uses [`compile`] to print PTX for any target.

mod check;
mod configured;
mod device;
mod diagnose;
mod errors;
mod find;
mod generate;
mod host;
mod model;
mod source;
mod syntax;
mod tables;

pub use device::{CompileOptions, Compiled, compile};
pub use errors::Errors;
pub use find::{Found, find_kernels};
pub use generate::device_source;
pub use model::{Entry, Item, Model, SourceFile};
pub use tables::{ARCHS, ELEMENTS, Protocol, SCHEDULES, Schedule, TRANSPORTS, Transport, nearest};

use proc_macro2::TokenStream;
use quote::quote;

/// How the macro is being run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By the compiler: device errors are the user's errors.
    Compile,
    /// By an editor: only what is cached is embedded, and no compiler is started.
    Editor,
    /// Syntax and checks alone.
    CheckOnly,
}

/// Parses and checks; the model if there is something to go on with, and every error found.
pub fn analyse(attribute: TokenStream, item: TokenStream) -> (Option<Model>, Errors) {
    let mut errors = Errors::default();
    let model = syntax::parse(attribute, item, &mut errors);
    if let Some(model) = &model {
        check::check(model, &mut errors);
    }
    (model, errors)
}

/// As [`analyse`], of tokens that were parsed from a whole file by [`find_kernels`]: PTX and errors then name its lines.
pub fn analyse_in(file: SourceFile, attribute: TokenStream, item: TokenStream) -> (Option<Model>, Errors) {
    let (model, errors) = analyse(attribute, item);
    (model.map(|model| Model { file: Some(file), ..model }), errors)
}

/// Expands `#[comm_kernel(attribute)] item`.
///
/// With errors, the user's item stays (without the attribute's help), so that editors go on working and no error cascades.
pub fn expand(attribute: TokenStream, item: TokenStream, mode: Mode) -> TokenStream {
    let (model, errors) = analyse(attribute, item.clone());
    let model = match model {
        Some(model) if errors.is_empty() => model,
        model => return generate::fallback(model.as_ref(), item, &errors, mode == Mode::Editor),
    };
    let images = match mode {
        Mode::CheckOnly => Ok(Vec::new()),
        Mode::Editor => Ok(device::cached(&model)),
        Mode::Compile => device::images(&model),
    };
    match images {
        Ok(images) => generate::host(&model, &images),
        Err(device_errors) => {
            let (errors, item) = (device_errors.to_compile_errors(), generate::host(&model, &[]));
            quote!(#errors #item)
        }
    }
}
