//! What buffers remember of the streams that used them, and what comes of it for threads that share a buffer.

use fusewire::prelude::*;
use fusewire::world::World;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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
fn who_was_waited_for_is_not_waited_for_again() {
    // By `fill_from`, or by a stream that writes; the streams before have read, or written and been read out.
    for (fills, written) in [(true, false), (false, false), (true, true), (false, true)] {
        two(|world| {
            let shm: [Shm; 2] = transports(&world, Duration::from_secs(30))?;
            let device = Device::of(&shm[0]);
            let launchers = [copy::all_to_all(&shm[0])?, copy::all_to_all(&shm[1])?];
            let streams = [device.stream()?, device.stream()?];
            let new = |value| device.buffer_from(&vec![value; 2 * CHUNK]);
            let (mut shared, mut other) = (new(1)?, new(0)?);
            let (inputs, mut outputs) = ([new(2)?, new(3)?], [new(0)?, new(0)?]);
            if written {
                let args = copy::Launch { input: inputs[0].view(), output: shared.view_mut() };
                launchers[0].launch(&streams[0], args)?;
                shared.read(&streams[0])?;
            } else {
                let args = copy::Launch { input: shared.view(), output: other.view_mut() };
                launchers[0].launch(&streams[0], args)?;
            }
            let third = device.stream()?;
            let mut renew = |value: u8| match fills {
                true => shared.fill_from(&[u32::from(value); 2 * CHUNK]),
                false => shared.fill_bytes(&third, value),
            };
            renew(4)?;
            // From here on the first stream's work has nothing to do with the buffer. Rank 1 wants the second's result before it begins.
            for k in if world.rank() == 0 { [0, 1] } else { [1, 0] } {
                let args = copy::Launch { input: inputs[k].view(), output: outputs[k].view_mut() };
                launchers[k].launch(&streams[k], args)?;
                match world.rank() {
                    0 => renew(5)?,
                    _ => assert_eq!(outputs[k].read(&streams[k])?, [k as u32 + 2; 2 * CHUNK]),
                }
            }
            streams.iter().try_for_each(Stream::synchronize)
        });
    }
}

#[test]
fn captures_of_other_things_are_in_nobodys_way() {
    let world = World::single().unwrap();
    let [shm] = transports(&world, Duration::from_secs(30)).unwrap();
    let (device, launcher) = (Device::of(&shm), copy::all_to_all(&shm).unwrap());
    let (busy, stream) = (device.stream().unwrap(), device.stream().unwrap());
    let (mut x, mut y) = (device.buffer::<u32>(CHUNK).unwrap(), device.buffer::<u32>(CHUNK).unwrap());
    let mut z = device.buffer::<u32>(CHUNK).unwrap();
    // What was waited for before the capture is in order.
    let warm_up = |x: &Buffer<u32>, y: &mut Buffer<u32>| {
        launcher.launch(&busy, copy::Launch { input: x.view(), output: y.view_mut() }).unwrap();
    };
    warm_up(&x, &mut y);
    busy.synchronize().unwrap();
    let unrelated = busy.capture(|| {
        z.fill_bytes(&busy, 1)?;
        x.fill_bytes(&stream, 2)?;
        x.fill_from(&[3; CHUNK])?;
        assert_eq!(y.read(&stream)?, [0; CHUNK]);
        Ok(())
    });
    unrelated.unwrap();
    // What was not is refused, and said for what it is.
    warm_up(&x, &mut y);
    let mut refused = Vec::new();
    let unrelated = busy.capture(|| {
        z.fill_bytes(&busy, 1)?;
        refused.push(x.fill_bytes(&stream, 4));
        refused.push(x.fill_from(&[4; CHUNK]));
        refused.push(y.read(&stream).map(drop));
        Ok(())
    });
    unrelated.unwrap();
    for refused in refused {
        let text = refused.unwrap_err().to_string();
        assert!(
            text.contains("used this buffer before") && text.contains("synchronize the stream"),
            "{text}"
        );
    }
    // A use that the capture recorded is another matter.
    let mut refused = Vec::new();
    let related = busy.capture(|| {
        z.copy_from(&busy, &x)?;
        refused.push(x.fill_bytes(&stream, 4));
        refused.push(x.fill_from(&[4; CHUNK]));
        refused.push(z.read(&stream).map(drop));
        assert_eq!(x.read(&stream)?, [3; CHUNK]);
        Ok(())
    });
    related.unwrap();
    for (refused, part) in
        refused.into_iter().zip(["a capture on another", "fill_from", "a capture on another"])
    {
        let text = refused.unwrap_err().to_string();
        assert!(text.contains(part) && text.contains("end the capture first"), "{text}");
    }
    x.fill_bytes(&stream, 5).unwrap();
    assert_eq!(x.read(&stream).unwrap(), [0x0505_0505; CHUNK]);
}

