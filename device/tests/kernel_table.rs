//! Numbers of every shipped entry's code: registers, spills, instructions, and those before the first wait. Compared with `kernels.tsv`: a change
//! of device code that costs a kernel anything is seen here, before a GPU is at hand.
//!
//! `FUSEWIRE_TEST_MATRIX=whole` compares those for sm_80 and sm_100 as well, and with `FUSEWIRE_BLESS=1` beside it
//! `cargo test -p fusewire-device --test kernel_table` writes the table anew.

#[path = "common/device.rs"]
mod device;
#[path = "common/hooks.rs"]
mod hooks;

use device::{ARCHS, archs, assemble, body, compile, each, instructions};
use fusewire_toolchain::ptxas::KernelReport;
use hooks::{Hooks, RAW};
use std::collections::BTreeMap;

const PACK: &str = "args.input.pack(ctx)";
const SET: &str = "args.output.at(ctx).set_pack(value)";
const fn hooks(
    name: &'static str,
    types: [&'static str; 3],
    unroll: u32,
    produce: &'static str,
    consume: &'static str,
) -> Hooks {
    Hooks { name, types, unroll, transposed: false, produce, consume, fold: None }
}

const MODULES: &[Hooks] = &[
    hooks("copy", ["f32"; 3], 8, PACK, SET),
    hooks("scale", ["Bf16"; 3], 4, "args.input.pack(ctx).map_f32(|v| v * args.scale)", SET),
    hooks(
        "accumulate",
        ["f32"; 3],
        4,
        PACK,
        "let scale = args.scale; args.output.at(ctx).update_pack(|old| old.zip(value, |a, b| a + b * scale))",
    ),
    hooks(
        "fp8",
        ["f32", "F8E4M3", "f32"],
        1,
        "produce_each(ctx, |ctx| F8E4M3::from_f32(args.input[ctx.index()] * args.scale))",
        "consume_each(ctx, value, |ctx, v| args.output.at(ctx).update(|old| old + v.to_f32()))",
    ),
    Hooks {
        transposed: true,
        ..hooks(
            "transposed",
            ["f32"; 3],
            4,
            "produce_each(ctx, |ctx| args.input[ctx.transposed_index()])",
            SET,
        )
    },
    Hooks { fold: Some("Sum<f32>"), ..hooks("sum", ["Bf16"; 3], 4, PACK, "") },
    Hooks { fold: Some("Sum<f32>"), ..hooks("sum_fp8", ["F8E4M3", "F8E4M3", "f32"], 4, PACK, "") },
];
const SCHEDULES: &[&str] = &["AllToAll", "SendRecv", "AllGather"];
const FOLDING: &[&str] = &["ReduceScatter", "AllReduce"];
const PROTOCOLS: &[&str] = &["Simple", "Ll", "Ll128", "Local", "Store", "Bulk", "CopyEngine"];

/// Every entry that the macro would make: module, schedule, protocol.
fn entries() -> impl Iterator<Item = (&'static Hooks, &'static str, &'static str)> {
    let folding = MODULES.iter().filter(|m| m.fold.is_some());
    let folding = folding.flat_map(|m| {
        FOLDING.iter().flat_map(move |s| ["Simple", "Ll", "Ll128", "Local"].map(|p| (m, *s, p)))
    });
    let twice = MODULES
        .iter()
        .filter(|m| m.fold.is_some())
        .flat_map(|m| ["TwoShot", "Ll128TwoShot"].map(|protocol| (m, "AllReduce", protocol)));
    let rooted = MODULES.iter().filter_map(|m| match m.name {
        "copy" | "scale" => Some((m, "Broadcast", "TwoShot")),
        "sum" => Some((m, "Reduce", "TwoShot")),
        _ => None,
    });
    let all = MODULES
        .iter()
        .filter(|m| m.fold.is_none())
        .flat_map(|m| SCHEDULES.iter().flat_map(move |s| PROTOCOLS.iter().map(move |p| (m, *s, *p))));
    // Bulk copies and the copy engine call no hooks; stores no `consume`.
    // Of what is produced once for all peers a few.
    let all = all
        .filter(|(module, schedule, _)| *schedule != "AllGather" || matches!(module.name, "copy" | "scale"));
    let all = all.filter(|(module, schedule, protocol)| match *protocol {
        // Nobody sends to oneself.
        "Local" => *schedule != "SendRecv",
        "Bulk" | "CopyEngine" => module.name == "copy",
        "Store" => matches!(module.name, "copy" | "scale" | "transposed"),
        _ => true,
    });
    all.chain(folding).chain(twice).chain(rooted)
}

/// Those that are loaded in another form for two ranks.
fn of_two((module, _, protocol): &(&Hooks, &str, &str)) -> bool {
    module.fold.is_some() && *protocol == "Ll128"
}

fn source(entries: impl Iterator<Item = (&'static Hooks, &'static str, &'static str)>) -> String {
    let mut text = RAW.to_owned();
    text.extend(MODULES.iter().map(Hooks::module));
    text.extend(entries.map(|(module, schedule, protocol)| {
        module.entry(&format!("{}_{schedule}_{protocol}", module.name), schedule, protocol)
    }));
    text
}

/// Registers, spilled bytes, instructions, those before the first wait for the kernel in front.
type Row = [u32; 4];

fn table() -> BTreeMap<String, Row> {
    let all = [("table", source(entries()), ""), ("two", source(entries().filter(of_two)), " of two")];
    let parts: Vec<_> = archs().iter().flat_map(|arch| all.iter().map(move |part| (*arch, part))).collect();
    let rows = each(&parts, |(arch, (name, source, form))| {
        // As a launcher gives it to the driver: of a GPU that can wait so, and for two ranks.
        let mut ptx = compile(name, source, arch);
        if arch.number() >= 90 {
            ptx = ptx.replace("// sm_90: ", "");
        }
        if !form.is_empty() {
            ptx = ptx.replace("// two: ", "").replace(".minnctapersm 1", ".minnctapersm 2");
        }
        let kernels = assemble(&ptx, arch).kernels;
        let row = |kernel: &KernelReport| {
            let body = body(&ptx, &kernel.name);
            let code: Vec<&str> = instructions(&body).collect();
            let early = code.iter().position(|line| line.starts_with("griddepcontrol.wait")).unwrap_or(0);
            let spills = kernel.spill_stores + kernel.spill_loads;
            let name = format!("{arch} {}{form}", kernel.name);
            (name, [kernel.registers, spills, code.len() as u32, early as u32])
        };
        kernels.iter().map(row).collect::<Vec<_>>()
    });
    rows.into_iter().flatten().collect()
}

/// As many as before, and 3% or a few more.
fn allowed(before: u32) -> u32 {
    before + (before * 3 / 100).max(4)
}

#[test]
fn no_entry_has_become_larger() {
    let bless = std::env::var_os("FUSEWIRE_BLESS").is_some();
    assert!(
        !bless || archs() == ARCHS,
        "the table has every architecture: set FUSEWIRE_TEST_MATRIX=whole as well"
    );
    let (rows, path) = (table(), concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.tsv"));
    let text =
        rows.iter().map(|(name, [r, s, i, e])| format!("{name}\t{r}\t{s}\t{i}\t{e}\n")).collect::<String>();
    if bless {
        std::fs::write(path, text).unwrap();
        return;
    }
    let compiled = |line: &&str| archs().iter().any(|arch| line.starts_with(&format!("{arch} ")));
    let known: BTreeMap<String, Row> = include_str!("kernels.tsv")
        .lines()
        .filter(compiled)
        .map(|line| {
            let mut parts = line.split('\t');
            let name = parts.next().unwrap().to_owned();
            (name, std::array::from_fn(|_| parts.next().unwrap().parse().unwrap()))
        })
        .collect();
    assert!(known.keys().eq(rows.keys()), "other entries than those of kernels.tsv: bless it");
    let mut worse = Vec::new();
    for (name, now) in &rows {
        let before = known[name];
        // Blocks on a multiprocessor go by registers, in steps of eight.
        let steps = |registers: u32| registers.next_multiple_of(8);
        let more = steps(now[0]) > steps(before[0])
            || now[1] > before[1]
            || now[2] > allowed(before[2])
            || now[3] > allowed(before[3]);
        if more {
            worse.push(format!(
                "{name}: registers, spilled bytes, instructions, early ones {now:?}, {before:?} before"
            ));
        }
    }
    assert!(worse.is_empty(), "{}", worse.join("\n"));
}
