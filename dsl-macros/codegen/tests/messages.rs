//! Every message of the front end: the rule, then the accepted form. One snapshot lists them as users read them.

use fusewire_codegen::{Mode, analyse, expand};
use proc_macro2::TokenStream;
use std::fmt::Write;

const MODULE: &str = "mod m {
    pub struct Args<'a> { pub input: &'a [f32], pub output: Out<'a, f32> }
}";
const FUNCTION: &str = "fn ring<O: Ops>(kernel: &Kernel<O>) -> Flow { Ok(()) }";
const COUNTED: &str = "pub input: &'a [f32], pub output: Out<'a, f32>, pub calls: Accumulate<'a, u32>";

fn messages(attribute: &str, item: &str) -> Vec<String> {
    analyse(tokens(attribute), tokens(item)).1.messages()
}

fn tokens(text: &str) -> TokenStream {
    text.parse().unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A module with these fields and hooks.
fn module(fields: &str, hooks: &str) -> String {
    format!("mod m {{ pub struct Args<'a> {{ {fields} }} {hooks} }}")
}

fn hooks(hooks: &str) -> String {
    module("pub input: &'a [f32], pub output: Out<'a, f32>", hooks)
}

#[test]
fn every_message() {
    let attributes = [
        "transports(Nvlink)",
        "transports(Smoke)",
        "transports()",
        "transports = Shm",
        "transports(Shm, Shm)",
        "transports(Shm), transports(Nvl)",
        "schedules(all2all)",
        "elements(f31)",
        "elements(f32)",
        "archs(sm_9)",
        "unroll(3)",
        "unroll()",
        "unroll = 8",
        "unroll(8, 8)",
        "layout(flat)",
        "layout()",
        "layout = transposed",
        "layout(transposed)",
        "grain",
        "grain = row",
        "grain = row(4096, 2)",
        "grain = block(4096)",
        "grain = row(100)",
        "grain = row(32768)",
        "grain = row(4096)",
        "reduce",
        "reduce()",
        "reduce(sum)",
        "reduce(xor)",
        "reduce(sum f32)",
        "reduce(sum, Bf16)",
        "reduce(min, usize)",
        "reduce(xor, f32)",
        "reduce(average, u32)",
        "reduce(sums, f32)",
        "reduce(sum, f32, ranks)",
        "reduce(sum, f32, way = tree)",
        "reduce(sum, f32, order = any)",
        "reduce(sum, f32, order = ring)",
        "reduce(my::Fold, f32)",
        "reduce(sum, result = Bf16)",
        "reduce(Farthest, result = Bf16)",
        "reduce(sum, f32, result)",
        "reduce(sum, f32, result = )",
        "reduce(sum, f32, result = Bf16)",
        "schedules(all_reduce)",
        "schedules(all_to_all), reduce(sum, f32)",
        "schedules(all_reduce, all_gather), reduce(sum, f32)",
        "line_inof",
        "crate = 3",
        "transports(Shm) line_info",
    ];
    let items = [
        "struct S;",
        "mod m;",
        "mod m { fn produce(ctx: &Produce, args: &Args) -> f32 { 0.0 } }",
        "mod größe { pub struct Args<'a> { pub input: &'a [f32], pub output: Out<'a, f32> } }",
        "mod m { pub struct Args<'a>(&'a [f32]); }",
        "mod m { pub struct Args; }",
        "mod m { pub struct Args<'a, 'b> { pub input: &'a [f32], pub output: Out<'b, f32> } }",
        "mod m { pub struct Args<'a, T> { pub input: &'a [T], pub output: Out<'a, T> } }",
        "mod m { pub struct Args<'a, const N: usize> { pub input: &'a [f32], pub output: Out<'a, f32> } }",
        "mod m { pub struct Args<'a> { pub input: &'a [f32], pub output: Out<'a, f32> } struct Launch; }",
        "mod m { pub struct Args<'a, T> { pub input: &'a [T], pub output: Out<'a, T> } trait Compiled {} }",
        "mod m { pub struct Args<'a> { pub input: &'a [f32], pub output: Out<'a, f32> } fn produce(); }",
        "mod m { #[cfg_attr(x, y)] pub struct Args<'a> { pub input: &'a [f32], pub output: Out<'a, f32> } }",
    ];
    let types = [
        "struct P { x: f32 }",
        "#[derive(Clone, Copy, Plain)] struct P { x: f32 }",
        "#[derive(Copy, Plain)] #[repr(C)] struct P { x: f32 }",
        "#[derive(Clone, Copy, Plain)] #[repr(C, align(32))] struct P { x: f32 }",
        "#[derive(Clone, Copy, Plain)] #[repr(C)] struct P<T> { x: T }",
        "#[derive(Clone, Copy, Plain)] #[repr(C)] struct P { #[cfg(x)] x: f32 }",
        "#[derive(Clone, Copy, Plain)] enum P { A }",
        "#[derive(Clone, Copy, Plain)] #[repr(C)] enum P { A }",
        "#[derive(Clone, Copy, Plain)] #[repr(u8)] enum P { A(f32), B { x: f32 } }",
        "#[derive(Clone, Copy, Plain)] #[repr(C)] union P { x: f32 }",
        "#[derive(Copy, Element)] #[repr(C)] struct P { x: f32 }",
        "#[derive(Clone, Copy, Element)] struct P { x: f32 }",
        "#[derive(Clone, Copy, Element)] #[repr(u8)] enum P { A }",
    ];
    let fields = [
        "",
        "pub input: &'a [f32]",
        "pub input: &'a [f32], pub output: Out<'a, u32>",
        "pub input: &'a [bool], pub output: Out<'a, bool>",
        "pub input: &'a mut [f32], pub output: Out<'a, f32>",
        "pub input: &'a [f32], pub output: Out<'a, f32>, pub x: *const f32",
        "pub input: &'a [f32], pub output: Out<'a, f32>, pub x: &'a f32",
        "pub input: &'a [f32], pub output: Out<'a, f32>, pub x: Vec<f32>",
        "pub input: &'a [f32], pub output: Out<'a, f32>, pub x: Option<&'a [f32]>",
        "pub input: &'a [f32], pub output: Out<'a, f32>, pub x: Option<Option<f32>>",
        "pub input: &'a [f32], pub output: Out<'a, f32>, pub x: Option<Out<'a, f32>>",
        "pub input: &'a [f32], pub output: Out<'a, f32>, pub x: Option<char>",
        "pub input: &'a [f32], pub output: Out<'a, f32>, pub x: (f32, f32)",
        "pub input: &'a [f32], pub output: Out<'a, f32>, pub x: Accumulate<'a>",
        "pub input: &'a [f32], pub output: Out<'a, f32>, pub x: Accumulate<'a, u8>",
        "pub input: &'a [f32], pub output: Out<'a, f32>, pub __x: f32",
    ];
    let produce = [
        "()",
        "(ctx: &Produce, args: &Args) {}",
        "(ctx: &Ctx, args: &Args) -> f32 { 0.0 }",
        "(ctx: &Produce, args: Args) -> f32 { 0.0 }",
        "(&self, args: &Args) -> f32 { 0.0 }",
        "(ctx: &Produce, args: &Args) -> impl Element { 0.0 }",
        "(ctx: &Produce, args: &Args) -> usize { 0 }",
        "(ctx: &Produce, args: &Args) -> f32 { if cfg!(any(fast, unix)) { 0.0 } else { 1.0 } }",
        "(ctx: &Produce, args: &Args) -> f32 { #[cfg_attr(target_os = \"linux\", cold)] fn f() {} 0.0 }",
    ];
    let qualifiers = ["async", "const", "unsafe", "extern \"C\""];
    let consume = [
        "(ctx: &Consume, args: &Args) {}",
        "(ctx: &Produce, args: &Args, value: f32) {}",
        "(ctx: &Consume, args: &Args, value: f32) -> f32 { value }",
    ];
    let functions = [
        "fn ring(kernel: &Kernel<f32>) -> Flow { Ok(()) }",
        "fn ring<O: Ops>() -> Flow { Ok(()) }",
        "fn ring<O: Ops>(x: u32) -> Flow { Ok(()) }",
        "fn ring<O: Ops>(kernel: &Kernel<f32>) -> Flow { Ok(()) }",
        "fn ring<O: Ops>(kernel: &Kernel<O>) {}",
        "fn ring<'a, O: Ops>(kernel: &Kernel<O>, x: &'a [f32]) -> Flow { Ok(()) }",
        "fn ring<O: Ops>(kernel: &Kernel<O>, (a, b): (u8, u8)) -> Flow { Ok(()) }",
        "unsafe fn ring<O: Ops>(kernel: &Kernel<O>) -> Flow { Ok(()) }",
    ];
    let within = [
        "fn ring<O: Ops>(kernel: &Kernel<O>) -> Flow { Ok(()) }",
        "fn ring<O: Ops>(kernel: &Kernel<O>, args: &Args, n: u32) -> Flow { Ok(()) }",
        "fn ring<O: Ops>(kernel: &Kernel<O>, n: u32) -> Flow { Ok(()) }",
        "fn ring(kernel: &Kernel<f32>, args: &Args) -> Flow { Ok(()) }",
        "fn ring<O: Ops>(kernel: &Kernel<O>, args: &Args) {}",
        "fn rung() {}",
    ];
    let mut cases: Vec<(String, String)> = Vec::new();
    cases.extend(attributes.map(|a| (a.into(), MODULE.into())));
    cases.extend(items.map(|i| (String::new(), i.into())));
    cases.extend(fields.map(|f| (String::new(), module(f, ""))));
    let with_p = "pub input: &'a [f32], pub output: Out<'a, f32>, pub p: P";
    cases.extend(types.map(|t| (String::new(), module(with_p, t))));
    cases.extend(
        produce
            .map(|p| (String::new(), hooks(&format!("fn produce{p}{}", if p == "()" { "{}" } else { "" })))),
    );
    cases.extend(qualifiers.map(|q| {
        (String::new(), hooks(&format!("{q} fn produce(ctx: &Produce, args: &Args) -> f32 {{ 0.0 }}")))
    }));
    cases.extend(within.map(|f| ("schedules(ring)".into(), hooks(f))));
    for option in ["grain = row(64)", "layout(transposed)", "reduce(sum, f32)"] {
        let ring = "fn ring<O: Ops>(kernel: &Kernel<O>, args: &Args) -> Flow { Ok(()) }";
        cases.push((format!("schedules(ring), {option}"), hooks(ring)));
    }
    cases.extend(consume.map(|c| (String::new(), hooks(&format!("fn consume{c}")))));
    cases.push((
        String::new(),
        hooks(
            "fn produce(c: &Produce, a: &Args) -> u8 { 0 } fn consume(c: &Consume, a: &Args, value: i8) {}",
        ),
    ));
    cases.push((
        "elements(f32, u8)".into(),
        "mod m { pub struct Args<'a, T> { pub input: &'a [T], pub output: Out<'a, T> }
            fn produce<T: Float>(ctx: &Produce, args: &Args<T>) -> T { args.input[0] } }"
            .into(),
    ));
    cases.push((
        "elements(f32)".into(),
        "mod m { pub struct Args<'a, T> { pub input: &'a [T], pub output: Out<'a, T> }
            fn produce<E: Element>(ctx: &Produce, args: &Args<E>) -> E { args.input[0] } }"
            .into(),
    ));
    cases.push((
        "layout(transposed)".into(),
        hooks("fn produce(ctx: &Produce, args: &Args) -> Pack<f32> { args.input.pack(ctx) }"),
    ));
    cases.push((
        "schedules(all_to_all, broadcast)".into(),
        hooks("fn produce(ctx: &Produce, args: &Args) -> f32 { args.input[ctx.peer] }"),
    ));
    cases.push((
        "schedules(gather)".into(),
        hooks("fn produce(ctx: &Produce, args: &Args) -> f32 { gather() } fn gather() -> f32 { 0.0 }"),
    ));
    cases.push(("reduce(sum, f32)".into(), hooks("fn consume(ctx: &Consume, args: &Args, value: f64) {}")));
    cases.push((
        "reduce(sum, f32)".into(),
        hooks("fn consume(ctx: &Consume, args: &Args, value: Pack<f32>) {}"),
    ));
    cases.push((
        "reduce(sum, f32, result = Bf16)".into(),
        hooks("fn consume(ctx: &Consume, args: &Args, value: f32) {}"),
    ));
    cases.push((
        "reduce(sum, f32, result = Row<Bf16>)".into(),
        hooks("fn consume(ctx: &Consume, args: &Args, value: Bf16) {}"),
    ));
    cases.push((
        "grain = row(64), reduce(sum, f32, result = Bf16)".into(),
        hooks("fn consume(ctx: &ConsumeRow, args: &Args, row: Row<Bf16>) {}"),
    ));
    cases.push((
        "grain = row(64), reduce(sum, f32, result = Scaled<F8E4M3, 64>)".into(),
        hooks("fn consume(ctx: &ConsumeRow, args: &Args, row: Row<f32>) {}"),
    ));
    cases.push((
        "reduce(sum, f32), layout(transposed)".into(),
        hooks("fn produce(ctx: &Produce, args: &Args) -> f32 { 0.0 }"),
    ));
    cases.push((
        "schedules(all_reduce), reduce(sum, f32)".into(),
        hooks("fn produce(ctx: &Produce, args: &Args) -> f32 { args.input[ctx.peer] }"),
    ));
    let counting =
        "fn produce(ctx: &Produce, args: &Args) -> f32 { args.calls.add(0, 1); args.input[ctx.index()] }";
    cases.push(("reduce(sum, f32)".into(), module(COUNTED, counting)));
    cases.extend(functions.map(|f| (String::new(), f.into())));
    cases.extend(
        ["elements(f32)", "schedules(sendrecv)", "unroll(8)", "layout(transposed)", "reduce(sum, f32)"]
            .map(|a| (a.into(), FUNCTION.into())),
    );

    let mut out = String::new();
    for (attribute, item) in &cases {
        let all = messages(attribute, item);
        assert!(!all.is_empty(), "nothing is said of #[comm_kernel({attribute})] {item}");
        for message in all {
            // A second time is nothing new.
            if !out.contains(&message) {
                writeln!(out, "- {message}").unwrap();
            }
        }
    }
    insta::assert_snapshot!(out);
}

