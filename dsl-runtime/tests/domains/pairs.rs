//! All-gathers and reduce-scatters: each chunk crosses to another domain once.

use super::*;

#[comm_kernel(transports(ShmMesh), schedules(all_gather, broadcast), elements(u8, f32))]
pub mod copy {
    pub struct Args<'a, T> {
        pub input: &'a [T],
        pub output: Out<'a, T>,
    }
}

#[comm_kernel(transports(ShmMesh), schedules(all_gather, all_to_all, scatter, gather))]
pub mod copy_words {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
    }
}

#[comm_kernel(transports(ShmMesh), schedules(all_gather, broadcast))]
pub mod copy_in_place {
    pub struct Args<'a> {
        pub both: InOut<'a, u32>,
    }
}

/// Counts what hooks are called for, and tells whom by.
#[comm_kernel(transports(ShmMesh), schedules(all_gather, broadcast))]
pub mod counted {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
        pub produced: Accumulate<'a, u32>,
        pub consumed: Accumulate<'a, u32>,
    }

    pub fn produce(ctx: &Produce, args: &Args) -> u32 {
        args.produced.add(ctx.index(), 1);
        args.input[ctx.index()]
    }

    pub fn consume(ctx: &Consume, args: &Args, value: u32) {
        args.consumed.add(ctx.index(), 1);
        args.output.at(ctx).set(value ^ (ctx.peer as u32) << 24);
    }
}

/// Many times the staging of a channel, too.
pub const SIZES: [usize; 5] = [0, 1, 33, 1001, 5003];

pub fn element(rank: usize, call: usize, i: usize) -> u32 {
    value(rank, call, i).to_bits() >> 8
}

#[test]
fn gathers_bring_every_chunk_to_every_rank() {
    fn gathers<T: Number>(ground: &Ground)
    where
        copy::Hooks<T>: fusewire::kernel::Supports<AllGather, ShmMesh>,
        for<'a> copy::Hooks<T>: fusewire::kernel::HookSet<Args<'a> = copy::Launch<'a, T>>,
    {
        let launcher = copy::all_gather::<T, _>(&ground.mesh).unwrap();
        let ranks = ground.world.size();
        for (n, options) in SIZES.into_iter().flat_map(|n| ways().map(|way| (n, way))) {
            let launch = |input: &Buffer<T>, output: &mut Buffer<T>| {
                let args = copy::Launch { input: input.view(), output: output.view_mut() };
                launcher.launch_with(&ground.stream, args, &options)
            };
            let want = |call: usize, at: usize| Some(T::of(value(at / n, call, at % n)));
            calls(ground, [n, n * ranks], &options, launch, want);
        }
    }
    for (domains, each) in DOMAINS {
        of_domains(domains, each, &small(), |ground| {
            gathers::<f32>(ground);
            gathers::<u8>(ground);
        });
    }
}

impl Number for u8 {
    fn of(value: f32) -> u8 {
        (value.to_bits() >> 13) as u8
    }
    fn read(self) -> f32 {
        f32::from(self)
    }
}

/// `produce` is called once for each element, `consume` once for each of every rank, and hears whose it is.
#[test]
fn elements_are_produced_once_and_taken_once() {
    for (domains, each) in DOMAINS {
        of_domains(domains, each, &small(), |ground| {
            let launcher = counted::all_gather(&ground.mesh).unwrap();
            let (me, ranks) = (ground.world.rank(), ground.world.size());
            for (n, options) in SIZES.into_iter().flat_map(|n| ways().map(|way| (n, way))) {
                let own: Vec<u32> = (0..n).map(|i| element(me, 0, i)).collect();
                let input = ground.device.buffer_from(&own).unwrap();
                let [mut output, mut consumed] =
                    [(); 2].map(|()| ground.device.buffer::<u32>(n * ranks).unwrap());
                let mut produced = ground.device.buffer::<u32>(n).unwrap();
                for _ in 0..2 {
                    let args = counted::Launch {
                        input: input.view(),
                        output: output.view_mut(),
                        produced: produced.view_mut(),
                        consumed: consumed.view_mut(),
                    };
                    launcher.launch_with(&ground.stream, args, &options).unwrap();
                }
                for (at, got) in output.read(&ground.stream).unwrap().into_iter().enumerate() {
                    let want = element(at / n, 0, at % n) ^ ((at / n) as u32) << 24;
                    assert_eq!(got, want, "element {at} of {n}, {options:?}, at rank {me}");
                }
                assert!(produced.read(&ground.stream).unwrap().into_iter().all(|calls| calls == 2));
                assert!(consumed.read(&ground.stream).unwrap().into_iter().all(|calls| calls == 2));
            }
        });
    }
}

