//! Kernels on a transport, by a schedule and with a handle that are another crate's.

use app::{bent, copied, farthest, levelled, pass_on, scaled};
use fusewire::device::schedule::check;
use fusewire::prelude::*;
use fusewire::{Error, Result};
use pipe::curve::{Bias, Place};
use pipe::{Scales, Shift, Tube, curve};
use std::time::Duration;

fn ranks(count: usize, work: impl Fn(World) -> Result<()> + Send + Sync + Clone + 'static) {
    for outcome in World::threads(count, work).unwrap() {
        outcome.unwrap();
    }
}

/// Distinct values, with eighths and less.
fn values(rank: usize, len: usize) -> Vec<f32> {
    (0..len).map(|i| (rank * len + i) as f32 / 16.0).collect()
}

#[test]
fn the_schedule_is_one() {
    for world in 2..9 {
        for by in 1..world {
            check(world, |_| Shift { by }).unwrap();
        }
    }
}

/// All three schedules, at sizes below and far above a channel's staging, eagerly and replayed.
#[test]
fn hooks_with_a_handle_and_shared_code() {
    ranks(3, |world| {
        let (me, size) = (world.rank(), world.size());
        let tube = Tube::rendezvous(&world, Options::per_peer(4096).channels(2))?;
        let (device, stream) = (Device::of(&tube), Device::of(&tube).stream()?);
        let factors: Vec<f32> = (0..size).map(|r| 1.0 + r as f32).collect();
        let scales = Scales::new(&device, &factors)?;
        let bias = Bias { place: Place::Receiver, value: 0.5 };
        let said = |from: usize, x: f32| factors[from] * curve::step(x) + 0.5;
        let (all, pair, shift) =
            (scaled::all_to_all(&tube)?, scaled::sendrecv(&tube)?, scaled::shift(&tube)?);
        for n in [1, 7, 256, 5000] {
            let input = device.buffer_from(&values(me, n * size))?;
            let mut output = device.buffer::<f32>(n * size)?;
            all.launch(
                &stream,
                scaled::Launch { input: input.view(), scales: &scales, bias, output: output.view_mut() },
            )?;
            let got = output.read(&stream)?;
            for from in 0..size {
                let sent = &values(from, n * size)[me * n..][..n];
                let expected: Vec<f32> = sent.iter().map(|x| said(from, *x)).collect();
                assert_eq!(got[from * n..][..n], expected, "from {from}, {n} elements");
            }
            let input = device.buffer_from(&values(me, n))?;
            let mut output = device.buffer::<f32>(n)?;
            let (next, from) = ((me + 1) % size, (me + size - 1) % size);
            let args =
                scaled::Launch { input: input.view(), scales: &scales, bias, output: output.view_mut() };
            pair.sendrecv(&stream, next, from, args)?;
            let expected: Vec<f32> = values(from, n).iter().map(|x| said(from, *x)).collect();
            assert_eq!(output.read(&stream)?, expected, "from {from}, {n} elements");
            for by in [1, 2] {
                let args =
                    scaled::Launch { input: input.view(), scales: &scales, bias, output: output.view_mut() };
                let graph = stream
                    .capture(|| shift.launch_as(&stream, Shift { by }, args, &LaunchOptions::default()))?;
                for _ in 0..3 {
                    graph.launch(&stream)?;
                }
                let from = (me + size - by as usize) % size;
                let expected: Vec<f32> = values(from, n).iter().map(|x| said(from, *x)).collect();
                assert_eq!(output.read(&stream)?, expected, "shifted by {by}, {n} elements");
            }
        }
        Ok(())
    });
}

#[test]
fn copies_of_element_types() {
    ranks(2, |world| {
        let tube = Tube::rendezvous(&world, Options::per_peer(2048))?;
        let (device, stream) = (Device::of(&tube), Device::of(&tube).stream()?);
        let input: Vec<u64> = (0..3000).map(|i| i << (8 * world.rank())).collect();
        let (input, mut output) = (device.buffer_from(&input)?, device.buffer::<u64>(3000)?);
        let args = copied::Launch { input: input.view(), output: output.view_mut() };
        copied::shift::<u64, _>(&tube)?.launch_as(
            &stream,
            Shift { by: 1 },
            args,
            &LaunchOptions::default(),
        )?;
        let expected: Vec<u64> = (0..3000).map(|i| i << (8 * (1 - world.rank()))).collect();
        assert_eq!(output.read(&stream)?, expected);
        Ok(())
    });
}

#[test]
fn a_fold_of_another_crate() {
    ranks(3, |world| {
        let tube = Tube::rendezvous(&world, Options::per_peer(2048).channels(2))?;
        let (device, stream) = (Device::of(&tube), Device::of(&tube).stream()?);
        let value = |rank: usize, i: usize| ((i * 31 + rank * 17) % 101) as f32 - 50.0;
        let input: Vec<f32> = (0..3001).map(|i| value(world.rank(), i)).collect();
        let (input, mut output) = (device.buffer_from(&input)?, device.buffer::<f32>(3001)?);
        let args = farthest::Launch { input: input.view(), output: output.view_mut() };
        farthest::all_reduce(&tube)?.launch(&stream, args)?;
        for (i, got) in output.read(&stream)?.into_iter().enumerate() {
            let farther = |a: f32, b: f32| if b.abs() > a.abs() { b } else { a };
            assert_eq!(got, (0..3).map(|rank| value(rank, i)).reduce(farther).unwrap(), "element {i}");
        }
        Ok(())
    });
}

