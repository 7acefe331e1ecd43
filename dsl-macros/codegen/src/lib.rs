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
mod crates;
mod device;
mod diagnose;
mod errors;
mod find;
mod generate;
mod host;
mod model;
mod plain;
mod recorded;
mod source;
mod syntax;
mod tables;

pub use crates::{Declared, DeviceCrate, declare};
pub use device::{CompileOptions, Compiled, compile};
pub use errors::Errors;
pub use find::{Found, InFile, Macro, find_in, find_kernels, writers};
pub use generate::device_source;
pub use model::{Entry, Instance, Item, Model, SourceFile};
pub use plain::elsewhere as plain_elsewhere;
pub use recorded::{Recorded, recorded};
pub use tables::{ARCHS, ELEMENTS, Protocol, SCHEDULES, Schedule, TRANSPORTS, Transport, nearest};

use crates::Asked;
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

/// Parses and checks; the model if there is something to go on with, and every error found. Without a compiler that asks them, names of
/// other crates are errors.
pub fn analyse(attribute: TokenStream, item: TokenStream) -> (Option<Model>, Errors) {
    analyse_with(Vec::new(), attribute, item)
}

/// As [`analyse`], with the device crates that the attribute names.
pub fn analyse_with(
    crates: Vec<DeviceCrate>,
    attribute: TokenStream,
    item: TokenStream,
) -> (Option<Model>, Errors) {
    let mut errors = Errors::default();
    let model = syntax::parse(attribute, item, crates, &mut errors);
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
/// With errors, the user's item stays (without the attribute's help), so that editors go on working and no error cascades. Where the
/// attribute names other crates, these are asked first what they declare: [`expand_answer`] goes on.
pub fn expand(attribute: TokenStream, item: TokenStream, mode: Mode) -> TokenStream {
    expand_asked(Asked::nobody(attribute, item), mode)
}

/// Goes on with what a device crate's macro passed on.
pub fn expand_answer(tokens: TokenStream, mode: Mode) -> TokenStream {
    match Asked::from_answer(tokens) {
        Ok(asked) => expand_asked(asked, mode),
        Err(error) => {
            let what = format!("a device crate was built with another version of fusewire: {error}");
            quote!(::core::compile_error! { #what })
        }
    }
}

fn expand_asked(asked: Asked, mode: Mode) -> TokenStream {
    if let Some(question) = asked.next() {
        return question;
    }
    // An editor's text is not that of the file.
    if mode != Mode::Editor {
        let _ = recorded::keep(&asked);
    }
    let Asked { crates, attribute, item, .. } = asked;
    let (model, errors) = analyse_with(crates, attribute, item.clone());
    let model = match model {
        Some(model) if errors.is_empty() => model,
        model => return generate::fallback(model.as_ref(), item, &errors, mode == Mode::Editor),
    };
    let images = match mode {
        Mode::CheckOnly => match check::stands_alone(&model) {
            errors if errors.is_empty() => Ok(Vec::new()),
            errors => Err(errors),
        },
        Mode::Editor => Ok(device::cached(&model)),
        Mode::Compile => device::images(&model),
    };
    match images {
        // Cargo expands it again once this variable is another: what is built without images must not pass for a build with them.
        Ok(_) if mode == Mode::CheckOnly => {
            let item = generate::host(&model, &[]);
            quote! {
                const _: ::core::option::Option<&::core::primitive::str> = ::core::option_env!("FUSEWIRE_CHECK_ONLY");
                #item
            }
        }
        Ok(images) => generate::host(&model, &images),
        Err(device_errors) => {
            let (errors, item) = (device_errors.to_compile_errors(), generate::host(&model, &[]));
            quote!(#errors #item)
        }
    }
}
