//! Schedules of one's own: tiles, and raw operations.

use super::support::{POISON, misuse};
use crate::check::same;
use crate::kernels::copying::copy;
use crate::kernels::schedules::{
    bursts, halo, halves, pairs_by_ll128, pull_all_gather, relayed, ring_all_gather, ring_by_packs,
    rounds_between_barriers, traded,
};
use crate::{AllToAllOf, CustomOf, Outcome, Rank, SendRecvOf, Subject};
use fusewire::Options;

pub fn ring_all_gather_by_tiles<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = CustomOf::<ring_all_gather::Hooks>::custom(&ground.transport)?;
    // A tile and its header fit in a channel's staging.
    let most = (ground.window() - 128) / 4;
    for (k, n) in [1, 16, 300, rank.scale.pick(9001, 200_003)].into_iter().enumerate() {
        for blocks in 1..=4 {
            let data = rank.data(k);
            let own = ground.device.buffer_from(&data.all::<f32>(rank.me(), n))?;
            let mut all = ground.device.buffer::<f32>(n * rank.size())?;
            all.fill_bytes(&ground.stream, POISON)?;
            let args = ring_all_gather::Launch { own: own.view(), all: all.view_mut(), most };
            launcher.launch(&ground.stream, blocks, args)?;
            let got = all.read(&ground.stream)?;
            same(format_args!("{n} elements of each rank by {blocks} blocks"), &got, |i| {
                data.any(i / n, i % n)
            });
        }
    }
    Ok(())
}

/// By packs, of parts that begin at whole packs and such as do not.
pub fn ring_all_gather_by_packs<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.meet(Options::per_peer(256 << 10).channels(6).ll128_channels(4))?;
    let launcher = CustomOf::<ring_by_packs::Hooks>::custom(&ground.transport)?;
    // Two tiles and their headers fit in a channel's staging.
    let most = (ground.window() / 2 - 256) / 2;
    for (k, n) in [1, 16, 300, 4096, rank.scale.pick(9001, 200_003)].into_iter().enumerate() {
        for (blocks, by_ll128) in [(1, 0), (3, 1), (6, 0), (6, 1)] {
            let data = rank.data(10 * k + blocks as usize);
            let own = ground.device.buffer_from(&data.all::<u16>(rank.me(), n))?;
            let mut all = ground.device.buffer::<u16>(n * rank.size())?;
            all.fill_bytes(&ground.stream, POISON)?;
            let args = ring_by_packs::Launch { own: own.view(), all: all.view_mut(), most, by_ll128 };
            launcher.launch(&ground.stream, blocks, args)?;
            let what = format!("{n} elements of each rank by {blocks} blocks, lines {by_ll128}");
            same(what, &all.read(&ground.stream)?, |i| data.any(i / n, i % n));
        }
    }
    Ok(())
}

/// A hook module in a schedule of its own leaves what the shipped schedule does.
pub fn hooks_of_a_module<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.meet(Options::per_peer(256 << 10).channels(6).ll128_channels(4))?;
    let (own, shipped) =
        (ground.transport.exchange()?, AllToAllOf::<traded::Hooks>::all_to_all(&ground.transport)?);
    let (me, ranks) = (rank.me(), rank.size());
    let most = (ground.window() - 128) / 4;
    for (k, n) in [1, 16, 300, 4096, rank.scale.pick(9001, 200_003)].into_iter().enumerate() {
        for (blocks, by_ll128) in [(1, 0), (3, 1), (6, 0), (6, 1)] {
            let data = rank.data(10 * k + blocks as usize);
            let input = ground.device.buffer_from(&data.all::<u32>(me, n * ranks))?;
            let expected = |i: usize| {
                let (from, at) = (i / n, i % n);
                let sent = data.any::<u32>(from, me * n + at).wrapping_mul(3).wrapping_add(me as u32);
                sent.rotate_left(from as u32 % 32)
            };
            let what = format!("{n} elements to each rank by {blocks} blocks, lines {by_ll128}");
            let mut output = ground.device.buffer::<u32>(n * ranks)?;
            output.fill_bytes(&ground.stream, POISON)?;
            let args = traded::Launch { input: input.view(), output: output.view_mut(), most, by_ll128 };
            own.launch(&ground.stream, blocks, args)?;
            same(format_args!("{what}, own"), &output.read(&ground.stream)?, expected);
            output.fill_bytes(&ground.stream, POISON)?;
            let args = traded::Launch { input: input.view(), output: output.view_mut(), most, by_ll128 };
            shipped.launch(&ground.stream, args)?;
            same(format_args!("{what}, shipped"), &output.read(&ground.stream)?, expected);
        }
    }
    Ok(())
}

