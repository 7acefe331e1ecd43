use super::*;
use crate::model::SourceFile;
use crate::source::Parts;
use fusewire_toolchain::{Arch, Target, Toolchain, Unit};
use proc_macro2::TokenStream;

/// The device's text of an item as it is.
fn text_of(item: &TokenStream, header: &str, file: Option<&SourceFile>) -> Text {
    Text::of(&Parts { item, inlined: item, inline: &[], blank: &[], tail: None, header, file })
}

/// What the device compiler says of a module with this body, in our words: (deferred, line, message).
fn said(body: &str) -> Vec<(bool, usize, String)> {
    let file = format!("fn outside() {{}}\n#[comm_kernel]\nmod m {{\n{body}\n}}\n");
    let crate::Found { attribute, item, .. } = crate::find_kernels(&file).unwrap().remove(0);
    let mut errors = Errors::default();
    let mut model = crate::syntax::parse(attribute, item, Vec::new(), &mut errors).unwrap();
    let source = SourceFile { path: "src/kernels.rs".into(), text: file };
    model.file = Some(source.clone());
    let tokens = bare(&model.tokens);
    let text = text_of(&tokens, "#![no_std] #![allow(warnings)]", Some(&source));
    let target = Target::new(Arch::SM_80);
    let mut unit = Unit::new("m_kernels", &text.text, &target);
    unit.file = text.file.as_deref();
    let toolchain = Toolchain::prepare(&mut |event| eprintln!("{event}")).unwrap();
    let error = toolchain.kernel(&unit).unwrap_err();
    let mut errors = Errors::default();
    report(&error, &text, &model, &mut errors);
    let shown = errors.shown();
    errors.placed().into_iter().enumerate().map(|(n, (line, _, m))| (n >= shown, line, m)).collect()
}

