//! The compiler behind #[comm_kernel], as a plain library.
