//! LL and LL128, asked for by name: small chunks, every size up to the room there is.

use super::faults::DEADLINE;
use super::support::{POISON, copy_once, for_each_element, misuse, works};
use crate::check::{same, says};
use crate::data::make;
use crate::kernels::copying::{copy, reverse};
use crate::kernels::faulty::{bad_consume, bad_produce};
use crate::kernels::hooks::{chain, scale_add, tiles};
use crate::run::Ground;
use crate::{AllToAllOf, Outcome, Rank, SendRecvOf, Stop, Subject, reference};
use fusewire::device::element::Bf16;
use fusewire::device::protocol::{ll, ll128};
use fusewire::{Error, LaunchOptions, Operation, Options, Protocol, Stream};
use std::collections::BTreeSet;

/// Channels of these transports, of either.
const CHANNELS: u32 = 4;

/// Both protocols, and the bytes that a channel carries in one call.
const WAYS: [(Protocol, usize); 2] =
    [(Protocol::Ll, 16 * ll::PACKS as usize), (Protocol::Ll128, 16 * ll128::PACKS as usize)];

/// A transport with both; one that has none must say so when asked for it.
fn ground<X: Subject>(rank: &Rank<X>) -> Result<Ground<X>, Stop> {
    let ground =
        rank.meet(Options::per_peer(16 << 10).channels(4).ll128_channels(CHANNELS).ll_channels(CHANNELS))?;
    if X::MAPS {
        return Ok(ground);
    }
    let launcher = AllToAllOf::<copy::Hooks<u8>>::all_to_all(&ground.transport)?;
    let (input, mut output) =
        (ground.device.buffer::<u8>(rank.size())?, ground.device.buffer::<u8>(rank.size())?);
    for (way, _) in WAYS {
        let args = copy::Launch { input: input.view(), output: output.view_mut() };
        let refused = misuse(launcher.launch_with(&ground.stream, args, &by(way)));
        says(refused, &[&format!("no {way:?} kernel")]);
    }
    works(rank, &ground)?;
    Err(Stop::LeftOut(format!("{} has no LL128, and refuses it", X::NAME)))
}

fn by(way: Protocol) -> LaunchOptions {
    LaunchOptions::default().protocol(way)
}

pub fn of_every_element_type<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = ground(rank)?;
    for_each_element!(T => {
        let launcher = AllToAllOf::<copy::Hooks<T>>::all_to_all(&ground.transport)?;
        let each = 16 / size_of::<T>();
        for (k, n) in [1, each - 1, each, each + 1, 3 * each + each / 2, 300].into_iter().enumerate() {
            for (way, _) in WAYS {
                copy_once::<T, X>(&ground, &launcher, rank.data(k), n, &by(way))?;
            }
        }
    });
    Ok(())
}

/// Up to all that fits, over every number of channels.
pub fn of_every_size<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = ground(rank)?;
    let launcher = AllToAllOf::<copy::Hooks<u8>>::all_to_all(&ground.transport)?;
    for (way, room) in WAYS {
        let sizes = [16, 127, 1025, room - 1, room, 2 * room + 17, 4 * room];
        for (k, n) in sizes.into_iter().enumerate() {
            copy_once(&ground, &launcher, rank.data(k), n, &by(way))?;
            let least = n.div_ceil(room) as u32;
            let numbers = BTreeSet::from([least, CHANNELS.min(least + 1), CHANNELS]);
            for channels in numbers {
                copy_once(&ground, &launcher, rank.data(k), n, &by(way).channels(channels))?;
            }
        }
        let (input, mut output) = (ground.device.buffer::<u8>(0)?, ground.device.buffer::<u8>(0)?);
        let mut refused = |options: LaunchOptions, part: &str| {
            let args = copy::Launch { input: input.view(), output: output.view_mut() };
            says(misuse(launcher.launch_with(&ground.stream, args, &options)), &[part]);
        };
        let name = if way == Protocol::Ll { "LL" } else { "LL128" };
        refused(by(way).elements(4 * room + 1), &format!("{name} carries at most"));
        refused(by(way).elements(room + 1).channels(1), &format!("{name} channels"));
        refused(by(way).elements(16).channels(CHANNELS + 1), &format!("{name} channels"));
        refused(by(way).elements(16).channels(0), "0 channels");
    }
    works(rank, &ground)
}

pub fn of_hooks<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = ground(rank)?;
    WAYS.into_iter().try_for_each(|(way, _)| of_hooks_by(rank, &ground, way))
}

