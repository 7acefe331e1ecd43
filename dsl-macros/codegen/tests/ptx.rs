//! What the device text of single kernels becomes. What must hold of all stands in `sound.rs`.

mod common;

use common::{KERNELS, body, kernel, on_gpus, ptx};
use fusewire_codegen::{Protocol, analyse};
use fusewire_toolchain::ptxas::Ptxas;
use std::collections::BTreeSet;

/// What a launcher gives the driver: the kernels of one transport, without all others.
#[test]
fn a_part_of_a_module_assembles_alone() {
    let ptxas = Ptxas::find_or_install().unwrap_or_else(|error| panic!("{error}"));
    for name in ["quantise", "ring"] {
        let model = kernel(name);
        let entries = on_gpus(&model);
        let whole = ptx(&model, &entries, "sm_90", true);
        let arch = "sm_90".parse().unwrap();
        let all = ptxas.check(&whole, arch).unwrap().kernels;
        assert!(all.len() == entries.len() && !all.is_empty(), "{all:?}");
        for kernel in all {
            let part = fusewire_driver::ptx::part(&whole, &[&kernel.name]);
            assert!(entries.len() == 1 || part.len() < whole.len(), "{name}: nothing was left out");
            let report = ptxas.check(&part, arch).unwrap_or_else(|error| panic!("{}: {error}", kernel.name));
            // ptxas gives out a few registers more or less with other functions beside it.
            let alone = &report.kernels[..];
            assert!(alone.len() == 1 && alone[0].name == kernel.name, "{name}: {alone:?}");
            assert_eq!(
                alone[0].spill_stores + alone[0].spill_loads,
                kernel.spill_stores + kernel.spill_loads
            );
            assert!(alone[0].registers.abs_diff(kernel.registers) <= 8, "{name}: {alone:?} {kernel:?}");
        }
    }
}

/// One source, two transports: the entries of a transport that is not asked for are not there, and nothing is chosen at run time.
#[test]
fn a_kernel_is_of_its_transport_alone() {
    let model = kernel("copy");
    let text = ptx(&model, &on_gpus(&model), "sm_90", false);
    let entries: Vec<&str> = text.lines().filter(|l| l.contains(".entry ")).collect();
    let expected = ["", "_ll", "_local", "_ll128", "_direct", "_bulk", "_copy"]
        .map(|way| format!("copy__all_to_all{way}__nvl("));
    assert_eq!(entries.len(), expected.len(), "{entries:?}");
    assert!(expected.iter().all(|e| entries.iter().any(|l| l.contains(e.as_str()))), "{entries:?}");
    assert!(!text.contains("ShmOps") && !text.contains("__shm"));
}

#[test]
fn line_information_names_the_users_file() {
    let model = kernel("transpose");
    let entries = on_gpus(&model);
    let plain = ptx(&model, &entries, "sm_90", false);
    assert!(!plain.contains("\t.loc\t"));
    let text = ptx(&model, &entries, "sm_90", true);
    let file = text.lines().find(|l| l.trim_start().starts_with(".file") && l.contains("src/kernels.rs"));
    let number = file.unwrap_or_else(|| panic!("the file is not named")).split_whitespace().nth(1).unwrap();
    let hook = KERNELS.lines().position(|l| l.contains("row * args.cols + col")).unwrap() + 1;
    assert!(
        text.contains(&format!("\t.loc\t{number} {hook} ")),
        "no place on line {hook} of the user's file"
    );
}

/// A panic's message goes from the handler into the record: file and message are two words each, beside abort word, record, rank, block, line
/// and column. That entries pay nothing for it is what `sound` says of local memory.
#[test]
fn a_panic_says_its_message() {
    let model = kernel("transpose");
    let text = ptx(&model, &on_gpus(&model), "sm_90", false);
    let parameters: BTreeSet<&str> = text
        .split("12record_panic_param_")
        .skip(1)
        .filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next())
        .collect();
    assert_eq!(parameters.len(), 10, "{parameters:?}");
}