/// Tiles of any length by blocks that send and others that receive, more than there are channels; a schedule whose blocks have the channels of their indices is
/// refused so many.
pub fn more_blocks_than_channels<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.meet(Options::per_peer(64 << 10).channels(3).ll128_channels(2))?;
    let launcher = CustomOf::<halves::Hooks>::custom(&ground.transport)?;
    let by_index = CustomOf::<bursts::Hooks>::custom(&ground.transport)?;
    let (me, ranks, stream) = (rank.me(), rank.size(), &ground.stream);
    for (k, n) in [1, 300, rank.scale.pick(20_011, 200_003)].into_iter().enumerate() {
        for (blocks, by_ll128) in [(2, 0), (6, 0), (6, 1), (4, 1)] {
            let data = rank.data(10 * k + blocks as usize);
            let own = ground.device.buffer_from(&data.all::<u32>(me, n * ranks))?;
            let mut got = ground.device.buffer::<u32>(n * ranks)?;
            got.fill_bytes(stream, POISON)?;
            let args = halves::Launch { own: own.view(), got: got.view_mut(), by_ll128 };
            launcher.launch(stream, blocks, args)?;
            let what = format!("{n} elements to each rank by {blocks} blocks, lines {by_ll128}");
            let got = got.read(stream)?;
            // The rank's own chunk is nobody's to write.
            let poison = u32::from_ne_bytes([POISON; 4]);
            same(what, &got, |i| if i / n == me { poison } else { data.any(i / n, me * n + i % n) });
            let (mut none, args) = (ground.device.buffer::<u32>(n)?, own.view());
            let args = bursts::Launch { own: args, got: none.view_mut(), tiles: 1, most: 1 };
            misuse(by_index.launch(stream, 4, args));
        }
    }
    Ok(())
}

/// Tiles follow each other on a channel without anything between, shorter and longer than a block is wide.
pub fn tiles_in_a_row<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = CustomOf::<bursts::Hooks>::custom(&ground.transport)?;
    let previous = (rank.me() + rank.size() - 1) % rank.size();
    for (k, most) in [1, 5, 16, 40, 700].into_iter().enumerate() {
        // A tile's stream is a header and whole lines of 32 elements.
        let tiles = ground.window() / (128 + 128 * usize::div_ceil(most, 32));
        for blocks in 1..=4 {
            let (data, n) = (rank.data(10 * k + blocks), blocks * tiles * most);
            let own = ground.device.buffer_from(&data.all::<u32>(rank.me(), n))?;
            let mut got = ground.device.buffer::<u32>(n)?;
            for call in 0..3 {
                got.fill_bytes(&ground.stream, POISON)?;
                let args = bursts::Launch { own: own.view(), got: got.view_mut(), tiles, most };
                launcher.launch(&ground.stream, blocks as u32, args)?;
                let what =
                    format!("{tiles} tiles of {most} elements by each of {blocks} blocks, call {call}");
                same(what, &got.read(&ground.stream)?, |i| data.any(previous, i));
            }
        }
    }
    Ok(())
}

