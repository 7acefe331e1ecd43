//! Launch options: every way to cut a launch gives the same result.

use super::support::{POISON, copy_once, misuse};
use crate::check::same;
use crate::data::make;
use crate::kernels::collectives::gathered;
use crate::kernels::copying::{copy, reverse_unrolled, unrolled};
use crate::kernels::folds::summed;
use crate::kernels::hooks::places;
use crate::{AllGatherOf, AllReduceOf, AllToAllOf, Outcome, Rank, Subject, reference};
use fusewire::{LaunchOptions, Options};

pub fn every_number_of_channels<X: Subject>(rank: &Rank<X>) -> Outcome {
    const CHANNELS: u32 = 8;
    let ground = rank.meet(Options::per_peer(16 << 10).channels(CHANNELS))?;
    let launcher = AllToAllOf::<copy::Hooks<u16>>::all_to_all(&ground.transport)?;
    for channels in 1..=CHANNELS {
        // The smaller ones leave channels without work.
        for chunk in [1, 65, 130, rank.scale.pick(3000, 100_001)] {
            let options = LaunchOptions::default().channels(channels);
            // A part of an eighth of a GPU holds 16 blocks of the widest.
            let small = rank.size() > 4 && rank.scale.pick(false, true);
            let options = if small { options.threads(256) } else { options };
            copy_once(&ground, &launcher, rank.data(channels as usize), chunk, &options)?;
        }
    }
    Ok(())
}

/// What the caller says of channels and blocks may leave no room for two steps, or for steps by domains, that launches of this size take by default.
pub fn channels_and_blocks_of_several_steps<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.meet(Options::per_peer(1 << 20).channels(4).ll128_channels(1).ll_channels(1))?;
    let (me, ranks, stream) = (rank.me(), rank.size(), &ground.stream);
    let sums = AllReduceOf::<summed::Hooks<f32>>::all_reduce(&ground.transport)?;
    let gather = AllGatherOf::<gathered::Hooks>::all_gather(&ground.transport)?;
    let n = rank.scale.pick(1 << 18, 1 << 21);
    let value = |rank: usize, i: usize| rank + i % 7;
    let input = ground.device.buffer_from(&make(n, |i| value(me, i) as f32))?;
    let chunk = ground.device.buffer_from(&make(n, |i| value(me, i) as u32))?;
    let (mut sum, mut all) = (ground.device.buffer::<f32>(n)?, ground.device.buffer::<u32>(ranks * n)?);
    let open = LaunchOptions::default();
    for options in
        [open.clone().channels(4), open.clone().channels(3), open.clone().blocks(2), open.blocks(3)]
    {
        sum.fill_bytes(stream, POISON)?;
        all.fill_bytes(stream, POISON)?;
        let args = summed::Launch { input: input.view(), output: sum.view_mut() };
        sums.launch_with(stream, args, &options)?;
        let args = gathered::Launch { input: chunk.view(), output: all.view_mut() };
        gather.launch_with(stream, args, &options)?;
        let of_all = (0..ranks).sum::<usize>();
        same(format_args!("sums, {options:?}"), &sum.read(stream)?, |i| (of_all + ranks * (i % 7)) as f32);
        same(format_args!("chunks, {options:?}"), &all.read(stream)?, |i| value(i / n, i % n) as u32);
    }
    Ok(())
}

pub fn chunk_sizes<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = AllToAllOf::<copy::Hooks<u32>>::all_to_all(&ground.transport)?;
    let quarter = ground.window() / 4;
    for (k, bytes) in [128, 256, 384, quarter - 128, quarter].into_iter().enumerate() {
        for chunk in [1, 31, 33, rank.scale.pick(1999, 50_021)] {
            copy_once(&ground, &launcher, rank.data(k), chunk, &LaunchOptions::default().chunk(bytes))?;
        }
    }
    Ok(())
}

pub fn variants<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let by_pack = AllToAllOf::<unrolled::Hooks>::all_to_all(&ground.transport)?;
    let by_element = AllToAllOf::<reverse_unrolled::Hooks>::all_to_all(&ground.transport)?;
    let (me, size) = (rank.me(), rank.size());
    for (k, packs) in [None, Some(1), Some(2), Some(4), Some(8)].into_iter().enumerate() {
        for chunk in [5, 8, 257, rank.scale.pick(1024, 99_999)] {
            let (data, n) = (rank.data(k), chunk * size);
            let options = LaunchOptions { unroll: packs, ..LaunchOptions::default() };
            let shorts = ground.device.buffer_from(&data.all::<u16>(me, n))?;
            let words = ground.device.buffer_from(&data.all::<u32>(me, n))?;
            let (mut a, mut b) = (ground.device.buffer::<u16>(n)?, ground.device.buffer::<u32>(n)?);
            a.fill_bytes(&ground.stream, POISON)?;
            b.fill_bytes(&ground.stream, POISON)?;
            let args = unrolled::Launch { input: shorts.view(), output: a.view_mut() };
            by_pack.launch_with(&ground.stream, args, &options)?;
            let args = reverse_unrolled::Launch { input: words.view(), output: b.view_mut() };
            by_element.launch_with(&ground.stream, args, &options)?;
            let what = format!("chunks of {chunk}, {packs:?} packs in flight");
            same(&what, &a.read(&ground.stream)?, |i| {
                reference::all_to_all(me, chunk, i, |peer, at| data.any(peer, at))
            });
            same(&what, &b.read(&ground.stream)?, |i| {
                let mirrored = i / chunk * chunk + chunk - 1 - i % chunk;
                reference::all_to_all(me, chunk, mirrored, |peer, at| data.any(peer, at))
            });
        }
    }
    Ok(())
}

