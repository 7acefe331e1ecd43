//! Finds or prepares a Rust compiler for nvptx64 and caches what it makes.