/// Between calls that use the same channels, of as many blocks as there are LL128 channels, and of more.
pub fn tiles_by_ll128<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.meet(Options::per_peer(256 << 10).channels(6).ll128_channels(4))?;
    let launcher = CustomOf::<pairs_by_ll128::Hooks>::custom(&ground.transport)?;
    let sends = SendRecvOf::<copy::Hooks<u32>>::sendrecv(&ground.transport)?;
    let (me, ranks, stream) = (rank.me(), rank.size(), &ground.stream);
    let (next, previous) = ((me + 1) % ranks, (me + ranks - 1) % ranks);
    // In staging two of them fit.
    let longest = ground.window() / 2 / 4 - 32;
    for (k, most) in [1, 5, 40, 700, longest].into_iter().enumerate() {
        for blocks in [1, 3, 6] {
            let (data, tiles) = (rank.data(10 * k + blocks), 4);
            let n = blocks * tiles * most;
            let own = ground.device.buffer_from(&data.all::<u32>(me, n))?;
            let mut got = ground.device.buffer::<u32>(n)?;
            let launch = |got: &mut fusewire::Buffer<u32>| {
                let args = pairs_by_ll128::Launch { own: own.view(), got: got.view_mut(), tiles, most };
                launcher.launch(stream, blocks as u32, args)
            };
            let right = |got: &fusewire::Buffer<u32>, how: &str| {
                let what = format!("{tiles} tiles of {most} by each of {blocks} blocks, {how}");
                same(what, &got.read(stream)?, |i| data.any(previous, i));
                Ok::<_, fusewire::Error>(())
            };
            got.fill_bytes(stream, POISON)?;
            launch(&mut got)?;
            right(&got, "eager")?;
            let graph = stream.capture(|| launch(&mut got))?;
            for _ in 0..rank.scale.pick(3, 20) {
                got.fill_bytes(stream, POISON)?;
                graph.launch(stream)?;
            }
            right(&got, "replayed")?;
            got.fill_bytes(stream, POISON)?;
            let args = copy::Launch { input: own.view(), output: got.view_mut() };
            sends.sendrecv(stream, next, previous, args)?;
            right(&got, "by `sendrecv`")?;
        }
    }
    Ok(())
}

/// Through every rank to the last, in tiles that staging holds and such as it does not, eager and replayed.
pub fn forwarded<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = CustomOf::<relayed::Hooks>::custom(&ground.transport)?;
    let (me, stream) = (rank.me(), &ground.stream);
    for (k, n) in [1, 300, rank.scale.pick(9001, 200_003)].into_iter().enumerate() {
        for (most, by_ll128, blocks) in [(n, 0, 1), (700, 0, 3), (n, 1, 2), (700, 1, 4)] {
            let data = rank.data(10 * k + blocks as usize);
            let own = ground.device.buffer_from(&data.all::<u32>(me, n))?;
            let mut got = ground.device.buffer::<u32>(n)?;
            let launch = |got: &mut fusewire::Buffer<u32>| {
                let args = relayed::Launch { own: own.view(), got: got.view_mut(), most, by_ll128 };
                launcher.launch(stream, blocks, args)
            };
            let right = |got: &fusewire::Buffer<u32>, how: &str| {
                let what = format!("{n} elements, {most} a tile, lines {by_ll128}, {blocks} blocks, {how}");
                if me > 0 {
                    same(what, &got.read(stream)?, |i| data.any::<u32>(0, i).wrapping_add(me as u32 - 1));
                }
                Ok::<_, fusewire::Error>(())
            };
            got.fill_bytes(stream, POISON)?;
            launch(&mut got)?;
            right(&got, "eager")?;
            let graph = stream.capture(|| launch(&mut got))?;
            for _ in 0..rank.scale.pick(2, 10) {
                got.fill_bytes(stream, POISON)?;
                graph.launch(stream)?;
            }
            right(&got, "replayed")?;
        }
    }
    Ok(())
}