fn one_said(body: &str) -> (bool, usize, String) {
    let mut all = said(body);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[test]
fn what_is_not_on_the_device_is_said_with_advice() {
    for (body, about, advice) in [
        ("fn f() -> usize { Vec::<u8>::new().len() }", "Vec", "there is no heap on the device"),
        ("fn f() { println!(\"x\") }", "println", "`print_at!(ctx,"),
        ("fn f() { let _ = format!(\"x\"); }", "format", "there are no strings on the device"),
        ("fn f() -> u32 { std::cmp::min(1, 2) }", "std", "write `core::`"),
        ("fn f() { super::outside() }", "outside", "into a device crate (`fusewire::device_crate!`)"),
        ("fn f() { outside() }", "outside", "that the attribute names: `uses(that_crate)`"),
        ("fn f() { syn::random() }", "syn", "move it there, pass its value in `Args`, or"),
        ("fn f(x: f32) -> f32 { x.exp() }", "exp", "`core` has no such function: write `math::exp(..)`"),
        ("fn f(x: f32) -> f32 { x.powf(x) }", "powf", "write `math::pow(..)`"),
        ("fn f(x: f32) -> f32 { x.acos() }", "acos", "write it with those of `math`"),
    ] {
        let (deferred, line, message) = one_said(body);
        assert!(!deferred, "{body}: {message}");
        assert_eq!(line, 4, "{body}");
        assert!(message.starts_with("not on the device: ") && message.contains(about), "{body}: {message}");
        assert!(message.contains(advice), "{body}: {message}");
    }
}

#[test]
fn what_the_host_says_too_is_left_to_it() {
    for body in [
        "fn f() -> f32 { 1u32 }",
        "fn f() -> f32 { misspelt }",
        "fn f() { misspelt!() }",
        "fn f(x: f32) -> f32 { x.misspelt() }",
        "fn f() -> Misspelt { loop {} }",
    ] {
        let (deferred, line, message) = one_said(body);
        assert!(deferred, "{body}: {message}");
        assert_eq!(line, 4, "{body}");
    }
}

#[test]
fn what_the_host_is_not_given_is_not_left_to_it() {
    for body in [
        "fn f() -> f32 { if cfg!(target_arch = \"nvptx64\") { 1u32 } else { 1.0 } }",
        "#[cfg(not(debug_assertions))] fn f() -> f32 { 1u32 }",
    ] {
        let (deferred, line, message) = one_said(body);
        assert!(!deferred && line == 4, "{body}: {message}");
        assert!(message.starts_with("not on the device: mismatched types"), "{body}: {message}");
    }
}

#[test]
fn an_error_is_told_once_and_none_is_swallowed() {
    let all = said("fn f() {\n let a = Vec::<u8>::new();\n let b: f32 = 1u8;\n}");
    assert_eq!(
        all.iter().map(|(deferred, line, _)| (*deferred, *line)).collect::<Vec<_>>(),
        [(false, 5), (true, 6)]
    );
}

/// An error in `/base/lib.rs`, and a note at this place.
fn in_a_device_crate(file: &str, line: usize, column: usize) -> CompileError {
    let span = |file: &str, line, column| DiagSpan {
        file: file.to_owned(),
        line,
        column,
        end_line: line,
        end_column: column + 1,
        is_primary: true,
        label: None,
        suggestion: None,
        call_site: None,
    };
    let diagnostic = |level, message: &str, span| Diagnostic {
        level,
        code: None,
        message: message.to_owned(),
        spans: vec![span],
        children: Vec::new(),
        rendered: String::new(),
    };
    let note = "the above error was encountered while instantiating `fn base::table::<16>`";
    CompileError::Diagnostics(vec![
        diagnostic(Level::Error, "evaluation panicked", span("/base/lib.rs", 3, 5)),
        diagnostic(Level::Note, note, span(file, line, column)),
    ])
}

#[test]
fn an_error_in_a_device_crate_is_said_at_the_call_that_a_note_tells_of() {
    let file =
        "#[comm_kernel(uses(base))]\nmod m {\n    fn unrelated() {}\n    fn f() { base::table::<16>() }\n}";
    let crate::Found { attribute, item, .. } = crate::find_kernels(file).unwrap().remove(0);
    let base = crate::DeviceCrate {
        name: "base".into(),
        root: "/base/lib.rs".into(),
        cfgs: Vec::new(),
        uses: Vec::new(),
        transports: Vec::new(),
    };
    let mut errors = Errors::default();
    let model = crate::syntax::parse(attribute, item, vec![base], &mut errors).unwrap();
    let source = SourceFile { path: "src/kernels.rs".into(), text: file.to_owned() };
    let tokens = bare(&model.tokens);
    let mut text = text_of(&tokens, "", Some(&source));
    text.push("fn glue() {}");
    // A call of the user's; a line that fusewire added; another file.
    for (file, line, column, at) in [
        ("src/kernels.rs", 4, 14, (4, 13)),
        ("src/kernels.rs", 6, 1, (1, 19)),
        ("/base/lib.rs", 4, 14, (1, 19)),
    ] {
        let mut errors = Errors::default();
        report(&in_a_device_crate(file, line, column), &text, &model, &mut errors);
        let placed = errors.placed();
        let [(line, column, message)] = placed.as_slice() else { panic!("{placed:?}") };
        assert_eq!((*line, *column), at, "{message}");
        let told = "not on the device: evaluation panicked\nat /base/lib.rs:3:5, in the device crate `base`";
        assert!(message.starts_with(told), "{message}");
        assert_eq!(message.contains("instantiating `fn base::table::<16>`"), at.0 == 1, "{message}");
    }
}

#[test]
fn an_error_without_a_place_is_shown_as_it_was_printed() {
    let crate::Found { attribute, item, .. } =
        crate::find_kernels("#[comm_kernel] mod m {}").unwrap().remove(0);
    let mut errors = Errors::default();
    let model = crate::syntax::parse(attribute, item, Vec::new(), &mut errors).unwrap();
    let text = text_of(&model.tokens, "", None);
    report(&CompileError::Diagnostics(Vec::new()), &text, &model, &mut errors);
    assert!(errors.messages()[0].starts_with("this kernel does not compile for the device"));
    let mut errors = Errors::default();
    let why = CompileError::Misuse { unit: "m".into(), why: "it calls nothing".into() };
    report(&why, &text, &model, &mut errors);
    assert_eq!(errors.messages(), ["the device compiler could not be run: `m`: it calls nothing"]);
}
