//! Tells dependent build scripts where the sources are, so that the macro can compile them for the device.

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo::metadata=root={folder}/src/lib.rs");
    // By its whole path: a checkout that was moved, target folder and all, is told from one that was not.
    println!("cargo::rerun-if-changed={folder}/src");
}