fn of_hooks_by<X: Subject>(rank: &Rank<X>, ground: &Ground<X>, way: Protocol) -> Outcome {
    let backwards = AllToAllOf::<reverse::Hooks<u16>>::all_to_all(&ground.transport)?;
    let scaler = AllToAllOf::<scale_add::Hooks>::all_to_all(&ground.transport)?;
    let (me, size, stream) = (rank.me(), rank.size(), &ground.stream);
    for (k, chunk) in [1, 7, 9, 333, 4001].into_iter().enumerate() {
        let (data, n) = (rank.data(k), chunk * size);
        let input = ground.device.buffer_from(&data.all::<u16>(me, n))?;
        let mut output = ground.device.buffer::<u16>(n)?;
        output.fill_bytes(stream, POISON)?;
        let args = reverse::Launch { input: input.view(), output: output.view_mut() };
        backwards.launch_with(stream, args, &by(way))?;
        same(format_args!("chunks of {chunk} by {way:?}, backwards"), &output.read(stream)?, |i| {
            let mirrored = i / chunk * chunk + chunk - 1 - i % chunk;
            reference::all_to_all(me, chunk, mirrored, |from, index| data.any(from, index))
        });
        let input = ground.device.buffer_from(&make(n, |i| data.small(me, i)))?;
        let mut output = ground.device.buffer::<f32>(n)?;
        for factor in [4.0, -1.0] {
            let args = scale_add::Launch { input: input.view(), output: output.view_mut(), factor };
            scaler.launch_with(stream, args, &by(way))?;
        }
        same(format_args!("chunks of {chunk} by {way:?}, scaled and added"), &output.read(stream)?, |i| {
            3.0 * reference::all_to_all(me, chunk, i, |peer, index| data.small(peer, index))
        });
    }
    Ok(())
}

/// LL, LL128 and Simple in random order on one transport, eager and replayed, over numbers of channels that change: neither waits for
/// the hosts between calls.
pub fn between_staged_calls<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = ground(rank)?;
    let launcher = AllToAllOf::<chain::Hooks>::all_to_all(&ground.transport)?;
    let (me, size, chunk, stream) = (rank.me(), rank.size(), 700, &ground.stream);
    let data: Vec<_> = (0..5).map(|k| rank.data(k)).collect();
    let sources = data.iter().map(|d| ground.device.buffer_from(&d.all::<u32>(me, chunk * size)));
    let sources = sources.collect::<fusewire::Result<Vec<_>>>()?;
    let mut output = ground.device.buffer::<u32>(chunk * size)?;
    let mut launch = |stream: &Stream, k: usize, options: LaunchOptions| {
        let args = chain::Launch { input: sources[k].view(), output: output.view_mut() };
        launcher.launch_with(stream, args, &options)
    };
    let graph = stream.capture(|| {
        launch(stream, 1, by(Protocol::Ll128).channels(2))?;
        launch(stream, 2, by(Protocol::Simple))?;
        launch(stream, 4, by(Protocol::Ll).channels(3))?;
        launch(stream, 3, by(Protocol::Ll128).channels(4))
    })?;
    let (mut rng, mut taken) = (rank.rng(), Vec::new());
    for _ in 0..rank.scale.pick(if size > 3 { 60 } else { 300 }, 5000) {
        let k = rng.within(0, 4);
        match rng.within(0, 4) {
            0 => {
                graph.launch(stream)?;
                taken.extend([1, 2, 4, 3]);
                continue;
            }
            1 => launch(stream, k, LaunchOptions::default().channels(1 + k as u32 % 4))?,
            2 => launch(stream, k, by(Protocol::Ll).channels(1 + k as u32 % CHANNELS))?,
            _ => launch(stream, k, by(Protocol::Ll128).channels(1 + k as u32 % CHANNELS))?,
        }
        taken.push(k);
    }
    same(format_args!("a chain of {} calls", taken.len()), &output.read(stream)?, |i| {
        let arrived = |k: usize| reference::all_to_all(me, chunk, i, |peer, at| data[k].any(peer, at));
        taken.iter().fold(0, |old, k| reference::link(old, arrived(*k)))
    });
    Ok(())
}

/// Waits that expire, panics at both ends, and calls that differ; each time the transport is renewed and works in the same way again, with
/// what faulted calls left in the buffers.
pub fn faults_and_renewals<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = ground(rank)?;
    // As ranks of several hosts, whose kernels find out.
    ground.apart();
    WAYS.into_iter().try_for_each(|(way, _)| faults_by(rank, &ground, way))
}

