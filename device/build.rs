//! Tells dependent build scripts where the sources are, so that the macro can compile them for the device.

fn main() {
    println!("cargo::metadata=root={}/src/lib.rs", std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default());
    println!("cargo::rerun-if-changed=src");
}
