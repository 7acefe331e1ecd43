//! Broadcasts and reduces: each part of a chunk crosses to or from another domain once.

use super::pairs::{SIZES, copy, copy_in_place, copy_words, counted, counted_by, element};
use super::*;

/// Every size and way, each with a root of its own in turn: every rank is one.
fn rooted(ranks: usize) -> impl Iterator<Item = (usize, LaunchOptions, usize)> {
    let all = SIZES.into_iter().flat_map(|n| ways().map(|way| (n, way)));
    all.enumerate().map(move |(k, (n, way))| (n, way, k % ranks))
}

#[test]
fn what_the_root_has_comes_to_every_rank() {
    fn tells<T: Number>(ground: &Ground)
    where
        copy::Hooks<T>: fusewire::kernel::Supports<Broadcast, ShmMesh>,
        for<'a> copy::Hooks<T>: fusewire::kernel::HookSet<Args<'a> = copy::Launch<'a, T>>,
    {
        let launcher = copy::broadcast::<T, _>(&ground.mesh).unwrap();
        let ranks = ground.world.size();
        for (n, options, root) in rooted(ranks) {
            let launch = |input: &Buffer<T>, output: &mut Buffer<T>| {
                let args = copy::Launch { input: input.view(), output: output.view_mut() };
                launcher.launch_with(&ground.stream, root, args, &options)
            };
            let want = |call: usize, at: usize| Some(T::of(value(root, call, at)));
            calls(ground, [n; 2], &options, launch, want);
        }
    }
    for (domains, each) in DOMAINS {
        of_domains(domains, each, &small(), |ground| {
            tells::<f32>(ground);
            tells::<u8>(ground);
        });
    }
}

/// `produce` is called on the root alone, once for each element, and `consume` once on every rank; both hear of the root.
#[test]
fn elements_of_the_root_are_produced_once_and_taken_once() {
    for (domains, each) in DOMAINS {
        of_domains(domains, each, &small(), |ground| {
            let launcher = counted::broadcast(&ground.mesh).unwrap();
            let (me, ranks) = (ground.world.rank(), ground.world.size());
            for (n, options, root) in rooted(ranks) {
                let own: Vec<u32> = (0..n).map(|i| element(me, 0, i)).collect();
                let input = ground.device.buffer_from(&own).unwrap();
                let [mut output, mut produced, mut consumed] =
                    [(); 3].map(|()| ground.device.buffer::<u32>(n).unwrap());
                for _ in 0..2 {
                    let args = counted::Launch {
                        input: input.view(),
                        output: output.view_mut(),
                        produced: produced.view_mut(),
                        consumed: consumed.view_mut(),
                    };
                    launcher.launch_with(&ground.stream, root, args, &options).unwrap();
                }
                for (at, got) in output.read(&ground.stream).unwrap().into_iter().enumerate() {
                    let want = element(root, 0, at) ^ (root as u32) << 24;
                    assert_eq!(got, want, "element {at} of {n}, {options:?}, at rank {me}");
                }
                let wanted = if me == root { 2 } else { 0 };
                assert!(produced.read(&ground.stream).unwrap().into_iter().all(|calls| calls == wanted));
                assert!(consumed.read(&ground.stream).unwrap().into_iter().all(|calls| calls == 2));
            }
        });
    }
}

#[test]
fn sums_at_a_root_have_the_bits_of_the_tree() {
    fn sums<T: Number>(ground: &Ground)
    where
        sum::Hooks<T>: fusewire::kernel::Supports<Reduce, ShmMesh>,
        for<'a> sum::Hooks<T>: fusewire::kernel::HookSet<Args<'a> = sum::Launch<'a, T>>,
    {
        let launcher = sum::reduce::<T, _>(&ground.mesh).unwrap();
        let (me, ranks) = (ground.world.rank(), ground.world.size());
        for (n, options, root) in rooted(ranks) {
            let launch = |input: &Buffer<T>, output: &mut Buffer<T>| {
                let args = sum::Launch { input: input.view(), output: output.view_mut() };
                launcher.launch_with(&ground.stream, root, args, &options)
            };
            let of = |rank, call, i| T::of(value(rank, call, i)).read();
            let sum = |call, i| T::of(tree(0, ranks, &|rank| of(rank, call, i)));
            calls(ground, [n; 2], &options, launch, |call, i| (me == root).then(|| sum(call, i)));
        }
    }
    for (domains, each) in DOMAINS {
        of_domains(domains, each, &small(), |ground| {
            sums::<f32>(ground);
            sums::<Bf16>(ground);
        });
    }
}

