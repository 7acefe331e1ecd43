//! The PTX of every memory operation: one instruction with scope, order and width in its text.

#[path = "common/device.rs"]
mod device;

use device::{ARCHS, archs, assemble, body, compile, instructions};

/// The instruction between the marks of inline assembly in a kernel that does one operation.
fn one(ptx: &str, name: &str) -> Vec<String> {
    let start = ptx.find(&format!(".entry {name}(")).unwrap_or_else(|| panic!("no entry {name}"));
    let entry = &ptx[start..start + ptx[start..].find("\n}").expect("an end")];
    let inline = entry.split("// begin inline asm").skip(1);
    let inline = inline.map(|part| part.split("// end inline asm").next().unwrap_or("").trim().to_owned());
    // Barriers and votes are LLVM's, not ours (see `arch`), and stand outside inline assembly.
    let ours = entry.lines().map(str::trim).filter(|l| l.starts_with("bar.") || l.starts_with("vote."));
    inline.chain(ours.map(|l| l.replace('\t', ""))).collect()
}

/// Registers replaced by `_`: their numbers are the compiler's business.
fn masked(line: &str) -> String {
    let mut out = String::new();
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '%' && chars.peek().is_some_and(|c| *c == 'r' || *c == 'f' || *c == 'p') {
            while chars.peek().is_some_and(|c| c.is_ascii_alphanumeric()) {
                chars.next();
            }
            out.push('_');
        } else {
            out.push(c);
        }
    }
    out
}

const SCOPES: [(&str, &str); 3] = [("System", "sys"), ("Device", "gpu"), ("Block", "cta")];

#[test]
fn every_atomic_is_one_instruction() {
    let mut source = String::new();
    let mut want = Vec::new();
    let mut add = |name: String, code: String, text: String| {
        source.push_str(&format!(
            "#[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn {name}(at32: *mut u32, at64: *mut u64, v32: u32, v64: u64, out32: *mut u32, out64: *mut u64) {{ unsafe {{ {code} }} }}\n"
        ));
        want.push((name, text));
    };
    for (scope, s) in SCOPES {
        for w in [32, 64] {
            for (order, o) in [("Relaxed", "relaxed"), ("Acquire", "acquire")] {
                add(
                    format!("load_{s}_{o}_{w}"),
                    format!("*out{w} = load::<atomic::{scope}, {order}, u{w}>(at{w});"),
                    format!("ld.{o}.{s}.b{w} _, [_];"),
                );
            }
            for (order, o) in [("Relaxed", "relaxed"), ("Release", "release")] {
                add(
                    format!("store_{s}_{o}_{w}"),
                    format!("store::<atomic::{scope}, {order}, u{w}>(at{w}, v{w});"),
                    format!("st.{o}.{s}.b{w} [_], _;"),
                );
            }
            let orders = [
                ("Relaxed", "relaxed"),
                ("Acquire", "acquire"),
                ("Release", "release"),
                ("AcqRel", "acq_rel"),
            ];
            for (order, o) in orders {
                for (op, arguments, text) in [
                    ("fetch_add", "v", "add.u"),
                    ("exchange", "v", "exch.b"),
                    ("compare_exchange", "0, v", "cas.b"),
                    ("fetch_max", "v", "max.u"),
                ] {
                    let operands = if op == "compare_exchange" { "_, [_], _, _" } else { "_, [_], _" };
                    add(
                        format!("{op}_{s}_{o}_{w}"),
                        format!(
                            "*out{w} = <u{w} as Modify<atomic::{scope}, {order}>>::{op}(at{w}, {arguments}{w});"
                        ),
                        format!("atom.{o}.{s}.{text}{w} {operands};"),
                    );
                }
            }
        }
    }
    assert_eq!(want.len(), 3 * 2 * (2 + 2 + 16));
    for arch in ARCHS {
        let ptx = compile("atomics", &source, arch);
        assemble(&ptx, arch);
        for (name, text) in &want {
            let found: Vec<_> = one(&ptx, name).iter().map(|line| masked(line)).collect();
            assert_eq!(&found, &[text.as_str()], "{arch} {name}");
            // Nothing beside it but the store of the result.
            let body = body(&ptx, name);
            let others = instructions(&body).filter(|line| {
                ["atom", "red", "ld.global", "ld.b", "fence", "membar"].iter().any(|op| line.starts_with(op))
            });
            assert!(others.count() <= 1, "{arch} {name}: {body:#?}");
        }
    }
}