#[test]
fn what_is_right_is_taken() {
    for (attribute, item) in [
        ("", MODULE),
        ("transports(Nvl,), unroll(8, 4), line_info, archs(sm_80, sm_100), crate = a::b", MODULE),
        ("transports(Shm)", FUNCTION),
        (
            "reduce(max, u32, order = tree)",
            "mod m { pub struct Args<'a> { pub input: &'a [u16], pub output: Out<'a, u32> } }",
        ),
        (
            "schedules(reduce, reduce_scatter), reduce(Farthest)",
            "mod m { pub struct Farthest; pub struct Args<'a> { pub input: &'a [f32], pub output: Out<'a, f32> }
              fn consume(ctx: &Consume, args: &Args, value: f32) { args.output.at(ctx).set(ctx.peer as f32) } }",
        ),
        (
            "reduce(sum, f32, result = Bf16, order = ranks,)",
            "mod m { pub struct Args<'a> { pub input: &'a [Bf16], pub output: Out<'a, Bf16> } \
              fn consume(ctx: &Consume, args: &Args, value: Bf16) { args.output.at(ctx).set(value) } }",
        ),
        (
            "grain = row(64), reduce(sum, f32, order = tree, result = Scaled<F8E4M3, 64>)",
            "mod m { pub struct Args<'a> { pub input: &'a [f32], pub output: Out<'a, f32> } \
              fn consume(ctx: &ConsumeRow, args: &Args, row: Scaled<F8E4M3, 64>) { args.output.row(ctx).set(&row.dequantise()) } }",
        ),
        (
            "schedules(all_to_all, ring), elements(f32, Bf16), values(3)",
            "mod m { pub struct Args<'a, T, const N: usize> { pub input: &'a [T], pub output: Out<'a, T> } \
              fn ring<O: Put, T: Element, const N: usize>(kernel: &Kernel<O>, args: &Args<T, N>) -> Flow { Ok(()) } }",
        ),
        // A word of the module's own.
        (
            "",
            "mod m { pub struct Args<'a> { pub input: &'a [u8], pub output: Out<'a, u8> } fn gather() {} const peer: u8 = 0; \
              fn consume(ctx: &Consume, args: &Args, value: u8) { args.output.at(ctx).set(ctx.peer as u8) } }",
        ),
        (
            "schedules(all_gather)",
            "mod m { pub struct Args<'a> { pub input: &'a [u8], pub output: Out<'a, u8> } \
              fn consume(ctx: &Consume, args: &Args, value: u8) { args.output.at(ctx).set(ctx.peer as u8) } }",
        ),
        (
            "layout(transposed)",
            "mod m { pub struct Args<'a> { pub input: &'a [u8], pub output: Out<'a, u8> }
              fn produce(ctx: &Produce, args: &Args) -> u8 { args.input[ctx.transposed_index()] } }",
        ),
        (
            "",
            "pub(crate) fn r<O>(k: &Kernel<O>, out: Out<u32>, n: [u8; 4]) -> Flow where O: Put + Get { Ok(()) }",
        ),
        (
            "",
            "/// Doc.\n#[allow(x)] mod m { #![allow(y)] use core::cmp; const N: usize = 3; struct Args {} \
              fn produce(_: &Produce, _: &Args) -> u8 { 0 } fn consume(_: &Consume, _: &Args, _: u8) {} }",
        ),
        (
            "",
            "mod m { pub struct Args<'a> { pub input: &'a [u8], pub output: Out<'a, u8> }
              fn produce(_: &Produce, _: &Args) -> u8 { let unix = 0; cfg!(feature = \"unix\") as u8
                  + cfg!(target_arch = \"nvptx64\") as u8 + unix } #[cfg_attr(fast, unix)] fn f() {} }",
        ),
    ] {
        assert!(messages(attribute, item).is_empty(), "#[comm_kernel({attribute})] {item}");
    }
}

/// An editor's user is in the middle of a line: the hook stays, and so do the names around it.
#[test]
fn a_half_typed_hook_keeps_its_module() {
    let item = "mod m {
        pub struct Args<'a> { pub input: &'a [f32], pub output: Out<'a, f32> }
        pub fn produce(ctx: &Produce, args: &Args) -> f32 { args.input[ctx. ] + }
        pub fn helper() {}
    }";
    let whole = expand(tokens("transports(Shm)"), tokens(item), Mode::Editor).to_string();
    for part in ["args . input [ctx .", "fn helper", "fn all_to_all", "struct Launch", "prelude :: *"] {
        assert!(whole.contains(part), "{part}: {whole}");
    }
    let refused = item.replace("-> f32", "");
    let kept = expand(tokens("transports(Shm)"), tokens(&refused), Mode::Editor).to_string();
    for part in [
        "compile_error",
        "args . input [ctx .",
        "fn helper",
        "fn all_to_all",
        "fn sendrecv",
        "struct Launch",
        "prelude :: *",
    ] {
        assert!(kept.contains(part), "{part}: {kept}");
    }
    // The compiler gets the names alone: what it would say of a refused hook follows from what was said.
    let compiled = expand(tokens("transports(Shm)"), tokens(&refused), Mode::Compile).to_string();
    assert!(compiled.contains("fn all_to_all") && !compiled.contains("fn helper"), "{compiled}");
}

