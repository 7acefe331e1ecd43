use fusewire::prelude::*;

#[comm_kernel(transports(Nvl), schedules(sendrecv))]
mod kernel {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: it does nothing.
        unsafe {
            core::arch::asm!("membar.gl;")
        };
        args.input[ctx.index()]
    }
}

fn main() {}