const REST: &str = r#"
#[unsafe(no_mangle)] pub unsafe extern "ptx-kernel" fn load_16(from: *const u8, to: *mut u8) {
    unsafe { arch::store_16(to, arch::load_16(from)) };
}
#[unsafe(no_mangle)] pub unsafe extern "ptx-kernel" fn load_16_once(from: *const u8, to: *mut u8) {
    unsafe { arch::store_16(to, arch::load_16_once(from)) };
}
#[unsafe(no_mangle)] pub unsafe extern "ptx-kernel" fn sync_any(v: u32, to: *mut u32) {
    if group::Block.any(v > 7) { unsafe { *to = 1 } }
}
#[unsafe(no_mangle)] pub unsafe extern "ptx-kernel" fn sync() { group::Block.sync() }
#[unsafe(no_mangle)] pub unsafe extern "ptx-kernel" fn warp_sync() { group::Warp.sync() }
#[unsafe(no_mangle)] pub unsafe extern "ptx-kernel" fn warp_any(v: u32, to: *mut u32) {
    if group::Warp.any(v > 7) { unsafe { *to = 1 } }
}
#[unsafe(no_mangle)] pub unsafe extern "ptx-kernel" fn fence() { arch::fence_system() }
#[unsafe(no_mangle)] pub unsafe extern "ptx-kernel" fn clock(to: *mut u64) { unsafe { *to = arch::now_ns() } }
#[unsafe(no_mangle)] pub unsafe extern "ptx-kernel" fn add_f32(to: *mut f32, v: f32) { unsafe { arch::add_f32(to, v) } }
#[unsafe(no_mangle)] pub unsafe extern "ptx-kernel" fn add_f64(to: *mut f64, v: f64) { unsafe { arch::add_f64(to, v) } }
"#;

#[test]
fn wide_accesses_barriers_and_clocks() {
    let names = [
        "load_16",
        "load_16_once",
        "sync_any",
        "sync",
        "warp_sync",
        "warp_any",
        "fence",
        "clock",
        "add_f32",
        "add_f64",
    ];
    let mut first = None;
    for arch in ARCHS {
        let ptx = compile("rest", REST, arch);
        assemble(&ptx, arch);
        let mut text = String::new();
        for name in names {
            text.push_str(&format!("{name}\n"));
            for line in one(&ptx, name) {
                text.push_str(&format!("    {}\n", masked(&line)));
            }
        }
        assert_eq!(first.get_or_insert_with(|| text.clone()), &text, "{arch} differs");
    }
    insta::assert_snapshot!(first.unwrap());
}

/// A kernel that folds a row of `ranks` ranks, or with 0 of as many as it is told.
fn row_of(ranks: u32) -> String {
    format!(
        "#[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn row_of_{ranks}(from: *const u8, to: *mut u8, me: u32, ranks: u32) {{
            use row::{{Row, RowWire}};
            const S: usize = row::slots(4096);
            let at = |rank: u32, pack: u32| {{
                Pack::<Bf16>::from_words(unsafe {{ arch::load_16_once(from.add(16 * (512 * rank + pack) as usize)) }})
            }};
            let own: Row<Bf16, 4096, S> = RowWire::take(&|pack| at(9, pack));
            let all = row::fold::<fold::Sum<f32>, Row<Bf16, 4096, S>, 4096, S, {ranks}>(ranks, Some((me, own)), &at);
            all.to::<Bf16>().hand(&|pack, value| unsafe {{ arch::store_16(to.add(16 * pack as usize), value.words()) }});
        }}\n"
    )
}

/// What is in local memory is waited for: each slot of a row would be loaded when the one before it has been folded.
#[test]
fn rows_of_a_known_number_of_ranks_are_folded_in_registers() {
    let source: String = [0, 1, 2, 4].map(row_of).concat();
    for arch in archs() {
        let ptx = compile("rows", &source, *arch);
        let local = |ranks| {
            let body = body(&ptx, &format!("row_of_{ranks}"));
            body.iter().any(|line| line.contains(".local"))
        };
        assert!(
            local(0),
            "{arch}: the tree of however many ranks is not in local memory, so this shows nothing"
        );
        assert_eq!([1, 2, 4].map(local), [false; 3], "{arch}");
    }
}
