//! How transports end: dropped by each rank when it likes, or closed by all.

use fusewire::Error;
use fusewire::prelude::*;
use fusewire::world::{Options as WorldOptions, World};
use std::time::{Duration, Instant};

/// Copies.
#[comm_kernel(transports(Shm), schedules(all_to_all))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
    }
}

const CHUNK: usize = 1000;

#[test]
fn a_dropped_transport_waits_for_nobody_and_is_named() {
    const LONG: Duration = Duration::from_secs(60);
    let start = Instant::now();
    let options = WorldOptions::default().with_timeout(LONG);
    let ranks = World::threads_with(2, &options, |world| -> fusewire::Result<()> {
        let options = Options { deadline: Duration::from_millis(100), ..Options::from(1 << 16) };
        let shm = Shm::rendezvous(&world, options)?;
        let launcher = copy::all_to_all(&shm)?;
        if world.rank() == 0 {
            drop((launcher, shm));
            world.barrier()?;
        } else {
            world.barrier()?;
            let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
            let (input, mut output) = (device.buffer::<u32>(2 * CHUNK)?, device.buffer::<u32>(2 * CHUNK)?);
            launcher.launch(&stream, copy::Launch { input: input.view(), output: output.view_mut() })?;
            let text = stream.synchronize().unwrap_err().to_string();
            assert!(text.contains("Rank 0 let its transport go"), "{text}");
        }
        world.barrier()?;
        Ok(())
    });
    ranks.unwrap().into_iter().for_each(Result::unwrap);
    assert!(start.elapsed() < LONG / 2, "it took {:?}", start.elapsed());
}

#[test]
fn a_rank_that_has_left_the_world_is_named_where_others_need_it() {
    const LONG: Duration = Duration::from_secs(60);
    let start = Instant::now();
    let options = WorldOptions::default().with_timeout(LONG);
    // Before the transport is made, and between it and the launcher.
    for early in [true, false] {
        let all_failed = std::sync::Barrier::new(3);
        let ranks = World::threads_with(3, &options, |world| -> fusewire::Result<()> {
            let leaves = world.rank() == 1;
            if leaves && early {
                world.leave();
            }
            let made = Shm::rendezvous(&world, 1 << 16);
            if leaves && !early {
                world.leave();
            }
            let error = match made {
                Ok(shm) => copy::all_to_all(&shm).err(),
                Err(error) => Some(error.into()),
            };
            // A rank whose function has ended has left, too.
            all_failed.wait();
            let text = error.expect("rank 1 has left").to_string();
            let expected = if leaves { "has left" } else { "rank 1 has left the world" };
            assert!(text.contains(expected), "rank {}, {early}: {text}", world.rank());
            Ok(())
        });
        ranks.unwrap().into_iter().for_each(Result::unwrap);
    }
    assert!(start.elapsed() < LONG / 2, "it took {:?}", start.elapsed());
}

#[test]
fn what_a_rank_lets_go_of_stays_with_its_peers() {
    const RANKS: usize = 3;
    let ranks = World::threads(RANKS, |world| -> fusewire::Result<()> {
        for round in 0..30usize {
            let shm = Shm::rendezvous(&world, 1 << 16)?;
            let (device, launcher) = (Device::of(&shm), copy::all_to_all(&shm)?);
            let input = device.buffer_from(&[(round + world.rank()) as u32; RANKS * CHUNK])?;
            let mut output = Buffer::<u32>::symmetric(&shm, RANKS * CHUNK)?;
            let stream = device.stream()?;
            if world.rank() == round % RANKS {
                // The others have sent and wait for this one.
                std::thread::sleep(Duration::from_millis(2));
            }
            launcher.launch(&stream, copy::Launch { input: input.view(), output: output.view_mut() })?;
            drop((shm, launcher));
            let got = output.read(&stream)?;
            assert!(got.iter().enumerate().all(|(i, value)| *value as usize == round + i / CHUNK));
        }
        Ok(())
    });
    ranks.unwrap().into_iter().for_each(Result::unwrap);
}

#[test]
fn a_close_waits_for_all_and_ends_launches() {
    let ranks = World::threads(2, |world| -> fusewire::Result<()> {
        let shm = Shm::rendezvous(&world, 1 << 16)?;
        let (device, launcher) = (Device::of(&shm), copy::all_to_all(&shm)?);
        let (stream, start) = (device.stream()?, Instant::now());
        let (input, mut output) = (device.buffer_from(&[7; 2 * CHUNK])?, device.buffer(2 * CHUNK)?);
        let mut launch =
            || launcher.launch(&stream, copy::Launch { input: input.view(), output: output.view_mut() });
        launch()?;
        if world.rank() == 1 {
            std::thread::sleep(Duration::from_millis(100));
        }
        shm.close()?;
        assert!(start.elapsed() > Duration::from_millis(90), "rank 1 has not closed it");
        let text = launch().unwrap_err().to_string();
        assert!(text.contains("was closed"), "{text}");
        assert_eq!(output.read(&stream)?, [7; 2 * CHUNK]);
        Ok(())
    });
    ranks.unwrap().into_iter().for_each(Result::unwrap);
}

#[test]
fn a_close_names_who_does_not_come() {
    let options = WorldOptions::default().with_timeout(Duration::from_millis(500));
    let ranks = World::threads_with(3, &options, |world| -> fusewire::Result<()> {
        let shm = Shm::rendezvous(&world, 1 << 16)?;
        if world.rank() == 1 {
            std::thread::sleep(Duration::from_millis(1500));
            return Ok(());
        }
        match shm.close().map_err(Error::from) {
            Err(Error::Peer(error)) if error.to_string().contains("rank 1") => Ok(()),
            other => panic!("{other:?}"),
        }
    });
    ranks.unwrap().into_iter().for_each(Result::unwrap);
}
