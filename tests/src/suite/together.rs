//! Several things at once.

use super::faults::{mended, short, told};
use super::folds::in_order;
use super::support::{POISON, copy_once, operation, works};
use crate::check::{same, says};
use crate::data::make;
use crate::kernels::copying::{copy, reverse};
use crate::kernels::folds::{ordered, totals};
use crate::kernels::hooks::{chain, scale_add};
use crate::{AllReduceOf, AllToAllOf, Outcome, Rank, Subject, reference};
use fusewire::{Error, LaunchOptions, Operation, Options, Protocol};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub fn several_kernels_on_one_transport<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let copier = AllToAllOf::<copy::Hooks<u64>>::all_to_all(&ground.transport)?;
    let reverser = AllToAllOf::<reverse::Hooks<u16>>::all_to_all(&ground.transport)?;
    let scaler = AllToAllOf::<scale_add::Hooks>::all_to_all(&ground.transport)?;
    let (me, size, stream) = (rank.me(), rank.size(), &ground.stream);
    for call in 0..6 {
        let (data, chunk) = (rank.data(call), 17 + 100 * call);
        let n = chunk * size;
        let words = ground.device.buffer_from(&data.all::<u64>(me, n))?;
        let shorts = ground.device.buffer_from(&data.all::<u16>(me, n))?;
        let floats = ground.device.buffer_from(&make(n, |i| data.small(me, i)))?;
        let (mut a, mut b, mut c) = (
            ground.device.buffer::<u64>(n)?,
            ground.device.buffer::<u16>(n)?,
            ground.device.buffer::<f32>(n)?,
        );
        // All queued before anything is waited for.
        copier.launch(stream, copy::Launch { input: words.view(), output: a.view_mut() })?;
        reverser.launch(stream, reverse::Launch { input: shorts.view(), output: b.view_mut() })?;
        scaler
            .launch(stream, scale_add::Launch { input: floats.view(), output: c.view_mut(), factor: 3.0 })?;
        same("copied", &a.read(stream)?, |i| reference::all_to_all(me, chunk, i, |p, at| data.any(p, at)));
        same("reversed", &b.read(stream)?, |i| {
            let mirrored = i / chunk * chunk + chunk - 1 - i % chunk;
            reference::all_to_all(me, chunk, mirrored, |p, at| data.any(p, at))
        });
        same("scaled", &c.read(stream)?, |i| {
            3.0 * reference::all_to_all(me, chunk, i, |p, at| data.small(p, at))
        });
    }
    Ok(())
}

/// Two transports of different geometry, each with its stream; half of the ranks launch in the other order.
pub fn two_transports_at_once<X: Subject>(rank: &Rank<X>) -> Outcome {
    let a = rank.small()?;
    let b = rank.meet(Options::per_peer(2048).channels(1))?;
    let on_a = AllToAllOf::<chain::Hooks>::all_to_all(&a.transport)?;
    let on_b = AllToAllOf::<chain::Hooks>::all_to_all(&b.transport)?;
    let (me, size, calls) = (rank.me(), rank.size(), rank.scale.pick(12, 200));
    let (one, two) = (rank.data(1), rank.data(2));
    let (n, m) = (size * rank.scale.pick(900, 50_000), size * 333);
    let input_a = a.device.buffer_from(&one.all::<u32>(me, n))?;
    let input_b = b.device.buffer_from(&two.all::<u32>(me, m))?;
    let (mut out_a, mut out_b) = (a.device.buffer::<u32>(n)?, b.device.buffer::<u32>(m)?);
    for call in 0..calls {
        for turn in 0..2 {
            if (turn + me + call) % 2 == 0 {
                on_a.launch(&a.stream, chain::Launch { input: input_a.view(), output: out_a.view_mut() })?;
            } else {
                on_b.launch(&b.stream, chain::Launch { input: input_b.view(), output: out_b.view_mut() })?;
            }
        }
    }
    let folded = |value: u32| (0..calls).fold(0, |old, _| reference::link(old, value));
    same("on the one transport", &out_a.read(&a.stream)?, |i| {
        folded(reference::all_to_all(me, n / size, i, |p, at| one.any(p, at)))
    });
    same("on the other", &out_b.read(&b.stream)?, |i| {
        folded(reference::all_to_all(me, m / size, i, |p, at| two.any(p, at)))
    });
    Ok(())
}

