//! Straight into symmetric outputs, by stores of threads, by bulk copies and by the copy engine.

use super::support::{POISON, fault, misuse, operation, works};
use crate::check::{same, says};
use crate::data::Data;
use crate::kernels::copying::copy;
use crate::run::Ground;
use crate::{AllToAllOf, Outcome, Rank, Stop, Subject, reference};
use fusewire::device::element::Element;
use fusewire::device::protocol::direct::bulk;
use fusewire::kernel::HookSet;
use fusewire::schedule::AllToAllLauncher;
use fusewire::{Buffer, Error, LaunchOptions, Operation, Options, Protocol, Stream};
use std::collections::BTreeSet;
use std::time::Duration;

/// The ways there are here; a transport that has none must say so.
fn ways<X: Subject>(rank: &Rank<X>, ground: &Ground<X>) -> Result<BTreeSet<Protocol>, Stop> {
    let launcher = AllToAllOf::<copy::Hooks<u32>>::all_to_all(&ground.transport)?;
    let (input, n) = (ground.device.buffer::<u32>(4 * rank.size())?, 4 * rank.size());
    if X::MAPS {
        let mut output = Buffer::<u32>::symmetric(&ground.transport, n)?;
        let args = copy::Launch { input: input.view(), output: output.view_mut() };
        let spaces = launcher.spaces(&args, &LaunchOptions::default())?;
        let ways = spaces.iter().map(|s| s.start.protocol);
        let ways: BTreeSet<_> =
            ways.filter(|w| matches!(w, Protocol::Direct | Protocol::Bulk | Protocol::Copy)).collect();
        // GPUs may be too old for bulk copies.
        let least =
            rank.scale.pick(&[Protocol::Direct, Protocol::Bulk][..], &[Protocol::Direct, Protocol::Copy]);
        assert!(least.iter().all(|way| ways.contains(way)), "{ways:?}");
        return Ok(ways);
    }
    for way in [Protocol::Direct, Protocol::Bulk, Protocol::Copy] {
        let mut output = ground.device.buffer::<u32>(n)?;
        let args = copy::Launch { input: input.view(), output: output.view_mut() };
        let options = LaunchOptions::default().protocol(way);
        says(
            misuse(launcher.launch_with(&ground.stream, args, &options)),
            &[&format!("no {way:?} kernel"), "mapped"],
        );
    }
    works(rank, ground)?;
    Err(Stop::LeftOut(format!("{} does not map peers' memory, and refuses to store there", X::NAME)))
}

/// Eager, then replayed with another input in the same place.
fn exchange<T: Element, X: Subject>(
    rank: &Rank<X>,
    ground: &Ground<X>,
    launcher: &AllToAllLauncher<X, copy::Hooks<T>>,
    chunk: usize,
    options: &LaunchOptions,
) -> Outcome
where
    for<'a> copy::Hooks<T>: HookSet<Args<'a> = copy::Launch<'a, T>>,
{
    let (me, n, stream) = (rank.me(), chunk * rank.size(), &ground.stream);
    let data: [Data; 2] = [rank.data(2 * chunk), rank.data(2 * chunk + 1)];
    let [first, second] = [0, 1].map(|k| ground.device.buffer_from(&data[k].all::<T>(me, n)));
    let (first, second, mut input) = (first?, second?, ground.device.buffer::<T>(n)?);
    let mut output = Buffer::<T>::symmetric(&ground.transport, n)?;
    let launch = |input: &Buffer<T>, output: &mut Buffer<T>| {
        launcher.launch_with(stream, copy::Launch { input: input.view(), output: output.view_mut() }, options)
    };
    let seen = |output: &mut Buffer<T>, data: Data, how: &str| -> Outcome {
        let what =
            format_args!("{chunk} elements of {} to each rank, {how}, {options:?}, at rank {me}", T::NAME);
        same(what, &output.read(stream)?, |i| {
            reference::all_to_all(me, chunk, i, |peer, at| data.any(peer, at))
        });
        Ok(())
    };
    output.fill_bytes(stream, POISON)?;
    input.copy_from(stream, &first)?;
    launch(&input, &mut output)?;
    seen(&mut output, data[0], "eager")?;
    let graph = stream.capture(|| (0..3).try_for_each(|_| launch(&input, &mut output)))?;
    output.fill_bytes(stream, POISON)?;
    input.copy_from(stream, &second)?;
    graph.launch(stream)?;
    seen(&mut output, data[1], "replayed")
}