/// Where a counter in `produce` counts each element once, or may be asked twice.
#[test]
fn a_counter_is_refused_where_it_may_count_twice() {
    let add = "args.calls.add(0, 1);";
    for (attribute, body, refused) in [
        ("reduce(sum, f32)", add, true),
        ("transports(Shm, Ibgda), schedules(all_reduce), reduce(sum, f32)", add, true),
        ("reduce(sum, f32)", "if true { count(&args.calls) }", true),
        ("reduce(sum, f32)", "args.calls.fetch_max(0, 1); args.calls.load(args.calls.len() - 1);", false),
        ("transports(Shm), reduce(sum, f32)", add, false),
        ("schedules(reduce_scatter, reduce), reduce(sum, f32)", add, false),
        ("schedules(all_gather)", add, false),
        ("reduce(sum, f32)", "let calls = 0;", false),
    ] {
        let hooks = format!("fn produce(ctx: &Produce, args: &Args) -> f32 {{ {body} 0.0 }}");
        assert_eq!(!messages(attribute, &module(COUNTED, &hooks)).is_empty(), refused, "{attribute} {body}");
    }
    let consume = format!("fn consume(ctx: &Consume, args: &Args, value: f32) {{ {add} }}");
    assert!(messages("reduce(sum, f32)", &module(COUNTED, &consume)).is_empty());
}

/// Nothing else is said of what `consume` takes.
#[test]
fn a_refused_fold_is_one_mistake() {
    let item = module(
        "pub input: &'a [Bf16], pub output: Out<'a, f32>",
        "pub fn consume(ctx: &Consume, args: &Args, x: f32) {}",
    );
    for attribute in ["reduce(sums, f32)", "reduce(sum, f32, order = any)"] {
        let found = messages(attribute, &item);
        assert!(matches!(&*found, [one] if one.starts_with("there is no ")), "{attribute}: {found:?}");
    }
}
