//! **fusewire**: fused GPU communication kernels written as two small Rust functions.
//!
//! `produce` computes the value to send; `consume` handles the value that arrives. [`comm_kernel`] compiles both to PTX, fused into a
//! schedule and specialised for a transport's device operations. The same hooks and schedules run on CPU threads.
//!
//! ```no_run
//! use fusewire::prelude::*;
//!
//! /// Sends each chunk doubled; the receiver adds it to what it has.
//! #[comm_kernel(transports(Shm), schedules(all_to_all))]
//! mod double_add {
//!     pub struct Args<'a> {
//!         pub input: &'a [f32],
//!         pub output: Out<'a, f32>,
//!     }
//!     pub fn produce(ctx: &Produce, args: &Args) -> f32 {
//!         2.0 * args.input[ctx.index()]
//!     }
//!     pub fn consume(ctx: &Consume, args: &Args, value: f32) {
//!         args.output.at(ctx).add(value);
//!     }
//! }
//!
//! fn main() -> fusewire::Result<()> {
//!     let world = World::from_env()?;
//!     let shm = Shm::rendezvous(&world, 1 << 20)?;
//!     let all_to_all = double_add::all_to_all(&shm)?;
//!     let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
//!     let input = device.buffer_from(&[1.0f32; 1024])?;
//!     let mut output = device.buffer::<f32>(1024)?;
//!     all_to_all.launch(&stream, double_add::Launch { input: input.view(), output: output.view_mut() })?;
//!     println!("{:?}", &output.read(&stream)?[..4]);
//!     Ok(())
//! }
//! ```
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `cpu-protocols` | off | LL, LL128 and direct stores on CPU threads, if a launch names them; they are never the default there |
//! | `cudarc` | off | `Buffer::from_cudarc`, `Buffer::lend_cudarc` and `Stream::from_cudarc`: slices and streams of [cudarc](https://crates.io/crates/cudarc) 0.19 |
//! | `dlpack` | off | `Buffer::from_dlpack` and `Buffer::to_dlpack`: tensors of other libraries, by [DLPack](https://crates.io/crates/dlpark) |
//! | `mlx5` | off | `fusewire::mlx5`: ConnectX adapters for [`Ibgda`], over libibverbs and libmlx5 |
//!
//! CUDA and libibverbs need no feature. The driver and the library are loaded at run time, so the build needs neither. A program also
//! starts without them; only [`Nvl`], GPU devices and real adapters are then refused. The host side is written for Linux.

// So that generated code can name this crate inside it.
extern crate self as fusewire;

pub mod alone;
mod aside;
mod buffer;
mod capture;
pub mod dynamic;
mod error;
mod event;
pub mod foreign;
mod graph;
pub mod kernel;
mod machine;
mod order;
mod parked;
mod pending;
mod residency;
pub mod schedule;
mod stream;
pub mod tune;
mod uses;
pub mod window;

pub use buffer::{Buffer, View, ViewMut};
pub use error::{Error, Result};
pub use event::Event;
pub use fusewire_driver as driver;
#[doc(hidden)]
pub use fusewire_macros::__comm_kernel;
pub use fusewire_macros::{Element, Plain, comm_kernel, device_crate};
#[cfg(feature = "mlx5")]
pub use fusewire_mlx5 as mlx5;
pub use fusewire_nic as nic;
pub use fusewire_transports::host::{
    AbortHandle, Bound, CallField, Cut, Fault, Launched, Operation, Options, Place, Refusal, Warning,
    on_warning,
};
pub use fusewire_transports::peers::{PeersConfig, PeersError};
pub use fusewire_transports::{
    HostIb, Ibgda, Mesh, MultiPeerTransport, Nvl, NvlMesh, Shm, ShmMesh, Transport,
};
pub use fusewire_transports::{host_ib, ibgda, p2p, rdma};
pub use fusewire_world as world;
pub use fusewire_world::{UniqueId, World};
pub use graph::Graph;
pub use machine::Device;
pub use schedule::{Blocks, LaunchOptions, Protocol};
pub use stream::Stream;
pub use window::{HostWindow, WindowConfig};

/// The device side, as it is on the host.
pub mod device {
    pub use fusewire_device::*;
}

/// What a transport is made of, for those who write one: its memory, its end on this rank, what ranks agree on.
pub mod transport {
    pub use fusewire_device::mapped::Layout;
    pub use fusewire_transports::host::{
        Board, Error, Link, Machine, Mapping, Region, Result, Symmetric, agree, map_all, share,
    };
}

/// Peers of a rank, for those who exchange memory themselves.
pub mod peers {
    pub use fusewire_transports::host::{Error as TransportError, Machine};
    pub use fusewire_transports::peers::*;
}

/// Device operations of every transport.
pub mod ops {
    pub use fusewire_transports::ops::*;
}

/// What programs that launch kernels need, and what hooks see.
pub mod prelude {
    pub use crate::device::prelude::*;
    pub use crate::{
        Blocks, Buffer, Device, Element, Event, Graph, HostIb, HostWindow, Ibgda, LaunchOptions,
        MultiPeerTransport, Nvl, NvlMesh, Options, PeersConfig, Plain, Protocol, Shm, ShmMesh, Stream,
        Transport, UniqueId, View, ViewMut, WindowConfig, World, comm_kernel,
    };
    pub use fusewire_transports::prelude::*;
}
