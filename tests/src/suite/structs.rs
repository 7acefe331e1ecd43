//! Structs as elements: in memory of any size, on the wire of those that packs are made of.

use super::support::POISON;
use crate::check::same;
use crate::kernels::structs::{
    found::{self, Found},
    neighbours, paired,
    pixels::{self, Pixel},
    points::{self, Arrived, Point},
};
use crate::{
    AllGatherOf, AllReduceOf, AllToAllOf, Outcome, Rank, ReduceScatterOf, SendRecvOf, Subject, reference,
};
use fusewire::device::protocol::ll;
use fusewire::{LaunchOptions, Protocol};

/// The ways that a transport has for every schedule, of a chunk of so many wire bytes.
fn ways<X: Subject>(wire_bytes: usize) -> Vec<LaunchOptions> {
    let open = LaunchOptions::default;
    let mut ways = vec![open(), open().protocol(Protocol::Simple).channels(1).chunk(256)];
    if X::MAPS {
        ways.push(open().protocol(Protocol::Ll128));
    }
    // What four channels carry.
    if X::MAPS && wire_bytes <= 64 * ll::PACKS as usize {
        ways.push(open().protocol(Protocol::Ll));
    }
    ways
}

/// The greatest of all ranks, with its place.
pub fn folded<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let reduces = AllReduceOf::<found::Hooks>::all_reduce(&ground.transport)?;
    let scatters = ReduceScatterOf::<found::Hooks>::reduce_scatter(&ground.transport)?;
    let (me, ranks, stream) = (rank.me(), rank.size(), &ground.stream);
    for chunk in [1, 2, 63, rank.scale.pick(900, 60_001)] {
        let data = rank.data(chunk);
        // Of few values, so that some are equal.
        let of = |rank: usize, i: usize| Found {
            value: data.below(rank, i, 5) as f32 - 2.0,
            place: (rank << 20 | i) as u32,
        };
        let greatest = |i: usize| {
            (1..ranks).fold(of(0, i), |best, rank| {
                let other = of(rank, i);
                if other.value > best.value { other } else { best }
            })
        };
        let input: Vec<Found> = (0..ranks * chunk).map(|i| of(me, i)).collect();
        let input = ground.device.buffer_from(&input)?;
        let mut output = ground.device.buffer::<Found>(chunk)?;
        let two_shot = LaunchOptions::default().protocol(Protocol::TwoShot);
        let lines = LaunchOptions::default().protocol(Protocol::Ll128TwoShot);
        let twice = [two_shot].into_iter().chain(X::MAPS.then_some(lines));
        for options in ways::<X>(8 * chunk).into_iter().chain(twice) {
            let options = options.elements(chunk);
            output.fill_bytes(stream, POISON)?;
            let args = found::Launch { input: input.view().slice(..chunk)?, output: output.view_mut() };
            reduces.launch_with(stream, args, &options)?;
            let about = format!("{chunk} of all ranks, {options:?}, at rank {me}");
            same(format_args!("{about}"), &output.read(stream)?, greatest);
        }
        for options in ways::<X>(8 * chunk) {
            output.fill_bytes(stream, POISON)?;
            let args = found::Launch { input: input.view(), output: output.view_mut() };
            scatters.launch_with(stream, args, &options)?;
            let about = format!("{chunk} for each rank, {options:?}, at rank {me}");
            same(format_args!("{about}"), &output.read(stream)?, |i| greatest(me * chunk + i));
        }
    }
    Ok(())
}

