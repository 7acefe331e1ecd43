//! What ranks are told of each other's mistakes.

use fusewire::prelude::*;
use fusewire::world::{Options as WorldOptions, World};
use fusewire::{Error, Operation};
use std::time::{Duration, Instant};

/// Copies.
#[comm_kernel(transports(Shm), schedules(all_to_all, sendrecv))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

/// Adds what arrives.
#[comm_kernel(transports(Shm), schedules(all_to_all))]
mod add {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn consume(ctx: &Consume, args: &Args, value: f32) {
        args.output.at(ctx).add(value);
    }
}

/// Sends half precision, and takes one pack of the input where two go into a pack on the wire.
#[comm_kernel(transports(Shm), schedules(all_to_all))]
mod half {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
        pub wrong: u32,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> Pack<Bf16> {
        let [low, high] = match args.wrong {
            1 => [args.input.pack(ctx); 2],
            _ => args.input.packs::<2>(ctx),
        };
        Pack::from_fn(|k| Bf16::from_f32(if k < 4 { low.get(k) } else { high.get(k - 4) }))
    }
    pub fn consume(ctx: &Consume, args: &Args, values: Pack<Bf16>) {
        let place = args.output.at(ctx);
        let added =
            |old: Pack<f32>, from: usize| Pack::from_fn(|k| old.get(k) + values.get(from + k).to_f32());
        match args.wrong {
            2 => place.set_pack(added(place.get_pack(), 0)),
            3 => place.set_pack(added(Pack::ZERO, 0)),
            _ => {
                let [low, high] = place.get_packs::<2>();
                place.set_packs([added(low, 0), added(high, 4)]);
            }
        }
    }
}

const DEADLINE: Duration = Duration::from_millis(300);

/// Each rank's outcome of `body`, which gets its transport. Ranks see one another's faults before a transport goes.
fn ranks(
    count: usize,
    body: impl Fn(&World, Shm) -> fusewire::Result<()> + Send + Sync,
) -> Vec<fusewire::Result<()>> {
    let run = |world: World| {
        let options = Options { deadline: DEADLINE, ..Options::from(1 << 16) };
        body(&world, Shm::rendezvous(&world, options)?)
    };
    World::threads(count, run).unwrap()
}

/// Launches copies of `elements` to each rank.
fn launch(transport: &Shm, stream: &Stream, elements: &[usize]) -> fusewire::Result<()> {
    let (device, launcher) = (stream.device(), copy::all_to_all(transport)?);
    for n in elements {
        let n = n * transport.world_size();
        let (input, mut output) = (device.buffer::<f32>(n)?, device.buffer::<f32>(n)?);
        launcher.launch(stream, copy::Launch { input: input.view(), output: output.view_mut() })?;
    }
    stream.synchronize()
}

/// The text of a rank's fault.
#[track_caller]
fn told(outcome: &fusewire::Result<()>, words: &[&str]) {
    let text = outcome.as_ref().expect_err("a fault").to_string();
    words.iter().for_each(|word| assert!(text.contains(word), "`{word}` is not in: {text}"));
}

#[test]
fn a_rank_that_returned_is_named() {
    let outcomes = ranks(3, |world, transport| {
        let stream = Device::of(&transport).stream()?;
        launch(&transport, &stream, if world.rank() == 1 { &[50] } else { &[50, 50] })
    });
    assert!(outcomes[1].is_ok());
    for rank in [0, 2] {
        told(
            &outcomes[rank],
            &["for data of rank 1", "Rank 1 let its transport go after 1 of the 2 launches"],
        );
    }
}

#[test]
fn a_launch_of_nothing_is_named() {
    let outcomes = ranks(2, |world, transport| {
        let stream = Device::of(&transport).stream()?;
        let outcome = launch(&transport, &stream, if world.rank() == 1 { &[70, 0] } else { &[70, 60] });
        world.barrier()?;
        outcome
    });
    assert!(outcomes[1].is_ok());
    let last = "Rank 0 launched last: number 2, `faults::copy`, all_to_all of 60 elements to a peer, by Simple \
                over 1 channel; rank 1: number 2, `faults::copy`, all_to_all of 0 elements to a peer.";
    told(&outcomes[0], &["rank 0 waited", last]);
}

