//! A name that `super` has for the host and not for the device.
use fusewire::prelude::*;

mod fusewire_device {
    pub mod element {
        pub type F16 = u8;
    }
}

#[comm_kernel(transports(Nvl), schedules(sendrecv))]
mod kernel {
    use super::fusewire_device::element::F16 as Half;
    pub struct Args<'a> {
        pub input: &'a [Half],
        pub output: Out<'a, Half>,
    }
}

fn main() {}
