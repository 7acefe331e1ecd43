//! What the example programs share. Start with the programs in `src/bin`:
//!
//! | program | shows |
//! |---|---|
//! | `hello` | the ten lines of the README |
//! | `all_to_all` | four hooks in a fused all-to-all, checked and timed; what `cargo xtask demo` runs |
//! | `pairs` | `send`, `recv` and `sendrecv` |
//! | `ring` | a schedule of one's own from tiles: a ring all-gather |
//! | `mailbox` | a schedule of one's own from raw `put`, `signal`, `wait` |
//! | `rows` | hooks of whole rows: block-scaled 8-bit floats, a norm behind an all-reduce |
//! | `patterns` | what libraries for inference have a kernel of its own for, each as a hook |
//! | `tune` | what `cargo fusewire tune` runs |
//! | `window_ring` | windows: a ring exchange by `put_signal` |
//! | `window_halo` | windows: a halo exchange with barriers |

pub mod fused;
pub mod hooks;
pub mod programs;
pub mod ranks;
pub mod reference;
pub mod rows;
pub mod saved;
