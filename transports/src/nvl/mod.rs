//! GPUs that reach each other over NVLink (or PCIe peer access).

mod ops;

pub use ops::NvlOps;
