//! The device side of fusewire, compiled twice from one source: for `nvptx64` and for the host.
//!
//! | module | what is there |
//! |---|---|
//! | [`element`] | element types and their conversions, bit-equal on both targets |
//! | [`pack`] | 16-byte packs, the unit that crosses the wire |
//! | [`ctx`] | what a hook knows about the element it handles |
//! | [`args`] | kernel arguments: slices, exclusive outputs, atomic outputs |
//! | [`hooks`] | the trait behind `produce` and `consume` |
//! | [`ops`] | the seam a transport fills in: `put`, `get`, `signal`, `wait` |
//! | [`mapped`] | that seam for peers whose memory can be stored to (NVLink, host shared memory) |
//! | [`channel`] | byte streams with credits over staging rings |
//! | [`line`](mod@line) | flag-in-line exchange for small chunks |
//! | [`wait`] | deadlines, abort words and abort records |
//! | [`schedule`] | `sendrecv`, `all_to_all`, and the context of a schedule of one's own |
//! | [`window`] | signals, barriers, counters and data between peers, for schedules of one's own |
//! | [`group`] | thread groups |
//! | [`atomic`] | loads, stores, fences and read-modify-writes with scope and order in their types |
//! | [`arch`] | every intrinsic: inline PTX on one side, `core` on the other |
//!
//! On the host each block is an OS thread with a group of one lane. A schedule written as strided loops over a group, group
//! synchronisation and a leader is therefore right on both targets.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch, stdarch_nvptx, link_llvm_intrinsics))]
#![cfg_attr(target_arch = "nvptx64", allow(internal_features))]

// So that a schedule may name what is in no prelude by one path on both sides: `fusewire::device::..`.
#[doc(hidden)]
pub extern crate self as device;

pub mod arch;
pub mod args;
pub mod atomic;
pub mod channel;
pub mod ctx;
pub mod element;
pub mod group;
pub mod hooks;
pub mod line;
pub mod mapped;
pub mod ops;
pub mod pack;
pub mod prelude;
pub mod schedule;
pub mod wait;
pub mod window;

/// Version of everything two ranks must agree on: layouts of shared memory, headers, meaning of flags.
pub const PROTOCOL: u32 = 3;
