//! A slice that hooks would have for ever.
use fusewire::prelude::*;
use std::sync::Mutex;

static KEPT: Mutex<Option<&'static [u32]>> = Mutex::new(None);

#[comm_kernel(transports(Shm))]
mod kernel {
    pub struct Args {
        pub input: &'static [u32],
    }
    pub fn produce(ctx: &Produce, args: &Args) -> u32 {
        *super::KEPT.lock().unwrap() = Some(args.input);
        args.input[ctx.index()]
    }
    pub fn consume(_: &Consume, _: &Args, _: u32) {}
}

#[comm_kernel(transports(Shm))]
fn schedule<O: Ops>(kernel: &Kernel<O>, input: &'static [u32]) -> Flow {
    let _ = kernel;
    *KEPT.lock().unwrap() = Some(input);
    Ok(())
}

fn main() {}