#[test]
fn scattered_sums_have_the_bits_of_the_tree() {
    fn sums<T: Number>(ground: &Ground)
    where
        sum::Hooks<T>: fusewire::kernel::Supports<ReduceScatter, ShmMesh>,
        for<'a> sum::Hooks<T>: fusewire::kernel::HookSet<Args<'a> = sum::Launch<'a, T>>,
    {
        let launcher = sum::reduce_scatter::<T, _>(&ground.mesh).unwrap();
        let (me, ranks) = (ground.world.rank(), ground.world.size());
        for (n, options) in SIZES.into_iter().flat_map(|n| ways().map(|way| (n, way))) {
            let launch = |input: &Buffer<T>, output: &mut Buffer<T>| {
                let args = sum::Launch { input: input.view(), output: output.view_mut() };
                launcher.launch_with(&ground.stream, args, &options)
            };
            let of = |rank, call, i| T::of(value(rank, call, me * n + i)).read();
            let want = |call: usize, i: usize| Some(T::of(tree(0, ranks, &|rank| of(rank, call, i))));
            calls(ground, [n * ranks, n], &options, launch, want);
        }
    }
    for (domains, each) in DOMAINS {
        of_domains(domains, each, &small(), |ground| {
            sums::<f32>(ground);
            sums::<Bf16>(ground);
        });
    }
}

/// What crosses is narrower than what is folded and taken; hooks are called once.
#[test]
fn scattered_means_are_taken_once() {
    for (domains, each) in DOMAINS {
        of_domains(domains, each, &small(), |ground| {
            let launcher = mean::reduce_scatter(&ground.mesh).unwrap();
            let (me, ranks) = (ground.world.rank(), ground.world.size());
            for (n, options) in SIZES.into_iter().flat_map(|n| ways().map(|way| (n, way))) {
                let own: Vec<f32> = (0..n * ranks).map(|i| value(me, 0, i)).collect();
                let input = ground.device.buffer_from(&own).unwrap();
                let mut output = ground.device.buffer::<f32>(n).unwrap();
                let mut consumed = ground.device.buffer::<u32>(n).unwrap();
                for _ in 0..2 {
                    let args = mean::Launch {
                        input: input.view(),
                        output: output.view_mut(),
                        consumed: consumed.view_mut(),
                    };
                    launcher.launch_with(&ground.stream, args, &options).unwrap();
                }
                for (i, got) in output.read(&ground.stream).unwrap().into_iter().enumerate() {
                    let of = |rank| Bf16::of(value(rank, 0, me * n + i)).read();
                    let want = tree(0, ranks, &of) / ranks as f32;
                    assert_eq!(
                        got.to_bits(),
                        want.to_bits(),
                        "element {i} of {n}, {options:?}, at rank {me}"
                    );
                }
                assert!(consumed.read(&ground.stream).unwrap().into_iter().all(|calls| calls == 2));
            }
        });
    }
}

#[test]
fn what_is_sent_stays_in_place() {
    for (domains, each) in DOMAINS {
        of_domains(domains, each, &small(), |ground| {
            let gather = copy_in_place::all_gather(&ground.mesh).unwrap();
            let scatter = sum_in_place::reduce_scatter(&ground.mesh).unwrap();
            let (me, ranks) = (ground.world.rank(), ground.world.size());
            for (n, options) in SIZES.into_iter().flat_map(|n| ways().map(|way| (n, way))) {
                let start: Vec<u32> =
                    (0..n * ranks).map(|at| element(me, at / n.max(1), at % n.max(1))).collect();
                let mut both = ground.device.buffer_from(&start).unwrap();
                let args = copy_in_place::Launch { both: both.view_mut() };
                gather.launch_with(&ground.stream, args, &options).unwrap();
                for (at, got) in both.read(&ground.stream).unwrap().into_iter().enumerate() {
                    assert_eq!(
                        got,
                        element(at / n, at / n, at % n),
                        "element {at} of {n}, {options:?}, at rank {me}"
                    );
                }
                let start: Vec<Bf16> = (0..n * ranks).map(|at| Bf16::of(value(me, 1, at))).collect();
                let mut both = ground.device.buffer_from(&start).unwrap();
                let args = sum_in_place::Launch { both: both.view_mut() };
                scatter.launch_with(&ground.stream, args, &options).unwrap();
                for (at, got) in both.read(&ground.stream).unwrap().into_iter().enumerate() {
                    let sum = || Bf16::of(tree(0, ranks, &|rank| Bf16::of(value(rank, 1, at)).read()));
                    let want = if at / n == me { sum() } else { start[at] };
                    assert_eq!(
                        got.to_bits64(),
                        want.to_bits64(),
                        "element {at} of {n}, {options:?}, at rank {me}"
                    );
                }
            }
        });
    }
}

