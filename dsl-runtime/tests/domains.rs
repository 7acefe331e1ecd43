//! Schedules by domains of a mesh: the bits, what adapters carry, and what is refused.

use fusewire::nic::Emulated;
use fusewire::nic::emulated::Behaviour;
use fusewire::prelude::*;
use fusewire::schedule::*;
use fusewire::{Graph, ShmMesh, Transport};
use std::sync::Arc;
use std::time::Duration;

#[path = "domains/pairs.rs"]
mod pairs;
#[path = "domains/rooted.rs"]
mod rooted;

#[comm_kernel(
    transports(ShmMesh),
    schedules(all_reduce, reduce_scatter, reduce),
    elements(f32, Bf16),
    reduce(sum, f32)
)]
mod sum {
    pub struct Args<'a, T> {
        pub input: &'a [T],
        pub output: Out<'a, T>,
    }
}

#[comm_kernel(transports(ShmMesh), schedules(all_reduce, reduce_scatter, reduce), reduce(sum, f32))]
mod sum_in_place {
    pub struct Args<'a> {
        pub both: InOut<'a, Bf16>,
    }
}

/// What crosses is narrower than what is folded and taken, and hooks count.
#[comm_kernel(transports(ShmMesh), schedules(all_reduce, reduce_scatter, reduce), reduce(average, f32))]
mod mean {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
        pub consumed: Accumulate<'a, u32>,
    }

    pub fn produce(ctx: &Produce, args: &Args) -> Bf16 {
        Bf16::from_f32(args.input[ctx.index()])
    }

    pub fn consume(ctx: &Consume, args: &Args, mean: f32) {
        args.consumed.add(ctx.index(), 1);
        args.output.at(ctx).set(mean);
    }
}

