//! The device side of fusewire, compiled twice from one source: for `nvptx64` and for the host.
//!
//! | module | contents |
//! |---|---|
//! | [`element`](mod@element) | element types and their conversions, bit-equal on both targets |
//! | [`math`] | floating-point functions: some bit-equal on both targets, some fast |
//! | [`pack`] | 16-byte packs, the unit that crosses the wire |
//! | [`ctx`] | what a hook knows about the element it handles |
//! | [`args`] | kernel arguments: slices, exclusive outputs, atomic outputs |
//! | [`fold`] | how the contributions of all ranks to an element become one value |
//! | [`hooks`] | the trait behind `produce` and `consume` |
//! | [`ops`] | the interface that a transport implements: `put`, `get`, `signal`, `wait` |
//! | [`mapped`] | that interface for peers with mapped memory (NVLink, host shared memory) |
//! | [`row`] | rows, which hooks of `grain = row(N)` handle |
//! | [`schedule`] | who exchanges which chunk with whom: `sendrecv`, `all_to_all` |
//! | [`protocol`] | how the bytes of a transfer travel: through staging, by LL128, straight into outputs |
//! | [`launch`] | the launch parameters of a kernel |
//! | [`kernel`] | the context of a custom schedule |
//! | [`team`] | collective operations of a block's threads, in a custom schedule |
//! | [`tile`] | loops over the packs of a chunk |
//! | [`mod@print`] | lines that hooks print |
//! | `panics` | messages of panics on GPUs |
//! | [`wait`] | deadlines, abort words and abort records |
//! | [`window`] | signals, barriers, counters and data between peers, for custom schedules |
//! | [`group`] | thread groups |
//! | [`atomic`] | loads, stores, fences and read-modify-writes with scope and order in their types |
//! | [`arch`] | every intrinsic: inline PTX on one side, `core` on the other |
//!
//! On the host each block is an OS thread with a group of one lane. A schedule that uses strided loops over a group, group
//! synchronisation and a leader is therefore correct on both targets.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch, stdarch_nvptx, link_llvm_intrinsics))]
#![cfg_attr(target_arch = "nvptx64", allow(internal_features))]

// So that a schedule may name what is in no prelude by one path on both sides: `fusewire::device::..`.
#[doc(hidden)]
pub extern crate self as device;

pub mod arch;
pub mod args;
pub mod atomic;
pub mod ctx;
pub mod element;
pub mod fold;
mod grain;
pub mod group;
pub mod hooks;
pub mod kernel;
pub mod launch;
pub mod mapped;
pub mod math;
pub mod ops;
pub mod pack;
#[cfg(target_arch = "nvptx64")]
pub mod panics;
mod plain;
pub mod prelude;
pub mod print;
pub mod protocol;
pub mod row;
pub mod schedule;
pub mod team;
pub mod tile;
pub mod wait;
pub mod window;

/// Version of everything two ranks must agree on: layouts of shared memory, headers, meaning of flags.
pub const PROTOCOL: u32 = 5;
