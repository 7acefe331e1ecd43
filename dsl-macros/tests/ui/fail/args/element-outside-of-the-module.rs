use fusewire::prelude::*;

#[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
#[repr(C)]
pub struct Complex {
    pub re: f32,
    pub im: f32,
}

fn main() {}