/// What crosses is narrower than what is folded and taken; hooks are called once, on the root.
#[test]
fn means_at_a_root_are_taken_once() {
    for (domains, each) in DOMAINS {
        of_domains(domains, each, &small(), |ground| {
            let launcher = mean::reduce(&ground.mesh).unwrap();
            let (me, ranks) = (ground.world.rank(), ground.world.size());
            for (n, options, root) in rooted(ranks) {
                let own: Vec<f32> = (0..n).map(|i| value(me, 0, i)).collect();
                let input = ground.device.buffer_from(&own).unwrap();
                let mut output = ground.device.buffer::<f32>(n).unwrap();
                let mut consumed = ground.device.buffer::<u32>(n).unwrap();
                for _ in 0..2 {
                    let args = mean::Launch {
                        input: input.view(),
                        output: output.view_mut(),
                        consumed: consumed.view_mut(),
                    };
                    launcher.launch_with(&ground.stream, root, args, &options).unwrap();
                }
                for (i, got) in output.read(&ground.stream).unwrap().into_iter().enumerate() {
                    let of = |rank| Bf16::of(value(rank, 0, i)).read();
                    let want = if me == root { tree(0, ranks, &of) / ranks as f32 } else { 0.0 };
                    assert_eq!(
                        got.to_bits(),
                        want.to_bits(),
                        "element {i} of {n}, {options:?}, at rank {me}"
                    );
                }
                let wanted = if me == root { 2 } else { 0 };
                assert!(consumed.read(&ground.stream).unwrap().into_iter().all(|calls| calls == wanted));
            }
        });
    }
}

#[test]
fn what_comes_of_it_replaces_it_in_place() {
    for (domains, each) in DOMAINS {
        of_domains(domains, each, &small(), |ground| {
            let tell = copy_in_place::broadcast(&ground.mesh).unwrap();
            let sum = sum_in_place::reduce(&ground.mesh).unwrap();
            let (me, ranks) = (ground.world.rank(), ground.world.size());
            for (n, options, root) in rooted(ranks) {
                let own: Vec<u32> = (0..n).map(|i| element(me, 0, i)).collect();
                let mut both = ground.device.buffer_from(&own).unwrap();
                let args = copy_in_place::Launch { both: both.view_mut() };
                tell.launch_with(&ground.stream, root, args, &options).unwrap();
                let want: Vec<u32> = (0..n).map(|i| element(root, 0, i)).collect();
                assert!(both.read(&ground.stream).unwrap() == want, "{n}, {options:?}, at rank {me}");
                let start: Vec<Bf16> = (0..n).map(|i| Bf16::of(value(me, 1, i))).collect();
                let mut both = ground.device.buffer_from(&start).unwrap();
                let args = sum_in_place::Launch { both: both.view_mut() };
                sum.launch_with(&ground.stream, root, args, &options).unwrap();
                for (i, got) in both.read(&ground.stream).unwrap().into_iter().enumerate() {
                    let sum = || Bf16::of(tree(0, ranks, &|rank| Bf16::of(value(rank, 1, i)).read()));
                    let want = if me == root { sum() } else { start[i] };
                    assert_eq!(
                        got.to_bits64(),
                        want.to_bits64(),
                        "element {i} of {n}, {options:?}, at rank {me}"
                    );
                }
            }
        });
    }
}