fn faults_by<X: Subject>(rank: &Rank<X>, ground: &Ground<X>, way: Protocol) -> Outcome {
    let copier = AllToAllOf::<copy::Hooks<u32>>::all_to_all(&ground.transport)?;
    let producer = AllToAllOf::<bad_produce::Hooks>::all_to_all(&ground.transport)?;
    let consumer = AllToAllOf::<bad_consume::Hooks>::all_to_all(&ground.transport)?;
    let (me, size, stream) = (rank.me(), rank.size(), &ground.stream);
    let input = ground.device.buffer_from(&rank.data(77).all::<u32>(me, 200 * size))?;
    let mut output = ground.device.buffer::<u32>(200 * size)?;
    let tiler = AllToAllOf::<tiles::Hooks>::all_to_all(&ground.transport)?;
    let (matrix, mut transposed) =
        (ground.device.buffer::<Bf16>(32768 * size)?, ground.device.buffer::<Bf16>(32768 * size)?);
    let sender = SendRecvOf::<copy::Hooks<u32>>::sendrecv(&ground.transport)?;
    // The usual deadline where nobody is meant to wait in vain: a busy machine lets a short one pass.
    for round in 0..8 {
        match round {
            0 | 4 => {
                if me != 0 {
                    let args = copy::Launch { input: input.view(), output: output.view_mut() };
                    copier.launch_with(stream, args, &by(way).deadline(DEADLINE))?;
                }
            }
            1 => {
                let args =
                    bad_produce::Launch { input: input.view(), output: output.view_mut(), culprit: size - 1 };
                producer.launch_with(stream, args, &by(way))?;
            }
            2 => {
                let args = bad_consume::Launch { input: input.view(), output: output.view_mut(), culprit: 0 };
                consumer.launch_with(stream, args, &by(way))?;
            }
            5 => {
                // As many elements, of other tiles.
                let (rows, cols) = if me == 0 { (128, 256) } else { (256, 128) };
                let args = tiles::Launch { input: matrix.view(), output: transposed.view_mut() };
                tiler.launch_with(stream, args, &by(way).shape(rows, cols))?;
            }
            6 => {
                // The same, over other channels.
                let options = by(way).channels(2 + me as u32 % 2);
                let args = copy::Launch { input: input.view(), output: output.view_mut() };
                copier.launch_with(stream, args, &options)?;
            }
            7 => {
                // One way, where nobody else could tell.
                let (to, from, n) = match me {
                    0 => (Some(1), None, 100),
                    1 => (None, Some(0), 200),
                    _ => (None, None, 100),
                };
                let args = copy::Launch { input: input.view(), output: output.view_mut() };
                sender.launch_with(stream, to, from, args, &by(way).elements(n))?;
            }
            _ => {
                // Rank 0 sends less.
                let options = by(way).elements(if me == 0 { 100 } else { 200 });
                let args = copy::Launch { input: input.view(), output: output.view_mut() };
                copier.launch_with(stream, args, &options)?;
            }
        }
        match stream.synchronize() {
            Ok(()) | Err(Error::Fault(_)) => rank.world.barrier()?,
            Err(other) => return Err(other.into()),
        }
        let fault = match ground.transport.check().map_err(Error::from) {
            Err(Error::Fault(fault)) => fault,
            other => {
                return Err(Stop::Failed(format!(
                    "{way:?}, round {round}: this should be a fault: {other:?}"
                )));
            }
        };
        let right = match (round, &fault.operation) {
            (0 | 4, Some(Operation::Expired { what, peer, .. })) => (*what, *peer) == ("data", 0),
            (1, Some(Operation::Panicked { line, .. })) => {
                *line == bad_produce::LINE && fault.rank == size - 1
            }
            (2, Some(Operation::Panicked { line, .. })) => *line == bad_consume::LINE && fault.rank == 0,
            (3 | 7, Some(Operation::Mismatch { .. })) => true,
            (5, Some(Operation::Cut { .. })) => {
                let said = fault.to_string();
                said.contains("65536 bytes")
                    && [128, 256].iter().all(|cols| said.contains(&format!("rows of {cols} elements")))
            }
            (6, Some(Operation::Cut { .. })) => fault.to_string().contains("over 2 channels"),
            _ => false,
        };
        assert!(right, "{way:?}, round {round}: {fault}");
        ground.transport.renew().map_err(Error::from)?;
        for k in 0..4 {
            copy_once(ground, &copier, rank.data(10 * round + k), 200 - k, &by(way))?;
        }
        works(rank, ground)?;
        // A rank that is ahead would fault the transport while another still reads its last results.
        rank.world.barrier()?;
    }
    Ok(())
}
