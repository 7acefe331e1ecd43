//! PTX of the kernels in `kernels/mod.rs`, as the macro makes it.

use fusewire_codegen::{CompileOptions, Entry, Model, SourceFile, analyse_in, compile, find_kernels};
use fusewire_toolchain::Toolchain;

#[allow(dead_code, reason = "one of two programs names it")]
pub const KERNELS: &str = include_str!("../kernels/mod.rs");

fn toolchain() -> Toolchain {
    Toolchain::prepare(&mut |event| eprintln!("{event}")).unwrap_or_else(|error| panic!("{error}"))
}

pub fn kernel(name: &str) -> Model {
    let file = SourceFile { path: "src/kernels.rs".into(), text: KERNELS.to_owned() };
    let models = find_kernels(KERNELS).unwrap().into_iter().map(|found| {
        let (model, errors) = analyse_in(file.clone(), found.attribute, found.item);
        assert!(errors.messages().is_empty(), "{:?}", errors.messages());
        model.unwrap()
    });
    models.into_iter().find(|m| m.ident() == name).unwrap_or_else(|| panic!("no kernel `{name}`"))
}

pub fn on_gpus(model: &Model) -> Vec<Entry> {
    model.entries().into_iter().filter(|e| e.transport.cuda).collect()
}

pub fn ptx(model: &Model, entries: &[Entry], arch: &str, line_info: bool) -> String {
    let options = CompileOptions { arch: arch.to_owned(), line_info };
    let compiled = compile(&toolchain(), model, entries, &options);
    compiled.unwrap_or_else(|errors| panic!("{}: {:?}", model.ident(), errors.messages())).text
}

/// The body of an entry.
pub fn body<'a>(ptx: &'a str, symbol: &str) -> &'a str {
    let head = format!(".entry {symbol}(");
    let from = ptx.find(&head).unwrap_or_else(|| panic!("no `{symbol}`"));
    let to = ptx[from..].find("\n}\n").unwrap_or(ptx.len() - from);
    &ptx[from..from + to]
}
