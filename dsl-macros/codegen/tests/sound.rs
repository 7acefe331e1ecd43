//! What the macro's device text becomes: PTX without calls, local memory or spills, with 16-byte wire stores and one transport's
//! operations alone, whose memory operations are in order (`fusewire-flow`). Compiled for the architectures that a kernel ships, with
//! `FUSEWIRE_TEST_MATRIX=whole` for three; assembled by ptxas for the GPUs that take it.

mod common;

use common::{body, kernel, on_gpus, ptx};
use fusewire_codegen::{Entry, Model, Protocol};
use fusewire_device::launch::{Params, Shape};
use fusewire_device::mapped::Mapped;
use fusewire_device::protocol::ll128::BUFFER;
use fusewire_flow::Roots;
use fusewire_toolchain::ptxas::Ptxas;
use std::collections::BTreeSet;
use std::mem::offset_of;

const ARCHS: [&str; 3] = ["sm_80", "sm_90", "sm_100"];

/// Where addresses begin, in what an entry is launched with.
fn roots() -> Roots {
    let ops = offset_of!(Params<Mapped, (), [u64; 0]>, ops);
    let shape = offset_of!(Params<Mapped, (), [u64; 0]>, shape);
    Roots {
        own: vec![(ops + Mapped::OWN) as u64],
        tables: vec![(ops + Mapped::BASES) as u64, (shape + offset_of!(Shape, outputs)) as u64],
    }
}

/// The rule for a protocol.
fn rule(of: Protocol) -> fusewire_flow::Protocol {
    match of {
        Protocol::Simple | Protocol::TwoShot | Protocol::Hierarchical => fusewire_flow::Protocol::Simple,
        Protocol::Ll => fusewire_flow::Protocol::Ll,
        Protocol::Ll128 | Protocol::Ll128TwoShot => fusewire_flow::Protocol::Ll128,
        Protocol::Direct => fusewire_flow::Protocol::Direct,
        Protocol::Bulk => fusewire_flow::Protocol::Bulk,
        Protocol::Local => fusewire_flow::Protocol::Local,
        Protocol::Copy => fusewire_flow::Protocol::Copy,
    }
}

/// Checks the order of an entry's memory operations, as it is raised for newer GPUs.
fn ordered(raised: &str, symbol: &str, entry: &Entry, about: &str) {
    let rule = match entry.transport.label {
        "nvl" => rule(entry.protocol),
        "ibgda" => fusewire_flow::Protocol::Posted,
        // Their operations are those of others.
        _ => return,
    };
    let wrong = fusewire_flow::wrong(raised, symbol, rule, &roots(), &[BUFFER - 128]);
    assert!(wrong.is_empty(), "{about} {symbol}:\n{}", wrong.join("\n"));
}

/// For which architectures a kernel's text is compiled: those that it ships.
fn archs(model: &Model) -> Vec<&str> {
    match std::env::var("FUSEWIRE_TEST_MATRIX").is_ok_and(|which| which == "whole") {
        true => ARCHS.to_vec(),
        false => model.options.archs.iter().map(String::as_str).collect(),
    }
}

/// Of text for `arch`, for which GPUs it is assembled: an H100 takes that for sm_80 if there is no other.
fn gpus<'a>(model: &Model, arch: &'a str) -> Vec<&'a str> {
    match arch == "sm_80" && !archs(model).contains(&"sm_90") {
        true => vec!["sm_80", "sm_90"],
        false => vec![arch],
    }
}

/// Everything that must hold of every kernel, for every architecture.
fn sound(name: &str) {
    let model = kernel(name);
    archs(&model).into_iter().for_each(|arch| sound_for(&model, arch));
}

