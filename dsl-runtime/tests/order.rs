//! Order between streams: the second runs behind the first, and the host waits for neither.

use fusewire::prelude::*;
use fusewire::world::World;
use std::time::Duration;

/// Copies.
#[comm_kernel(transports(Shm), schedules(all_to_all))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
    }
}

/// Elements for each rank.
const CHUNK: usize = 1000;

/// So many transports, whose kernels wait so long.
fn transports<const N: usize>(world: &World, deadline: Duration) -> fusewire::Result<[Shm; N]> {
    let options = Options { deadline, ..Options::from(1 << 16) };
    let all = (0..N).map(|_| Shm::rendezvous(world, options.clone())).collect::<Result<Vec<_>, _>>()?;
    Ok(all.try_into().unwrap_or_else(|_| unreachable!()))
}

/// Runs two ranks.
fn two(rank: impl Fn(World) -> fusewire::Result<()> + Send + Sync) {
    World::threads(2, rank).unwrap().into_iter().for_each(Result::unwrap);
}

#[test]
fn a_second_stream_waits_and_the_host_does_not() {
    two(|world| {
        let [first, second] = transports(&world, Duration::from_secs(5))?;
        let (device, me) = (Device::of(&first), world.rank());
        let launchers = [copy::all_to_all(&first)?, copy::all_to_all(&second)?];
        let [a, b, c, d] = [device.stream()?, device.stream()?, device.stream()?, device.stream()?];
        let new = || device.buffer::<u32>(2 * CHUNK);
        let (mut input, mut x, mut y, mut z, mut last) = (new()?, new()?, new()?, new()?, new()?);
        let replay = d.capture(|| last.copy_from(&d, &y))?;
        for round in 1..20 {
            input.fill_from(&[round; 2 * CHUNK])?;
            if me == 1 {
                // Not before the other rank has queued all of it.
                world.barrier()?;
            }
            launchers[0].launch(&a, copy::Launch { input: input.view(), output: x.view_mut() })?;
            // Behind the writer, by another transport.
            launchers[1].launch(&b, copy::Launch { input: x.view(), output: y.view_mut() })?;
            // Behind a reader, and by the transport of the first.
            input.fill_bytes(&c, 0)?;
            launchers[0].launch(&b, copy::Launch { input: x.view(), output: z.view_mut() })?;
            replay.launch(&d)?;
            if me == 0 {
                world.barrier()?;
            }
            for (buffer, stream) in [(&last, &d), (&z, &b), (&y, &a), (&x, &c)] {
                assert_eq!(buffer.read(stream)?, [round; 2 * CHUNK]);
            }
            assert_eq!(input.read(&a)?, [0; 2 * CHUNK]);
        }
        Ok(())
    });
}

#[test]
fn a_read_waits_for_no_later_work_of_another_stream() {
    two(|world| {
        let [shm] = transports(&world, Duration::from_secs(5))?;
        let (device, launcher) = (Device::of(&shm), copy::all_to_all(&shm)?);
        let (a, b, c) = (device.stream()?, device.stream()?, device.stream()?);
        let new = |value| device.buffer_from(&[value; 2 * CHUNK]);
        let (mut x, mut y, input, mut output) = (new(0)?, new(0)?, new(7)?, new(0)?);
        x.fill_bytes(&a, 1)?;
        y.copy_from(&b, &x)?;
        if world.rank() == 1 {
            world.barrier()?;
        }
        launcher.launch(&a, copy::Launch { input: input.view(), output: output.view_mut() })?;
        for buffer in [&x, &y] {
            assert_eq!(buffer.read(&c)?, [0x0101_0101; 2 * CHUNK]);
        }
        if world.rank() == 0 {
            world.barrier()?;
        }
        assert_eq!(output.read(&b)?, [7; 2 * CHUNK]);
        Ok(())
    });
}

#[test]
fn faults_reach_the_streams_that_use_the_results() {
    // While the stream that had the fault is there, and when it is gone.
    for goes in [false, true] {
        two(|world| {
            let [shm] = transports(&world, Duration::from_millis(100))?;
            let (device, launcher) = (Device::of(&shm), copy::all_to_all(&shm)?);
            let (writer, reader, third) = (device.stream()?, device.stream()?, device.stream()?);
            let input = device.buffer_from(&[7; 2 * CHUNK])?;
            let new = || device.buffer::<u32>(2 * CHUNK);
            let (mut x, mut y, mut z) = (new()?, new()?, new()?);
            if world.rank() == 0 {
                // Which rank 1 leaves out.
                launcher.launch(&writer, copy::Launch { input: input.view(), output: x.view_mut() })?;
                y.copy_from(&reader, &x)?;
                z.copy_from(&third, &y)?;
                let told = |told| assert!(matches!(told, Err(fusewire::Error::Fault(_))), "{told:?}");
                match goes {
                    true => drop(writer),
                    false => told(writer.synchronize()),
                }
                for stream in [&third, &reader] {
                    told(stream.synchronize());
                    stream.synchronize()?;
                }
            }
            world.barrier()?;
            Ok(())
        });
    }
}

/// What a user must keep: ranks order dependent launches alike. Independent ones go in any order.
#[test]
fn ranks_that_order_dependent_launches_alike_run() {
    two(|world| {
        let [first, second, third] = transports(&world, Duration::from_secs(20))?;
        let (device, me) = (Device::of(&first), world.rank() as u32);
        let launchers = [copy::all_to_all(&first)?, copy::all_to_all(&second)?, copy::all_to_all(&third)?];
        let [a, b, c] = [device.stream()?, device.stream()?, device.stream()?];
        let new = |value| device.buffer_from(&[value; 2 * CHUNK]);
        let (mut x, mut y, other, mut apart) = (new(me)?, new(0)?, new(9)?, new(0)?);
        for round in 0..50 {
            let mut aside =
                || launchers[2].launch(&c, copy::Launch { input: other.view(), output: apart.view_mut() });
            if (round + me).is_multiple_of(2) {
                aside()?;
            }
            launchers[0].launch(&a, copy::Launch { input: x.view(), output: y.view_mut() })?;
            launchers[1].launch(&b, copy::Launch { input: y.view(), output: x.view_mut() })?;
            if !(round + me).is_multiple_of(2) {
                aside()?;
            }
        }
        // Each round transposes twice.
        assert_eq!(x.read(&a)?, [me; 2 * CHUNK]);
        assert_eq!(apart.read(&c)?, [9; 2 * CHUNK]);
        Ok(())
    });
}
