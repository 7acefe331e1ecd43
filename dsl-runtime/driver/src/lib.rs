//! A small RAII layer over the CUDA driver API.
//!
//! It is what fusewire needs of CUDA and no more: devices and their primary contexts, modules from PTX with the
//! compiler's log, launches with attributes, streams and events with deadlines, graph capture that cannot leave
//! a stream capturing, and memory that several devices and processes map.
//!
//! # Without CUDA
//! The driver library is looked up at run time. [`Driver::load`] is the only way in, and it returns an error
//! that says what to do where there is no driver, no device, or a driver too old. A binary built with this
//! crate starts anywhere.
//!
//! ```
//! match fusewire_driver::Driver::load() {
//!     Ok(driver) => println!("CUDA {}, {} devices", driver.version(), driver.device_count()?),
//!     Err(error) => println!("{error}"),
//! }
//! # Ok::<(), fusewire_driver::Error>(())
//! ```
//!
//! # Rules
//! - Every operation makes its context current on the calling thread by itself.
//! - A value holds what it depends on, so values may be dropped in any order, on any thread, inside a captured
//!   region too.
//! - A function is `unsafe` where the device could be made to touch memory that it must not: launches, graph
//!   replays, and copies by raw address. Those that work on an owner ([`memory::DeviceRegion`]) are safe.
//! - After an error whose [`Error::is_sticky`] is true the context is lost for the whole process.

pub mod copy;
pub mod foreign;
pub mod memory;
pub mod ptx;

mod context;
mod device;
mod driver;
mod error;
mod event;
mod graph;
mod handle;
mod launch;
mod module;
mod partition;
mod pointer;
mod stream;
mod symbols;

pub use context::{Context, PriorityRange, relaxed};
pub use device::{Device, DeviceAttribute, PeerAttribute};
pub use driver::{Driver, Version};
pub use error::{Code, Error, Result};
pub use event::Event;
pub use graph::{Capture, CaptureMode, Graph, GraphExec};
pub use launch::{Dim3, LaunchConfig, Params, launch, launch_raw};
pub use module::{Function, FunctionAttributes, JitOptions, Module};
pub use pointer::DevicePtr;
pub use stream::{Stream, WaitCondition};

#[cfg(test)]
mod tests {
    use super::memory::{DeviceMemory, Mapping, PhysicalMemory, PinnedMemory, Reservation, SharedMemory};
    use super::*;

    /// Compiles only if every type may be moved to, and used from, any thread.
    #[test]
    fn types_are_shared_between_threads() {
        fn shared<T: Send + Sync + 'static>() {}
        shared::<(Driver, Device, Context, Module, Function, Stream, Event)>();
        shared::<(Graph, GraphExec, LaunchConfig, Params, DevicePtr, Error)>();
        shared::<(DeviceMemory, PinnedMemory, SharedMemory, PhysicalMemory, Reservation, Mapping)>();
    }

    #[test]
    fn what_needs_no_device_object_still_loads_the_driver_first() {
        use std::os::fd::AsFd;
        if let Err(without) = Driver::load() {
            let file = std::fs::File::open("/dev/null").expect("a file");
            let import = PhysicalMemory::import_fd(file.as_fd(), 1).expect_err("no driver");
            let reserve = Reservation::new(1 << 21, 0).expect_err("no driver");
            assert_eq!(import.to_string(), without.to_string());
            assert_eq!(reserve.to_string(), without.to_string());
        }
    }

    #[test]
    fn addresses_are_numbers_that_wrap() {
        assert_eq!(DevicePtr::new(0x1000).offset(0x10).as_u64(), 0x1010);
        assert!(DevicePtr::new(u64::MAX).offset(1).is_null());
        assert_eq!(DevicePtr::new(0xab).to_string(), "0xab");
        assert_eq!(bytemuck::bytes_of(&DevicePtr::new(1)), 1_u64.to_ne_bytes());
    }
}

/// [`Capture`] stays on the thread that began it.
///
/// ```compile_fail
/// fn send<T: Send>() {}
/// send::<fusewire_driver::Capture>();
/// ```
#[cfg(doctest)]
struct CaptureIsNotSend;