pub fn halo_by_put_and_signal<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = CustomOf::<halo::Hooks>::custom(&ground.transport)?;
    let (me, size) = (rank.me(), rank.size());
    let (up, down) = ((me + 1) % size, (me + size - 1) % size);
    for round in 0..rank.scale.pick(8, 100) {
        // The heap holds two blocks' edges; odd ones are not aligned for wide copies.
        let n = [1, 5, 64, 1001, 2000][round % 5];
        for blocks in 1..=2 {
            let data = rank.data(round);
            let edge = ground.device.buffer_from(&data.all::<u32>(me, n))?;
            let mut output = ground.device.buffer::<u32>(2 * n * blocks)?;
            output.fill_bytes(&ground.stream, POISON)?;
            let args = halo::Launch { edge: edge.view(), output: output.view_mut() };
            launcher.launch(&ground.stream, blocks as u32, args)?;
            let got = output.read(&ground.stream)?;
            same(format_args!("edges of {n}, round {round}, {blocks} blocks"), &got, |i| {
                let slot = i % (2 * n);
                data.any(if slot < n { down } else { up }, slot % n)
            });
        }
    }
    Ok(())
}

pub fn all_gather_by_get<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.meet(Options::per_peer(1024).channels(1).heap(1 << 20))?;
    let launcher = CustomOf::<pull_all_gather::Hooks>::custom(&ground.transport)?;
    for round in 0..rank.scale.pick(6, 60) {
        let (data, n) = (rank.data(round), [1, 7, 1024, 3001][round % 4]);
        let own = ground.device.buffer_from(&data.all::<u64>(rank.me(), n))?;
        let mut all = ground.device.buffer::<u64>(n * rank.size())?;
        all.fill_bytes(&ground.stream, POISON)?;
        launcher.launch(
            &ground.stream,
            1,
            pull_all_gather::Launch { own: own.view(), all: all.view_mut() },
        )?;
        let got = all.read(&ground.stream)?;
        same(format_args!("{n} words of each rank, round {round}"), &got, |i| data.any(i / n, i % n));
    }
    Ok(())
}

/// What was put before a barrier is there behind it, and no rank is a round ahead.
pub fn rounds_and_barriers<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = CustomOf::<rounds_between_barriers::Hooks>::custom(&ground.transport)?;
    let (size, rounds) = (rank.size(), rank.scale.pick(50, 500));
    for call in 0..2 {
        let data = rank.data(call);
        let values = ground.device.buffer_from(&data.all::<u32>(rank.me(), rounds))?;
        let mut seen = ground.device.buffer::<u32>(rounds * size)?;
        seen.fill_bytes(&ground.stream, POISON)?;
        let args = rounds_between_barriers::Launch { values: values.view(), seen: seen.view_mut() };
        launcher.launch(&ground.stream, 1, args)?;
        let got = seen.read(&ground.stream)?;
        same(format_args!("call {call}"), &got, |i| data.any(i % size, i / size));
    }
    Ok(())
}

/// Signals and tiles count on over replays.
pub fn replayed<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let edges = CustomOf::<halo::Hooks>::custom(&ground.transport)?;
    let tiles = CustomOf::<ring_all_gather::Hooks>::custom(&ground.transport)?;
    let (me, size, n, stream) = (rank.me(), rank.size(), 500, &ground.stream);
    let mut edge = ground.device.buffer::<u32>(n)?;
    let mut own = ground.device.buffer::<f32>(n)?;
    let (mut output, mut all) = (ground.device.buffer::<u32>(2 * n)?, ground.device.buffer::<f32>(n * size)?);
    let most = (ground.window() - 128) / 4;
    let graph = stream.capture(|| {
        edges.launch(stream, 1, halo::Launch { edge: edge.view(), output: output.view_mut() })?;
        tiles.launch(stream, 3, ring_all_gather::Launch { own: own.view(), all: all.view_mut(), most })
    })?;
    let rounds = rank.scale.pick(20, 500);
    for round in 0..rounds {
        let data = rank.data(round);
        edge.fill_from(&data.all::<u32>(me, n))?;
        own.fill_from(&data.all::<f32>(me, n))?;
        (0..3).try_for_each(|_| graph.launch(stream))?;
        let down = (me + size - 1) % size;
        same("edges", &output.read(stream)?[..n], |i| data.any(down, i));
        same("tiles", &all.read(stream)?, |i| data.any(i / n, i % n));
    }
    Ok(())
}
