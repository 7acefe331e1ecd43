//! Three ranks in C.

use std::path::Path;
use std::process::Command;

#[test]
fn ranks_of_c_exchange() {
    let (root, folder) = (Path::new(env!("CARGO_MANIFEST_DIR")), tempfile::tempdir().unwrap());
    // Beside the test's own program: the library of this very build.
    let built = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let library = [built.join("libfusewire_c.so"), built.parent().unwrap().join("libfusewire_c.so")];
    let library =
        library.iter().find(|file| file.exists()).expect("libfusewire_c.so, which this build makes");
    let program = folder.path().join("ranks");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-o"]).arg(&program);
    cc.arg("-I").arg(root.join("../include")).arg(root.join("tests/ranks.c")).arg(library);
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