#[comm_kernel(transports(ShmMesh), schedules(all_reduce, reduce_scatter, reduce), reduce(sum, f32, order = ranks))]
mod line {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

/// A rank of a mesh with domains of `each` ranks.
struct Ground {
    world: World,
    adapter: Arc<Emulated>,
    mesh: ShmMesh,
    device: Device,
    stream: Stream,
}

fn meet(world: &World, domain: u64, options: Options) -> Ground {
    let behaviour = Behaviour { seed: world.rank() as u64, late_placement: true, ..Behaviour::default() };
    let adapter = Arc::new(Emulated::new(behaviour).unwrap());
    let mesh = ShmMesh::rendezvous(world, domain, adapter.clone(), options).unwrap();
    let device = Device::host();
    let stream = device.stream().unwrap();
    Ground { world: world.clone(), adapter, mesh, device, stream }
}

/// On threads of so many domains of so many ranks.
fn of_domains(domains: usize, each: usize, options: &Options, run: impl Fn(&Ground) + Send + Sync + 'static) {
    let options = options.clone();
    World::threads(domains * each, move |world| {
        let ground = meet(&world, (world.rank() / each) as u64, options.clone());
        run(&ground);
        // Who fails is not to be waited for.
        ground.stream.synchronize().unwrap();
        world.barrier().unwrap();
    })
    .unwrap();
}

/// Domains, and ranks of each.
const DOMAINS: [(usize, usize); 4] = [(2, 2), (4, 2), (2, 4), (3, 2)];

fn small() -> Options {
    Options::per_peer(16 << 10).channels(4)
}

/// Element `i` of a rank in a call: of many magnitudes, so that sums round.
fn value(rank: usize, call: usize, i: usize) -> f32 {
    let mut bits = (rank as u64) << 40 ^ (call as u64) << 32 ^ i as u64;
    for _ in 0..2 {
        bits = (bits ^ bits >> 31).wrapping_mul(0x7fb5_d329_728e_a185).rotate_left(23);
    }
    let sign = if bits & 1 == 0 { 1.0 } else { -1.0 };
    sign * (1.0 + (bits >> 8 & 0xffff) as f32 / 65536.0) * 2f32.powi((bits >> 40 & 15) as i32 - 8)
}

/// The sum of what ranks `from..to` contribute, by the tree of its definition.
fn tree(from: usize, to: usize, of: &impl Fn(usize) -> f32) -> f32 {
    if to - from == 1 {
        return of(from);
    }
    let left = 1 << (to - from - 1).ilog2();
    tree(from, from + left, of) + tree(from + left, to, of)
}

/// An element type, as a rank holds it.
trait Number: Element {
    fn of(value: f32) -> Self;
    fn read(self) -> f32;
}

impl Number for f32 {
    fn of(value: f32) -> f32 {
        value
    }
    fn read(self) -> f32 {
        self
    }
}

impl Number for Bf16 {
    fn of(value: f32) -> Bf16 {
        Bf16::from_f32(value)
    }
    fn read(self) -> f32 {
        self.to_f32()
    }
}

fn by_domains() -> LaunchOptions {
    LaunchOptions::default().protocol(Protocol::Hierarchical)
}

const SIZES: [usize; 8] = [0, 1, 7, 16, 33, 1001, 4097, 20_011];

fn ways() -> [LaunchOptions; 3] {
    [by_domains(), by_domains().channels(1).chunk(256), by_domains().channels(2)]
}

/// Ranks come late in turn.
fn arrive(ground: &Ground, call: usize) {
    let (me, ranks) = (ground.world.rank(), ground.world.size());
    std::thread::sleep(Duration::from_micros(200 * ((3 * me + call) % ranks) as u64));
}

/// Calls of a test; the first is eager, the others are replays of one graph.
const CALLS: usize = 4;

/// Queues call number `call`: as it is, or by the graph, which the second call captures.
fn queue(
    ground: &Ground,
    graph: &mut Option<Graph>,
    call: usize,
    mut launch: impl FnMut() -> fusewire::Result<()>,
) {
    if call == 0 {
        return launch().unwrap();
    }
    let graph = graph.get_or_insert_with(|| ground.stream.capture(launch).unwrap());
    graph.launch(&ground.stream).unwrap();
}

/// Queues the calls of a test, each with fresh inputs and over a spoilt output, and compares every element of the output with what `want` has for call and index, if it has any.
fn calls<T: Number>(
    ground: &Ground,
    [sent, received]: [usize; 2],
    options: &LaunchOptions,
    launch: impl Fn(&Buffer<T>, &mut Buffer<T>) -> fusewire::Result<()>,
    want: impl Fn(usize, usize) -> Option<T>,
) {
    let me = ground.world.rank();
    let mut input = ground.device.buffer::<T>(sent).unwrap();
    let mut output = ground.device.buffer::<T>(received).unwrap();
    let mut graph = None;
    for call in 0..CALLS {
        let own: Vec<T> = (0..sent).map(|i| T::of(value(me, call, i))).collect();
        let own = ground.device.buffer_from(&own).unwrap();
        input.copy_from(&ground.stream, &own).unwrap();
        output.fill_bytes(&ground.stream, 0x5a).unwrap();
        arrive(ground, call);
        queue(ground, &mut graph, call, || launch(&input, &mut output));
        for (i, got) in output.read(&ground.stream).unwrap().into_iter().enumerate() {
            if let Some(want) = want(call, i) {
                let about = (T::NAME, received, options, call, me, i);
                assert_eq!(got.to_bits64(), want.to_bits64(), "{about:?}");
            }
        }
    }
}

fn sums<T: Number>(ground: &Ground)
where
    sum::Hooks<T>: fusewire::kernel::Supports<AllReduce, ShmMesh>,
    for<'a> sum::Hooks<T>: fusewire::kernel::HookSet<Args<'a> = sum::Launch<'a, T>>,
{
    let launcher = sum::all_reduce::<T, _>(&ground.mesh).unwrap();
    let ranks = ground.world.size();
    for n in SIZES {
        for options in ways() {
            let launch = |input: &Buffer<T>, output: &mut Buffer<T>| {
                let args = sum::Launch { input: input.view(), output: output.view_mut() };
                launcher.launch_with(&ground.stream, args, &options)
            };
            let of = |rank, call, i| T::of(value(rank, call, i)).read();
            let want = |call: usize, i: usize| Some(T::of(tree(0, ranks, &|rank| of(rank, call, i))));
            calls(ground, [n; 2], &options, launch, want);
        }
    }
}

#[test]
fn sums_have_the_bits_of_the_tree() {
    for (domains, each) in DOMAINS {
        of_domains(domains, each, &small(), |ground| {
            sums::<f32>(ground);
            sums::<Bf16>(ground);
        });
    }
}

#[test]
fn sums_in_place_have_the_bits_of_the_tree() {
    for (domains, each) in DOMAINS {
        of_domains(domains, each, &small(), |ground| {
            let launcher = sum_in_place::all_reduce(&ground.mesh).unwrap();
            let (me, ranks) = (ground.world.rank(), ground.world.size());
            for (n, options) in SIZES.into_iter().flat_map(|n| ways().map(|way| (n, way))) {
                let mut wanted: Vec<Vec<f32>> = (0..ranks)
                    .map(|rank| (0..n).map(|i| Bf16::of(value(rank, 0, i)).read()).collect())
                    .collect();
                let own: Vec<Bf16> = wanted[me].iter().map(|value| Bf16::of(*value)).collect();
                let mut both = ground.device.buffer_from(&own).unwrap();
                let mut launch = || {
                    let args = sum_in_place::Launch { both: both.view_mut() };
                    launcher.launch_with(&ground.stream, args, &options)
                };
                arrive(ground, 0);
                launch().unwrap();
                let graph = ground.stream.capture(launch).unwrap();
                for call in 1..CALLS {
                    arrive(ground, call);
                    graph.launch(&ground.stream).unwrap();
                }
                for _ in 0..CALLS {
                    let sums: Vec<f32> =
                        (0..n).map(|i| Bf16::of(tree(0, ranks, &|rank| wanted[rank][i])).read()).collect();
                    wanted.fill(sums);
                }
                let got = both.read(&ground.stream).unwrap();
                let got: Vec<u32> = got.into_iter().map(|value| value.read().to_bits()).collect();
                let want: Vec<u32> = wanted[me].iter().map(|value| value.to_bits()).collect();
                assert!(got == want, "{n} elements, {options:?}, at rank {me}");
            }
        });
    }
}

/// `produce` narrows, `consume` gets the mean once for each element of every rank.
#[test]
fn hooks_are_called_as_by_other_algorithms() {
    for (domains, each) in DOMAINS {
        of_domains(domains, each, &small(), |ground| {
            let launcher = mean::all_reduce(&ground.mesh).unwrap();
            let (me, ranks) = (ground.world.rank(), ground.world.size());
            for (n, options) in SIZES.into_iter().flat_map(|n| ways().map(|way| (n, way))) {
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
                    launcher.launch_with(&ground.stream, args, &options).unwrap();
                }
                let got = output.read(&ground.stream).unwrap();
                for (i, got) in got.into_iter().enumerate() {
                    let of = |rank| Bf16::of(value(rank, 0, i)).read();
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

/// Bytes that a rank's adapter sends in one all-reduce of so many.
fn carried(ground: &Ground, n: usize, protocol: Protocol) -> usize {
    let launcher = sum::all_reduce::<f32, _>(&ground.mesh).unwrap();
    let input = ground.device.buffer_from(&vec![1.0f32; n]).unwrap();
    let mut output = ground.device.buffer::<f32>(n).unwrap();
    ground.world.barrier().unwrap();
    let before = ground.adapter.counts().wire_bytes;
    let args = sum::Launch { input: input.view(), output: output.view_mut() };
    launcher.launch_with(&ground.stream, args, &LaunchOptions::default().protocol(protocol)).unwrap();
    ground.stream.synchronize().unwrap();
    ground.world.barrier().unwrap();
    (ground.adapter.counts().wire_bytes - before) as usize
}

#[test]
fn adapters_carry_a_part_for_each_other_domain() {
    for (domains, each) in DOMAINS {
        of_domains(domains, each, &Options::per_peer(256 << 10).channels(4), move |ground| {
            let (n, ranks) = (3 << 15, domains * each);
            let bytes = (4 * n) as f64;
            let [simple, twice, hierarchical] = [Protocol::Simple, Protocol::TwoShot, Protocol::Hierarchical]
                .map(|way| carried(ground, n, way) as f64 / bytes);
            // Headers and signals are counted, too.
            let about = |counted: f64, said: f64| (said - 0.001..said + 0.04).contains(&counted);
            let part = (domains - 1) as f64 / each as f64;
            assert!(about(hierarchical, part), "{domains} domains of {each}: {hierarchical}, not {part}");
            let far = (ranks - each) as f64;
            assert!(about(simple, far), "{domains} domains of {each}: {simple}, not {far}");
            assert!(about(twice, 2.0 * far / ranks as f64), "{domains} domains of {each}: {twice}");
            assert!(hierarchical < twice && twice < simple);
        });
    }
}

/// Long calls go by domains where nothing is said.
#[test]
fn long_calls_go_by_domains() {
    of_domains(2, 4, &Options::per_peer(64 << 10).channels(4), |ground| {
        let launcher = sum::all_reduce::<f32, _>(&ground.mesh).unwrap();
        for (n, way) in [(1 << 20, Protocol::Hierarchical), (1000, Protocol::Simple)] {
            let input = ground.device.buffer_from(&vec![1.0f32; n]).unwrap();
            let mut output = ground.device.buffer::<f32>(n).unwrap();
            let args = sum::Launch { input: input.view(), output: output.view_mut() };
            let plan = launcher.explain(&args, &LaunchOptions::default()).unwrap();
            assert_eq!(plan.protocol, way, "{plan}");
            assert!(
                way == Protocol::Simple || plan.to_string().contains("by domains, each step over"),
                "{plan}"
            );
            launcher.launch(&ground.stream, args).unwrap();
            assert!(output.read(&ground.stream).unwrap().into_iter().all(|sum| sum == 8.0));
        }
    });
}

/// What is said where a rank asks for what cannot be.
fn refused(ground: &Ground, says: &[&str]) {
    let launcher = sum::all_reduce::<f32, _>(&ground.mesh).unwrap();
    let input = ground.device.buffer_from(&[1.0f32; 64]).unwrap();
    let mut output = ground.device.buffer::<f32>(64).unwrap();
    let args = sum::Launch { input: input.view(), output: output.view_mut() };
    let text = launcher.launch_with(&ground.stream, args, &by_domains()).unwrap_err().to_string();
    for word in says {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
    // What was refused has left nothing behind.
    let args = sum::Launch { input: input.view(), output: output.view_mut() };
    launcher.launch(&ground.stream, args).unwrap();
    let ranks = ground.world.size() as f32;
    assert!(output.read(&ground.stream).unwrap().into_iter().all(|sum| sum == ranks));
}

#[test]
fn domains_that_are_not_aligned_are_refused() {
    let expected = "steps by domains need two domains or more of 2, 4, 8, .. consecutive ranks each";
    for (domains, found, todo) in [
        (&[0, 1, 0, 1][..], "rank 2 is in the domain of rank 0", "one behind the other"),
        (&[0, 0, 1], "domains have 2, 1 ranks", "as many ranks in each"),
        (&[0, 0, 0, 1, 1, 1], "each domain has 3 ranks", "a power of two"),
        (&[0, 1, 2], "each domain has 1 rank", "a power of two"),
        (&[0, 0, 0, 0], "all 4 ranks are in one domain", "leave the protocol open"),
    ] {
        World::threads(domains.len(), move |world| {
            let ground = meet(&world, domains[world.rank()], small());
            assert_eq!(ground.mesh.link().domains().aligned(), None);
            refused(&ground, &[expected, found, todo]);
            world.barrier().unwrap();
        })
        .unwrap();
    }
}

#[test]
fn folds_and_schedules_that_cannot_be_split_are_refused() {
    of_domains(2, 2, &small(), |ground| {
        let says = |error: fusewire::Error, words: &[&str]| {
            let text = error.to_string();
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        };
        let input = ground.device.buffer_from(&[1.0f32; 64]).unwrap();
        let mut output = ground.device.buffer::<f32>(64).unwrap();
        let line = line::all_reduce(&ground.mesh).unwrap();
        let args = line::Launch { input: input.view(), output: output.view_mut() };
        says(
            line.launch_with(&ground.stream, args, &by_domains()).unwrap_err(),
            &["Hierarchical", "fold by a tree"],
        );
        let reduce = line::reduce(&ground.mesh).unwrap();
        let args = line::Launch { input: input.view(), output: output.view_mut() };
        let error = reduce.launch_with(&ground.stream, 0, args, &by_domains()).unwrap_err();
        says(error, &["Hierarchical", "fold by a tree"]);
        let sum = sum::all_reduce::<f32, _>(&ground.mesh).unwrap();
        for options in [by_domains().channels(3), by_domains().chunk(8 << 10)] {
            let args = sum::Launch { input: input.view(), output: output.view_mut() };
            assert!(sum.launch_with(&ground.stream, args, &options).is_err(), "{options:?}");
        }
    });
}

/// Rank 0 does something else than the others, or nothing: everybody hears of it.
#[test]
fn ranks_that_differ_are_told() {
    of_domains(2, 2, &small(), |ground| {
        // As ranks of several hosts, whose kernels find out.
        ground.mesh.link().has_unseen();
        let launcher = sum::all_reduce::<f32, _>(&ground.mesh).unwrap();
        let (n, first) = (5000, ground.world.rank() == 0);
        let input = ground.device.buffer_from(&vec![1.0f32; n]).unwrap();
        let mut output = ground.device.buffer::<f32>(n).unwrap();
        let deadline = Duration::from_millis(300);
        let other = LaunchOptions::default().protocol(Protocol::TwoShot);
        for (options, says) in [
            (Some(by_domains().elements(4000)), "number of elements"),
            (Some(other.clone()), "by domains over"),
            (None, ""),
        ] {
            let mine = if first { options } else { Some(by_domains()) };
            if let Some(options) = mine {
                let args = sum::Launch { input: input.view(), output: output.view_mut() };
                launcher.launch_with(&ground.stream, args, &options.deadline(deadline)).unwrap();
            }
            if !first || !says.is_empty() {
                let text = ground.stream.synchronize().unwrap_err().to_string();
                assert!(text.contains(says), "rank {}: `{says}` is not in: {text}", ground.world.rank());
            }
            ground.world.barrier().unwrap();
            ground.mesh.renew().unwrap();
            let args = sum::Launch { input: input.view(), output: output.view_mut() };
            launcher.launch_with(&ground.stream, args, &by_domains()).unwrap();
            assert!(output.read(&ground.stream).unwrap().into_iter().all(|sum| sum == 4.0));
            ground.world.barrier().unwrap();
        }
    });
}
