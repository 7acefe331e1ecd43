//! Notes where the device sources are: they are compiled for the device when a kernel is.

fn main() {
    for (metadata, name) in [
        ("DEP_FUSEWIRE_DEVICE_ROOT", "FUSEWIRE_DEVICE_ROOT"),
        ("DEP_FUSEWIRE_TRANSPORTS_ROOT", "FUSEWIRE_TRANSPORTS_ROOT"),
    ] {
        let root = std::env::var(metadata).unwrap_or_default();
        println!("cargo::rustc-env={name}={root}");
        if let Some(folder) = std::path::Path::new(&root).parent() {
            println!("cargo::rerun-if-changed={}", folder.display());
        }
    }
}