fn sound_for(model: &Model, arch: &str) {
    let name = model.ident();
    let entries = on_gpus(model);
    assert!(!entries.is_empty());
    // As the macro compiles them: one unit for what each instance is of.
    let instances: BTreeSet<String> = entries.iter().map(|e| e.instance.name()).collect();
    for instance in instances {
        let own: Vec<Entry> = entries.iter().filter(|e| e.instance.name() == instance).cloned().collect();
        let text = ptx(model, &own, arch, false);
        let about = format!("{name} {instance} {arch}");
        assert!(!text.contains(".extern .func"), "{about}: calls what is nowhere");
        for entry in &own {
            let symbol = entry.symbol(model.ident());
            let body = body(&text, &symbol);
            let store = match entry.protocol {
                Protocol::Simple | Protocol::TwoShot | Protocol::Hierarchical | Protocol::Direct => {
                    "st.global.v4"
                }
                // To its own output, of elements of any size.
                Protocol::Local => "st.",
                Protocol::Ll => "st.relaxed.sys.global.v2.b64",
                Protocol::Ll128 | Protocol::Ll128TwoShot | Protocol::Copy => "st.relaxed.sys.global.v4",
                Protocol::Bulk => "cp.async.bulk.global.shared::cta",
            };
            if let Some((blocks, warps)) = barriers(model, entry) {
                let count = |what: &str| body.lines().filter(|l| l.trim_start().starts_with(what)).count();
                let of_warps = count("bar.warp.sync");
                assert_eq!(
                    count("bar.") - of_warps,
                    blocks,
                    "{about}: barriers of {symbol}, of which no pass may make two of one"
                );
                assert_eq!(of_warps, warps, "{about}: warp barriers of {symbol}");
            }
            assert!(body.contains(store), "{about}: wire stores of {symbol} are not of 16 bytes");
            // A call through a pointer names its prototype.
            assert!(!body.contains("prototype_"), "{about}: an indirect call in {symbol}");
            // The way out of an expired wait takes the launch's parameters by address: they are stored once, before anything runs.
            let begins = body.find("\n$L__BB").unwrap_or(body.len());
            let local = body.contains("ld.local") || body[begins..].contains("st.local");
            // Folds of rows have the upper part of a tree of many ranks there.
            let far = model.options.row.is_some() && model.options.reduce.is_some();
            assert!(!local || far, "{about}: local memory in the loops of {symbol}");
            // Kernels by tiles have their tiles, and no others do.
            let tiles = model.options.transposed.is_some();
            assert_eq!(body.contains("fusewire_tiles"), tiles, "{about}: {symbol}");
            // Those by rows have a word for each warp, or scales on their way into packs.
            let rows = model.options.row.is_some();
            // What does not travel has no packs.
            let has = body.contains("fusewire_rows");
            assert!(has == rows || entry.protocol == Protocol::Local && !has, "{about}: {symbol}");
            if let Some(meets) = body.find("ld.acquire.cta.shared") {
                let armed = body.find("meetings of rows are counted from here");
                let behind = armed.filter(|at| *at < meets).map(|at| &body[at..meets]);
                // The block has met in between.
                let meets = |line: &str| {
                    line.starts_with("barrier") || line.starts_with("bar.") && !line.starts_with("bar.warp")
                };
                let counted = behind.is_some_and(|code| code.lines().any(|line| meets(line.trim())));
                assert!(counted, "{about}: {symbol} counts from what was there");
            }
            // Only blocks that take rows in order know what comes soon.
            assert!(
                !body.contains("prefetch") || rows && entry.protocol == Protocol::Local,
                "{about}: {symbol}"
            );
            let stores = body.contains("st.shared.b");
            assert!(
                stores == (tiles || rows) || entry.protocol == Protocol::Local && !stores,
                "{about}: {symbol}"
            );
            let bulk = entry.protocol == Protocol::Bulk;
            assert_eq!(body.contains("fusewire_bulk"), bulk, "{about}: {symbol}");
            for label in ["shm", "ibgda", "host_ib", "mesh"] {
                assert!(!body.contains(label), "{about}: `{label}` in a kernel of another transport");
            }
        }
        // As a launcher gives it to a newer GPU's driver: with the instructions that stand there as comments for older ones.
        let newer = fusewire_driver::ptx::raised(&text, 9);
        assert!(newer.contains("griddepcontrol.wait") && !newer.contains("// sm_90:"), "{about}");
        // And for two ranks.
        let of_two = fusewire_driver::ptx::of_two(&newer);
        for entry in &own {
            let symbol = entry.symbol(model.ident());
            let differs = body(&newer, &symbol).contains("// two: ");
            let folds_by_lines = model.options.reduce.is_some() && entry.protocol == Protocol::Ll128;
            assert_eq!(differs, folds_by_lines, "{about}: {symbol} for two ranks");
            for text in if differs { vec![&*newer, &of_two] } else { vec![&*newer] } {
                ordered(text, &symbol, entry, &about);
            }
            // What is sent is overwritten, and not in two steps. (Two ranks do so in turn, each thread by itself.)
            let sends_from_there = model.is_in_place() && entry.schedule.is_some_and(|s| !s.apart);
            if sends_from_there && matches!(entry.protocol, Protocol::Ll | Protocol::Ll128) {
                let wrong = fusewire_flow::wrong_in_place(&newer, &symbol, &roots());
                assert!(wrong.is_empty(), "{about} {symbol}:\n{}", wrong.join("\n"));
            }
        }
        for gpu in gpus(model, arch) {
            let given = if gpu == "sm_80" { &text } else { &*newer };
            assembled(model, given, (arch, gpu), own.len());
        }
    }
}

