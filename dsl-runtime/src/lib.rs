//! Fused GPU communication kernels written in Rust.