/// On the host a block has one thread whatever is asked for.
pub fn threads<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = AllToAllOf::<copy::Hooks<i16>>::all_to_all(&ground.transport)?;
    for threads in [32, 64, 96, 256, 480, 512] {
        let options = LaunchOptions::default().threads(threads);
        copy_once(&ground, &launcher, rank.data(threads as usize), rank.scale.pick(500, 70_001), &options)?;
        let (input, mut output) = (ground.device.buffer::<i16>(0)?, ground.device.buffer::<i16>(0)?);
        let plan =
            launcher.explain(&copy::Launch { input: input.view(), output: output.view_mut() }, &options)?;
        assert_eq!(plan.threads, rank.scale.pick(1, threads), "{plan}");
    }
    Ok(())
}

/// A launch holds no more blocks than it is allowed, and is right with so few.
pub fn limits_of_blocks<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = AllToAllOf::<copy::Hooks<u32>>::all_to_all(&ground.transport)?;
    for (k, limit) in [1u32, 2, 3, 4, 7, 64].into_iter().enumerate() {
        for chunk in [5, 1000, rank.scale.pick(3000, 300_000)] {
            let options = LaunchOptions::default().blocks(limit);
            let n = chunk * rank.size();
            let (input, mut output) = (ground.device.buffer::<u32>(n)?, ground.device.buffer::<u32>(n)?);
            let args = copy::Launch { input: input.view(), output: output.view_mut() };
            match launcher.explain(&args, &options) {
                Ok(plan) => {
                    assert!(plan.blocks <= limit, "{plan}");
                    copy_once(&ground, &launcher, rank.data(k), chunk, &options)?;
                }
                // One block for each end, and one for the rank's own chunk.
                Err(_) if limit < 3 => {
                    crate::check::says(
                        misuse(launcher.launch_with(&ground.stream, args, &options)),
                        &["blocks, but the launch's options allow", &limit.to_string()],
                    );
                }
                Err(error) => panic!("{limit} blocks should do for {chunk} elements: {error}"),
            }
        }
    }
    let (input, mut output) = (ground.device.buffer::<u32>(0)?, ground.device.buffer::<u32>(0)?);
    let args = copy::Launch { input: input.view(), output: output.view_mut() };
    misuse(launcher.explain(&args, &LaunchOptions::default().blocks(0)));
    Ok(())
}

/// `LaunchOptions::elements` says what buffers do not: a part of them, or all where there is none.
pub fn elements_by_option<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = AllToAllOf::<copy::Hooks<u32>>::all_to_all(&ground.transport)?;
    let (me, size, chunk, data) = (rank.me(), rank.size(), 51, rank.data(0));
    let n = chunk * size;
    let input = ground.device.buffer_from(&data.all::<u32>(me, n + 8))?;
    let mut output = ground.device.buffer::<u32>(n + 100)?;
    output.fill_bytes(&ground.stream, POISON)?;
    let args = copy::Launch { input: input.view(), output: output.view_mut() };
    launcher.launch_with(&ground.stream, args, &LaunchOptions::default().elements(chunk))?;
    same("a part of the buffers", &output.read(&ground.stream)?, |i| match i < n {
        true => reference::all_to_all(me, chunk, i, |peer, at| data.any(peer, at)),
        false => u32::MAX,
    });
    let args = copy::Launch { input: input.view(), output: output.view_mut().slice(4..4 + n)? };
    launcher.launch(&ground.stream, args)?;
    same("a slice of the output", &output.read(&ground.stream)?[4..4 + n], |i| {
        reference::all_to_all(me, chunk, i, |peer, at| data.any(peer, at))
    });
    let places = AllToAllOf::<places::Hooks>::all_to_all(&ground.transport)?;
    let mut few = ground.device.buffer::<u64>(3 * size)?;
    let options = LaunchOptions::default().elements(3).shape(2, 2);
    let what =
        misuse(places.launch_with(&ground.stream, places::Launch { output: few.view_mut() }, &options));
    crate::check::says(what, &["2 x 2", "3 elements"]);
    Ok(())
}
