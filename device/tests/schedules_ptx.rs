//! The code of the shipped schedules: everything inlined, in registers, wide on the wire.

#[path = "common/device.rs"]
mod device;
#[path = "common/hooks.rs"]
mod hooks;

use device::{ARCHS, assemble, body, compile, instructions};
use hooks::{Hooks, RAW};

/// A hook module with entries for both schedules.
fn module(
    name: &'static str,
    types: [&'static str; 3],
    unroll: u32,
    produce: &'static str,
    consume: &'static str,
) -> String {
    let hooks = Hooks { name, types, unroll, transposed: false, produce, consume, fold: None };
    let all_to_all = hooks.entry(&format!("{name}_all_to_all"), "AllToAll", "Simple");
    hooks.module() + &all_to_all + &hooks.entry(&format!("{name}_sendrecv"), "SendRecv", "Simple")
}

const TRANSPOSE: &str = "produce_each(ctx, |ctx| {
    let (r, c) = ctx.row_col();
    args.input[ctx.chunk_start + c * ctx.rows + r]
})";
const COPY: [&str; 2] = ["args.input.pack(ctx)", "args.output.at(ctx).set_pack(value)"];
const SCALE: &str = "args.input.pack(ctx).map_f32(|v| v * args.scale)";
const EACH: [&str; 2] = [
    "produce_each(ctx, |ctx| args.input[ctx.index()])",
    "consume_each(ctx, value, |ctx, v| args.output.at(ctx).set(v))",
];
const ACCUMULATE: &str =
    "let scale = args.scale; args.output.at(ctx).update_pack(|old| old.zip(value, |a, b| a + b * scale))";
const NARROW: &str = "produce_each(ctx, |ctx| F8E4M3::from_f32(args.input[ctx.index()] * args.scale))";
const WIDEN: &str = "consume_each(ctx, value, |ctx, v| args.output.at(ctx).update(|old| old + v.to_f32()))";

/// A schedule of a user's own: one tile round the ring with a signal.
const CUSTOM: &str = r#"
#[unsafe(no_mangle)] pub unsafe extern "ptx-kernel" fn custom_ring(p: Params<Peers, Custom, Raw<f32, f32>>) {
    let _ = unsafe { custom(Grid::here(), p.ops, p.control, p.shape, |kernel| {
        let lent = Lent::while_borrowed(&p);
        let (input, output) = (p.raw.a.slice(lent), Out::from_raw(p.raw.b, lent));
        let tile = kernel.share(input.len());
        kernel.send_tile(kernel.next(1), tile, |ctx| input[ctx.index()])?;
        kernel.recv_tile(kernel.previous(1), tile, |ctx, v: f32| output.at(ctx).add(v))?;
        kernel.signal(kernel.next(1), 0)?;
        kernel.wait(kernel.previous(1), 0)
    }) };
}

#[unsafe(no_mangle)] pub unsafe extern "ptx-kernel" fn custom_packs(p: Params<Peers, Custom, Raw<f32, f32>>) {
    let _ = unsafe { custom(Grid::here(), p.ops, p.control, p.shape, |kernel| {
        let lent = Lent::while_borrowed(&p);
        let (input, output) = (p.raw.a.slice(lent), Out::from_raw(p.raw.b, lent));
        let tile = kernel.share(input.len());
        let take = |ctx: &Consume, v: Pack<f32>| output.at(ctx).set_pack(v);
        kernel.keep_tile(tile, tile.start, |ctx| input.pack(ctx), take);
        kernel.send_tile(kernel.next(1), tile, |ctx| input.pack(ctx))?;
        kernel.forward_tile(kernel.previous(1), kernel.next(1), tile, |ctx, v: Pack<f32>| { take(ctx, v); v })?;
        kernel.recv_tile(kernel.previous(1), tile, take)
    }) };
}
"#;

fn modules() -> Vec<(&'static str, String)> {
    let copy = |name, t, unroll| (name, module(name, [t; 3], unroll, COPY[0], COPY[1]));
    vec![
        copy("copy1", "f32", 1),
        copy("copy4", "f32", 4),
        copy("copy8", "f32", 8),
        copy("bytes8", "u8", 8),
        ("scale", module("scale", ["Bf16"; 3], 4, SCALE, COPY[1])),
        ("transpose", module("transpose", ["f32"; 3], 2, TRANSPOSE, EACH[1])),
        ("accumulate", module("accumulate", ["f32"; 3], 4, COPY[0], ACCUMULATE)),
        ("fp8", module("fp8", ["f32", "F8E4M3", "f32"], 1, NARROW, WIDEN)),
        ("u8", module("u8", ["u8"; 3], 1, EACH[0], EACH[1])),
        (
            "bf16",
            module(
                "bf16",
                ["Bf16"; 3],
                4,
                COPY[0],
                "args.output.at(ctx).update_pack(|old| old.zip(value, |a, b| a + b))",
            ),
        ),
    ]
}

