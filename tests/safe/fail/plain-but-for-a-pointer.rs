//! What calls the macro behind the derive itself, and leaves out or misnames what is not plain.
#![forbid(unsafe_code)]

use fusewire::device::__plain;

#[derive(Clone, Copy)]
pub struct LeftOut {
    pub len: u64,
    pub name: &'static str,
}

#[derive(Clone, Copy)]
pub struct Misnamed {
    pub name: &'static str,
}

#[derive(Clone, Copy)]
pub enum Holds {
    Nothing,
    Name(&'static str),
}

__plain! { struct LeftOut { len: u64, } }
__plain! { struct Misnamed { name: [u64; 2], } }
__plain! { enum Holds { Nothing, } }

fn main() {}
