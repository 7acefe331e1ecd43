//! An array's length that the target decides, in the type itself, in a constant and in a macro.
use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod in_type {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
        pub table: [u32; if cfg!(target_arch = "nvptx64") { 64 } else { 1 }],
    }
}

#[comm_kernel(transports(Shm))]
mod in_constant {
    const LEN: usize = if cfg!(target_arch = "nvptx64") { 64 } else { 1 };
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
        pub table: [u32; LEN],
    }
}

#[comm_kernel(transports(Shm))]
mod in_macro {
    macro_rules! len {
        () => {
            if cfg!(target_arch = "nvptx64") { 64 } else { 1 }
        };
    }
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
        pub table: [u32; len!()],
    }
}

#[comm_kernel(transports(Shm))]
fn in_argument<O: Ops>(kernel: &Kernel<O>, table: [u32; if cfg!(target_arch = "x86_64") { 1 } else { 9 }]) -> Flow {
    let _ = (kernel, table);
    Ok(())
}

fn main() {}
