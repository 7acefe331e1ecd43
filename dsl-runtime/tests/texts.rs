//! What mistakes are told: the kernel, the field, what was expected and what was found.

use fusewire::prelude::*;
use fusewire::{Operation, Result, alone};
use std::time::Duration;

/// Reads its input transposed, element by element.
#[comm_kernel(transports(Shm), schedules(all_to_all))]
mod transpose {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> u32 {
        column(ctx, args.input)
    }
    fn column(ctx: &Produce, input: &[u32]) -> u32 {
        input[ctx.transposed_index()]
    }
}

#[comm_kernel(transports(Shm), schedules(all_to_all))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

/// Sends before it receives, `len` elements or as many as are staged.
#[comm_kernel(transports(Shm))]
fn ring<O: Ops>(kernel: &Kernel<O>, input: &[u16], output: Out<'_, u16>, len: Option<usize>) -> Flow {
    let tile = Tile { start: 0, len: len.unwrap_or(kernel.most_staged::<u16>()) };
    kernel.send_tile(kernel.next(1), tile, |ctx| input[ctx.index()])?;
    // SAFETY: one block, one tile.
    unsafe { kernel.recv_tile(kernel.previous(1), tile, |ctx, value: u16| output.at(ctx).set(value)) }
}

/// What two ranks get of `ring`, rank `r` with `len[r]` elements, over channels of 2 KiB.
fn rings(len: [Option<usize>; 2]) -> Vec<Result<Vec<u16>>> {
    let rank = |world: World| {
        let options = Options::per_peer(1 << 14).channels(8).deadline(Duration::from_millis(300));
        let shm = Shm::rendezvous(&world, options)?;
        let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
        let input = device.buffer_from(&vec![1 + world.rank() as u16; 5000])?;
        let mut output = device.buffer::<u16>(5000)?;
        let len = len[world.rank()];
        let args = ring::Launch { input: input.view(), output: output.view_mut(), len };
        ring::on(&shm)?.launch(&stream, 1, args)?;
        let result = output.read(&stream);
        // Both have read the fault before a transport goes.
        world.barrier()?;
        result
    };
    World::threads(2, rank).unwrap()
}

fn told(outcome: Result<()>, parts: &[&str]) {
    let text = outcome.unwrap_err().to_string();
    for part in parts {
        assert!(text.contains(part), "no `{part}` in: {text}");
    }
}

#[test]
fn a_transpose_without_a_shape_is_not_launched() {
    let mut output = [0; 6];
    let mut run = |options: &LaunchOptions| {
        alone::run_with(transpose::all_to_all, options, |slices| transpose::Launch {
            input: slices.read(&[1, 2, 3, 4, 5, 6]),
            output: slices.write(&mut output),
        })
    };
    told(run(&LaunchOptions::default()), &["`texts::transpose` reads", "transposed", "shape(rows, cols)"]);
    run(&LaunchOptions::default().shape(2, 3)).unwrap();
    assert_eq!(output, [1, 3, 5, 2, 4, 6]);
}

#[test]
fn lengths_that_do_not_fit_name_field_and_kernel() {
    let options = |elements| LaunchOptions::default().elements(elements);
    let run = |options: LaunchOptions, input: usize, output: usize| {
        World::threads(2, |world| {
            let shm = Shm::rendezvous(&world, 1 << 16)?;
            let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
            let (input, mut output) = (device.buffer::<f32>(input)?, device.buffer::<f32>(output)?);
            let args = copy::Launch { input: input.view(), output: output.view_mut() };
            copy::all_to_all(&shm)?.launch_with(&stream, args, &options)
        })
        .unwrap()
        .swap_remove(0)
    };
    told(run(LaunchOptions::default(), 4, 8), &["`texts::copy`", "`input` has 4", "2 chunks of 4, 8 in all"]);
    told(
        run(options(4), 8, 6),
        &["`texts::copy`", "`output` has 6", "2 chunks of 4", "LaunchOptions::elements"],
    );
    told(
        run(LaunchOptions::default(), 8, 5),
        &["`texts::copy`", "5 elements of its output", "multiple of 2"],
    );
}

#[test]
fn a_tile_that_is_not_staged_names_the_limit() {
    // A header, and 120 packs of 8.
    for outcome in rings([None; 2]) {
        assert_eq!(outcome.unwrap().iter().filter(|x| **x > 0).count(), 960);
    }
    for outcome in rings([Some(961); 2]) {
        let error = outcome.unwrap_err();
        let fault = error.fault().unwrap();
        assert_eq!(fault.staging, Some(2048));
        told(Err(error), &["room in staging", "stages 2048 bytes, 1920 of them", "`Kernel::most_staged`"]);
    }
}

#[test]
fn tiles_of_two_lengths_name_both() {
    let outcomes = rings([Some(800), Some(797)]);
    let errors: Vec<_> = outcomes.into_iter().map(Result::unwrap_err).collect();
    let found = errors.iter().any(|error| {
        let fault = error.fault().unwrap();
        matches!(fault.operation, Some(Operation::Length { expected: (1600, 5), seen: (1600, 0), .. }))
            || matches!(fault.operation, Some(Operation::Length { expected: (1600, 0), seen: (1600, 5), .. }))
    });
    assert!(found, "{errors:?}");
    for error in errors {
        let both = ["100 whole packs of 16 bytes", "100 packs of 16 bytes, the last with 5 elements"];
        told(Err(error), &both);
    }
    for outcome in rings([Some(800), Some(811)]) {
        told(
            outcome.map(drop),
            &["100 whole packs of 16 bytes", "102 packs of 16 bytes, the last with 3 elements"],
        );
    }
}
