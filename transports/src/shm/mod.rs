//! Host shared memory: ranks are threads or processes of one host, blocks are threads.

mod ops;

pub use ops::ShmOps;