/// Two transports, each with its stream; half of the ranks queue everything on the one before anything on the other. Calls that are queued
/// behind one that waits must leave room for the other transport's, eagerly and in graphs.
pub fn many_calls_in_other_orders<X: Subject>(rank: &Rank<X>) -> Outcome {
    let grounds = [rank.small()?, rank.small()?];
    // On a GPU wide blocks, so that all calls of one stream would take more room than there is; a driver takes about 1000 launches, of all
    // ranks that share a GPU together.
    let (me, size) = (rank.me(), rank.size());
    let (calls, threads) =
        (rank.scale.pick(6, (400 / size as u32).min(100) as usize), if size > 4 { 256 } else { 512 });
    let wide = LaunchOptions::default().protocol(Protocol::Simple).channels(4);
    let wide = if rank.scale.pick(true, false) { wide } else { wide.threads(threads) };
    let n = 500 * size;
    let data = [rank.data(1), rank.data(2)];
    let mut ends = Vec::new();
    for (ground, data) in grounds.iter().zip(&data) {
        let launcher = AllToAllOf::<chain::Hooks>::all_to_all(&ground.transport)?;
        let input = ground.device.buffer_from(&data.all::<u32>(me, n))?;
        ends.push((ground, launcher, input, ground.device.buffer::<u32>(n)?));
    }
    for graphs in [false, true] {
        let mut order: Vec<usize> = (0..2).collect();
        order.rotate_left(me % 2);
        for which in order {
            let (ground, launcher, input, output) = &mut ends[which];
            let mut queue = |calls: usize| -> fusewire::Result<()> {
                (0..calls).try_for_each(|_| {
                    let args = chain::Launch { input: input.view(), output: output.view_mut() };
                    launcher.launch_with(&ground.stream, args, &wide)
                })
            };
            if graphs {
                let graph = ground.stream.capture(|| queue(calls))?;
                graph.launch(&ground.stream)?;
            } else {
                queue(calls)?;
            }
        }
        for ((ground, _, _, output), data) in ends.iter().zip(&data) {
            let all = if graphs { 2 * calls } else { calls };
            same(format_args!("after {all} calls"), &output.read(&ground.stream)?, |i| {
                let value = reference::all_to_all(me, n / size, i, |p, at| data.any(p, at));
                (0..all).fold(0, |old, _| reference::link(old, value))
            });
        }
    }
    Ok(())
}

/// Launches of one transport on two streams in turn keep their order, and so do buffers used on both.
pub fn two_streams_on_one_transport<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = AllToAllOf::<chain::Hooks>::all_to_all(&ground.transport)?;
    let streams = [ground.stream.clone(), ground.device.stream()?];
    let (me, n) = (rank.me(), rank.size() * 700);
    let inputs: Vec<_> = (0..3)
        .map(|k| ground.device.buffer_from(&rank.data(k).all::<u32>(me, n)))
        .collect::<fusewire::Result<_>>()?;
    let mut output = ground.device.buffer::<u32>(n)?;
    for call in 0..12 {
        let args = chain::Launch { input: inputs[call % 3].view(), output: output.view_mut() };
        launcher.launch(&streams[(call / 2) % 2], args)?;
    }
    let got = output.read(&streams[0])?;
    same("a chain over two streams", &got, |i| {
        (0..12).fold(0, |old, call| {
            let data = rank.data(call % 3);
            reference::link(old, reference::all_to_all(me, n / rank.size(), i, |p, at| data.any(p, at)))
        })
    });
    Ok(())
}

/// All-reduces of one transport on two streams in turn, alike on all ranks.
pub fn all_reduces_on_two_streams<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = AllReduceOf::<ordered::Hooks>::all_reduce(&ground.transport)?;
    let streams = [ground.stream.clone(), ground.device.stream()?];
    let (me, n) = (rank.me(), 700);
    let inputs: Vec<_> = (0..3)
        .map(|k| ground.device.buffer_from(&rank.data(k).all::<u32>(me, n)))
        .collect::<fusewire::Result<_>>()?;
    let (mut output, mut calls) = (ground.device.buffer::<u32>(n)?, ground.device.buffer::<u32>(n)?);
    for call in 0..12 {
        let (output, calls) = (output.view_mut(), calls.view_mut());
        let args = ordered::Launch { input: inputs[call % 3].view(), output, calls };
        launcher.launch(&streams[(call / 2) % 2], args)?;
    }
    same("a chain of folds over two streams", &output.read(&streams[0])?, |i| {
        (0..12).fold(0, |old, call| reference::link(old, in_order(rank.data(call % 3), rank.size(), i)))
    });
    same("calls of `consume`", &calls.read(&streams[1])?, |_| 12);
    Ok(())
}