/// Bytes that the adapter sends and receives, in chunks: from the root, each of its domain sends a part to each other domain, and each of those receives one; to the root it is the
/// other way round.
#[test]
fn adapters_at_the_root_carry_a_part_for_each_other_domain() {
    for (domains, each) in DOMAINS {
        of_domains(domains, each, &Options::per_peer(256 << 10).channels(4), move |ground| {
            let (n, me, ranks) = (3 << 15, ground.world.rank(), domains * each);
            let tell = copy::broadcast::<f32, _>(&ground.mesh).unwrap();
            let sum = sum::reduce::<f32, _>(&ground.mesh).unwrap();
            let halves = sum::reduce::<Bf16, _>(&ground.mesh).unwrap();
            let input = ground.device.buffer_from(&vec![1.0f32; n]).unwrap();
            let narrow = ground.device.buffer_from(&vec![Bf16::of(1.0); n]).unwrap();
            let mut output = ground.device.buffer::<f32>(n).unwrap();
            let mut half = ground.device.buffer::<Bf16>(n).unwrap();
            for (protocol, root) in [Protocol::Hierarchical, Protocol::Simple]
                .into_iter()
                .flat_map(|protocol| [0, ranks - 1].map(|root| (protocol, root)))
            {
                let options = LaunchOptions::default().protocol(protocol);
                let (stream, home) = (&ground.stream, me / each == root / each);
                let told = counted_by(ground, || {
                    let args = copy::Launch { input: input.view(), output: output.view_mut() };
                    tell.launch_with(stream, root, args, &options).unwrap();
                });
                let summed = counted_by(ground, || {
                    let args = sum::Launch { input: input.view(), output: output.view_mut() };
                    sum.launch_with(stream, root, args, &options).unwrap();
                });
                let halved = counted_by(ground, || {
                    let args = sum::Launch { input: narrow.view(), output: half.view_mut() };
                    halves.launch_with(stream, root, args, &options).unwrap();
                });
                let part = 1.0 / each as f64;
                let far = (domains - 1) as f64;
                // Of the root's domain, in a broadcast; of each other, in a reduce.
                let (sent, folded) = match protocol {
                    Protocol::Hierarchical => (f64::from(home) * far * part, f64::from(!home) * part),
                    _ => (f64::from(me == root) * far * each as f64, f64::from(!home)),
                };
                let wide = if protocol == Protocol::Hierarchical { 2.0 } else { 1.0 };
                for (counted, said, bytes) in
                    [(told, sent, 4), (summed, folded, 4), (halved, wide * folded, 2)]
                {
                    let counted = counted / (bytes * n) as f64;
                    // Headers and signals are counted, too.
                    let about = (said - 0.001..said * 1.04 + 0.02).contains(&counted);
                    assert!(about, "{domains} domains of {each}, {protocol}: {counted} chunks, not {said}");
                }
            }
        });
    }
}

/// Long calls go by domains where nothing is said.
#[test]
fn long_chunks_of_a_root_go_by_domains() {
    of_domains(2, 4, &Options::per_peer(64 << 10).channels(4), |ground| {
        let tell = copy::broadcast::<f32, _>(&ground.mesh).unwrap();
        let sum = sum::reduce::<f32, _>(&ground.mesh).unwrap();
        for (n, root, by_domains) in [(1 << 20, 0, true), (1 << 20, 5, true), (1000, 0, false)] {
            let mut chunk = ground.device.buffer_from(&vec![1.0f32; n]).unwrap();
            let mut out = ground.device.buffer::<f32>(n).unwrap();
            let args = sum::Launch { input: chunk.view(), output: out.view_mut() };
            let plan = sum.explain(root, &args, &LaunchOptions::default()).unwrap();
            assert_eq!(plan.protocol == Protocol::Hierarchical, by_domains, "{plan}");
            sum.launch(&ground.stream, root, args).unwrap();
            let args = copy::Launch { input: out.view(), output: chunk.view_mut() };
            let plan = tell.explain(root, &args, &LaunchOptions::default()).unwrap();
            assert_eq!(plan.protocol == Protocol::Hierarchical, by_domains, "{plan}");
            tell.launch(&ground.stream, root, args).unwrap();
            assert!(chunk.read(&ground.stream).unwrap().into_iter().all(|sum| sum == 8.0));
        }
    });
}

/// Each byte of these goes to one rank, and crosses once as it is.
#[test]
fn what_crosses_once_in_one_step_is_refused() {
    let says = |error: fusewire::Error| {
        let text = error.to_string();
        assert!(text.contains("`all_reduce`, `broadcast` and `reduce` of hooks"), "{text}");
    };
    of_domains(2, 2, &small(), move |ground| {
        let words = ground.device.buffer_from(&[1u32; 64]).unwrap();
        let mut taken = ground.device.buffer::<u32>(64).unwrap();
        let [scatter, gather] = [
            copy_words::scatter(&ground.mesh).unwrap().launch_with(
                &ground.stream,
                0,
                copy_words::Launch { input: words.view(), output: taken.view_mut() },
                &by_domains().elements(16),
            ),
            copy_words::gather(&ground.mesh).unwrap().launch_with(
                &ground.stream,
                0,
                copy_words::Launch { input: words.view(), output: taken.view_mut() },
                &by_domains().elements(16),
            ),
        ];
        says(scatter.unwrap_err());
        says(gather.unwrap_err());
        let sum = sum::reduce::<f32, _>(&ground.mesh).unwrap();
        let input = ground.device.buffer_from(&[1.0f32; 64]).unwrap();
        let mut output = ground.device.buffer::<f32>(64).unwrap();
        for options in [by_domains().channels(3), by_domains().chunk(8 << 10)] {
            let args = sum::Launch { input: input.view(), output: output.view_mut() };
            assert!(sum.launch_with(&ground.stream, 0, args, &options).is_err(), "{options:?}");
        }
    });
}
