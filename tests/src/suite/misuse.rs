//! What is refused before anything is launched. (Buffers of one launch cannot overlap in safe Rust, so that is not tried.)

use super::support::{misuse, works};
use crate::check::says;
use crate::kernels::copying::copy;
use crate::kernels::hooks::places;
use crate::kernels::schedules::halo;
use crate::{AllToAllOf, CustomOf, Outcome, Rank, SendRecvOf, Stop, Subject};
use fusewire::{Device, Error, LaunchOptions};
use std::time::Duration;

pub fn of_buffers<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let (stream, n) = (&ground.stream, 16 * rank.size());
    let input = ground.device.buffer::<u16>(n + 8)?;
    let mut output = ground.device.buffer::<u16>(n + 8)?;
    says(misuse(input.view().slice(n..n + 9)), &[&format!("{n}..{}", n + 9)]);
    let (first, end) = (n + 9, n + 8);
    says(misuse(output.view_mut().slice(first..end)), &["of a view"]);
    says(misuse(output.fill_from(&[1, 2, 3])), &["3 values", &format!("{} elements", n + 8)]);
    says(misuse(output.read_into(stream, &mut [0; 3])), &["room for 3", &format!("{} elements", n + 8)]);
    let other = ground.device.buffer::<u16>(1)?;
    says(misuse(output.copy_from(stream, &other)), &["1 elements into a buffer of"]);
    says(misuse(ground.device.buffer::<u64>(usize::MAX / 4)), &["too large"]);
    works(rank, &ground)
}

pub fn of_sizes<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let (stream, size) = (&ground.stream, rank.size());
    let copier = AllToAllOf::<copy::Hooks<u32>>::all_to_all(&ground.transport)?;
    let (input, mut output) =
        (ground.device.buffer::<u32>(99 * size)?, ground.device.buffer::<u32>(10 * size + 1)?);
    let args = copy::Launch { input: input.view(), output: output.view_mut() };
    says(
        misuse(copier.launch(stream, args)),
        &[&format!("{} elements", 10 * size + 1), &format!("{size} equal chunks")],
    );
    let sender = SendRecvOf::<copy::Hooks<u32>>::sendrecv(&ground.transport)?;
    let peer = (rank.me() + 1) % size;
    let args = copy::Launch { input: input.view(), output: output.view_mut() };
    says(
        misuse(sender.sendrecv(stream, peer, peer, args)),
        &[&format!("{} elements to send", 99 * size), "to receive"],
    );
    let places = AllToAllOf::<places::Hooks>::all_to_all(&ground.transport)?;
    let mut output = ground.device.buffer::<u64>(12 * size)?;
    for (rows, cols) in [(3, 5), (0, 12), (usize::MAX, 2)] {
        let options = LaunchOptions::default().shape(rows, cols);
        let refused = places.launch_with(stream, places::Launch { output: output.view_mut() }, &options);
        says(misuse(refused), &[&format!("{rows} x {cols}"), "12 elements"]);
    }
    works(rank, &ground)
}

pub fn of_options<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let (stream, n) = (&ground.stream, 8 * rank.size());
    let copier = AllToAllOf::<copy::Hooks<u32>>::all_to_all(&ground.transport)?;
    let (input, mut output) = (ground.device.buffer::<u32>(n)?, ground.device.buffer::<u32>(n)?);
    let quarter = ground.window() / 4;
    let with = LaunchOptions::default;
    let mut wrong = vec![
        (with().channels(0), vec!["0 channels"]),
        (with().channels(5), vec!["5 channels", "has 4", "Options::channels(5)"]),
        (with().chunk(0), vec!["chunks of 0"]),
        (with().chunk(100), vec!["chunks of 100", "multiple of 128"]),
        (with().chunk(quarter + 128), vec!["a quarter of a channel"]),
        (with().unroll(3), vec!["3 packs in flight", "unroll"]),
        (with().deadline(Duration::ZERO), vec!["deadline of 0"]),
        (with().elements(usize::MAX), vec!["too many"]),
        (with().elements(usize::MAX / 16), vec!["too many"]),
    ];
    if rank.scale == crate::Scale::Gpu {
        wrong.push((with().threads(0), vec!["0 threads"]));
        wrong.push((with().threads(33), vec!["33 threads", "multiple of 32"]));
        wrong.push((with().threads(1024), vec!["1024 threads", "512"]));
    }
    for (options, parts) in wrong {
        let args = copy::Launch { input: input.view(), output: output.view_mut() };
        says(misuse(copier.launch_with(stream, args, &options)), &parts);
    }
    let schedule = CustomOf::<halo::Hooks>::custom(&ground.transport)?;
    let mut edges = ground.device.buffer::<u32>(2 * n)?;
    let args = halo::Launch { edge: input.view(), output: edges.view_mut() };
    says(misuse(schedule.launch(stream, 0, args)), &["0 blocks"]);
    if rank.scale == crate::Scale::Gpu {
        let args = halo::Launch { edge: input.view(), output: edges.view_mut() };
        says(misuse(schedule.launch(stream, 100_000, args)), &["100000 blocks", "holds only"]);
    }
    works(rank, &ground)
}

