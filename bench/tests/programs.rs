//! The benchmark programs on CPU threads: what they check, and the forms of what they print.

use fusewire_examples::programs::{run, succeeds};
use serde_json::Value;
use std::collections::BTreeSet;

#[test]
fn hooks_that_are_timed_are_right() {
    let program = env!("CARGO_BIN_EXE_bench_hooks");
    let lines = |said: &str, end: &str| said.lines().filter(|line| line.ends_with(end)).count();
    let said = succeeds(program, &["--rows", "1,5"]);
    assert_eq!(lines(&said, "every element is right"), 2, "{said}");
    let said = succeeds(program, &["--rows", "1", "--time"]);
    assert_eq!((lines(&said, "every element is right"), lines(&said, " us")), (1, 4), "{said}");
}

#[test]
fn the_benchmark_of_all_protocols_is_checked_and_compared() {
    let program = env!("CARGO_BIN_EXE_bench_shared");
    let folder = std::env::temp_dir().join(format!("programs-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut files = Vec::new();
    for (ranks, kind) in [("2", "--threads"), ("3", "--processes")] {
        let rows = succeeds(program, &["--device", "host", "--ranks", ranks, kind, "--size", "6K"]);
        // Seven hooks and sendrecv, staged, in words and in lines; those without `consume` directly; copies in bulk.
        assert_eq!(rows.lines().count(), 3 * 8 + 6 + 2, "{rows}");
        assert!(rows.lines().all(|row| row.contains("\"checked\":true")), "{rows}");
        files.push(folder.join(ranks));
        std::fs::write(&files[files.len() - 1], rows).unwrap();
    }
    let [two, three] = [&files[0], &files[1]].map(|file| file.to_str().unwrap());
    let said = succeeds(program, &["--compare", two, two]);
    assert!(said.contains("32 rows compared, 0 slower"), "{said}");
    // One rank has nobody to send to, and rows of what cannot be cut into packs are no rows.
    let alone = succeeds(program, &["--device", "host", "--ranks", "1", "--size", "1K,1"]);
    assert!(
        alone.lines().count() > 8 && !alone.contains("sendrecv") && !alone.contains("\"bytes\":1,"),
        "{alone}"
    );
    assert!(succeeds(program, &["--device", "host", "--ranks", "3", "--size", "1K"]).contains("transpose"));
    // Threads beside processes.
    let refused = run(program, &["--compare", two, three]);
    assert_eq!(refused.status.code(), Some(2));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn collectives_have_the_columns_and_the_document_of_nccl_tests() {
    let program = env!("CARGO_BIN_EXE_bench_collectives");
    let file = std::env::temp_dir().join(format!("programs-{}.json", std::process::id()));
    let size = ["--device", "host", "--ranks", "2", "--threads", "--size", "1K,2K", "--no-eager", "--json"];
    let said = succeeds(program, &[&size[..], &[file.to_str().unwrap()]].concat());
    let document = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let document: Value = serde_json::from_slice(&document).unwrap();
    let lines: Vec<Vec<&str>> = said
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_whitespace().collect())
        .collect();
    let results = document["results"].as_array().unwrap();
    assert_eq!((lines.len(), results.len()), (9 * 2, 9 * 2), "{said}");
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<String>>();
    let has = |value: &Value, words: &str| words.split(' ').all(|key| keys(value).contains(key));
    for (columns, result) in lines.iter().zip(results) {
        // Size, count, type, redop, root, and twice time, algbw, busbw and #wrong.
        let in_place = result["experiment_name"] != "all_to_all" && result["experiment_name"] != "sendrecv";
        assert_eq!((columns[8], columns[12]), ("0", if in_place { "0" } else { "N/A" }), "{said}");
        assert_eq!((columns[0], columns[1]), (&*result["size"].to_string(), &*result["count"].to_string()));
        assert_eq!(columns[4], result["root"].as_str().unwrap().trim());
        assert!(has(
            result,
            "size count type redop root out_of_place in_place actual_iterations experiment_name"
        ));
        assert!(has(&result["out_of_place"], "time alg_bw bus_bw nwrong"));
        assert_eq!(result["in_place"].is_object(), in_place);
    }
    // Of nccl-tests 2.19, as far as there is such a thing here.
    assert!(has(
        &document,
        "version start_time args env config results out_of_bounds average_bus_bandwidth errors end_time"
    ));
    assert!(has(
        &document["config"],
        "nthreads ngpus minimum_bytes maximum_bytes step_factor aggregated_iterations validation"
    ));
    assert!(has(&document["config"], "blocking_collectives per_iter_timing per_iter_skip devices"));
    assert!(has(&document["config"]["devices"][1], "rank group pid hostname device device_hex device_info"));
    assert_eq!((&document["version"], &document["out_of_bounds"]["okay"]), (&3.into(), &"true".into()));
    // What would fail at the end fails at the beginning.
    let nowhere = file.join("results.json");
    let refused = run(program, &[&size[..], &[nowhere.to_str().unwrap()]].concat());
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("cannot be written"), "{why}");
    let unknown = run(program, &["--op", "all_reduse"]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("there are all_gather, broadcast"));
}
