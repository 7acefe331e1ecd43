//! `#[comm_kernel]`.