pub fn of_peers<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let (stream, me, size) = (&ground.stream, rank.me(), rank.size());
    let sender = SendRecvOf::<copy::Hooks<u32>>::sendrecv(&ground.transport)?;
    let (input, mut output) = (ground.device.buffer::<u32>(8)?, ground.device.buffer::<u32>(8)?);
    for (to, from, parts) in [
        (Some(size), None, format!("peer {size} in a world of {size}")),
        (None, Some(usize::MAX), format!("peer {} in", usize::MAX)),
        (Some(me), None, format!("rank {me} cannot send to itself")),
        (Some((me + 1) % size), Some(me), format!("rank {me} cannot send to itself")),
    ] {
        let args = copy::Launch { input: input.view(), output: output.view_mut() };
        says(misuse(sender.launch_with(stream, to, from, args, &LaunchOptions::default())), &[&parts]);
    }
    works(rank, &ground)
}

pub fn of_streams<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let (stream, n) = (&ground.stream, 8 * rank.size());
    let copier = AllToAllOf::<copy::Hooks<u32>>::all_to_all(&ground.transport)?;
    let (input, mut output) = (ground.device.buffer::<u32>(n)?, ground.device.buffer::<u32>(n)?);
    // One buffer in two captures at once.
    let second = ground.device.stream()?;
    let clash = stream.capture(|| {
        copier.launch(stream, copy::Launch { input: input.view(), output: output.view_mut() })?;
        second
            .capture(|| {
                copier.launch(&second, copy::Launch { input: input.view(), output: output.view_mut() })
            })
            .map(drop)
    });
    says(misuse(clash), &["two captures at once"]);
    let clash = stream.capture(|| {
        copier.launch(stream, copy::Launch { input: input.view(), output: output.view_mut() })?;
        copier.launch(&second, copy::Launch { input: input.view(), output: output.view_mut() })
    });
    says(misuse(clash), &["while a capture on another uses it"]);
    works(rank, &ground)
}

/// A stream or buffer of another kind of device.
pub fn of_devices<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let copier = AllToAllOf::<copy::Hooks<u32>>::all_to_all(&ground.transport)?;
    let foreign = match rank.scale {
        crate::Scale::Gpu => Device::host(),
        crate::Scale::Host => match Device::cuda(0) {
            Ok(device) => device,
            Err(Error::Device(why)) => {
                return Err(Stop::LeftOut(format!("a second device is needed: {why}")));
            }
            Err(other) => return Err(other.into()),
        },
    };
    let n = 8 * rank.size();
    let (input, mut output) = (ground.device.buffer::<u32>(n)?, ground.device.buffer::<u32>(n)?);
    let args = copy::Launch { input: input.view(), output: output.view_mut() };
    says(misuse(copier.launch(&foreign.stream()?, args)), &["the stream is on"]);
    let elsewhere = foreign.buffer::<u32>(n)?;
    let args = copy::Launch { input: elsewhere.view(), output: output.view_mut() };
    says(misuse(copier.launch(&ground.stream, args)), &["`input` is on"]);
    works(rank, &ground)
}
