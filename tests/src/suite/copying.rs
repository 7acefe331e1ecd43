//! Bits from here to there: every type, every size, every element compared.

use super::support::{POISON, copy_once, for_each_element};
use crate::check::same;
use crate::kernels::copying::{copy, reverse};
use crate::run::Ground;
use crate::{AllToAllOf, Outcome, Rank, SendRecvOf, Subject, reference};
use fusewire::device::element::Element;
use fusewire::device::pack::Pack;
use fusewire::kernel::HookSet;
use fusewire::{Buffer, LaunchOptions, Options, Protocol};

pub fn every_element_type<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    for_each_element!(T => {
        let launcher = AllToAllOf::<copy::Hooks<T>>::all_to_all(&ground.transport)?;
        let lanes = Pack::<T>::LANES;
        let largest = rank.scale.pick(if rank.size() > 5 { 40 } else { 1500 }, 100_003);
        // Half a pack more or less: chunks start where words are aligned and packs are not.
        for (k, chunk) in [0, 1, lanes - 1, lanes, lanes + 1, 5 * lanes + lanes / 2, 8 * lanes, largest].into_iter().enumerate() {
            copy_once::<T, X>(&ground, &launcher, rank.data(k), chunk, &LaunchOptions::default())?;
        }
    });
    Ok(())
}

pub fn sendrecv_of_every_element_type<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    for_each_element!(T => {
        let launcher = SendRecvOf::<copy::Hooks<T>>::sendrecv(&ground.transport)?;
        let (next, previous) = ((rank.me() + 1) % rank.size(), (rank.me() + rank.size() - 1) % rank.size());
        for (k, n) in [1, Pack::<T>::LANES + 1, rank.scale.pick(777, 70_001)].into_iter().enumerate() {
            let data = rank.data(k);
            let input = ground.device.buffer_from(&data.all::<T>(rank.me(), n))?;
            let mut output = ground.device.buffer::<T>(n)?;
            output.fill_bytes(&ground.stream, POISON)?;
            let args = copy::Launch { input: input.view(), output: output.view_mut() };
            launcher.sendrecv(&ground.stream, next, previous, args)?;
            let got = output.read(&ground.stream)?;
            same(format_args!("{n} elements of {} from rank {previous}", T::NAME), &got, |i| data.any(previous, i));
        }
    });
    Ok(())
}

/// Into ordinary and into symmetric memory, by every protocol there is, each behind the others on the same channels, eager and replayed.
pub fn sendrecv_by_every_protocol<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.meet(Options::per_peer(64 << 10).channels(8))?;
    let launcher = SendRecvOf::<copy::Hooks<u32>>::sendrecv(&ground.transport)?;
    let (next, previous) = ((rank.me() + 1) % rank.size(), (rank.me() + rank.size() - 1) % rank.size());
    let (stream, open) = (&ground.stream, LaunchOptions::default());
    for (k, n) in [1, 4099, rank.scale.pick(20_000, 300_000), 30_001].into_iter().enumerate() {
        let data = rank.data(k);
        let input = ground.device.buffer_from(&data.all::<u32>(rank.me(), n))?;
        for symmetric in if X::MAPS { &[false, true][..] } else { &[false] } {
            let mut output = match symmetric {
                true => Buffer::<u32>::symmetric(&ground.transport, n)?,
                false => ground.device.buffer::<u32>(n)?,
            };
            let args = copy::Launch { input: input.view(), output: output.view_mut() };
            assert_eq!(launcher.key(&args, &open)?.layout.symmetric, *symmetric);
            let spaces = launcher.spaces(&args, &open)?;
            let protocols: Vec<_> = spaces.iter().map(|s| s.start.protocol).collect();
            assert_eq!(protocols.contains(&Protocol::Direct), *symmetric, "{protocols:?}");
            // Bulk copies are of whole packs.
            assert_eq!(protocols.contains(&Protocol::Bulk), *symmetric && n % 4 == 0, "{protocols:?}");
            let copies = *symmetric && rank.scale == crate::Scale::Gpu;
            assert_eq!(protocols.contains(&Protocol::Copy), copies, "{protocols:?}");
            for config in spaces.iter().map(|s| s.start) {
                let options = config.options(&open);
                let launch = |output: &mut Buffer<u32>| {
                    let args = copy::Launch { input: input.view(), output: output.view_mut() };
                    launcher.launch_with(stream, Some(next), Some(previous), args, &options)
                };
                for replayed in [false, true] {
                    output.fill_bytes(stream, POISON)?;
                    match replayed {
                        false => launch(&mut output)?,
                        true => {
                            let graph = stream.capture(|| (0..3).try_for_each(|_| launch(&mut output)))?;
                            graph.launch(stream)?;
                        }
                    }
                    let got = output.read(stream)?;
                    let what = format_args!(
                        "{n} elements by {config}, replayed: {replayed}, symmetric: {symmetric}"
                    );
                    same(what, &got, |i| data.any(previous, i));
                }
            }
        }
    }
    Ok(())
}

