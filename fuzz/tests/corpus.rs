//! What the fuzzer found, run again: inputs that reach what others do not, and those that once failed.

use std::path::Path;

use fusewire_fuzz::TARGETS;

#[test]
fn every_input_of_every_corpus() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let of = |name: &str| {
        std::fs::read_dir(corpora.join(name)).map(|files| files.map(|file| file.unwrap().path()))
    };
    for (name, target) in TARGETS {
        let mut files: Vec<_> = of(name).unwrap_or_else(|e| panic!("the corpus of {name}: {e}")).collect();
        files.sort();
        assert!(!files.is_empty(), "the corpus of {name} is empty");
        for file in &files {
            let data = std::fs::read(file).unwrap();
            let ended = std::panic::catch_unwind(|| target(&data));
            assert!(ended.is_ok(), "{name} fails for {}", file.display());
        }
        println!("{name}: {} inputs", files.len());
    }
    for folder in std::fs::read_dir(&corpora).unwrap() {
        let folder = folder.unwrap().file_name();
        assert!(TARGETS.iter().any(|(name, _)| folder == *name), "{} has no target", folder.display());
    }
}