/// Bytes that a rank's adapter sends in one launch.
pub fn counted_by(ground: &Ground, launch: impl FnOnce()) -> f64 {
    ground.world.barrier().unwrap();
    let before = ground.adapter.counts().wire_bytes;
    launch();
    ground.stream.synchronize().unwrap();
    ground.world.barrier().unwrap();
    (ground.adapter.counts().wire_bytes - before) as f64
}

#[test]
fn adapters_carry_a_chunk_for_each_other_domain() {
    for (domains, each) in DOMAINS {
        of_domains(domains, each, &Options::per_peer(256 << 10).channels(4), move |ground| {
            let (n, ranks) = (3 << 15, domains * each);
            let gather = copy::all_gather::<f32, _>(&ground.mesh).unwrap();
            let scatter = sum::reduce_scatter::<f32, _>(&ground.mesh).unwrap();
            let halves = sum::reduce_scatter::<Bf16, _>(&ground.mesh).unwrap();
            let one = ground.device.buffer_from(&vec![1.0f32; n]).unwrap();
            let all = ground.device.buffer_from(&vec![1.0f32; n * ranks]).unwrap();
            let wide = ground.device.buffer_from(&vec![Bf16::of(1.0); n * ranks]).unwrap();
            let mut outs = ground.device.buffer::<f32>(n * ranks).unwrap();
            let mut out = ground.device.buffer::<f32>(n).unwrap();
            let mut half = ground.device.buffer::<Bf16>(n).unwrap();
            for (protocol, chunks, folded) in [
                (Protocol::Hierarchical, domains - 1, [1.0, 2.0]),
                (Protocol::Simple, ranks - each, [1.0; 2]),
            ] {
                let options = LaunchOptions::default().protocol(protocol);
                let stream = &ground.stream;
                let gathered = counted_by(ground, || {
                    let args = copy::Launch { input: one.view(), output: outs.view_mut() };
                    gather.launch_with(stream, args, &options).unwrap();
                });
                let scattered = counted_by(ground, || {
                    let args = sum::Launch { input: all.view(), output: out.view_mut() };
                    scatter.launch_with(stream, args, &options).unwrap();
                });
                let narrow = counted_by(ground, || {
                    let args = sum::Launch { input: wide.view(), output: half.view_mut() };
                    halves.launch_with(stream, args, &options).unwrap();
                });
                for (counted, times, bytes) in
                    [(gathered, 1.0, 4), (scattered, folded[0], 4), (narrow, folded[1], 2)]
                {
                    let (counted, said) = (counted / (bytes * n) as f64, times * chunks as f64);
                    // Headers and signals are counted, too.
                    let about = (said - 0.001..said * 1.04 + 0.01).contains(&counted);
                    assert!(about, "{domains} domains of {each}, {protocol}: {counted} chunks, not {said}");
                }
            }
        });
    }
}

/// Long calls go by domains where nothing is said.
#[test]
fn long_chunks_cross_once() {
    of_domains(2, 4, &Options::per_peer(64 << 10).channels(4), |ground| {
        let gather = copy::all_gather::<f32, _>(&ground.mesh).unwrap();
        let scatter = sum::reduce_scatter::<f32, _>(&ground.mesh).unwrap();
        for (n, way) in [(1 << 16, Protocol::Hierarchical), (1000, Protocol::Simple)] {
            let chunk = ground.device.buffer_from(&vec![1.0f32; n]).unwrap();
            let mut chunks = ground.device.buffer_from(&vec![1.0f32; 8 * n]).unwrap();
            let args = copy::Launch { input: chunk.view(), output: chunks.view_mut() };
            let plan = gather.explain(&args, &LaunchOptions::default()).unwrap();
            assert_eq!(plan.protocol, way, "{plan}");
            gather.launch(&ground.stream, args).unwrap();
            let mut sums = ground.device.buffer::<f32>(n).unwrap();
            let args = sum::Launch { input: chunks.view(), output: sums.view_mut() };
            let plan = scatter.explain(&args, &LaunchOptions::default()).unwrap();
            assert_eq!(plan.protocol, way, "{plan}");
            scatter.launch(&ground.stream, args).unwrap();
            assert!(sums.read(&ground.stream).unwrap().into_iter().all(|sum| sum == 8.0));
        }
    });
}