fn source(modules: &[(&str, String)]) -> String {
    modules.iter().fold(RAW.to_owned() + CUSTOM, |all, (_, text)| all + text)
}

#[test]
fn everything_stays_in_registers() {
    let modules = modules();
    let source = source(&modules);
    for arch in ARCHS {
        let ptx = compile("schedules", &source, arch);
        assert!(!ptx.contains(".extern .func"), "{arch}: a function that is nowhere");
        let report = assemble(&ptx, arch);
        assert_eq!(report.kernels.len(), 2 * modules.len() + 2, "{arch}");
        for k in &report.kernels {
            let (name, body) = (&k.name, body(&ptx, &k.name));
            let code: Vec<&str> = instructions(&body).collect();
            println!("{arch} {name}: {} instructions, {} registers", code.len(), k.registers);
            for line in &code {
                assert!(!line.contains(".local"), "{arch} {name}: {line}");
                assert!(!line.contains("prototype_"), "{arch} {name}: indirect call {line}");
            }
            assert!(k.registers <= 128, "{arch} {name}: {k:?}");
            // Eight packs of bytes are too much for sm_80: the macro gives them four.
            let limit = match name.as_str() {
                name if arch == ARCHS[0] && name.starts_with("bytes8") => 160,
                // A word, of four tiles.
                "custom_packs" if arch == ARCHS[0] => 8,
                // Two words: hooks that gather by element are at the limit of registers there.
                "transpose_all_to_all" if arch == ARCHS[2] => 16,
                _ => 0,
            };
            assert!(k.spill_stores + k.spill_loads <= limit, "{arch} {name}: {k:?}");
        }
    }
}

/// Where the loop is that stores `stores` packs before it turns, and how many instructions it has.
fn hot_loop(body: &[String], stores: usize) -> usize {
    let label = |line: &String| line.strip_suffix(':').map(str::to_owned);
    let mut best = usize::MAX;
    for (start, name) in body.iter().enumerate().filter_map(|(at, line)| Some((at, label(line)?))) {
        let turn =
            |line: &String| ["bra", "bra.uni"].iter().any(|bra| line.ends_with(&format!("{bra} {name};")));
        for end in (start..body.len()).filter(|&end| turn(&body[end])) {
            let part = &body[start..=end];
            if part.iter().filter(|line| line.contains("st.global.v4")).count() == stores {
                best = best.min(instructions(part).count());
            }
        }
    }
    best
}

#[test]
fn the_wire_is_wide_and_the_loop_is_short() {
    let modules = modules();
    let source = source(&modules);
    let ptx = compile("schedules", &source, ARCHS[1]);
    // Packs in flight and instructions a loop may have: input and wire are loaded and stored 16 bytes at a time. One pack at a time may
    // be one that is not whole, whose elements' stores count too.
    // Several have two ways in their loop: for a whole bundle, and pack by pack for what is left.
    for (name, packs, limit) in [("copy1", 1, 42), ("copy4", 8, 300), ("copy8", 16, 420), ("bytes8", 16, 480)]
    {
        let body = body(&ptx, &format!("{name}_sendrecv"));
        let found = hot_loop(&body, packs);
        println!("{name}: {found} instructions for {packs} packs");
        assert!(found <= limit, "{name}: {found} instructions for {packs} packs");
    }
    let narrow = |name: &str| {
        let body = body(&ptx, name);
        let is = |line: &&String, what: &str| line.contains(what) && line.contains("global");
        (
            body.iter().filter(|line| is(line, "st.") && !line.contains("v4.b32")).count(),
            body.iter().filter(|line| is(line, "ld.") && !line.contains("v4.b32")).count(),
        )
    };
    // `.global` appears on wire and pack accesses alone; what a hook loads by element goes through its slice's generic pointer.
    for (name, _) in &modules {
        for schedule in ["sendrecv", "all_to_all"] {
            assert_eq!(narrow(&format!("{name}_{schedule}")), (0, 0), "{name}_{schedule}");
        }
    }
    let wire = body(&ptx, "u8_sendrecv");
    assert_eq!(
        wire.iter().filter(|line| line.contains("st.global.v4.b32")).count(),
        2,
        "a pack and the header"
    );
    assert_eq!(wire.iter().filter(|l| l.contains("ld.global.L1::no_allocate.v4.b32")).count(), 2);
}

