//! Several packs in flight, several architectures, line information.
use fusewire::prelude::*;

#[comm_kernel(transports(Nvl, Shm), schedules(all_to_all), unroll(8, 4, 1), archs(sm_80, sm_90, sm_100), line_info)]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

fn main() {}