#[test]
fn kernels_that_differ_are_named() {
    let outcomes = ranks(2, |world, transport| {
        // As ranks of two hosts, whose kernels find out.
        transport.link().has_unseen();
        let (device, stream) = (Device::of(&transport), Device::of(&transport).stream()?);
        let (one, other) = (copy::all_to_all(&transport)?, add::all_to_all(&transport)?);
        let (input, mut output) = (device.buffer::<f32>(40)?, device.buffer::<f32>(40)?);
        match world.rank() {
            0 => one.launch(&stream, copy::Launch { input: input.view(), output: output.view_mut() })?,
            _ => other.launch(&stream, add::Launch { input: input.view(), output: output.view_mut() })?,
        }
        stream.synchronize()
    });
    for outcome in &outcomes {
        told(outcome, &["runs another kernel", "number 1, `faults::copy`", "number 1, `faults::add`"]);
    }
}

#[test]
fn replays_count_and_a_renewed_transport_begins_anew() {
    let outcomes = ranks(2, |world, transport| {
        let stream = Device::of(&transport).stream()?;
        let device = Device::of(&transport);
        let launcher = copy::sendrecv(&transport)?;
        let (input, mut output) = (device.buffer::<f32>(40)?, device.buffer::<f32>(40)?);
        let (me, peer) = (world.rank(), 1 - world.rank());
        let graph = stream.capture(|| {
            let args = copy::Launch { input: input.view(), output: output.view_mut() };
            launcher.sendrecv(&stream, peer, peer, args)
        })?;
        (0..5 - me).try_for_each(|_| graph.launch(&stream))?;
        let outcome = stream.synchronize();
        world.barrier()?;
        transport.renew()?;
        if me == 1 {
            let args = copy::Launch { input: input.view(), output: output.view_mut() };
            launcher.recv(&stream, 0, args)?;
            told(
                &stream.synchronize(),
                &["number 1, `faults::copy`, recv of 40", "rank 0: nothing on this transport"],
            );
        }
        world.barrier()?;
        outcome
    });
    told(&outcomes[0], &["number 5, a replay of a graph; rank 1: number 4, a replay of a graph"]);
}

#[test]
fn a_fault_stays_as_it_was_told() {
    ranks(2, |world, transport| {
        let stream = Device::of(&transport).stream()?;
        if world.rank() == 0 {
            let first = launch(&transport, &stream, &[10]).unwrap_err().to_string();
            let again = launch(&transport, &stream, &[10, 10]).unwrap_err().to_string();
            assert_eq!(first, again);
        } else {
            let _agreed = (copy::all_to_all(&transport)?, copy::all_to_all(&transport)?);
        }
        world.barrier()?;
        Ok(())
    })
    .into_iter()
    .for_each(Result::unwrap);
}

#[test]
fn a_program_ends_the_waits_of_all_ranks() {
    const LONG: Duration = Duration::from_secs(60);
    let run = |world: World| {
        let transport =
            Shm::rendezvous(&world, Options { deadline: LONG, ..Options::from(1 << 16) }).unwrap();
        let (stream, start) = (Device::of(&transport).stream().unwrap(), Instant::now());
        launch(&transport, &stream, &[10]).unwrap();
        let launcher = copy::sendrecv(&transport).unwrap();
        let device = Device::of(&transport);
        let (input, mut output) = (device.buffer::<f32>(40).unwrap(), device.buffer::<f32>(40).unwrap());
        // Rank 2 never launches; a thread of rank 1 that does not own the transport has had enough.
        if world.rank() < 2 {
            let args = copy::Launch { input: input.view(), output: output.view_mut() };
            launcher.recv(&stream, world.rank() + 1, args).unwrap();
        }
        let abort = transport.abort_handle();
        let thread = (world.rank() == 1).then(|| {
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(50));
                abort.abort("a checkpoint failed").unwrap();
            })
        });
        let by_another = format!("rank {} was stopped by rank 1: ", world.rank());
        let by = if world.rank() == 1 { "rank 1 aborted Shm" } else { by_another.as_str() };
        let why =
            "rank 1 aborted Shm: a checkpoint failed. The transport is poisoned until all ranks call `renew`";
        if world.rank() < 2 {
            told(&stream.synchronize(), &[by, why]);
        }
        thread.into_iter().for_each(|thread| thread.join().unwrap());
        world.barrier().unwrap();
        // What is launched behind it ends at once.
        let args = copy::Launch { input: input.view(), output: output.view_mut() };
        launcher.recv(&stream, (world.rank() + 1) % 3, args).unwrap();
        told(&stream.synchronize(), &[why]);
        transport.renew().unwrap();
        launch(&transport, &stream, &[10, 20]).unwrap();
        assert!(start.elapsed() < LONG / 2, "it took {:?}", start.elapsed());
    };
    World::threads(3, run).unwrap();
}