#[test]
fn who_is_refused_in_a_capture_has_recorded_nothing() {
    let device = Device::host();
    let [writer, refused, third] = [(); 3].map(|()| device.stream().unwrap());
    let (mut x, mut y) = (device.buffer::<u32>(CHUNK).unwrap(), device.buffer::<u32>(CHUNK).unwrap());
    let captured = writer.capture(|| {
        y.fill_bytes(&writer, 1)?;
        let empty = refused.capture(|| {
            let text = x.copy_from(&refused, &y).unwrap_err().to_string();
            assert!(text.contains("two captures at once"), "{text}");
            // Whichever of the two is looked at first.
            let text = y.copy_from(&refused, &x).unwrap_err().to_string();
            assert!(text.contains("two captures at once"), "{text}");
            x.fill_bytes(&third, 2)
        })?;
        assert_eq!(empty.node_count(), 0);
        Ok(())
    });
    captured.unwrap();
}

#[test]
fn faults_of_later_work_are_not_those_of_a_buffer() {
    two(|world| {
        let [first] = transports(&world, Duration::from_secs(30))?;
        let [second] = transports(&world, Duration::from_millis(200))?;
        let launchers = [copy::all_to_all(&first)?, copy::all_to_all(&second)?];
        let device = Device::of(&first);
        let input = device.buffer_from(&vec![7; 2 * CHUNK])?;
        let (mut x, mut y) = (device.buffer::<u32>(2 * CHUNK)?, device.buffer::<u32>(2 * CHUNK)?);
        let writer = device.stream()?;
        launchers[0].launch(&writer, copy::Launch { input: input.view(), output: x.view_mut() })?;
        if world.rank() == 0 {
            assert_eq!(x.read(&device.stream()?)?, [7; 2 * CHUNK]);
            // Which rank 1 leaves out.
            launchers[1].launch(&writer, copy::Launch { input: input.view(), output: y.view_mut() })?;
            while second.check().is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
            let (reader, mut z) = (device.stream()?, device.buffer(2 * CHUNK)?);
            assert_eq!(x.read(&reader)?, [7; 2 * CHUNK]);
            z.copy_from(&device.stream()?, &x)?;
            assert_eq!(z.read(&reader)?, [7; 2 * CHUNK]);
            assert!(matches!(y.read(&reader), Err(fusewire::Error::Fault(_))));
            assert!(matches!(writer.synchronize(), Err(fusewire::Error::Fault(_))));
        }
        writer.synchronize()?;
        world.barrier()?;
        Ok(())
    });
}

#[test]
fn faults_of_what_is_queued_meanwhile_are_told() {
    two(|world| {
        let [shm] = transports(&world, Duration::from_millis(5))?;
        let (device, launcher) = (Device::of(&shm), copy::all_to_all(&shm)?);
        let (stream, input) = (device.stream()?, device.buffer_from(&vec![7; 2 * CHUNK])?);
        let mut output = device.buffer::<u32>(2 * CHUNK)?;
        for _ in 0..10 {
            if world.rank() == 0 {
                let done = AtomicBool::new(false);
                let told = std::thread::scope(|scope| {
                    let other = scope.spawn(|| {
                        let mut told = false;
                        while !done.load(Ordering::Relaxed) {
                            told |= stream.synchronize().is_err();
                        }
                        told
                    });
                    let ended = Sets(&done);
                    std::thread::sleep(Duration::from_millis(1));
                    let args = copy::Launch { input: input.view(), output: output.view_mut() };
                    launcher.launch(&stream, args).unwrap();
                    let told = output.read(&stream).is_err();
                    drop(ended);
                    other.join().unwrap() || told
                });
                assert!(told, "neither who launched nor who synchronized was told");
            }
            shm.renew()?;
        }
        Ok(())
    });
}

