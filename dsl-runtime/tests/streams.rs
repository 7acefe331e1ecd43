//! What streams wait for: others that use the same buffers; and what is left when their last handle goes.

use fusewire::prelude::*;
use fusewire::world::{Options as WorldOptions, World};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Copies.
#[comm_kernel(transports(Shm), schedules(all_to_all))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
    }
}

const CHUNK: usize = 5000;

#[test]
fn what_is_queued_is_done_and_nothing_is_kept() {
    let ranks = World::threads(3, |world| -> fusewire::Result<()> {
        let (me, size) = (world.rank() as u32, world.size());
        let transport = Shm::rendezvous(&world, 1 << 16)?;
        let (device, link) = (Device::of(&transport), Arc::downgrade(transport.link()));
        let input = device.buffer_from(&vec![me; size * CHUNK])?;
        let mut output = device.buffer::<u32>(size * CHUNK)?;
        let (stream, launcher) = (device.stream()?, copy::all_to_all(&transport)?);
        launcher.launch(&stream, copy::Launch { input: input.view(), output: output.view_mut() })?;
        drop((stream, launcher, transport));
        let got = output.read(&device.stream()?)?;
        assert!(link.upgrade().is_none(), "something keeps the transport");
        assert!(got.iter().enumerate().all(|(i, from)| *from as usize == i / CHUNK));
        Ok(())
    });
    ranks.unwrap().into_iter().for_each(Result::unwrap);
}

#[test]
fn what_goes_waits_for_nobody_and_its_fault_is_told() {
    const DEADLINE: Duration = Duration::from_secs(2);
    let ranks = World::threads(2, |world| -> fusewire::Result<()> {
        let options = Options { deadline: DEADLINE, ..Options::from(1 << 16) };
        let transport = Shm::rendezvous(&world, options)?;
        let (device, launcher) = (Device::of(&transport), copy::all_to_all(&transport)?);
        // Rank 1 never launches.
        if world.rank() == 0 {
            let (stream, reader) = (device.stream()?, device.stream()?);
            let (input, mut output) = (device.buffer::<u32>(2 * CHUNK)?, device.buffer::<u32>(2 * CHUNK)?);
            let graph = stream.capture(|| {
                launcher.launch(&stream, copy::Launch { input: input.view(), output: output.view_mut() })
            })?;
            graph.launch(&stream)?;
            let start = Instant::now();
            drop((graph, stream, input, launcher));
            assert!(start.elapsed() < DEADLINE / 2, "it took {:?}", start.elapsed());
            assert!(matches!(output.read(&reader), Err(fusewire::Error::Fault(_))));
            assert!(start.elapsed() > DEADLINE / 2, "the read has not waited");
        }
        world.barrier()?;
        Ok(())
    });
    ranks.unwrap().into_iter().for_each(Result::unwrap);
}

#[test]
fn a_panic_does_not_wait_for_what_is_queued() {
    const LONG: Duration = Duration::from_secs(60);
    let options = WorldOptions::default().with_timeout(LONG);
    let start = Instant::now();
    let error = World::threads_with(2, &options, |world| {
        let options = Options { deadline: LONG, ..Options::from(1 << 16) };
        let transport = Shm::rendezvous(&world, options).unwrap();
        let device = Device::of(&transport);
        let input = device.buffer::<u32>(2 * CHUNK).unwrap();
        let mut output = device.buffer::<u32>(2 * CHUNK).unwrap();
        let (stream, launcher) = (device.stream().unwrap(), copy::all_to_all(&transport).unwrap());
        if world.rank() == 1 {
            // Rank 0 never launches.
            let args = copy::Launch { input: input.view(), output: output.view_mut() };
            launcher.launch(&stream, args).unwrap();
            panic!("a bug of the user's");
        }
        world.barrier().unwrap_err().to_string()
    });
    let text = error.unwrap_err().to_string();
    assert!(text.contains("rank 1") && text.contains("a bug of the user's"), "{text}");
    assert!(start.elapsed() < LONG / 2, "it took {:?} to tell", start.elapsed());
}

#[test]
fn symmetric_outputs_may_go_while_they_are_written() {
    let ranks = World::threads(2, |world| -> fusewire::Result<()> {
        let transport = Shm::rendezvous(&world, 1 << 16)?;
        let (device, launcher) = (Device::of(&transport), copy::all_to_all(&transport)?);
        let stream = device.stream()?;
        for _ in 0..50 {
            let input = device.buffer::<u32>(2 * CHUNK)?;
            let mut output = Buffer::<u32>::symmetric(&transport, 2 * CHUNK)?;
            launcher.launch(&stream, copy::Launch { input: input.view(), output: output.view_mut() })?;
        }
        stream.synchronize()
    });
    ranks.unwrap().into_iter().for_each(Result::unwrap);
}

