//! What a program is told while it waits for a peer that is late. The hook is the process's: one test.

use fusewire::prelude::*;
use std::sync::mpsc;
use std::time::Duration;

/// Copies.
#[comm_kernel(transports(Shm), schedules(all_to_all))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
    }
}

const WARN: Duration = Duration::from_millis(40);
const STOP: Duration = Duration::from_secs(60);

#[test]
fn a_late_peer_is_named_before_the_deadline_and_stops_nothing() {
    let (tell, told) = mpsc::channel();
    fusewire::on_warning(move |warning| tell.send(warning.clone()).unwrap());
    let ranks = World::threads(2, |world| -> fusewire::Result<()> {
        // Ranks need not agree on it.
        let options = Options { deadline: STOP, ..Options::from(1 << 16) };
        let shm = Shm::rendezvous(&world, if world.rank() == 0 { options.warn(WARN) } else { options })?;
        let (device, launcher) = (Device::of(&shm), copy::all_to_all(&shm)?);
        let (stream, input, mut output) = (device.stream()?, device.buffer(200)?, device.buffer(200)?);
        let mut launch =
            || launcher.launch(&stream, copy::Launch { input: input.view(), output: output.view_mut() });
        launch()?;
        stream.synchronize()?;
        for within in [false, true] {
            if world.rank() == 1 {
                std::thread::sleep(6 * WARN);
                // Late, and no fault.
                launch()?;
                stream.synchronize()?;
            } else {
                launch()?;
                if within { stream.synchronize_within(STOP)? } else { stream.synchronize()? }
            }
            world.barrier()?;
        }
        if world.rank() == 0 {
            launch()?;
            let first = stream.synchronize_within(3 * WARN);
            assert!(first.unwrap_err().to_string().contains("still busy"));
        }
        world.barrier()?;
        if world.rank() == 1 {
            launch()?;
        }
        stream.synchronize()
    });
    ranks.unwrap().into_iter().for_each(Result::unwrap);
    let warnings: Vec<_> = told.try_iter().collect();
    for (launches, of) in [(2, 2), (3, 2), (4, 1)] {
        let these: Vec<_> = warnings.iter().filter(|warning| warning.launched.number == launches).collect();
        // At `WARN`, and again when the time has doubled; a busy machine may skip one.
        assert!(!these.is_empty() && these.len() <= of + 1, "{launches}: {warnings:#?}");
        for warning in these {
            assert!(warning.rank == 0 && warning.waited >= WARN && warning.deadline == STOP, "{warning}");
            let late: Vec<_> = warning.late.iter().map(|(rank, last)| (*rank, last.number)).collect();
            assert_eq!((late.as_slice(), warning.unknown), (&[(1, launches - 1)][..], 0), "{warning}");
        }
    }
    let text = warnings[0].to_string();
    for part in [
        "rank 0 has waited",
        "for kernels on Shm",
        "number 2, `warnings::copy`, all_to_all of 100 elements",
        "Rank 1 has launched less: number 1, `warnings::copy`",
        "A wait for a peer stops after 60s",
    ] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}