#[test]
fn faults_of_a_stream_that_goes_are_told() {
    two(|world| {
        let [shm] = transports(&world, Duration::from_millis(2))?;
        let (device, launcher) = (Device::of(&shm), copy::all_to_all(&shm)?);
        let (reader, input) = (device.stream()?, device.buffer_from(&vec![7; 2 * CHUNK])?);
        let mut output = device.buffer::<u32>(2 * CHUNK)?;
        // So that the stream has much to look through.
        let alone = World::single()?;
        let others: [Shm; 64] = transports(&alone, Duration::from_secs(30))?;
        let others = others.iter().map(copy::all_to_all).collect::<fusewire::Result<Vec<_>>>()?;
        let (few, mut copied) = (device.buffer::<u32>(4)?, device.buffer::<u32>(4)?);
        for _ in 0..150 {
            if world.rank() == 0 {
                let stream = device.stream()?;
                for other in &others {
                    other.launch(&stream, copy::Launch { input: few.view(), output: copied.view_mut() })?;
                }
                let args = copy::Launch { input: input.view(), output: output.view_mut() };
                launcher.launch(&stream, args)?;
                std::thread::scope(|scope| {
                    scope.spawn(|| drop(stream));
                    assert!(matches!(output.read(&reader), Err(fusewire::Error::Fault(_))));
                });
            }
            shm.renew()?;
        }
        Ok(())
    });
}

#[test]
fn what_goes_with_the_stream_before_waits_behind_the_launch() {
    two(|world| {
        let [shm] = transports(&world, Duration::from_secs(3))?;
        let (device, launcher) = (Device::of(&shm), copy::all_to_all(&shm)?);
        let input = device.buffer_from(&vec![7; 2 * CHUNK])?;
        let new = || device.buffer::<u32>(2 * CHUNK);
        for _ in 0..3 {
            let [faulty] = transports(&world, Duration::from_millis(20))?;
            let faults = copy::all_to_all(&faulty)?;
            let (before, behind, mut output) = (device.stream()?, device.stream()?, new()?);
            if world.rank() == 0 {
                for launcher in [&faults, &launcher] {
                    // Nothing but the stream keeps the faulty transport, and the launch below the stream.
                    launcher
                        .launch(&before, copy::Launch { input: input.view(), output: new()?.view_mut() })?;
                }
                drop((faults, faulty));
                std::thread::scope(|scope| {
                    scope.spawn(|| drop(before));
                    std::thread::sleep(Duration::from_millis(10));
                    let args = copy::Launch { input: input.view(), output: output.view_mut() };
                    launcher.launch(&behind, args)
                })?;
                behind.synchronize()?;
            } else {
                std::thread::sleep(Duration::from_millis(60));
                for _ in 0..2 {
                    let args = copy::Launch { input: input.view(), output: output.view_mut() };
                    launcher.launch(&behind, args)?;
                }
                behind.synchronize()?;
            }
        }
        Ok(())
    });
}

/// A thread replays graphs that set all of a buffer to one value or another, while `other` uses the buffer.
fn beside_replays(other: impl FnOnce(&Device, &mut Buffer<u8>)) {
    let device = Device::host();
    let mut shared = device.buffer::<u8>(1 << 20).unwrap();
    let stream = device.stream().unwrap();
    let graphs = [1, 2].map(|value| stream.capture(|| shared.fill_bytes(&stream, value)).unwrap());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for queued in 1u64.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                if let Err(refused) = graphs.iter().try_for_each(|graph| graph.launch(&stream)) {
                    assert!(refused.to_string().contains("end the capture first"), "{refused}");
                }
                // Launches wait for nobody, so that without this the others would come behind ever more replays.
                if queued % 8 == 0 {
                    stream.synchronize().unwrap();
                }
            }
        });
        let _done = Sets(&done);
        other(&device, &mut shared);
    });
}