/// That `ptxas` finds registers for the `number` kernels of `text`, which was compiled for `arch`, on a GPU of another.
fn assembled(model: &Model, text: &str, (arch, gpu): (&str, &str), number: usize) {
    let about = format!("{} {arch} on {gpu}", model.ident());
    let ptxas = Ptxas::find_or_install().unwrap_or_else(|error| panic!("{error}"));
    let report = ptxas.check(text, gpu.parse().unwrap()).unwrap_or_else(|error| panic!("{about}: {error}"));
    assert_eq!(report.kernels.len(), number, "{about}");
    // Nothing is moved byte by byte through local memory: LLVM does so with an array that is moved, not borrowed.
    assert!(!text.contains("ld.local.b8"), "{about}");
    for k in &report.kernels {
        // A few words, once: these are at the limit of registers there.
        let most = if arch == "sm_100" && k.name.contains("__all_to_all__") { 12 } else { 0 };
        // Without instructions for 8-bit floats their conversions are computed, without a branch: a third fewer instructions, for five words once.
        let soft = arch == "sm_80" && model.options.row.is_some() && k.name.contains("__sendrecv__");
        let most = if soft { 20 } else { most };
        // A rank alone has half the registers: more blocks on a multiprocessor are faster than to spare long hooks two words.
        let most = if k.name.contains("_local__") { 8 } else { most };
        // Folds of rows among four: more blocks on a multiprocessor are faster than no spills.
        let most = match model.options.row.is_some() && model.options.reduce.is_some() {
            // All of a row is loaded before any of it is folded. In two steps the places of other ranks' rings are there as well.
            true if k.name.contains("_two_shot__") => 1120,
            true => 720,
            false => most,
        };
        assert!(k.spill_stores <= most && k.spill_loads <= most, "{about}: {k:?}");
        // Half as many threads have twice as many each.
        let options = &model.options;
        let few = options.transposed.is_some() || options.row.is_some() || options.reduce.is_some();
        let most = if few { 255 } else { 128 };
        assert!(k.registers <= most, "{about}: {k:?}");
    }
}

/// Barriers in the source of a shipped schedule: the block's, and the warp's. One that a compiler pass copied into both sides of a branch
/// hangs the block.
fn barriers(model: &Model, entry: &Entry) -> Option<(usize, usize)> {
    // As many as the hooks have sums and maxima.
    if model.options.row.is_some() || model.options.reduce.is_some() {
        return None;
    }
    let all_to_all = entry.schedule.filter(|s| !s.is_within())?.name == "all_to_all";
    let blocks = match (entry.protocol, all_to_all) {
        (Protocol::Simple, true) => 6,
        (Protocol::Simple, false) => 4,
        (Protocol::TwoShot | Protocol::Hierarchical | Protocol::Ll128TwoShot, _) => unreachable!("folds"),
        (Protocol::Local, _) => 1,
        (Protocol::Ll, true) => 6,
        (Protocol::Ll, false) => 5,
        (Protocol::Ll128, true) => 3,
        (Protocol::Ll128, false) => 2,
        (Protocol::Direct, true) => 5,
        (Protocol::Direct, false) | (Protocol::Copy, _) => 3,
        (Protocol::Bulk, true) => 4, // and lines'
        (Protocol::Bulk, false) => 2,
    };
    // Two at each place that works by tiles: what goes to peers, and the self copy.
    let places = 1 + usize::from(all_to_all);
    let transposed = model.options.transposed.is_some();
    let places = if entry.protocol == Protocol::Local { 1 } else { places };
    let tiles = if transposed && entry.protocol != Protocol::Copy { 2 * places } else { 0 };
    // Two where rows are waited for: one by one, in bundles if the hooks work by pack, and either for tiles.
    let each = 1 + usize::from(entry.unroll >= 4);
    let waits = match entry.protocol {
        Protocol::Ll128 if transposed => 2 * (1 + each),
        Protocol::Ll128 => 2 * each,
        // And one where it has looked for an abort.
        Protocol::Bulk if all_to_all => 2 * each + 1,
        _ => 0,
    };
    // A warp sends in lines as a whole or not at all: one where it has looked for credit.
    let credit = usize::from(entry.protocol == Protocol::Ll128 && !all_to_all);
    Some((blocks, tiles + waits + credit))
}

macro_rules! sound {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            sound(stringify!($name));
        }
    )*};
}
sound! {
    copy transpose tiles tiles_add scale_add params quantise ring rounds exchange activations quantised normed_in_place moved_in_place longest
    normed gradient
}

#[test]
fn every_element_type() {
    let model = kernel("every");
    assert_eq!(on_gpus(&model).iter().filter(|e| e.protocol == Protocol::Simple).count(), 14);
    // Others differ in nothing that depends on the element.
    sound_for(&model, "sm_90");
}

/// The operations of an adapter keep what they hand over in local memory.
#[test]
fn every_transport_in_order() {
    let model = kernel("everywhere");
    let entries = on_gpus(&model);
    for arch in &ARCHS[..2] {
        let text = ptx(&model, &entries, arch, false);
        let raised = fusewire_driver::ptx::raised(&text, 9);
        entries.iter().for_each(|e| ordered(&raised, &e.symbol(model.ident()), e, arch));
    }
}