/// A message with values goes to the host as a format, and nothing of `core`'s formatting is in the kernel.
#[test]
fn a_panic_is_not_formatted() {
    let model = kernel("asserts");
    let text = ptx(&model, &on_gpus(&model), "sm_90", false);
    for format in ["%llu is not below %llu", "assertion `left == right` failed\n  left: %.9g\n right: %.9g"] {
        let bytes: Vec<String> = format.bytes().map(|b| b.to_string()).collect();
        assert!(text.contains(&bytes.join(", ")), "`{format}` is not in the text");
    }
    let core: Vec<&str> = text.lines().filter(|line| line.contains("4core3fmt")).collect();
    assert!(core.is_empty(), "{core:?}");
    let ptxas = Ptxas::find_or_install().unwrap_or_else(|error| panic!("{error}"));
    ptxas.check(&text, "sm_90".parse().unwrap()).unwrap_or_else(|error| panic!("{error}"));
}

/// Halves are added by one instruction, of which GPUs before sm_90 have none for bfloat16.
#[test]
fn halves_are_added_by_an_instruction() {
    let model = kernel("halves");
    for (arch, bf16) in [("sm_80", false), ("sm_90", true)] {
        let text = ptx(&model, &on_gpus(&model), arch, false);
        assert!(text.contains("atom.relaxed.gpu.add.noftz.f16 "), "{arch}");
        assert_eq!(text.contains("atom.relaxed.gpu.add.noftz.bf16 "), bf16, "{arch}");
        assert_eq!(text.contains("atom.relaxed.gpu.cas.b16 "), !bf16, "{arch}");
        let ptxas = Ptxas::find_or_install().unwrap_or_else(|error| panic!("{error}"));
        ptxas.check(&text, arch.parse().unwrap()).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// A line is printed by the function that the driver has, with a format that is its own.
#[test]
fn lines_are_printed_by_the_driver() {
    let model = kernel("prints");
    let text = ptx(&model, &on_gpus(&model), "sm_90", false);
    assert!(text.contains(".extern .func") && text.contains("vprintf"));
    let format = "[rank %llu, element %llu] %.9g is negative, %llu%% of peer %llu's\n";
    let bytes: Vec<String> = format.bytes().map(|b| b.to_string()).collect();
    assert!(text.contains(&bytes.join(", ")), "the format is not in the text");
    let ptxas = Ptxas::find_or_install().unwrap_or_else(|error| panic!("{error}"));
    ptxas.check(&text, "sm_90".parse().unwrap()).unwrap_or_else(|error| panic!("{error}"));
}

/// Behind a constant that is false, lines leave nothing: the PTX is that of a hook without them.
#[test]
fn lines_behind_a_constant_that_is_false_are_not_there() {
    let text = |constant: &str, line: &str| {
        let item = format!(
            "mod quiet {{
                {constant}
                pub struct Args<'a> {{ pub input: &'a [f32], pub output: Out<'a, f32> }}
                pub fn produce(ctx: &Produce, args: &Args) -> f32 {{
                    let value = args.input[ctx.index()];
                    {line}
                    value
                }}
            }}"
        );
        let attribute = "transports(Nvl), schedules(all_to_all)";
        let (model, errors) = analyse(attribute.parse().unwrap(), item.parse().unwrap());
        assert!(errors.is_empty(), "{:?}", errors.messages());
        let model = model.unwrap();
        let mut entries = on_gpus(&model);
        entries.retain(|e| e.protocol == Protocol::Simple);
        ptx(&model, &entries, "sm_90", false)
    };
    let line = "if DEBUG && value < 0.0 { print_at!(ctx, \"{} is negative\", value); }";
    let (quiet, loud) = (text("const DEBUG: bool = false;", line), text("const DEBUG: bool = true;", line));
    assert!(loud.contains("vprintf") && !quiet.contains("vprintf"));
    // Behind the code, places in the source are others.
    let of = |text: &str| body(text, "quiet__all_to_all__nvl").to_owned();
    assert_eq!(of(&quiet), of(&text("", "")));
}

