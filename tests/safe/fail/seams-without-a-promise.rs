//! The traits on which memory safety rests, implemented without saying so.
#![forbid(unsafe_code)]

use fusewire::device::args::{Crosses, Plain};
use fusewire::device::group::Group;
use fusewire::device::window::{Links, NoRdma};
use fusewire::kernel::{Arguments, Binder, Entry, HookSet, Place, Supports};
use fusewire::prelude::*;
use fusewire::schedule::Custom;

struct Mine;
#[derive(Clone, Copy)]
struct Bytes(u64);

impl HookSet for Mine {
    type Args<'a> = Mine;
    type Wire = u8;
    const NAME: &'static str = "mine";
    const FILE: &'static str = "mine.rs";
    const ELEMENT: &'static str = "";
    const FINGERPRINT: u64 = 0;
    const SENDS_AS_IS: bool = true;
    const KEEPS_AS_IS: bool = true;
}

impl Supports<Custom, Shm> for Mine {
    const ENTRIES: &'static [Entry] = &[];
}

impl Arguments for Mine {
    type Raw = u64;
    fn bind(&self, _: &mut Binder) -> fusewire::Result<u64> {
        Ok(0)
    }
    fn input(&self) -> Option<Place<'_>> {
        None
    }
    fn output(&self) -> Option<Place<'_>> {
        None
    }
}

impl Crosses for Bytes {
    const CODE: u64 = 0;
}

impl Plain for Bytes {}

impl Group for Bytes {
    fn lane(&self) -> u32 {
        7
    }
    fn lanes(&self) -> u32 {
        1
    }
    fn sync(&self) {}
    fn any(&self, value: bool) -> bool {
        value
    }
}

impl Links for Bytes {
    const MAPPED: bool = true;
    const RDMA: bool = false;
    type Adapter = NoRdma;
}

impl fusewire::window::HostLinks for Bytes {
    fn adapter(_: u64) -> NoRdma {
        NoRdma
    }
}

fn main() {}
