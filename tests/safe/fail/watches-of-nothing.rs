//! The control words of a kernel that does not run.
#![forbid(unsafe_code)]

use fusewire::device::group::Block;
use fusewire::device::wait::{Control, Watch};

fn main() {
    let control = Control { abort: 0xdead_0000, record: 0, deadline_ns: 0 };
    let watch = Watch::begin_all(&Block, control, 0, 0);
    println!("{}", watch.aborted());
    println!("{}", Watch::begin(&Block, control, 0, 0).aborted());
}
