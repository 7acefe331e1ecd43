//! The blank: what a new transport fills in. Compiled on both sides, never run.
//!
//! A transport needs no place in this repository: `tests/outside/tube` is a crate of its own, whose `device_crate!` names its transport.
//! One that is shipped stands here:
//!
//! 1. Copy this folder, rename `Template`, and add the module to `lib.rs` and its device half to `ops` there.
//! 2. Device half ([`TemplateOps`]): each method says what schedules rely on. If peers' memory can be stored to from a kernel, wrap
//!    [`Mapped`](fusewire_device::mapped::Mapped) with `mapped_ops!` instead, as `shm` and `nvl` do, and skip the rest of this step.
//!    Leave out `Put` or `Get` if the transport has no such operation: schedules that need it then do not compile.
//! 3. Host half (`Template`): a collective `rendezvous` that makes symmetric memory, exchanges what peers need, compares the options
//!    over all ranks and builds a [`Link`](crate::host::Link) on a [`Region`](crate::host::Region).
//! 4. Name it in the macro's table (`dsl-macros/codegen/src/tables.rs`), so that its name needs no path, and re-export it in `fusewire`.
//! 5. Add its line to `tests/`: the conformance suite decides whether it is right.

mod ops;

pub use ops::TemplateOps;

#[cfg(all(feature = "host", not(target_arch = "nvptx64")))]
mod host;
#[cfg(all(feature = "host", not(target_arch = "nvptx64")))]
pub use host::Template;