#[test]
fn lengths_of_as_many_packs_are_told_apart() {
    for protocol in [None, Some(Protocol::Ll128), Some(Protocol::Simple)] {
        let ranks = World::threads(2, |world| -> fusewire::Result<()> {
            let transport = Shm::rendezvous(&world, 1 << 16)?;
            let (device, launcher) = (Device::of(&transport), copy::all_to_all(&transport)?);
            let stream = device.stream()?;
            // Three packs, of which the last holds one element or three.
            let chunk = 9 + 2 * world.rank();
            let input = device.buffer::<u32>(2 * chunk)?;
            let mut output = device.buffer::<u32>(2 * chunk)?;
            let options = LaunchOptions { protocol, ..LaunchOptions::default() };
            let args = copy::Launch { input: input.view(), output: output.view_mut() };
            launcher.launch_with(&stream, args, &options)?;
            stream.synchronize()
        });
        for result in ranks.unwrap() {
            let text = result.unwrap_err().to_string();
            assert!(text.contains("number of elements"), "{protocol:?}: {text}");
        }
    }
}

#[test]
fn a_panic_in_a_capture_ends_it() {
    let world = World::single().unwrap();
    let transport = Shm::rendezvous(&world, 1 << 16).unwrap();
    let (device, launcher) = (Device::of(&transport), copy::all_to_all(&transport).unwrap());
    let stream = device.stream().unwrap();
    let (input, mut output) = (device.buffer_from(&[7u32; 5]).unwrap(), device.buffer::<u32>(5).unwrap());
    let panicking = std::panic::AssertUnwindSafe(|| {
        stream.capture(|| {
            let args = copy::Launch { input: input.view(), output: output.view_mut() };
            launcher.launch(&stream, args)?;
            panic!("in the capture's body")
        })
    });
    assert!(std::panic::catch_unwind(panicking).is_err());
    assert!(!stream.is_capturing());
    let text = format!("{launcher:?}");
    assert!(text.starts_with("Launcher of `streams::copy` on ") && text.ends_with(", all_to_all"), "{text}");
    // Neither the stream nor what was used on it is left recording.
    let args = copy::Launch { input: input.view(), output: output.view_mut() };
    launcher.launch(&device.stream().unwrap(), args).unwrap();
    assert_eq!(output.read(&stream).unwrap(), [7; 5]);
    stream.capture(|| Ok(())).unwrap();
}

#[test]
fn renewing_waits_for_what_is_queued() {
    let ranks = World::threads(2, |world| -> fusewire::Result<()> {
        let transport = Shm::rendezvous(&world, 1 << 16)?;
        let (device, launcher) = (Device::of(&transport), copy::all_to_all(&transport)?);
        let stream = device.stream()?;
        let (me, mut output) = (world.rank() as u32, device.buffer::<u32>(2 * CHUNK)?);
        for round in 0..20u32 {
            let input = device.buffer_from(&vec![10 * round + me; 2 * CHUNK])?;
            for _ in 0..10 {
                let args = copy::Launch { input: input.view(), output: output.view_mut() };
                launcher.launch(&stream, args)?;
            }
            transport.renew()?;
            let expected = [0, 1].map(|rank| vec![10 * round + rank; CHUNK]).concat();
            assert_eq!(output.read(&stream)?, expected);
        }
        Ok(())
    });
    ranks.unwrap().into_iter().for_each(Result::unwrap);
}

#[test]
fn streams_that_only_read_do_not_wait_for_each_other() {
    let ranks = World::threads(2, |world| -> fusewire::Result<()> {
        let me = world.rank();
        let options = Options { deadline: Duration::from_secs(30), ..Options::from(1 << 16) };
        let transports = [Shm::rendezvous(&world, options.clone())?, Shm::rendezvous(&world, options)?];
        let device = Device::of(&transports[0]);
        let launchers = [copy::all_to_all(&transports[0])?, copy::all_to_all(&transports[1])?];
        let streams = [device.stream()?, device.stream()?];
        let mut outputs = [device.buffer::<u32>(2 * CHUNK)?, device.buffer::<u32>(2 * CHUNK)?];
        let mut input = device.buffer_from(&vec![me as u32; 2 * CHUNK])?;
        for round in 1..4 {
            // Each rank's first launch ends when the other's second has come.
            for k in [me, 1 - me] {
                let args = copy::Launch { input: input.view(), output: outputs[k].view_mut() };
                launchers[k].launch(&streams[k], args)?;
            }
            // Behind both.
            input.fill_bytes(&device.stream()?, round as u8)?;
            for k in [0, 1] {
                let from = |rank: usize| if round == 1 { rank as u32 } else { 0x0101_0101 * (round - 1) };
                let got = outputs[k].read(&streams[k])?;
                assert!(got.iter().enumerate().all(|(i, &value)| value == from(i / CHUNK)), "round {round}");
            }
        }
        // As graphs, captured at once.
        let (mut inner, [first, second]) = (None, &mut outputs);
        let outer = streams[0].capture(|| {
            let args = copy::Launch { input: input.view(), output: first.view_mut() };
            launchers[0].launch(&streams[0], args)?;
            inner = Some(streams[1].capture(|| {
                let args = copy::Launch { input: input.view(), output: second.view_mut() };
                launchers[1].launch(&streams[1], args)
            })?);
            Ok(())
        })?;
        let graphs = [outer, inner.unwrap()];
        [me, 1 - me].into_iter().try_for_each(|k| graphs[k].launch(&streams[k]))?;
        input.fill_from(&vec![7; 2 * CHUNK])?;
        for k in [0, 1] {
            assert!(outputs[k].read(&streams[k])?.iter().all(|value| *value == 0x0303_0303));
        }
        Ok(())
    });
    ranks.unwrap().into_iter().for_each(Result::unwrap);
}