#[test]
fn what_cannot_cross_once_is_refused() {
    let says = |error: fusewire::Error, words: &[&str]| {
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    };
    of_domains(2, 2, &small(), move |ground| {
        let input = ground.device.buffer_from(&[1.0f32; 64]).unwrap();
        let mut output = ground.device.buffer::<f32>(16).unwrap();
        let line = line::reduce_scatter(&ground.mesh).unwrap();
        let args = line::Launch { input: input.view(), output: output.view_mut() };
        let error = line.launch_with(&ground.stream, args, &by_domains()).unwrap_err();
        says(error, &["Hierarchical", "fold by a tree"]);
        let words = ground.device.buffer_from(&[1u32; 64]).unwrap();
        let mut taken = ground.device.buffer::<u32>(64).unwrap();
        let other = copy_words::all_to_all(&ground.mesh).unwrap();
        let args = copy_words::Launch { input: words.view(), output: taken.view_mut() };
        let error = other.launch_with(&ground.stream, args, &by_domains()).unwrap_err();
        says(
            error,
            &[
                "Hierarchical",
                "`all_gather`, `reduce_scatter`, `all_reduce`, `broadcast` and `reduce` of hooks",
            ],
        );
        let sum = sum::reduce_scatter::<f32, _>(&ground.mesh).unwrap();
        for options in [by_domains().channels(3), by_domains().chunk(8 << 10)] {
            let args = sum::Launch { input: input.view(), output: output.view_mut() };
            assert!(sum.launch_with(&ground.stream, args, &options).is_err(), "{options:?}");
        }
    });
    World::threads(3, move |world| {
        let ground = meet(&world, [0, 0, 1][world.rank()], small());
        let gather = copy::all_gather::<f32, _>(&ground.mesh).unwrap();
        let input = ground.device.buffer_from(&[1.0f32; 8]).unwrap();
        let mut output = ground.device.buffer::<f32>(24).unwrap();
        let args = copy::Launch { input: input.view(), output: output.view_mut() };
        let error = gather.launch_with(&ground.stream, args, &by_domains()).unwrap_err();
        says(error, &["domains have 2, 1 ranks", "as many ranks in each"]);
        world.barrier().unwrap();
    })
    .unwrap();
}

/// Rank 0 cuts the streams of several chunks in other pieces, or is not there: everybody hears of it.
#[test]
fn ranks_that_cut_otherwise_are_told() {
    of_domains(2, 2, &small(), |ground| {
        // As ranks of several hosts, whose kernels find out.
        ground.mesh.link().has_unseen();
        let gather = copy::all_gather::<f32, _>(&ground.mesh).unwrap();
        let (n, first) = (5000, ground.world.rank() == 0);
        let input = ground.device.buffer_from(&vec![1.0f32; n]).unwrap();
        let mut output = ground.device.buffer::<f32>(4 * n).unwrap();
        let deadline = Duration::from_millis(300);
        for other in [Some(by_domains().chunk(512)), Some(by_domains().channels(1)), None] {
            let mine = if first { other.clone() } else { Some(by_domains().chunk(256)) };
            if let Some(options) = mine {
                let args = copy::Launch { input: input.view(), output: output.view_mut() };
                gather.launch_with(&ground.stream, args, &options.deadline(deadline)).unwrap();
            }
            if !first || other.is_some() {
                let text = ground.stream.synchronize().unwrap_err().to_string();
                assert!(other.is_none() || text.contains("cut"), "rank {}: {text}", ground.world.rank());
            }
            ground.world.barrier().unwrap();
            ground.mesh.renew().unwrap();
            let args = copy::Launch { input: input.view(), output: output.view_mut() };
            gather.launch_with(&ground.stream, args, &by_domains()).unwrap();
            assert!(output.read(&ground.stream).unwrap().into_iter().all(|value| value == 1.0));
            ground.world.barrier().unwrap();
        }
    });
}
