//! Random geometry, sizes, options and hooks against the reference.

use super::support::{POISON, copy_once};
use crate::check::same;
use crate::kernels::copying::{copy, reverse};
use crate::kernels::hooks::{chain, transpose_add};
use crate::{AllToAllOf, Outcome, Rank, Subject, reference};
use fusewire::{LaunchOptions, Options};

pub fn calls<X: Subject>(rank: &Rank<X>) -> Outcome {
    let mut rng = rank.rng();
    let (me, size) = (rank.me(), rank.size());
    for round in 0..rank.scale.pick(6, 20) {
        let channels = rng.within(1, 6) as u32;
        let per_channel = rng.within(1024, 9000);
        let ground = rank.meet(Options::per_peer(per_channel * channels as usize).channels(channels))?;
        let (window, stream) = (ground.window(), &ground.stream);
        let copier = AllToAllOf::<copy::Hooks<u8>>::all_to_all(&ground.transport)?;
        let wide = AllToAllOf::<copy::Hooks<f64>>::all_to_all(&ground.transport)?;
        let backwards = AllToAllOf::<reverse::Hooks<u16>>::all_to_all(&ground.transport)?;
        let transposer = AllToAllOf::<transpose_add::Hooks>::all_to_all(&ground.transport)?;
        let linker = AllToAllOf::<chain::Hooks>::all_to_all(&ground.transport)?;
        for call in 0..rank.scale.pick(20, 60) {
            let data = rank.data(round * 100 + call);
            let largest = rng.of(&[9, 300, rank.scale.pick(3000, 60_000)]);
            let chunk = rng.within(1, largest);
            let mut options = LaunchOptions::default();
            if rng.bits() & 1 == 0 {
                options = options.channels(rng.within(1, channels as usize) as u32);
            }
            if rng.bits() & 1 == 0 {
                options = options.chunk(128 * rng.within(1, window / 512));
            }
            if rng.bits() & 1 == 0 {
                options = options.threads(32 * rng.within(1, 16) as u32);
            }
            let n = chunk * size;
            let what = format!("round {round}, call {call}: chunks of {chunk}, {options:?}, window {window}");
            match rng.within(0, 4) {
                0 => copy_once(&ground, &copier, data, chunk, &options)?,
                1 => copy_once(&ground, &wide, data, chunk, &options)?,
                2 => {
                    let input = ground.device.buffer_from(&data.all::<u16>(me, n))?;
                    let mut output = ground.device.buffer::<u16>(n)?;
                    output.fill_bytes(stream, POISON)?;
                    let args = reverse::Launch { input: input.view(), output: output.view_mut() };
                    backwards.launch_with(stream, args, &options)?;
                    same(what, &output.read(stream)?, |i| {
                        let mirrored = i / chunk * chunk + chunk - 1 - i % chunk;
                        reference::all_to_all(me, chunk, mirrored, |peer, at| data.any(peer, at))
                    });
                }
                3 => {
                    let rows = (1..=chunk.min(40)).rev().find(|r| chunk.is_multiple_of(*r)).unwrap_or(1);
                    let cols = chunk / rows;
                    let input = ground.device.buffer_from(&crate::data::make(n, |i| data.small(me, i)))?;
                    let mut output = ground.device.buffer::<f32>(n)?;
                    let args =
                        transpose_add::Launch { input: input.view(), output: output.view_mut(), rows, cols };
                    transposer.launch_with(stream, args, &options)?;
                    same(what, &output.read(stream)?, |i| {
                        let at = |at| data.small(i / chunk, me * chunk + at);
                        reference::transposed(rows, cols, i % chunk, at)
                    });
                }
                _ => {
                    let input = ground.device.buffer_from(&data.all::<u32>(me, n))?;
                    let mut output = ground.device.buffer::<u32>(n)?;
                    for _ in 0..2 {
                        let args = chain::Launch { input: input.view(), output: output.view_mut() };
                        linker.launch_with(stream, args, &options)?;
                    }
                    same(what, &output.read(stream)?, |i| {
                        let value = reference::all_to_all(me, chunk, i, |peer, at| data.any(peer, at));
                        reference::link(reference::link(0, value), value)
                    });
                }
            }
        }
    }
    Ok(())
}