#[test]
fn a_hooks_panic_says_why() {
    for (wrong, known) in
        [(1, "take several packs"), (2, "take several packs"), (3, "take several packs"), (0, "")]
    {
        let outcomes = ranks(2, |_, transport| {
            let (device, stream) = (Device::of(&transport), Device::of(&transport).stream()?);
            let launcher = half::all_to_all(&transport)?;
            let input = device.buffer_from(&vec![1.5; 2 * 37])?;
            let mut output = device.buffer_from(&vec![2.0; 2 * 37])?;
            launcher
                .launch(&stream, half::Launch { input: input.view(), output: output.view_mut(), wrong })?;
            stream.synchronize()?;
            assert_eq!(output.read(&stream)?, [3.5; 2 * 37]);
            Ok(())
        });
        if known.is_empty() {
            outcomes.into_iter().for_each(Result::unwrap);
            continue;
        }
        for outcome in &outcomes {
            told(outcome, &["a kernel panicked", "faults.rs", known]);
            let Err(Error::Fault(fault)) = outcome else { panic!("a fault: {outcome:?}") };
            let Some(Operation::Panicked { file, message, .. }) = &fault.operation else { panic!("{fault}") };
            assert!(file.ends_with("tests/faults.rs") && message.contains("narrower"), "{file}: {message}");
        }
    }
}

#[test]
fn a_panic_in_host_code_does_not_wait_for_peers() {
    const LONG: Duration = Duration::from_secs(60);
    let start = Instant::now();
    let options = WorldOptions::default().with_timeout(LONG);
    let error = World::threads_with(2, &options, |world| {
        let transport = Shm::rendezvous(&world, 1 << 16).unwrap();
        if world.rank() == 1 {
            panic!("a bug of the user's");
        }
        assert!(world.barrier().unwrap_err().to_string().contains("rank 1"));
        drop(transport);
    });
    assert!(error.unwrap_err().to_string().contains("a bug of the user's"));
    assert!(start.elapsed() < LONG / 2, "it took {:?} to tell", start.elapsed());
}

#[test]
fn a_panic_that_is_caught_ends_a_transport_and_not_the_world() {
    let run = |world: World| {
        let transport = Shm::rendezvous(&world, 1 << 16).unwrap();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let stream = Device::of(&transport).stream().unwrap();
            launch(&transport, &stream, &[10]).unwrap();
            assert!(transport.rank() != 1, "a bug of the user's");
        }));
        assert_eq!(outcome.is_err(), world.rank() == 1);
        world.barrier().unwrap();
        let transport = Shm::rendezvous(&world, 1 << 16).unwrap();
        launch(&transport, &Device::of(&transport).stream().unwrap(), &[10, 20]).unwrap();
    };
    World::threads(3, run).unwrap();
}

#[test]
fn buffers_that_no_hook_sees_are_measured_before_a_launch() {
    let outcomes = ranks(1, |_, transport| {
        let (device, stream) = (Device::of(&transport), Device::of(&transport).stream()?);
        let (plain, sums) = (copy::all_to_all(&transport)?, add::all_to_all(&transport)?);
        let (short, long) = (device.buffer::<f32>(10)?, device.buffer::<f32>(11)?);
        let (mut few, mut many) = (device.buffer::<f32>(10)?, device.buffer::<f32>(11)?);
        let eleven = LaunchOptions { elements: Some(11), ..LaunchOptions::default() };
        let input = "`input` has 10 elements, but this launch takes 1 chunks of 11";
        let args = copy::Launch { input: short.view(), output: many.view_mut() };
        told(&plain.launch_with(&stream, args, &eleven), &[input]);
        let args = add::Launch { input: short.view(), output: many.view_mut() };
        told(&sums.launch_with(&stream, args, &eleven), &[input]);
        let args = copy::Launch { input: long.view(), output: few.view_mut() };
        told(&plain.launch_with(&stream, args, &eleven), &["copy`: `output` has 10 elements"]);
        // Threads of a block mean nothing on the host, but would be refused on a GPU.
        let options = LaunchOptions { threads: Some(33), ..LaunchOptions::default() };
        let args = copy::Launch { input: long.view(), output: many.view_mut() };
        told(&plain.launch_with(&stream, args, &options), &["33 threads"]);
        stream.synchronize()
    });
    outcomes.into_iter().for_each(Result::unwrap);
}