/// Of 2, 12, 16 and 24 bytes.
pub fn of_other_sizes<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let exchange = AllToAllOf::<points::Hooks>::all_to_all(&ground.transport)?;
    let sender = SendRecvOf::<points::Hooks>::sendrecv(&ground.transport)?;
    let copier = AllToAllOf::<pixels::Hooks>::all_to_all(&ground.transport)?;
    let (me, ranks, stream) = (rank.me(), rank.size(), &ground.stream);
    for chunk in [1, 3, 130, rank.scale.pick(700, 40_001)] {
        let (n, data) = (ranks * chunk, rank.data(chunk));
        let of = |rank: usize, i: usize| Point([0, 1, 2].map(|k| data.small(rank, 3 * i + k)));
        let moved = |Point([x, y, z]): Point| Point([x + 0.5, y - 1.0, z]);
        let by = Point([0.5, -1.0, 0.0]);
        let input: Vec<Point> = (0..n).map(|i| of(me, i)).collect();
        let input = ground.device.buffer_from(&input)?;
        let mut output = ground.device.buffer::<Arrived>(n)?;
        let arrived = |peer: usize, pos: usize, point: Point| Arrived {
            from: [peer as u32, pos as u32],
            to: moved(point),
            weight: (me as u32) << 16 | (pos as u32 & 0xff) << 8 | 7,
        };
        let pixel = |rank: usize, i: usize| Pixel {
            light: data.below(rank, i, 256) as u8,
            colour: data.below(rank, i + n, 256) as u8 as i8,
        };
        let pixels: Vec<Pixel> = (0..n).map(|i| pixel(me, i)).collect();
        let pixels = ground.device.buffer_from(&pixels)?;
        let mut picture = ground.device.buffer::<Pixel>(n)?;
        for options in ways::<X>(16 * chunk) {
            let about = format!("{chunk} for each rank, {options:?}, at rank {me}");
            output.fill_bytes(stream, POISON)?;
            let args = points::Launch { points: input.view(), output: output.view_mut(), by };
            exchange.launch_with(stream, args, &options)?;
            same(format_args!("points, {about}"), &output.read(stream)?, |i| {
                arrived(i / chunk, i % chunk, reference::all_to_all(me, chunk, i, of))
            });
            picture.fill_bytes(stream, POISON)?;
            let args = pixels::Launch { input: pixels.view(), output: picture.view_mut() };
            copier.launch_with(stream, args, &options)?;
            same(format_args!("pixels, {about}"), &picture.read(stream)?, |i| {
                let Pixel { light, colour } = reference::all_to_all(me, chunk, i, pixel);
                Pixel { light: !light, colour }
            });
            if ranks == 1 {
                continue;
            }
            output.fill_bytes(stream, POISON)?;
            let (next, last) = ((me + 1) % ranks, (me + ranks - 1) % ranks);
            let args = points::Launch { points: input.view(), output: output.view_mut(), by };
            sender.launch_with(stream, Some(next), Some(last), args, &options.elements(chunk))?;
            same(format_args!("points in a ring, {about}"), &output.read(stream)?[..chunk], |i| {
                arrived(last, i, of(last, i))
            });
        }
    }
    Ok(())
}

/// Several values of an element, which the macro makes a struct of.
pub fn of_tuples_and_arrays<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let exchange = AllToAllOf::<paired::Hooks>::all_to_all(&ground.transport)?;
    let gather = AllGatherOf::<neighbours::Hooks>::all_gather(&ground.transport)?;
    let (me, ranks, stream) = (rank.me(), rank.size(), &ground.stream);
    for chunk in [1, 3, 130, rank.scale.pick(700, 40_001)] {
        let (n, data) = (ranks * chunk, rank.data(chunk));
        let input: Vec<f32> = (0..n).map(|i| data.small(me, i)).collect();
        let input = ground.device.buffer_from(&input)?;
        let mut values = ground.device.buffer::<f32>(n)?;
        let mut places = ground.device.buffer::<u32>(n)?;
        let words = ground.device.buffer_from(&data.all::<u32>(me, chunk))?;
        let mut mixed = ground.device.buffer::<u32>(n)?;
        for options in ways::<X>(8 * chunk) {
            let about = format!("{chunk} for each rank, {options:?}, at rank {me}");
            values.fill_bytes(stream, POISON)?;
            places.fill_bytes(stream, POISON)?;
            let (values_out, places_out) = (values.view_mut(), places.view_mut());
            let args = paired::Launch { input: input.view(), values: values_out, places: places_out };
            exchange.launch_with(stream, args, &options)?;
            same(format_args!("values, {about}"), &values.read(stream)?, |i| {
                reference::all_to_all(me, chunk, i, |rank, i| data.small(rank, i))
            });
            same(format_args!("places, {about}"), &places.read(stream)?, |i| {
                (((i % chunk) << 16) | (i / chunk)) as u32
            });
        }
        for options in ways::<X>(16 * chunk) {
            let about = format!("{chunk} neighbours of each rank, {options:?}, at rank {me}");
            mixed.fill_bytes(stream, POISON)?;
            let args = neighbours::Launch { input: words.view(), output: mixed.view_mut() };
            gather.launch_with(stream, args, &options)?;
            same(format_args!("{about}"), &mixed.read(stream)?, |i| {
                let near = (0..4).map(|k| data.any::<u32>(i / chunk, (i % chunk + k) % chunk));
                near.fold(0, |all, one| all.rotate_left(5) ^ one)
            });
        }
    }
    Ok(())
}