/// Tiles by pack go 16 bytes at a time from end to end, four packs together. What is not whole goes by element, through generic pointers.
#[test]
fn tiles_by_pack_are_wide() {
    let ptx = compile("schedules", &source(&modules()), ARCHS[1]);
    let body = body(&ptx, "custom_packs");
    let of =
        |what: &'static str| body.iter().filter(move |line| line.contains(what) && line.contains("global"));
    let narrow: Vec<_> = of("st.").chain(of("ld.")).filter(|line| !line.contains("v4.b32")).collect();
    assert!(narrow.is_empty(), "{narrow:?}");
    // Of a bundle, and one by one: what is kept, sent and received, four together, and what is passed on, two, each stored twice.
    assert!(of("ld.").count() >= 3 * 4 + 2 + 4, "{}", of("ld.").count());
    assert!(of("st.").count() >= 3 * 4 + 2 * 2 + 5, "{}", of("st.").count());
}

/// What a tile's closure keeps in registers must have been loaded when the ring's bytes are given back; hooks need no fence for that.
#[test]
fn tiles_give_staging_back_behind_a_fence() {
    let modules = modules();
    let ptx = compile("schedules", &source(&modules), ARCHS[1]);
    let returns = |name: &str| -> Vec<bool> {
        let body = body(&ptx, name);
        let code: Vec<&str> = instructions(&body).collect();
        let gives = code.iter().enumerate().filter(|(_, line)| line.starts_with("st.relaxed.sys.b64"));
        gives
            .map(|(at, _)| code[..at].iter().rev().take(8).any(|line| line.starts_with("fence.acq_rel.sys")))
            .collect()
    };
    let tiles = returns("custom_ring");
    assert!(!tiles.is_empty() && tiles.iter().all(|fenced| *fenced), "{tiles:?}");
    let hooks = returns("copy4_sendrecv");
    assert!(!hooks.is_empty() && hooks.iter().all(|fenced| !*fenced), "{hooks:?}");
}

/// Hooks that compute load all packs of a bundle before they work on the first: nothing branches between the loads.
#[test]
fn packs_of_a_bundle_load_together() {
    let modules = modules();
    let ptx = compile("schedules", &source(&modules), ARCHS[0]);
    for (name, packs) in [("copy4", 4), ("copy8", 8), ("scale", 4), ("accumulate", 4)] {
        let (mut run, mut best) = (0, 0);
        for line in body(&ptx, &format!("{name}_sendrecv")) {
            let branches = line.starts_with('@') || line.starts_with("bra") || line.ends_with(':');
            run = if branches { 0 } else { run + usize::from(line.contains("ld.global.L1::no_allocate")) };
            best = best.max(run);
        }
        assert!(best >= packs, "{name}: {best} packs of {packs} are loaded at once");
    }
    let scale = body(&ptx, "scale_sendrecv");
    assert!(scale.iter().any(|line| line.starts_with("cvt.rn.bf16x2.f32")), "one by one");
    assert!(!scale.iter().any(|line| line.starts_with("cvt.rn.bf16.f32")), "one by one");
}

