//! A small RAII layer over the CUDA driver API.
