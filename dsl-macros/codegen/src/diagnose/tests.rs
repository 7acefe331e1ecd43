use super::*;
use crate::source::Parts;
use fusewire_toolchain::{Arch, Target, Toolchain, Unit};

/// What the device compiler says of a module with this body, in our words: (deferred, line, message).
fn said(body: &str) -> Vec<(bool, usize, String)> {
    let file = format!("fn outside() {{}}\n#[comm_kernel]\nmod m {{\n{body}\n}}\n");
    let crate::Found { attribute, item, .. } = crate::find_kernels(&file).unwrap().remove(0);
    let mut errors = Errors::default();
    let mut model = crate::syntax::parse(attribute, item, Vec::new(), &mut errors).unwrap();
    let source = crate::model::SourceFile { path: "src/kernels.rs".into(), text: file };
    model.file = Some(source.clone());
    let tokens = bare(&model.tokens);
    let text = Text::of(&Parts {
        item: &tokens,
        inlined: &tokens,
        inline: &[],
        blank: &[],
        tail: None,
        header: "#![no_std] #![allow(warnings)]",
        file: Some(&source),
    });
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
        ("fn f() { super::outside() }", "outside", "move what it needs into the module"),
        ("fn f() { outside() }", "outside", "move it there, or pass its value in `Args`"),
        ("fn f() { syn::random() }", "syn", "move it there, or pass its value in `Args`"),
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
fn an_error_is_told_once_and_none_is_swallowed() {
    let all = said("fn f() {\n let a = Vec::<u8>::new();\n let b: f32 = 1u8;\n}");
    assert_eq!(
        all.iter().map(|(deferred, line, _)| (*deferred, *line)).collect::<Vec<_>>(),
        [(false, 5), (true, 6)]
    );
}

#[test]
fn an_error_without_a_place_is_shown_as_it_was_printed() {
    let crate::Found { attribute, item, .. } =
        crate::find_kernels("#[comm_kernel] mod m {}").unwrap().remove(0);
    let mut errors = Errors::default();
    let model = crate::syntax::parse(attribute, item, Vec::new(), &mut errors).unwrap();
    let tokens = model.tokens.clone();
    let text = Text::of(&Parts {
        item: &tokens,
        inlined: &tokens,
        inline: &[],
        blank: &[],
        tail: None,
        header: "",
        file: None,
    });
    report(&CompileError::Diagnostics(Vec::new()), &text, &model, &mut errors);
    assert!(errors.messages()[0].starts_with("this kernel does not compile for the device"));
    let mut errors = Errors::default();
    let why = CompileError::Misuse { unit: "m".into(), why: "it calls nothing".into() };
    report(&why, &text, &model, &mut errors);
    assert_eq!(errors.messages(), ["the device compiler could not be run: `m`: it calls nothing"]);
}