/// A function with a bound of its crate's, and one over a length.
#[test]
fn generic_functions_of_another_crate() {
    ranks(3, |world| {
        let (me, size) = (world.rank(), world.size());
        let tube = Tube::rendezvous(&world, Options::per_peer(4096).channels(2))?;
        let (device, stream) = (Device::of(&tube), Device::of(&tube).stream()?);
        let n = 1001;
        let value = |rank: usize, i: usize| ((i * 7 + rank * 5) % 41) as f32 / 2.0 - 10.0;
        let input: Vec<f32> = (0..n * size).map(|i| value(me, i)).collect();
        let (input, mut output) = (device.buffer_from(&input)?, device.buffer::<f32>(n * size)?);
        let args = bent::Launch { input: input.view(), output: output.view_mut() };
        bent::all_to_all(&tube)?.launch(&stream, args)?;
        for (k, got) in output.read(&stream)?.into_iter().enumerate() {
            let (from, i) = (k / n, k % n);
            let x = value(from, me * n + i).clamp(-8.0, 8.0);
            assert_eq!(
                got,
                2.0 * ((0.5 * x - 2.0) * x + 1.0) + (from as f32 - 1.0),
                "from {from}, element {i}"
            );
        }
        Ok(())
    });
}

/// Functions over rows of any length and element. Sums are exact, so their order does not matter.
#[test]
fn functions_of_another_crate_over_rows() {
    ranks(2, |world| {
        let (me, size) = (world.rank(), world.size());
        let (cols, rows) = (1040, 3);
        let tube = Tube::rendezvous(&world, Options::per_peer(2 << 20))?;
        let (device, stream) = (Device::of(&tube), Device::of(&tube).stream()?);
        // The greatest of each row is 2, 4 or 8, and a quarter of its elements are as far below zero.
        let most = |rank: usize, row: usize| (2 << ((row + rank) % 3)) as f32;
        let value = |rank: usize, row: usize, col: usize| {
            let x = most(rank, row);
            match col % 4 {
                0 | 2 => x,
                1 => -x,
                _ => 0.0,
            }
        };
        let place = |k: usize| (k / cols, k % cols);
        let input = (0..size * rows * cols).map(place).map(|(row, col)| Bf16::from_f32(value(me, row, col)));
        let input = device.buffer_from(&input.collect::<Vec<_>>())?;
        let mut output = device.buffer::<f32>(size * rows * cols)?;
        let args = levelled::Launch { input: input.view(), output: output.view_mut() };
        levelled::all_to_all(&tube)?.launch(&stream, args)?;
        for (k, got) in output.read(&stream)?.into_iter().enumerate() {
            let ((from, row), col) = ((k / cols / rows, k / cols % rows), k % cols);
            let (x, most) = (value(from, me * rows + row, col), most(from, me * rows + row));
            // Half of them is 16, a quarter -16.
            assert_eq!(got, x * (16.0 / most) - 4.0, "from {from}, row {row}, column {col}");
        }
        Ok(())
    });
}

#[test]
fn a_schedule_of_ones_own_on_it() {
    ranks(4, |world| {
        let tube = Tube::rendezvous(&world, Options::per_peer(4096).channels(2))?;
        let (device, stream) = (Device::of(&tube), Device::of(&tube).stream()?);
        let input = device.buffer_from(&[world.rank() as u32; 500])?;
        let mut output = device.buffer::<u32>(500)?;
        let pass_on = pass_on::on(&tube)?;
        let bias = Bias { place: Place::Sender, value: 9.0 };
        for (bias, more) in [(None, 0), (Some(bias), 9)] {
            let args = pass_on::Launch { chunk: input.view(), bias, output: output.view_mut() };
            pass_on.launch(&stream, 2, args)?;
            assert_eq!(output.read(&stream)?, [(world.rank() + 3) as u32 % 4 + more; 500]);
        }
        Ok(())
    });
}

/// What goes wrong is said as on a transport of fusewire's own, and the transport works again once it is renewed.
#[test]
fn faults_and_refusals() {
    ranks(2, |world| {
        let options = Options::per_peer(2048).deadline(Duration::from_millis(300));
        let tube = Tube::rendezvous(&world, options)?;
        let (device, stream) = (Device::of(&tube), Device::of(&tube).stream()?);
        let shift = copied::shift::<u8, _>(&tube)?;
        let (input, mut output) = (device.buffer::<u8>(64)?, device.buffer::<u8>(64)?);
        let none = LaunchOptions::default();
        // This rank itself.
        let args = copied::Launch { input: input.view(), output: output.view_mut() };
        let refused = shift.launch_as(&stream, Shift { by: 2 }, args, &none);
        assert!(matches!(refused, Err(Error::Misuse { .. })), "{refused:?}");
        // A peer that never comes.
        if world.rank() == 0 {
            let args = copied::Launch { input: input.view(), output: output.view_mut() };
            shift.launch_as(&stream, Shift { by: 1 }, args, &none)?;
            let fault = stream.synchronize().unwrap_err().to_string();
            assert!(fault.contains("rank 1") && fault.contains("shift"), "{fault}");
        }
        world.barrier()?;
        tube.renew()?;
        let args = copied::Launch { input: input.view(), output: output.view_mut() };
        shift.launch_as(&stream, Shift { by: 1 }, args, &none)?;
        stream.synchronize()
    });
}
