//! Hooks in a world of one rank, over slices.

use fusewire::prelude::*;
use fusewire::{Result, alone};

#[comm_kernel(transports(Shm), schedules(all_to_all, all_gather, broadcast, scatter, gather))]
mod narrow {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
        pub count: Accumulate<'a, u64>,
        pub limit: Option<f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> Bf16 {
        Bf16::from_f32(2.0 * args.input[ctx.index()])
    }
    pub fn consume(ctx: &Consume, args: &Args, value: Bf16) {
        let value = value.to_f32();
        assert!(args.limit.is_none_or(|limit| value < limit), "{value} is too much");
        args.output.at(ctx).add(value);
        args.count.add(0, 1);
    }
}

#[comm_kernel(transports(Shm), schedules(all_reduce, reduce_scatter, reduce), reduce(sum, f32))]
mod sums {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

#[comm_kernel(transports(Shm), schedules(all_to_all), elements(u8, f64))]
mod copied {
    pub struct Args<'a, T> {
        pub input: &'a [T],
        pub output: Out<'a, T>,
    }
}

#[comm_kernel(transports(Shm), schedules(all_to_all), layout(transposed))]
mod transpose {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> u32 {
        args.input.transposed(ctx)
    }
}

#[comm_kernel(transports(Shm))]
fn numbered<O: Ops>(kernel: &Kernel<O>, output: Out<'_, u32>) -> Flow {
    let tile = kernel.share(output.len());
    // SAFETY: each block has its own share of the indices.
    unsafe { kernel.local_tile(tile, |ctx| output.at(ctx).set(kernel.blocks() as u32)) };
    Ok(())
}

#[test]
fn every_schedule_runs_hooks_over_slices() -> Result<()> {
    // What is sent is a bfloat16.
    let input: Vec<f32> = (0..1001).map(|i| i as f32 + 0.125).collect();
    let expected: Vec<f32> = input.iter().map(|x| 1.0 + Bf16::from_f32(2.0 * x).to_f32()).collect();
    macro_rules! check {
        ($($schedule:ident)*) => {$(
            let (mut output, mut count) = (vec![1.0; 1001], [7]);
            alone::run(narrow::$schedule, |slices| narrow::Launch {
                input: slices.read(&input),
                output: slices.write(&mut output),
                count: slices.write(&mut count),
                limit: None,
            })?;
            assert_eq!((&output, count), (&expected, [1008]), stringify!($schedule));
        )*};
    }
    check!(all_to_all all_gather broadcast scatter gather);
    Ok(())
}

#[test]
fn folds_and_generic_modules() -> Result<()> {
    macro_rules! check {
        ($($schedule:ident)*) => {$(
            let mut output = [0.0; 3];
            alone::run(sums::$schedule, |slices| sums::Launch {
                input: slices.read(&[1.0, 2.0, 3.5]),
                output: slices.write(&mut output),
            })?;
            assert_eq!(output, [1.0, 2.0, 3.5], stringify!($schedule));
        )*};
    }
    check!(all_reduce reduce_scatter reduce);
    let mut output = [0; 5];
    alone::run(copied::all_to_all::<u8, _>, |slices| copied::Launch {
        input: slices.read(&[1, 2, 3, 4, 5]),
        output: slices.write(&mut output),
    })?;
    assert_eq!(output, [1, 2, 3, 4, 5]);
    Ok(())
}

#[test]
fn options_reach_the_launch() -> Result<()> {
    let mut output = [0; 6];
    alone::run_with(transpose::all_to_all, &LaunchOptions::default().shape(2, 3), |slices| {
        transpose::Launch { input: slices.read(&[1, 2, 3, 4, 5, 6]), output: slices.write(&mut output) }
    })?;
    assert_eq!(output, [1, 3, 5, 2, 4, 6]);
    for blocks in [1, 3] {
        let mut output = [0; 500];
        alone::run_with(numbered::on, &LaunchOptions::default().blocks(blocks), |slices| numbered::Launch {
            output: slices.write(&mut output),
        })?;
        assert_eq!(output, [blocks; 500]);
    }
    Ok(())
}

#[test]
fn what_goes_wrong_is_said() {
    let (mut output, mut count) = ([0.0; 3], [0]);
    let mut run = |input: &[f32], limit| {
        let run = alone::run(narrow::all_to_all, |slices| narrow::Launch {
            input: slices.read(input),
            output: slices.write(&mut output),
            count: slices.write(&mut count),
            limit,
        });
        run.unwrap_err().to_string()
    };
    let text = run(&[1.0, 2.0, 3.0], Some(5.0));
    assert!(text.contains("6 is too much") && text.contains("tests/alone.rs:"), "{text}");
    let text = run(&[1.0], None);
    assert!(text.contains("the len is 1 but the index is 1"), "{text}");
}