/// Around the bytes of a bulk copy and of all that a block has under way, over numbers of channels and sizes of copies.
pub fn of_every_size<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.meet(Options::per_peer(64 << 10).channels(8))?;
    let ways = ways(rank, &ground)?;
    let bytes = AllToAllOf::<copy::Hooks<u8>>::all_to_all(&ground.transport)?;
    let words = AllToAllOf::<copy::Hooks<u64>>::all_to_all(&ground.transport)?;
    let (piece, stages) = (bulk::MOST as usize, bulk::STAGES as usize);
    let marks = [128, piece, stages * 128, stages * piece, rank.scale.pick(40_000, 3 << 20)];
    let sizes = [16, 32].into_iter().chain(marks.into_iter().flat_map(|m| [m - 16, m, m + 16]));
    for (k, size) in sizes.enumerate() {
        for &way in &ways {
            let way = LaunchOptions::default().protocol(way);
            let options = match (k % 4, way.protocol) {
                (0, _) | (_, Some(Protocol::Copy)) => way,
                // More than one warp: a part goes in lines, by default where a rank has one peer.
                (1, Some(Protocol::Bulk)) => way.channels(3).threads(256),
                (1, _) => way.channels(3),
                (2, Some(Protocol::Bulk)) => way.channels(1).chunk(128),
                (3, Some(Protocol::Bulk)) => way.chunk(piece / 4),
                _ => way.channels(1),
            };
            exchange(rank, &ground, &bytes, size, &options)?;
            exchange(rank, &ground, &words, size / 8, &options)?;
            // Not whole multiples of 16 bytes.
            if options.protocol != Some(Protocol::Bulk) {
                exchange(rank, &ground, &bytes, size + 1, &options)?;
            }
        }
    }
    Ok(())
}

/// Lines, staging and every way into symmetric memory, one behind another on the same channels, in random order, without the hosts in between.
pub fn in_any_order<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.meet(Options::per_peer(64 << 10).channels(8).ll128_channels(4).ll_channels(4))?;
    let mut ways: Vec<Protocol> = ways(rank, &ground)?.into_iter().collect();
    ways.extend([Protocol::Simple, Protocol::Ll, Protocol::Ll128]);
    let launcher = AllToAllOf::<copy::Hooks<u32>>::all_to_all(&ground.transport)?;
    let (me, chunk, stream) = (rank.me(), 5000, &ground.stream);
    let n = chunk * rank.size();
    let data: Vec<Data> = (0..4).map(|k| rank.data(k)).collect();
    let inputs = data.iter().map(|d| ground.device.buffer_from(&d.all::<u32>(me, n)));
    let inputs = inputs.collect::<fusewire::Result<Vec<_>>>()?;
    let mut output = Buffer::<u32>::symmetric(&ground.transport, n)?;
    let mut rng = rank.rng();
    for _ in 0..rank.scale.pick(20, 300) {
        let calls: Vec<_> =
            (0..8).map(|_| (rng.within(0, 3), rng.within(0, ways.len() - 1), rng.within(1, 4))).collect();
        for (input, way, channels) in &calls {
            let mut options = LaunchOptions::default().protocol(ways[*way]);
            if ways[*way] != Protocol::Copy {
                options = options.channels(*channels as u32);
            }
            if ways[*way] == Protocol::Bulk {
                options = options.threads(32 << (channels % 4));
            }
            let args = copy::Launch { input: inputs[*input].view(), output: output.view_mut() };
            launcher.launch_with(stream, args, &options)?;
        }
        let Some((last, ..)) = calls.last() else { unreachable!("there are eight") };
        same(format_args!("after {calls:?} of {ways:?}"), &output.read(stream)?, |i| {
            reference::all_to_all(me, chunk, i, |peer, at| data[*last].any(peer, at))
        });
    }
    Ok(())
}