/// Ends another thread's loop, also in a panic.
struct Sets<'a>(&'a AtomicBool);

impl Drop for Sets<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The value that all have.
fn whole(values: &[u8]) -> u8 {
    assert!(
        values[1..] == values[..values.len() - 1],
        "torn: {} and {}",
        values[0],
        values[values.len() - 1]
    );
    values[0]
}

#[test]
fn reads_beside_replays_are_whole() {
    beside_replays(|device, shared| {
        let stream = device.stream().unwrap();
        let mut values = vec![0; shared.len()];
        for _ in 0..200 {
            shared.read_into(&stream, &mut values).unwrap();
            assert!(whole(&values) < 3);
        }
    });
}

#[test]
fn fills_beside_replays_are_whole() {
    beside_replays(|device, shared| {
        let stream = device.stream().unwrap();
        let fill = vec![3; shared.len()];
        for _ in 0..100 {
            shared.fill_from(&fill).unwrap();
            whole(&shared.read(&stream).unwrap());
        }
    });
}

#[test]
fn launches_beside_replays_are_whole() {
    beside_replays(|device, shared| {
        let streams = [device.stream().unwrap(), device.stream().unwrap()];
        let mut copies = streams.each_ref().map(|_| device.buffer::<u8>(shared.len()).unwrap());
        for _ in 0..100 {
            for (copy, stream) in copies.iter_mut().zip(&streams) {
                copy.copy_from(stream, shared).unwrap();
            }
            for (copy, stream) in copies.iter_mut().zip(&streams) {
                whole(&copy.read(stream).unwrap());
            }
            shared.fill_bytes(&streams[0], 3).unwrap();
        }
    });
}

#[test]
fn captures_of_another_thread_begin_and_end_between_launches() {
    beside_replays(|device, shared| {
        let (stream, reader) = (device.stream().unwrap(), device.stream().unwrap());
        let mut copied = device.buffer::<u8>(shared.len()).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // With whatever the other thread queues meanwhile.
                    stream.capture(|| Ok(())).unwrap();
                }
            });
            let _done = Sets(&done);
            let (mut eager, start) = (0, Instant::now());
            while eager < 50 && start.elapsed() < Duration::from_secs(10) {
                // Refused where the capture uses the buffer, or keeps the stream from being waited for.
                if copied.copy_from(&stream, shared).is_ok()
                    && let Ok(values) = copied.read(&reader)
                {
                    whole(&values);
                    eager += 1;
                }
            }
        });
    });
}

#[test]
fn threads_with_several_buffers_do_not_wait_for_each_other() {
    let device = Device::host();
    let stream = device.stream().unwrap();
    let (mut x, mut y) = (device.buffer::<u8>(1 << 12).unwrap(), device.buffer::<u8>(1 << 12).unwrap());
    let there = stream.capture(|| x.copy_from(&stream, &y)).unwrap();
    let back = stream.capture(|| y.copy_from(&stream, &x)).unwrap();
    let (x, y) = (&x, &y);
    std::thread::scope(|scope| {
        for graph in [&there, &back] {
            scope.spawn(|| {
                let stream = device.stream().unwrap();
                (0..500).try_for_each(|_| graph.launch(&stream)).unwrap();
            });
        }
        for buffer in [x, y] {
            scope.spawn(|| {
                let stream = device.stream().unwrap();
                (0..100).for_each(|_| assert_eq!(whole(&buffer.read(&stream).unwrap()), 0));
            });
        }
    });
}

#[test]
fn events_of_another_thread_are_in_no_capture() {
    let device = Device::host();
    let (stream, done) = (device.stream().unwrap(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                stream.capture(|| Ok(())).unwrap();
            }
        });
        let _done = Sets(&done);
        let (mut recorded, start) = (0, Instant::now());
        while recorded < 1000 && start.elapsed() < Duration::from_secs(10) {
            // Refused during a capture.
            if let Ok(event) = stream.record() {
                while stream.synchronize().is_err() {}
                event.since(&event).unwrap();
                recorded += 1;
            }
        }
    });
}
