//! Two handles of one `HostBuffer`, one writing and one reading the same bytes: they come out old, new or mixed, byte by byte.
//! Ends: well

use fusewire::p2p::HostBuffer;
use std::sync::atomic::{AtomicBool, Ordering};

pub fn run() -> crate::Ended {
    const BYTES: usize = 4099;
    let written = HostBuffer::from_vec(vec![1; BYTES]);
    let read = written.clone();
    let done = AtomicBool::new(false);
    let odd = std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut value = 1u8;
            while !done.load(Ordering::Relaxed) {
                value = if value == 1 { 2 } else { 1 };
                let _ = written.write(3, &[value; BYTES - 3]);
            }
        });
        let mut bytes = [0; BYTES - 3];
        let mut odd = 0;
        for _ in 0..2000 {
            if read.read(3, &mut bytes).is_ok() {
                odd += bytes.iter().filter(|b| !matches!(**b, 1 | 2)).count();
            }
        }
        done.store(true, Ordering::Relaxed);
        odd
    });
    crate::ensure(odd == 0, || format!("{odd} bytes that nobody wrote"))?;
    crate::ensure(read.write(usize::MAX, &[0; 2]).is_err(), || "a write past the end".into())?;
    crate::ensure(read.read(BYTES - 1, &mut [0; 2]).is_err(), || "a read past the end".into())
}