/// Warps that share a row meet: what each stored goes out with its count, and nothing is loaded before the counts of all were seen; in turn in
/// either half of the memory. Counts begin at 0 behind a barrier of the block.
#[test]
fn warps_that_share_a_row_meet() {
    let model = kernel("normed");
    let schedules = ["all_reduce", "reduce_scatter"];
    let mut entries = on_gpus(&model);
    entries.retain(|e| {
        let schedule = e.schedule.map_or("", |s| s.name);
        e.protocol == Protocol::Simple && schedules.contains(&schedule)
            || e.protocol == Protocol::Local && schedule == "all_reduce"
    });
    let text = ptx(&model, &entries, "sm_90", false);
    for schedule in schedules {
        let lines: Vec<&str> =
            body(&text, &format!("normed__{schedule}__nvl")).lines().map(str::trim).collect();
        let next = |from: usize, what: &str| {
            lines[from..].iter().position(|line| line.starts_with(what)).map_or(lines.len(), |at| from + at)
        };
        let last =
            |to: usize, what: &str| lines[..to].iter().rposition(|line| line.starts_with(what)).unwrap_or(0);
        let all = |what: &str| (0..lines.len()).filter(|&k| lines[k].starts_with(what)).collect::<Vec<_>>();
        // A sum and a maximum, among one, two, four and any number of ranks: by all warps of the block, or by some.
        let barrier = |line: &&str| line.starts_with("bar") && !line.starts_with("bar.warp");
        let barrier = lines.iter().position(barrier).unwrap();
        let (mut counts, comes) = (all("st.shared.b32"), all("st.release.cta.shared.u32"));
        // Before the first barrier they begin as zeros.
        counts.retain(|&count| count > barrier);
        assert_eq!([counts.len(), comes.len()], [8, 8], "{schedule}: meetings");
        for &counts in &counts {
            let count = last(counts, "ld.acquire.cta.shared.u32");
            let (stored, synced) = (last(counts, "st.shared.b64"), last(counts, "bar.warp.sync"));
            assert!(
                count < stored && stored < synced,
                "{schedule}: a warp comes before all its threads have stored"
            );
            let halves = |line: &str| line.starts_with("and.b32") && line.ends_with(", 1;");
            assert!(
                lines[count..stored].iter().any(|line| halves(line)),
                "{schedule}: not in halves in turn"
            );
            assert!(
                next(counts, "bar.sync") < next(counts, "ld.shared.b64"),
                "{schedule}: the block is not waited for"
            );
        }
        for &come in &comes {
            let end = next(come + 1, "st.release.cta.shared.u32");
            let (voted, seen) = (next(come, "vote.sync.any"), next(come, "ld.acquire.cta.shared.u32"));
            assert!(voted < end && seen < end, "{schedule}: the others are not waited for");
        }
        assert!(next(0, "st.shared.b32") < barrier, "{schedule}: counts begin anywhere");
    }
    // Of two inputs, four octets of a thread's each; the third is the same for all rows.
    let alone = body(&text, "normed__all_reduce_local__nvl");
    assert_eq!(alone.matches("prefetch.global.L2").count(), 8);
    assert_eq!(alone.matches("ld.global.L2::cache_hint").count(), 8);
}

/// Teams wait where they share memory: each word is stored before a barrier and loaded behind it, counts of meetings and what is lent begin as
/// zeros between two.
#[test]
fn teams_wait_where_they_share_memory() {
    let ptxas = Ptxas::find_or_install().unwrap_or_else(|error| panic!("{error}"));
    let operations = |name: &str| {
        let model = kernel(name);
        let text = ptx(&model, &on_gpus(&model), "sm_90", false);
        let report = ptxas.check(&text, "sm_90".parse().unwrap()).unwrap_or_else(|error| panic!("{error}"));
        assert!(report.kernels.iter().all(|k| k.spill_stores == 0), "{report:?}");
        let body = body(&text, &format!("{name}__custom__nvl"));
        assert!(!body.contains("ld.local"), "{name}: local memory");
        let kinds = [
            ("bar.warp.sync", "warp"),
            ("bar", "bar"),
            ("st.volatile.shared.b64", "set"),
            ("ld.volatile.shared.b64", "get"),
            ("st.volatile.shared.b32", "store"),
            ("ld.volatile.shared.b32", "load"),
            ("st.release.cta.shared", "come"),
            ("ld.acquire.cta.shared", "seen"),
        ];
        let mut found: Vec<&str> = Vec::new();
        for statement in body.split([';', '\n', '{']) {
            let kind = kinds.iter().find(|(what, _)| statement.trim_start().starts_with(what));
            found.extend(kind.map(|(_, kind)| *kind));
        }
        found.join(" ")
    };
    let all = ["folded_by_block", "scanned_by_block", "said_by_one", "folded_by_warps", "through_shared"];
    insta::assert_snapshot!(all.map(|name| format!("{name}: {}", operations(name))).join("\n"));
}

