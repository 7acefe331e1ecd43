//! The places a device compiler can come from, each in its own file.

pub(crate) mod apt;
pub(crate) mod debian;
pub(crate) mod named;
pub(crate) mod rustup;
