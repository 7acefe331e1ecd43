//! The compiled part of the Python package `fusewire`: worlds, transports and launches over the C interface, of the library that comes with the
//! package or of one that was loaded. What users see is in `fusewire/__init__.py`.

// Keyword arguments of Python.
#![allow(clippy::too_many_arguments)]

mod api;
mod error;
mod handle;
mod kernel;
mod launch;
mod open;
mod pool;
mod stream;
mod symmetric;
mod tensor;
mod transport;
mod world;

use pyo3::prelude::*;

#[pymodule]
mod _fusewire {
    #[pymodule_export]
    use super::kernel::{Field, Kernel, Library};
    #[pymodule_export]
    use super::launch::{Launcher, Options};
    #[pymodule_export]
    use super::pool::_pool_closed;
    #[pymodule_export]
    use super::stream::Stream;
    #[pymodule_export]
    use super::symmetric::Symmetric;
    #[pymodule_export]
    use super::transport::Transport;
    #[pymodule_export]
    use super::world::World;
}