/// What hooks that update load and store of a bundle is a constant from one place: or the assembler, which cannot tell that a store does not
/// change what the next pack loads, would have one pack's load wait for the store of the one before.
#[test]
fn places_of_a_bundle_are_constants_apart() {
    let modules = modules();
    let ptx = compile("schedules", &source(&modules), ARCHS[0]);
    for (name, packs) in [("accumulate", 4), ("bf16", 4)] {
        for schedule in ["sendrecv", "all_to_all"] {
            let body = body(&ptx, &format!("{name}_{schedule}"));
            let base = |address: &str| {
                let sum = body.iter().find_map(|line| line.strip_prefix(&format!("add.s64 {address}, ")));
                let parts = sum.and_then(|sum| sum.strip_suffix(';')?.split_once(", "));
                match parts {
                    Some((base, number)) if number.parse::<i64>().is_ok() => base.to_owned(),
                    _ => address.to_owned(),
                }
            };
            let straight =
                body.split(|line| line.starts_with('@') || line.starts_with("bra") || line.ends_with(':'));
            let mut bundles = 0;
            for part in straight {
                let stores = part.iter().filter(|line| line.contains(" st.global.v4.b32 [g]"));
                let places: Vec<&str> = stores
                    .filter_map(|line| Some(line.split_once("u64 g, ")?.1.split_once(';')?.0))
                    .collect();
                // Bundles that store to staging wrap around it.
                if places.len() == packs && part.iter().any(|line| line.contains(" ld.global.v4.b32 ")) {
                    let bases: std::collections::HashSet<String> = places.iter().map(|at| base(at)).collect();
                    assert_eq!(bases.len(), 1, "{name}_{schedule}: {bases:?}");
                    bundles += 1;
                }
            }
            assert!(bundles > 0, "{name}_{schedule}");
        }
    }
}

#[test]
fn narrow_floats_convert_in_hardware() {
    let source = "
#[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn narrow(at: *mut f32, h: *mut F16, b: *mut Bf16, p: *mut F8E4M3, q: *mut F8E5M2) {
    unsafe {
        *h = F16::from_f32(*at);
        *b = Bf16::from_f32(*at.add(1));
        *p = F8E4M3::from_f32(*at.add(2));
        *q = F8E5M2::from_f32(*at.add(3));
        *at.add(4) = (*h.add(1)).to_f32();
        *at.add(5) = (*p.add(1)).to_f32();
        *at.add(6) = (*q.add(1)).to_f32();
        *at.add(7) = (*b.add(1)).to_f32();
        *h.add(8) = *h.add(6) + *h.add(7);
    }
}";
    for arch in ARCHS {
        let ptx = compile("narrow", source, arch);
        assemble(&ptx, arch);
        let body = body(&ptx, "narrow");
        let count = |what: &str| body.iter().filter(|line| line.starts_with(what)).count();
        let fp8 = usize::from(arch.number() >= 89);
        assert_eq!(count("cvt.rn.f16.f32 "), 2, "{arch}");
        assert_eq!(count("cvt.rn.bf16.f32 "), 1, "{arch}");
        assert_eq!(count("cvt.rn.satfinite.e4m3x2.f32 "), fp8, "{arch}");
        assert_eq!(count("cvt.rn.satfinite.e5m2x2.f32 "), fp8, "{arch}");
        assert_eq!(count("cvt.rn.f16x2.e4m3x2 "), fp8, "{arch}");
        assert_eq!(count("cvt.f32.f16 "), 4 + fp8, "{arch}");
        // `.rn` keeps ptxas from fusing it with a product. Where casts to 8-bit floats are computed, each of the two rounds by an addition.
        assert_eq!(count("add.rn.f32 "), if fp8 == 1 { 1 } else { 3 }, "{arch}");
    }
}

/// Two packs that a rank alone stores for one of the wire are exchanged between neighbours, so that no store writes half a sector. The warp meets before, since
/// a neighbour may still load what it had there, and behind.
#[test]
fn stores_of_a_rank_alone_write_whole_sectors() {
    let [produce, consume] = [
        "let [low, high] = args.input.packs(ctx).map(|pack: Pack<Bf16>| pack.to_f32s()); \
         Pack::from_f32s(|k| if k < 8 { low[k] } else { high[k - 8] })",
        "let values = value.to_f32s(); args.output.at(ctx).set_packs([0, 8].map(|first| Pack::from_f32s(|k| values[first + k])))",
    ];
    let types = ["Bf16", "F8E4M3", "Bf16"];
    let hooks = Hooks { name: "halved", types, unroll: 1, transposed: false, produce, consume, fold: None };
    let entries = ["Local", "Simple"].map(|protocol| hooks.entry(protocol, "AllToAll", protocol));
    let ptx = compile("sectors", &(RAW.to_owned() + &hooks.module() + &entries.concat()), ARCHS[1]);
    // Addresses, and four words.
    for (name, exchanged, meetings) in [("Local", 6, 2), ("Simple", 0, 0)] {
        let body = body(&ptx, name);
        let count = |what| body.iter().map(|line| line.matches(what).count()).sum::<usize>();
        assert_eq!(count("shfl.sync.bfly.b32"), exchanged, "{name}");
        assert_eq!(count("bar.warp.sync m;"), meetings, "{name}");
    }
}