pub fn boundaries_of_packs_chunks_and_windows<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let bytes = AllToAllOf::<copy::Hooks<u8>>::all_to_all(&ground.transport)?;
    let words = AllToAllOf::<copy::Hooks<u64>>::all_to_all(&ground.transport)?;
    // The header takes the place of 128 bytes in the first chunk.
    let (window, header) = (ground.window(), 128);
    let mut sizes = vec![15, 16, 17];
    for mark in [128, window / 4, window / 2, window, 2 * window] {
        sizes.extend(
            [mark - header, mark]
                .into_iter()
                .filter(|m| *m > 16)
                .flat_map(|m| [m - 16, m - 1, m, m + 1, m + 16]),
        );
    }
    for (k, size) in sizes.into_iter().enumerate() {
        let options = LaunchOptions::default().channels([1, 2, 4][k % 3]);
        copy_once(&ground, &bytes, rank.data(k), size, &options)?;
        copy_once(&ground, &words, rank.data(k), size.div_ceil(8), &options)?;
    }
    Ok(())
}

pub fn many_times_the_staging<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.meet(Options::per_peer(1024).channels(1))?;
    let launcher = AllToAllOf::<copy::Hooks<u32>>::all_to_all(&ground.transport)?;
    let times = rank.scale.pick(if rank.size() > 5 { 13 } else { 61 }, 500);
    for (k, extra) in [0, 1, 31].into_iter().enumerate() {
        let chunk = times * ground.window() / 4 + extra;
        copy_once(&ground, &launcher, rank.data(k), chunk, &LaunchOptions::default())?;
        copy_once(&ground, &launcher, rank.data(k + 10), chunk, &LaunchOptions::default().chunk(128))?;
    }
    Ok(())
}

pub fn large<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.usual()?;
    let launcher = AllToAllOf::<copy::Hooks<f32>>::all_to_all(&ground.transport)?;
    let sizes: &[usize] = rank.scale.pick(&[1 << 20, 3 << 20], &[1 << 20, 16 << 20, 257 << 20, 1 << 30]);
    for (k, bytes) in sizes.iter().enumerate() {
        let chunk = bytes / 4 / rank.size();
        copy_once(&ground, &launcher, rank.data(k), chunk, &LaunchOptions::default())?;
    }
    Ok(())
}

pub fn sizes_follow_each_other<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let bytes = AllToAllOf::<copy::Hooks<u8>>::all_to_all(&ground.transport)?;
    let doubles = AllToAllOf::<copy::Hooks<f64>>::all_to_all(&ground.transport)?;
    let mut rng = rank.rng();
    for call in 0..rank.scale.pick(if rank.size() > 5 { 10 } else { 60 }, 300) {
        let largest = rng.of(&[20, 700, rank.scale.pick(6000, 200_000)]);
        let chunk = rng.within(0, largest / rank.size());
        let options = LaunchOptions::default().channels(rng.within(1, 4) as u32);
        if rng.bits() & 1 == 0 {
            copy_once(&ground, &bytes, rank.data(call), chunk, &options)?;
        } else {
            copy_once(&ground, &doubles, rank.data(call), chunk / 8, &options)?;
        }
    }
    Ok(())
}

/// Hooks by element, from one element to a pack to sixteen; odd chunks make every chunk but the first start misaligned.
pub fn element_by_element<X: Subject>(rank: &Rank<X>) -> Outcome {
    fn backwards<T: Element, X: Subject + AllToAllOf<reverse::Hooks<T>>>(
        rank: &Rank<X>,
        ground: &Ground<X>,
    ) -> Outcome
    where
        for<'a> reverse::Hooks<T>: HookSet<Args<'a> = reverse::Launch<'a, T>>,
    {
        let launcher = AllToAllOf::<reverse::Hooks<T>>::all_to_all(&ground.transport)?;
        for (k, chunk) in [1, 3, 17, 33, rank.scale.pick(1001, 60_001)].into_iter().enumerate() {
            let (data, n) = (rank.data(k), chunk * rank.size());
            let input = ground.device.buffer_from(&data.all::<T>(rank.me(), n))?;
            let mut output = ground.device.buffer::<T>(n)?;
            output.fill_bytes(&ground.stream, POISON)?;
            launcher
                .launch(&ground.stream, reverse::Launch { input: input.view(), output: output.view_mut() })?;
            let got = output.read(&ground.stream)?;
            same(format_args!("{} in chunks of {chunk}, backwards", T::NAME), &got, |i| {
                let mirrored = i / chunk * chunk + chunk - 1 - i % chunk;
                reference::all_to_all(rank.me(), chunk, mirrored, |from, index| data.any(from, index))
            });
        }
        Ok(())
    }
    let ground = rank.small()?;
    backwards::<u8, X>(rank, &ground)?;
    backwards::<u16, X>(rank, &ground)?;
    backwards::<u32, X>(rank, &ground)?;
    backwards::<u64, X>(rank, &ground)
}
