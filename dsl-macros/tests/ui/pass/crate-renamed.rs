//! `fusewire` under another name.
pub mod vendored {
    pub use fusewire::*;
}
use vendored::prelude::*;

#[comm_kernel(crate = crate::vendored, transports(Shm, Nvl), schedules(all_to_all))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [F16],
        pub output: Out<'a, F16>,
    }
}

#[comm_kernel(crate = crate::vendored, transports(Shm, Nvl))]
fn nothing<O: Ops>(kernel: &Kernel<O>) -> Flow {
    kernel.sync();
    Ok(())
}

fn main() {}
