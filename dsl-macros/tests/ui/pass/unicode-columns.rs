//! Text that is not ASCII before and in the hooks.
use fusewire::prelude::*;

/* größer */ #[comm_kernel(transports(Nvl))] mod umlauts { pub struct Args<'a> { pub input: &'a [f32], pub output: Out<'a, f32> } /* ≤ ∑ */ pub fn produce(ctx: &Produce, args: &Args) -> f32 { args.input[ctx.index()] } }

fn main() {}