/// Teams of one block use its memory in turn, whichever was made first: words of the one may still be looked at when the other stores its own.
#[test]
fn teams_of_one_block_take_turns() {
    let model = kernel("folded_by_two");
    let text = ptx(&model, &on_gpus(&model), "sm_90", false);
    let body = body(&text, "folded_by_two__custom__nvl");
    let start =
        body.lines().find_map(|line| line.split_once("mov.u32 ")?.1.strip_suffix(", fusewire_teams;"));
    let start = start.expect("teams have memory");
    // The first team's words are in the first half.
    let second = format!(", {start}, 128;");
    assert!(body.lines().any(|line| line.ends_with(&second)), "one half of the memory alone");
}

/// Hooks by pack load all of a bundle before they work on the first of it, whatever they compute: nothing branches between the loads.
#[test]
fn packs_of_a_bundle_load_together() {
    for (name, packs) in [("copy", 8), ("scale_add", 4), ("activations", 4)] {
        let model = kernel(name);
        let entries = on_gpus(&model);
        let text = ptx(&model, &entries, "sm_90", false);
        for protocol in [Protocol::Simple, Protocol::Direct, Protocol::Local] {
            for entry in entries.iter().filter(|e| e.protocol == protocol && e.default_variant) {
                let symbol = entry.symbol(model.ident());
                // A rank alone says how the cache keeps what it loads.
                let load = match protocol {
                    Protocol::Local => "ld.global.L2::cache_hint",
                    _ => "ld.global.L1::no_allocate",
                };
                let (mut run, mut best) = (0, 0);
                for line in body(&text, &symbol).lines().map(str::trim_start) {
                    let branches = line.starts_with("@") || line.starts_with("bra") || line.ends_with(':');
                    run = if branches { 0 } else { run + usize::from(line.contains(load)) };
                    best = best.max(run);
                }
                assert!(best >= packs, "{symbol}: {best} packs of {packs} are loaded together");
            }
        }
    }
}

/// Which memory operations a copy is made of: a change of protocol or code generation shows here.
#[test]
fn memory_operations_of_a_copy() {
    let model = kernel("copy");
    let text = ptx(&model, &on_gpus(&model), "sm_90", false);
    let mut seen = BTreeSet::new();
    for statement in body(&text, "copy__all_to_all__nvl").split([';', '\n', '{']) {
        let words = statement.trim_start().trim_start_matches('@').split_whitespace();
        let operation = words.map(|w| w.trim_end_matches(';')).find(|w| !w.starts_with(['%', '!']));
        let Some(operation) = operation else { continue };
        let kinds = ["ld.", "st.", "red.", "atom.", "bar", "fence", "membar", "cp."];
        if kinds.iter().any(|k| operation.starts_with(k)) && !operation.starts_with("ld.param") {
            seen.insert(operation.to_owned());
        }
    }
    insta::assert_snapshot!(seen.into_iter().collect::<Vec<_>>().join("\n"));
}

/// A combination that the attribute does not name can be compiled all the same: for `cargo fusewire ptx`.
#[test]
fn what_is_not_named_can_be_asked_for() {
    let model = kernel("copy");
    let mut entry = on_gpus(&model).remove(0);
    entry.schedule = fusewire_codegen::SCHEDULES.iter().find(|s| s.name == "sendrecv").copied();
    (entry.unroll, entry.default_variant) = (4, false);
    let text = ptx(&model, &[entry.clone()], "sm_100", false);
    assert!(text.contains(".entry copy__sendrecv__nvl__u4("));
    assert!(text.contains(".target sm_100"));
    assert!(text.contains(".maxntid 512, 1, 1\n.minnctapersm 1\n"));
    // Of a rank alone two blocks fit a multiprocessor.
    entry.protocol = Protocol::Local;
    let text = ptx(&model, &[entry], "sm_100", false);
    assert!(text.contains(".entry copy__sendrecv_local__nvl__u4("));
    assert!(text.contains(".maxntid 512, 1, 1\n.minnctapersm 2\n"));
}
