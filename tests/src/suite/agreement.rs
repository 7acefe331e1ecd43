//! What must be equal on all ranks is compared before a launch can hang.

use super::support::{misuse, works};
use crate::check::says;
use crate::kernels::copying::{copy, reverse};
use crate::kernels::folds::{averaged, ordered, summed};
use crate::{AllReduceOf, AllToAllOf, Outcome, Rank, SendRecvOf, Subject};
use fusewire::device::prelude::*;
use fusewire::{Error, Options};
use std::time::Duration;

#[track_caller]
fn disagreement<T>(result: Result<T, Error>, parts: &[&str]) {
    match result {
        Err(Error::Peer(error)) => says(error, parts),
        Err(other) => panic!("the ranks should disagree: {other:?}"),
        Ok(_) => panic!("the ranks should disagree on {parts:?}"),
    }
}

pub fn kernels_that_differ<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let (on, odd) = (&ground.transport, rank.me() == 0);
    let result = match odd {
        true => AllToAllOf::<copy::Hooks<u32>>::all_to_all(on).map(drop),
        false => AllToAllOf::<copy::Hooks<f32>>::all_to_all(on).map(drop),
    };
    disagreement(result, &["element type", "rank 0 has", "`u32`", "`f32`"]);
    let result = match odd {
        true => AllToAllOf::<copy::Hooks<u32>>::all_to_all(on).map(drop),
        false => AllToAllOf::<reverse::Hooks<u32>>::all_to_all(on).map(drop),
    };
    disagreement(result, &["kernel", "rank 0 has", "copying::copy", "copying::reverse"]);
    let result = match odd {
        true => AllToAllOf::<copy::Hooks<u32>>::all_to_all(on).map(drop),
        false => SendRecvOf::<copy::Hooks<u32>>::sendrecv(on).map(drop),
    };
    disagreement(result, &["schedule", "rank 0 has", "`all_to_all`", "`sendrecv`"]);
    let result = match odd {
        true => AllReduceOf::<summed::Hooks<Bf16>>::all_reduce(on).map(drop),
        false => AllReduceOf::<ordered::Hooks>::all_reduce(on).map(drop),
    };
    disagreement(result, &["fold", "rank 0 has", "`sum, f32, order = tree`", "`Ordered`"]);
    let result = match odd {
        true => AllReduceOf::<summed::Hooks<f32>>::all_reduce(on).map(drop),
        false => AllReduceOf::<averaged::Hooks>::all_reduce(on).map(drop),
    };
    let orders = ["`sum, f32, order = tree`", "`average, f32, order = ranks`"];
    disagreement(result, &[&["fold", "rank 0 has"], &orders[..]].concat());
    // The transport is none the worse for it.
    works(rank, &ground)
}

pub fn options_that_differ<X: Subject>(rank: &Rank<X>) -> Outcome {
    let usual = || Options::per_peer(16 << 10).channels(4);
    let odd = [
        (usual().channels(2), ["channels", "`2`", "`4`"]),
        (Options::per_peer(64 << 10).channels(4), ["bytes per channel", "`16384`", "`4096`"]),
        (usual().signals(3), ["signals", "`3`", "`8`"]),
        (usual().heap(256), ["heap bytes", "`256`", "`1048576`"]),
    ];
    for (options, [field, bad, good]) in odd {
        let options = if rank.me() == 1 { options } else { usual() };
        disagreement(X::meet(&rank.world, options, rank.scale), &[field, bad, good, "rank 1 has"]);
    }
    works(rank, &rank.small()?)
}

pub fn options_that_cannot_be<X: Subject>(rank: &Rank<X>) -> Outcome {
    let cannot = [
        (Options::per_peer(1 << 20).channels(0), "0 channels"),
        (Options::per_peer(1 << 30).channels(5000), "5000 channels"),
        (Options::per_peer(1000).channels(1), "at least 1024"),
        (Options::per_peer(usize::MAX), "1 TiB"),
        (Options::per_peer(1 << 20).heap(usize::MAX), "1 TiB"),
        (Options::per_peer(1 << 20).signals(9999), "9999 signals"),
        (Options::per_peer(1 << 20).deadline(Duration::ZERO), "deadline"),
    ];
    for (options, part) in cannot {
        says(misuse(X::meet(&rank.world, options, rank.scale)), &[part]);
    }
    works(rank, &rank.small()?)
}
