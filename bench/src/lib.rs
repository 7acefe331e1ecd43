//! What the benchmark programs share. They time the hooks of `fusewire-examples`, check every element, and stand beside what others do:
//!
//! | program | times | beside |
//! |---|---|---|
//! | `bench` | the all-to-all and `sendrecv` against their size; `--plot` draws them | NCCL (`peers/nccl.py`) |
//! | `bench_collectives` | every schedule against its size, in the columns and the JSON of nccl-tests | NCCL and torch (`peers/collectives.py`) |
//! | `bench_fused` | hooks fused into an all-to-all of bfloat16 | torch around NCCL (`peers/fused.py`), CUDA C++ (`baselines/copy.cu`, `baselines/transpose.cu`), memcpy |
//! | `bench_hooks` | GELU, SiLU, softmax and RMSNorm of a rank alone | CUDA C++ (`baselines/hooks.cu`) |
//! | `bench_shared` | all hooks by all protocols with ranks that share a GPU | another version of this |
//! | `bench_windows` | signals, barriers and puts | |
//! | `host` | the transport of CPU threads | Open MPI (`peers/mpi_host.c`) |
//! | `host_hooks` | hooks on CPU threads | plain Rust loops |
//!
//! `cargo xtask gpu --package DIR` packs those for GPUs with the scripts that run both sides, `cargo xtask bench-host` runs the host's.

pub mod cases;
pub mod nccl_tests;
pub mod plot;

/// What a sweep goes through: what was given, or once nothing, for which the library decides.
pub fn choices<T: Copy>(given: &[T]) -> Vec<Option<T>> {
    if given.is_empty() { vec![None] } else { given.iter().map(|one| Some(*one)).collect() }
}
