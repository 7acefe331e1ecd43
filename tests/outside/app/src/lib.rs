//! Kernels for a transport, a schedule and a handle of another crate.

use fusewire::prelude::*;

/// Rounds what is sent, scales what arrives by the sender's factor, and adds a bias at one end.
#[comm_kernel(transports(pipe::Tube, Shm, Nvl), schedules(all_to_all, sendrecv, pipe::Shift), uses(pipe))]
pub mod scaled {
    use pipe::curve::{Bias, Place, step};
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub scales: pipe::DeviceScales<'a>,
        pub bias: Bias,
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        args.bias.at(Place::Sender, step(args.input[ctx.index()]))
    }
    pub fn consume(ctx: &Consume, args: &Args, value: f32) {
        args.output.at(ctx).set(args.bias.at(Place::Receiver, args.scales.of(ctx.peer) * value));
    }
}

/// Copies of two element types.
#[comm_kernel(transports(pipe::Tube), schedules(all_to_all, pipe::Shift), elements(u8, u64))]
pub mod copied {
    pub struct Args<'a, T> {
        pub input: &'a [T],
        pub output: Out<'a, T>,
    }
}

/// What is farthest from zero among all ranks, by a fold of another crate.
#[comm_kernel(transports(pipe::Tube, Shm), schedules(all_reduce), uses(pipe), reduce(pipe::curve::Farthest))]
pub mod farthest {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

/// Values by generic functions of another crate: over a trait of its own, and over a length.
#[comm_kernel(transports(pipe::Tube), schedules(all_to_all), uses(pipe))]
pub mod bent {
    use pipe::curve::{polynomial, within};
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        polynomial(&[1.0, -2.0, 0.5], within(args.input[ctx.index()], 8.0))
    }
    pub fn consume(ctx: &Consume, args: &Args, value: f32) {
        let turn = within(ctx.peer as i32 - 1, 1);
        args.output.at(ctx).set(polynomial(&[turn as f32, 2.0], value));
    }
}

/// Rows by functions of another crate, which are for rows of any length.
#[comm_kernel(transports(pipe::Tube), schedules(all_to_all), grain = row(1040), uses(pipe))]
pub mod levelled {
    use pipe::curve::{centred, scaled_to};
    pub struct Args<'a> {
        pub input: &'a [Bf16],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &ProduceRow, args: &Args) -> Row<f32> {
        scaled_to(ctx, &args.input.row(ctx), 16.0)
    }
    pub fn consume(ctx: &ConsumeRow, args: &Args, row: Row<f32>) {
        args.output.row(ctx).set(&centred(ctx, &row));
    }
}

/// A schedule of one's own that works on any transport.
#[comm_kernel(transports(pipe::Tube))]
pub fn pass_on<O: Ops>(
    kernel: &Kernel<O>,
    chunk: &[u32],
    bias: Option<pipe::curve::Bias>,
    output: Out<'_, u32>,
) -> Flow {
    let tile = kernel.share(chunk.len());
    let bias = bias.map_or(0, |bias| bias.value as u32);
    kernel.send_tile(kernel.next(1), tile, |ctx| chunk[ctx.index()] + bias)?;
    // SAFETY: blocks have shares of their own.
    unsafe {
        kernel.recv_tile(kernel.previous(1), tile, |ctx: &Consume, value: u32| output.at(ctx).set(value))
    }
}