/// Eager calls on another stream while the same launcher's are recorded: neither sees the other.
pub fn beside_a_capture<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let (me, chunk, stream) = (rank.me(), 3000, ground.device.stream()?);
    let n = chunk * rank.size();
    for way in ways(rank, &ground)? {
        let launcher = AllToAllOf::<copy::Hooks<u32>>::all_to_all(&ground.transport)?;
        let (options, data) = (LaunchOptions::default().protocol(way), [rank.data(0), rank.data(1)]);
        let inputs = data.map(|d| ground.device.buffer_from(&d.all::<u32>(me, n)));
        let [first, second] = inputs;
        let (recorded, eager) = (first?, second?);
        let [replayed, queued] = [(); 2].map(|()| Buffer::<u32>::symmetric(&ground.transport, n));
        let (mut replayed, mut queued) = (replayed?, queued?);
        replayed.fill_bytes(&stream, POISON)?;
        let launch = |on: &Stream, input: &Buffer<u32>, output: &mut Buffer<u32>| {
            let args = copy::Launch { input: input.view(), output: output.view_mut() };
            launcher.launch_with(on, args, &options)
        };
        // So that the transport's last stream can be waited for.
        launch(&stream, &eager, &mut queued)?;
        queued.fill_bytes(&stream, POISON)?;
        let graph = ground.stream.capture(|| {
            launch(&ground.stream, &recorded, &mut replayed)?;
            launch(&stream, &eager, &mut queued)?;
            launch(&ground.stream, &recorded, &mut replayed)
        })?;
        launch(&stream, &eager, &mut queued)?;
        let seen = |output: &Buffer<u32>, data: Data, how: &str| -> Outcome {
            same(format_args!("{how}, {way:?}, at rank {me}"), &output.read(&stream)?, |i| {
                reference::all_to_all(me, chunk, i, |peer, at| data.any(peer, at))
            });
            Ok(())
        };
        seen(&queued, data[1], "eager")?;
        let poison = u32::from_ne_bytes([POISON; 4]);
        same("not replayed yet", &replayed.read(&stream)?, |_| poison);
        (0..3).try_for_each(|_| graph.launch(&ground.stream))?;
        seen(&replayed, data[0], "replayed")?;
        seen(&queued, data[1], "eager, behind replays")?;
    }
    Ok(())
}

pub fn refused<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let ways = ways(rank, &ground)?;
    let launcher = AllToAllOf::<copy::Hooks<u32>>::all_to_all(&ground.transport)?;
    let n = 64 * rank.size();
    let (input, short) = (ground.device.buffer::<u32>(n)?, ground.device.buffer::<u32>(n - 4)?);
    let (mut output, mut ordinary) =
        (Buffer::<u32>::symmetric(&ground.transport, n)?, ground.device.buffer::<u32>(n)?);
    let mut refused = |input: &Buffer<u32>, symmetric: bool, options: LaunchOptions, parts: &[&str]| {
        let output = if symmetric { &mut output } else { &mut ordinary };
        let args = copy::Launch { input: input.view(), output: output.view_mut() };
        says(misuse(launcher.launch_with(&ground.stream, args, &options)), parts);
    };
    for &way in &ways {
        let options = LaunchOptions::default().protocol(way);
        refused(&input, false, options.clone(), &[&format!("{way:?}"), "Buffer::symmetric"]);
        if way != Protocol::Direct {
            refused(&short, true, options, &["`input` has", "chunks of 64"]);
        }
    }
    if ways.contains(&Protocol::Bulk) {
        let options = LaunchOptions::default().protocol(Protocol::Bulk);
        refused(&input, true, options.clone().elements(63), &["63 elements", "16 bytes", "Protocol::Direct"]);
        refused(&input, true, options.clone().chunk((bulk::MOST + 128) as usize), &["up to 16384"]);
        refused(&input, true, options.clone().chunk(100), &["multiple of 128"]);
        refused(&input, true, options.channels(0), &["0 channels"]);
    }
    works(rank, &ground)
}

/// Ranks wait for the one that does not let them write, however they would.
pub fn a_rank_never_launches<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let ways = ways(rank, &ground)?;
    let launcher = AllToAllOf::<copy::Hooks<u32>>::all_to_all(&ground.transport)?;
    let n = 4096 * rank.size();
    let input = ground.device.buffer::<u32>(n)?;
    let mut output = Buffer::<u32>::symmetric(&ground.transport, n)?;
    for way in ways {
        output.fill_bytes(&ground.stream, POISON)?;
        if rank.me() > 0 {
            let options = LaunchOptions::default().protocol(way).deadline(Duration::from_millis(300));
            let args = copy::Launch { input: input.view(), output: output.view_mut() };
            launcher.launch_with(&ground.stream, args, &options)?;
            let fault = fault(&ground, Duration::from_secs(6));
            assert!(matches!(operation(&fault), Operation::Expired { peer: 0, .. }), "{way:?}: {fault}");
        }
        rank.world.barrier()?;
        let told = ground.transport.check().expect_err("all ranks are told").to_string();
        // What bulk copies send ahead in lines is awaited by blocks of its own: which of a rank's blocks gives up first is open.
        if way != Protocol::Bulk || !told.contains("for data of rank 0") {
            says(told, &["permission to write the output of rank 0"]);
        }
        ground.transport.renew().map_err(Error::from)?;
        // Copies are in the stream's queue already: the engine makes them, whatever came of the wait before them.
        if rank.me() == 0 && way != Protocol::Copy {
            let got = output.read(&ground.stream)?;
            same(format_args!("{way:?}, without leave"), &got, |_| u32::from_ne_bytes([POISON; 4]));
        }
        works(rank, &ground)?;
    }
    Ok(())
}