/// Rank 0 queues two all-reduces of one transport in the other order than its peers, on a stream each: they differ in length, then in the kernel.
pub fn all_reduces_in_other_orders<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    // As ranks of several hosts, whose kernels find out.
    ground.apart();
    let one = AllReduceOf::<totals::Hooks>::all_reduce(&ground.transport)?;
    let two = AllReduceOf::<totals::Hooks>::all_reduce(&ground.transport)?;
    let streams = [ground.stream.clone(), ground.device.stream()?];
    let input = ground.device.buffer_from(&[1; 600])?;
    let (mut a, mut b) = (ground.device.buffer::<i32>(600)?, ground.device.buffer::<i32>(600)?);
    for (other, elements, what) in [(&one, 300, "number of elements"), (&two, 600, "same order")] {
        for turn in 0..2 {
            let first = (turn == 0) == (rank.me() == 0);
            let (launcher, output, elements, stream) =
                if first { (&one, &mut a, 600, 0) } else { (other, &mut b, elements, 1) };
            let args = totals::Launch { input: input.view(), output: output.view_mut() };
            // The second may find the transport poisoned.
            let options = LaunchOptions::default().elements(elements);
            let launched = launcher.launch_with(&streams[stream], args, &options);
            if turn == 0 {
                launched?;
            }
        }
        let fault = told(rank, &ground)?;
        assert!(!matches!(operation(&fault), Operation::Expired { .. }), "{fault}");
        says(&fault, &[what]);
        let _ = streams[1].synchronize();
        mended(rank, &ground)?;
        // The next fault is not to stop who still reads.
        rank.world.barrier()?;
    }
    Ok(())
}

/// What `docs/decisions/0028-launches-do-not-wait.md` leaves to the deadline: rank 0 queues one all-reduce and behind it another of other transport and
/// stream, which reads its output; the others queue them the other way round.
pub fn all_reduces_that_wait_for_each_other<X: Subject>(rank: &Rank<X>) -> Outcome {
    let (a, b) = (rank.small()?, rank.small()?);
    let on_a = AllReduceOf::<totals::Hooks>::all_reduce(&a.transport)?;
    let on_b = AllReduceOf::<totals::Hooks>::all_reduce(&b.transport)?;
    let input = a.device.buffer_from(&[1; 300])?;
    let (mut between, mut output) = (a.device.buffer::<i32>(300)?, a.device.buffer::<i32>(300)?);
    for turn in 0..2 {
        if (turn == 0) == (rank.me() == 0) {
            let args = totals::Launch { input: input.view(), output: between.view_mut() };
            on_a.launch_with(&a.stream, args, &short())?;
        } else {
            let args = totals::Launch { input: between.view(), output: output.view_mut() };
            on_b.launch(&b.stream, args)?;
        }
    }
    let fault = told(rank, &a)?;
    assert_eq!((fault.rank, fault.transport), (0, X::NAME), "{fault}");
    assert!(matches!(operation(&fault), Operation::Expired { .. }), "{fault}");
    // With the first at its end the second goes on, and its transport is none the worse for it.
    match b.stream.synchronize() {
        Ok(()) | Err(Error::Fault(_)) => b.transport.check()?,
        Err(other) => return Err(other.into()),
    }
    rank.world.barrier()?;
    mended(rank, &a)?;
    works(rank, &b)
}

pub fn transports_come_and_go<X: Subject>(rank: &Rank<X>) -> Outcome {
    for round in 0..5 {
        let ground = rank.meet(Options::per_peer(4096 << round).channels(1 + round).heap(0).signals(0))?;
        let launcher = AllToAllOf::<copy::Hooks<u8>>::all_to_all(&ground.transport)?;
        let chunk = 4000 * (1 + round as usize);
        copy_once(&ground, &launcher, rank.data(round as usize), chunk, &LaunchOptions::default())?;
        // A launch that is still running keeps what it needs.
        let n = 3000 * rank.size();
        let input = ground.device.buffer::<u8>(n)?;
        let mut output = ground.device.buffer::<u8>(n)?;
        output.fill_bytes(&ground.stream, POISON)?;
        launcher.launch(&ground.stream, copy::Launch { input: input.view(), output: output.view_mut() })?;
        // When all of it is dropped and has run, nothing is left. Over adapters the last end waits for peers, on a thread of its own.
        let link = Arc::downgrade(ground.transport.link());
        let reader = ground.device.stream()?;
        drop((launcher, ground));
        output.read(&reader)?;
        reader.synchronize()?;
        let start = Instant::now();
        while link.strong_count() > 0 {
            assert!(start.elapsed() < crate::run::MEETING, "something keeps the transport of round {round}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    works(rank, &rank.small()?)
}
