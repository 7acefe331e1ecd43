//! The header is that of the source, and C compiles it.

use std::path::Path;
use std::process::Command;

#[test]
fn the_header_is_that_of_the_source() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let made = cbindgen::Builder::new().with_crate(root).with_config(config).generate().unwrap();
    let mut text = Vec::new();
    made.write(&mut text);
    let text = String::from_utf8(text).unwrap().replace("[`", "`").replace("`]", "`");
    // The header's own words say what is safe; of Rust's headings nothing is left.
    let lines: Vec<&str> = text.lines().filter(|line| !line.contains("# Safety")).collect();
    let mut text = String::new();
    for (k, line) in lines.iter().enumerate() {
        let ends = |line: &str| line.trim() == "//" || line.starts_with("// As the crate says.");
        let last = lines.get(k + 1).is_none_or(|next| !next.starts_with("//") || ends(next));
        if !(ends(line) && last) {
            text += &line.replace("As the crate says; ", "");
            text.push('\n');
        }
    }
    let file = root.join("include/fusewire.h");
    if std::env::var_os("FUSEWIRE_BLESS").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        kept == text,
        "include/fusewire.h is of another source: run with FUSEWIRE_BLESS=1 and read the difference"
    );
}

#[test]
fn ranks_of_c_exchange() {
    let (root, folder) = (Path::new(env!("CARGO_MANIFEST_DIR")), tempfile::tempdir().unwrap());
    // Beside the test's own program: the library of this very build.
    let built = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let library = [built.join("libfusewire_capi.so"), built.parent().unwrap().join("libfusewire_capi.so")];
    let library =
        library.iter().find(|file| file.exists()).expect("libfusewire_capi.so, which this build makes");
    let program = folder.path().join("ranks");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-o"]).arg(&program);
    cc.arg("-I").arg(root.join("include")).arg(root.join("tests/ranks.c")).arg(library);
    cc.arg(format!("-Wl,-rpath,{}", library.parent().unwrap().display()));
    assert!(cc.status().unwrap().success(), "cc");
    let store = folder.path().join("store");
    let ranks: Vec<_> = (0..3)
        .map(|rank: usize| {
            let mut command = Command::new(&program);
            command.env("FUSEWIRE_RANK", rank.to_string()).env("FUSEWIRE_WORLD_SIZE", "3");
            command.env("FUSEWIRE_FILE", &store).spawn().unwrap()
        })
        .collect();
    for (rank, mut child) in ranks.into_iter().enumerate() {
        assert!(child.wait().unwrap().success(), "rank {rank}");
    }
}
