//! The programs on CPU threads: ranks as processes and as threads, one rank alone, arguments that cannot be.

use fusewire_examples::programs::{run, succeeds};

#[test]
fn programs_of_the_tutorial() {
    for program in [
        env!("CARGO_BIN_EXE_hello"),
        env!("CARGO_BIN_EXE_generic"),
        env!("CARGO_BIN_EXE_pairs"),
        env!("CARGO_BIN_EXE_ring"),
        env!("CARGO_BIN_EXE_mailbox"),
        env!("CARGO_BIN_EXE_route"),
    ] {
        succeeds(program, &[]);
    }
    succeeds(env!("CARGO_BIN_EXE_infiniband"), &["--emulated", "--ranks", "4"]);
    succeeds(env!("CARGO_BIN_EXE_window_ring"), &[]);
    succeeds(HALO, &[]);
}

const HALO: &str = env!("CARGO_BIN_EXE_window_halo");

#[test]
fn a_halo_of_any_number_of_slabs() {
    for ranks in ["1", "2", "3"] {
        for kind in ["--threads", "--processes"] {
            let said = succeeds(HALO, &["--device", "host", "--ranks", ranks, kind]);
            assert_eq!(said.lines().filter(|line| line.contains("are right")).count().to_string(), ranks);
        }
    }
}

#[test]
fn a_ring_of_one() {
    let said = succeeds(env!("CARGO_BIN_EXE_window_ring"), &["--device", "host", "--ranks", "1"]);
    assert!(said.contains("has the chunks of all 1 ranks"), "{said}");
}

#[test]
fn threads_exchange_as_processes_do() {
    let size = ["--device", "host", "--ranks", "3", "--size", "3K", "--repeat", "1"];
    for kind in ["--threads", "--processes"] {
        let said = succeeds(env!("CARGO_BIN_EXE_all_to_all"), &[&size[..], &[kind]].concat());
        assert!(said.contains("elements checked on 3 ranks, none differs"), "{said}");
    }
}

#[test]
fn hooks_print_where_they_are() {
    let said = succeeds(env!("CARGO_BIN_EXE_prints"), &["--device", "host", "--ranks", "2", "--threads"]);
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    let expected = [
        "[rank 0, element 107] -1.5 came from rank 1: 25% of that is kept",
        "[rank 0, element 107] -1.5 goes to rank 1",
        "[rank 1, element 7] -1.5 came from rank 0: 25% of that is kept",
        "[rank 1, element 7] -1.5 goes to rank 0",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn patterns_are_right() {
    for ranks in ["1", "3"] {
        let said = succeeds(
            env!("CARGO_BIN_EXE_patterns"),
            &["--device", "host", "--ranks", ranks, "--rows", "1,5"],
        );
        assert_eq!(said.lines().filter(|line| line.ends_with("every element is right")).count(), 2, "{said}");
    }
}

#[test]
fn what_rows_have_and_give_is_saved() {
    let folder = std::env::temp_dir().join(format!("saved-{}", std::process::id()));
    let save = folder.to_str().unwrap();
    let program = env!("CARGO_BIN_EXE_rows");
    let size = ["--device", "host", "--ranks", "2", "--rows", "3,2", "--save"];
    succeeds(program, &[&size[..], &[save]].concat());
    for rank in 0..2 {
        let index = std::fs::read_to_string(folder.join(format!("rank-{rank}.jsonl"))).unwrap();
        // Two arrays of what is quantised, two of what is summed as well, five of what is normed.
        assert_eq!(index.lines().count(), 2 + 2 + 5, "{index}");
        let scales = format!(
            "{{\"case\":\"normed\",\"name\":\"scales\",\"dtype\":\"float32\",\"shape\":[2,1],\"rank\":{rank},\"ranks\":2,\
             \"file\":\"normed.scales.{rank}\"}}"
        );
        assert!(index.lines().any(|line| line == scales), "{index}");
        let bytes = |name: &str| std::fs::metadata(folder.join(format!("{name}.{rank}"))).unwrap().len();
        assert_eq!((bytes("normed.scales"), bytes("normed.output")), (2 * 4, 2 * 4096));
        assert_eq!((bytes("normed.input"), bytes("quantised.input")), (2 * 2 * 4096, 2 * 2 * 2 * 4096));
    }
    // A file is no folder.
    let nowhere = folder.join("rank-0.jsonl");
    let refused = run(program, &[&size[..], &[nowhere.to_str().unwrap()]].concat());
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("give a folder that can be written"), "{why}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn no_ranks_and_both_kinds_are_refused() {
    let none = run(HALO, &["--ranks", "0"]);
    assert!(!none.status.success());
    assert!(String::from_utf8_lossy(&none.stderr).contains("there is at least one rank"));
    assert!(!run(HALO, &["--threads", "--processes"]).status.success());
}

#[test]
fn math_in_hooks() {
    let said = succeeds(env!("CARGO_BIN_EXE_activations"), &[]);
    assert_eq!(said.lines().filter(|line| line.ends_with("are right")).count(), 2 * 4, "{said}");
}

#[test]
fn sums_have_the_bits_of_the_tree() {
    let said = succeeds(env!("CARGO_BIN_EXE_sums"), &[]);
    assert!(said.contains("10007 weights have the same bits on 4 ranks"), "{said}");
}

#[test]
fn the_sweep_of_device_math_compares_all_functions() {
    let program = env!("CARGO_BIN_EXE_math");
    let said = succeeds(program, &["--device", "host", "--stride", "400009", "--fast-stride", "400009"]);
    assert_eq!(said.matches(" 0 of 3 blocks differ").count(), 29, "{said}");
    assert_eq!(said.matches(" ulp ").count(), 21 + 1, "{said}");
}
