//! Ranks that are processes, each with an emulated adapter of its own: over adapters alone, and in domains of two ranks that share memory.

use std::process::Command;

/// Runs the suite's program on so many processes: every case that has this in its name.
#[track_caller]
fn passes(over: &str, ranks: usize, filter: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_gpu-suite"))
        .args(["--device", "host", "--mode", "processes", "--over", over, "--filter", filter])
        .args(["--ranks", &ranks.to_string()])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains(" 0 failed, "), "{over} on {ranks} processes");
}

#[test]
fn the_suite_over_adapters_on_2_processes() {
    passes("ibgda", 2, "");
}

#[test]
fn hooks_over_adapters_on_4_processes() {
    passes("ibgda", 4, "hooks::");
    passes("ibgda", 4, "graphs::");
}

/// By mapped memory, beside a transport whose peers are reached by a proxy.
#[test]
fn windows_beside_a_proxy_on_2_and_4_processes() {
    for ranks in [2, 4] {
        passes("host-ib", ranks, "window");
        passes("host-ib", ranks, "multi_peer::");
    }
}

#[test]
fn the_suite_in_2_domains_on_4_processes() {
    passes("mesh", 4, "");
}

#[test]
fn hooks_in_4_domains_on_8_processes() {
    passes("mesh", 8, "hooks::");
    passes("mesh", 8, "copying::every_element");
}
