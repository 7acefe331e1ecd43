//! ConnectX adapters for GPU-initiated InfiniBand and RoCE v2: [`Mlx5`] is [`fusewire_nic::Nic`] over libibverbs and libmlx5.
//!
//! **It has never met an adapter.** What it asks of the libraries and of the firmware is checked here, byte by byte, against the
//! layouts that rdma-core, NVSHMEM and DOCA GPUNetIO publish; that an adapter does what they say is not.
//!
//! The libraries are looked up at run time: a program with this crate in it starts anywhere, and [`Mlx5::open`] says "no adapter"
//! and what to do where there is none, or none by mlx5.
//!
//! | module | what is there |
//! |---|---|
//! | `settings` | timeouts, retries, traffic class, which adapters may be used |
//! | `choose` | the adapter nearest to a GPU |
//! | `driver` | what is asked of the libraries; the one place where they are called |
//! | `prm` | commands of the firmware, bit field by bit field |
//! | `path` | addresses, MTU and the way to a peer on InfiniBand and Ethernet |
//! | `place` | memory of queues |
//! | `parts` | what queue pairs are made of; the doorbell |
//! | `adapter` | the adapter itself |
//!
//! # How queues are made
//! Kernels must know the addresses of queues, records and doorbell, so that they are made by DevX, commands passed to the firmware:
//! one stretch of memory for each queue pair (`mlx5dv_devx_umem_reg`), CREATE_CQ and CREATE_QP with offsets into it, and one doorbell
//! page for all of them (`mlx5dv_devx_alloc_uar`), mapped for the GPU as I/O memory. Doorbells are single stores of 8 bytes, so that
//! queues may share a page. Then RST2INIT, INIT2RTR and RTR2RTS connect a queue pair; a companion (`cd_master`) is connected to a
//! responder of its own adapter over the same port.
//!
//! # Sources
//! `providers/mlx5/{mlx5_ifc.h,mlx5dv.h}` of rdma-core; `ibgda.cpp`, `mlx5_prm.h` and `mlx5_ifc.h` of NVSHMEM's transports;
//! `doca_verbs_{qp,cq,uar,umem}.cpp` of DOCA GPUNetIO; defaults are those of torchcomms' IBGDA transport.
//!
//! # What cannot be done
//! The counters of a completion queue start over only with a new one, and entries that wait for a queue name its counter. So a queue
//! pair that was used is not emptied in place: [`fusewire_nic::Nic::reset`] says so, and a transport over this adapter is made anew
//! after a fault.

mod adapter;
#[cfg(test)]
mod adapter_tests;
mod choose;
mod driver;
mod error;
mod parts;
mod path;
mod place;
mod prm;
mod settings;

pub use adapter::Mlx5;
pub use fusewire_verbs::Filter;
pub use settings::{Queues, Settings};
