//! What goes wrong while kernels run: who is named, how soon, and what works afterwards.

use super::support::{fault, operation, works};
use crate::check::{same, says};
use crate::data::make;
use crate::kernels::copying::copy;
use crate::kernels::faulty::{bad_consume, bad_produce, misdirected, says_values};
use crate::kernels::hooks::gather;
use crate::kernels::schedules::{halves, ring_all_gather};
use crate::run::Ground;
use crate::{AllToAllOf, CustomOf, Outcome, Rank, SendRecvOf, Subject, reference};
use fusewire::schedule::AllToAllLauncher;
use fusewire::{Bound, Buffer, CallField, Error, Fault, LaunchOptions, Operation, Protocol};
use std::time::{Duration, Instant};

/// How long waits last where one is meant to expire.
pub(super) const DEADLINE: Duration = Duration::from_millis(300);

/// By when everybody must know: the deadline, the patience for a peer's record, and a slow machine.
const KNOWN: Duration = Duration::from_secs(6);

type Copier<X> = AllToAllLauncher<X, copy::Hooks<u32>>;

pub(super) fn short() -> LaunchOptions {
    LaunchOptions::default().deadline(DEADLINE)
}

/// Input and zeroed output of `chunk` elements for each rank.
fn buffers<X: Subject>(
    rank: &Rank<X>,
    ground: &Ground<X>,
    chunk: usize,
) -> fusewire::Result<(Buffer<u32>, Buffer<u32>)> {
    let n = chunk * rank.size();
    let input = ground.device.buffer_from(&rank.data(0).all::<u32>(rank.me(), n))?;
    Ok((input, ground.device.buffer(n)?))
}

/// Every rank but 0 launches, and waits in vain.
fn all_but_rank_0<X: Subject>(
    rank: &Rank<X>,
    ground: &Ground<X>,
    copier: &Copier<X>,
) -> Result<Option<Fault>, crate::Stop> {
    let (input, mut output) = buffers(rank, ground, 50)?;
    if rank.me() == 0 {
        return Ok(None);
    }
    let args = copy::Launch { input: input.view(), output: output.view_mut() };
    copier.launch_with(&ground.stream, args, &short())?;
    Ok(Some(fault(ground, KNOWN)))
}

/// Collective: the fault that every rank knows of when all are done. A rank whose own work was complete may have ended well before.
pub(super) fn told<X: Subject>(rank: &Rank<X>, ground: &Ground<X>) -> Result<Fault, crate::Stop> {
    let start = Instant::now();
    match ground.stream.synchronize() {
        Ok(()) | Err(Error::Fault(_)) => rank.world.barrier()?,
        Err(other) => return Err(other.into()),
    }
    let known = ground.transport.check().map_err(Error::from);
    assert!(start.elapsed() < KNOWN, "it took {:?} to report {known:?}", start.elapsed());
    match known {
        Err(Error::Fault(fault)) => Ok(*fault),
        other => panic!("rank {}: this should be a fault: {other:?}", rank.me()),
    }
}

/// Collective: the fault is over.
pub(super) fn mended<X: Subject>(rank: &Rank<X>, ground: &Ground<X>) -> Outcome {
    ground.transport.renew().map_err(Error::from)?;
    ground.transport.check().map_err(Error::from)?;
    works(rank, ground)
}

pub fn a_rank_never_launches<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let copier: Copier<X> = ground.transport.all_to_all()?;
    let (me, size) = (rank.me(), rank.size());
    works(rank, &ground)?;
    if let Some(fault) = all_but_rank_0(rank, &ground, &copier)? {
        assert_eq!((fault.reader, fault.transport), (me, X::NAME));
        assert!((1..size).contains(&fault.rank), "{fault}");
        let Operation::Expired { what, peer, block, channel, expected, seen, waited } = operation(&fault)
        else {
            panic!("a wait should have expired: {fault}");
        };
        assert_eq!((*what, *peer), ("data", 0), "{fault}");
        assert!(expected > seen && *block < 2 * size && (DEADLINE..KNOWN).contains(waited), "{fault}");
        // More ranks, more channels: any of them may be the first to give up.
        assert!(*channel <= *block, "{fault}");
        says(&fault, &[X::NAME, "rank 0", "expected", "seen", "renew", &format!("rank {}", fault.rank)]);
        // Ranks of one host see what each of them launched.
        assert!(fault.launched.is_some() || !X::MAPS, "{fault}");
        if let Some([own, theirs]) = fault.launched.as_deref() {
            assert_eq!((own.number, own.schedule.as_str()), (theirs.number + 1, "all_to_all"), "{fault}");
            says(&fault, &[&format!("launched last: number {}, `", own.number), own.kernel.as_str()]);
        }
    }
    // Rank 0 is told too, although it launched nothing.
    rank.world.barrier()?;
    match ground.transport.check() {
        Err(error) => says(error, &["for data of rank 0"]),
        Ok(()) => panic!("rank {me} does not know of the fault"),
    }
    mended(rank, &ground)
}

/// Rank 0 never launches, and no deadline is near: a thread of the last rank ends the waits of all.
pub fn a_program_aborts<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let copier: Copier<X> = ground.transport.all_to_all()?;
    let (me, last) = (rank.me(), rank.size() - 1);
    works(rank, &ground)?;
    let abort = ground.transport.abort_handle();
    let thread = (me == last).then(|| {
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            abort.abort("a checkpoint failed")
        })
    });
    let (input, mut output) = buffers(rank, &ground, 50)?;
    if me > 0 {
        let args = copy::Launch { input: input.view(), output: output.view_mut() };
        let options = LaunchOptions::default().deadline(10 * KNOWN);
        copier.launch_with(&ground.stream, args, &options)?;
        let fault = fault(&ground, KNOWN);
        assert_eq!((fault.reader, fault.rank, fault.transport), (me, last, X::NAME), "{fault}");
        assert_eq!(operation(&fault), &Operation::Aborted { reason: "a checkpoint failed".into() });
        says(&fault, &[&format!("rank {last} aborted {}: a checkpoint failed", X::NAME), "renew"]);
    }
    if let Some(thread) = thread {
        thread.join().expect("no panic").map_err(Error::from)?;
    }
    rank.world.barrier()?;
    let start = Instant::now();
    while ground.transport.check().is_ok() {
        assert!(start.elapsed() < KNOWN, "rank {me} was not told");
    }
    mended(rank, &ground)
}

/// A sender that fills the staging of a peer that does not receive.
/// By staging the sender's ring fills up in the first call; by LL and LL128 two calls go without an answer, and the third does not.
pub fn a_receiver_never_comes<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = SendRecvOf::<copy::Hooks<u32>>::sendrecv(&ground.transport)?;
    let ways = [(Protocol::Simple, 4 * ground.window(), 1), (Protocol::Ll, 64, 3), (Protocol::Ll128, 64, 3)];
    for (protocol, n, calls) in &ways[..if X::MAPS { 3 } else { 1 }] {
        if rank.me() == 0 {
            let (input, mut output) = (ground.device.buffer::<u32>(*n)?, ground.device.buffer::<u32>(*n)?);
            for _ in 0..*calls {
                let args = copy::Launch { input: input.view(), output: output.view_mut() };
                let options = short().protocol(*protocol);
                launcher.launch_with(&ground.stream, Some(1), None, args, &options)?;
            }
            let fault = fault(&ground, KNOWN);
            let expired =
                matches!(operation(&fault), Operation::Expired { what: "room in staging", peer: 1, .. });
            assert!(expired && fault.rank == 0, "{fault}");
        }
        rank.world.barrier()?;
        says(
            ground.transport.check().expect_err("all ranks are told"),
            &["rank 0 waited", "room in staging of rank 1"],
        );
        mended(rank, &ground)?;
    }
    Ok(())
}

#[track_caller]
fn panicked(fault: &Fault, culprit: usize, file: &str, line: Option<u32>) {
    let Operation::Panicked { file: at, line: seen, .. } = operation(fault) else {
        panic!("a hook should have panicked: {fault}");
    };
    assert_eq!(fault.rank, culprit, "{fault}");
    assert!(at.ends_with(file) && line.is_none_or(|line| line == *seen), "not {file}:{line:?}: {fault}");
}

pub fn panic_in_produce<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = AllToAllOf::<bad_produce::Hooks>::all_to_all(&ground.transport)?;
    let (culprit, (input, mut output)) = (rank.size() - 1, buffers(rank, &ground, 100)?);
    let args = bad_produce::Launch { input: input.view(), output: output.view_mut(), culprit };
    launcher.launch(&ground.stream, args)?;
    panicked(&told(rank, &ground)?, culprit, "kernels/faulty.rs", Some(bad_produce::LINE));
    mended(rank, &ground)?;
    // The same kernel, without a culprit.
    let args = bad_produce::Launch { input: input.view(), output: output.view_mut(), culprit: usize::MAX };
    launcher.launch(&ground.stream, args)?;
    let data = rank.data(0);
    same("after the panic", &output.read(&ground.stream)?, |i| {
        reference::all_to_all(rank.me(), 100, i, |peer, at| data.any(peer, at))
    });
    Ok(())
}

pub fn panic_in_consume<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = AllToAllOf::<bad_consume::Hooks>::all_to_all(&ground.transport)?;
    let (culprit, (input, mut output)) = (rank.size() / 2, buffers(rank, &ground, 3000)?);
    let args = bad_consume::Launch { input: input.view(), output: output.view_mut(), culprit };
    launcher.launch(&ground.stream, args)?;
    let fault = told(rank, &ground)?;
    panicked(&fault, culprit, "kernels/faulty.rs", Some(bad_consume::LINE));
    says(&fault, &["element 77 of the chunk is not wanted"]);
    mended(rank, &ground)
}

/// What a panic says has its values on GPUs too.
pub fn panics_with_values<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = AllToAllOf::<says_values::Hooks>::all_to_all(&ground.transport)?;
    let (input, mut output) = buffers(rank, &ground, 100)?;
    let len = 100 * rank.size();
    for (way, text) in [
        format!("77 of {len} and -1.5, which is a text of more than eighty characters, 100% {{}}"),
        "77 is 77".to_owned(),
        "assertion `left == right` failed\n  left: 77\n right: 76".to_owned(),
        "assertion `left != right` failed: as 77 is\n  left: -3\n right: -3".to_owned(),
        "internal error: entered unreachable code: 4 by -1.5".to_owned(),
    ]
    .into_iter()
    .enumerate()
    {
        let way = way as u32;
        let args = says_values::Launch { input: input.view(), output: output.view_mut(), way, real: -1.5 };
        launcher.launch(&ground.stream, args)?;
        let fault = told(rank, &ground)?;
        says(&fault, &[&format!("): {text}")]);
        panicked(&fault, fault.rank, "kernels/faulty.rs", (way == 4).then_some(says_values::LINE));
        mended(rank, &ground)?;
        // The next panic is not to stop who still reads.
        rank.world.barrier()?;
    }
    Ok(())
}

pub fn index_out_of_range<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = AllToAllOf::<gather::Hooks<0>>::all_to_all(&ground.transport)?;
    let (culprit, table, n) = (0, 40, 60 * rank.size());
    let bad = |i: usize| if rank.me() == culprit && i == n - 1 { table } else { i % table };
    let input = ground.device.buffer::<i32>(table)?;
    let index = ground.device.buffer_from(&make(n, |i| bad(i) as u32))?;
    let mut output = ground.device.buffer::<i32>(n)?;
    let args = gather::Launch { input: input.view(), index: index.view(), output: output.view_mut() };
    launcher.launch(&ground.stream, args)?;
    panicked(&told(rank, &ground)?, culprit, "kernels/hooks.rs", None);
    mended(rank, &ground)
}

/// Rank 0 launches twice as many elements.
pub fn sizes_differ<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    // As ranks of several hosts, whose kernels find out.
    ground.apart();
    let copier: Copier<X> = ground.transport.all_to_all()?;
    let (input, mut output) = buffers(rank, &ground, if rank.me() == 0 { 200 } else { 100 })?;
    // Staging, whose headers have both sizes.
    let args = copy::Launch { input: input.view(), output: output.view_mut() };
    copier.launch_with(&ground.stream, args, &LaunchOptions::default().channels(1))?;
    let fault = told(rank, &ground)?;
    let Operation::Mismatch { peer, field: CallField::Bytes, expected, seen, .. } = operation(&fault) else {
        panic!("sizes should differ: {fault}");
    };
    assert_eq!((*expected.min(seen), *expected.max(seen)), (400, 800), "{fault}");
    assert!((fault.rank == 0) != (*peer == 0), "one of the two is rank 0: {fault}");
    says(&fault, &["400", "800", "number of elements"]);
    mended(rank, &ground)?;
    // Tiles of as many packs: only their last ones differ.
    let launcher = CustomOf::<ring_all_gather::Hooks>::custom(&ground.transport)?;
    let n = if rank.me() == 0 { 11 } else { 9 };
    let own = ground.device.buffer::<f32>(n)?;
    let mut all = ground.device.buffer::<f32>(n * rank.size())?;
    launcher.launch(
        &ground.stream,
        1,
        ring_all_gather::Launch { own: own.view(), all: all.view_mut(), most: 100 },
    )?;
    says(&told(rank, &ground)?, &["of another length", "1 element", "3 elements"]);
    mended(rank, &ground)
}

/// Rank 0 launches another kernel of the two that all have prepared. Headers in staging name it; lines have a digest of kernel and size.
pub fn kernels_differ<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    // As ranks of several hosts, whose kernels find out.
    ground.apart();
    let (one, other): (Copier<X>, Copier<X>) =
        (ground.transport.all_to_all()?, ground.transport.all_to_all()?);
    let (input, mut output) = buffers(rank, &ground, 100)?;
    let launcher = if rank.me() == 0 { &one } else { &other };
    let by_lines = X::MAPS.then_some((Protocol::Ll128, CallField::Digest));
    for (protocol, expected) in [(Protocol::Simple, CallField::Kernel)].into_iter().chain(by_lines) {
        let args = copy::Launch { input: input.view(), output: output.view_mut() };
        launcher.launch_with(&ground.stream, args, &LaunchOptions::default().protocol(protocol))?;
        let fault = told(rank, &ground)?;
        assert!(
            matches!(operation(&fault), Operation::Mismatch { field, .. } if *field == expected),
            "{fault}"
        );
        says(&fault, &["another kernel", "same order"]);
        assert!(!fault.to_string().contains("launched last"), "both are called the same: {fault}");
        mended(rank, &ground)?;
        // The next is not to stop who still reads.
        rank.world.barrier()?;
    }
    Ok(())
}

pub fn poisoned_until_renewed<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let copier: Copier<X> = ground.transport.all_to_all()?;
    let first = all_but_rank_0(rank, &ground, &copier)?;
    rank.world.barrier()?;
    let (input, mut output) = buffers(rank, &ground, 70)?;
    for _ in 0..20 {
        copier.launch(&ground.stream, copy::Launch { input: input.view(), output: output.view_mut() })?;
    }
    // With the usual deadline these would take minutes.
    let again = fault(&ground, KNOWN);
    assert!(first.is_none_or(|first| first == again), "{again}");
    same("the output of poisoned launches", &output.read(&ground.stream)?[..], |_| 0);
    mended(rank, &ground)?;
    copier.launch(&ground.stream, copy::Launch { input: input.view(), output: output.view_mut() })?;
    let data = rank.data(0);
    same("the same launch, renewed", &output.read(&ground.stream)?, |i| {
        reference::all_to_all(rank.me(), 70, i, |peer, at| data.any(peer, at))
    });
    Ok(())
}

pub fn replayed_graph_reports<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let copier: Copier<X> = ground.transport.all_to_all()?;
    let (input, mut output) = buffers(rank, &ground, 333)?;
    let graph = ground.stream.capture(|| {
        let args = copy::Launch { input: input.view(), output: output.view_mut() };
        copier.launch_with(&ground.stream, args, &short())
    })?;
    graph.launch(&ground.stream)?;
    ground.stream.synchronize()?;
    // A replay that a rank leaves out expires like any launch, with the deadline it was captured with.
    if rank.me() != 0 {
        graph.launch(&ground.stream)?;
        assert!(matches!(operation(&fault(&ground, KNOWN)), Operation::Expired { peer: 0, .. }));
    }
    rank.world.barrier()?;
    (0..10).try_for_each(|_| graph.launch(&ground.stream))?;
    fault(&ground, KNOWN);
    mended(rank, &ground)?;
    output.fill_bytes(&ground.stream, 0)?;
    graph.launch(&ground.stream)?;
    let data = rank.data(0);
    same("the same graph, renewed", &output.read(&ground.stream)?, |i| {
        reference::all_to_all(rank.me(), 333, i, |peer, at| data.any(peer, at))
    });
    Ok(())
}

pub fn again_and_again<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let copier: Copier<X> = ground.transport.all_to_all()?;
    for _ in 0..4 {
        all_but_rank_0(rank, &ground, &copier)?;
        mended(rank, &ground)?;
    }
    Ok(())
}

pub fn schedule_names_what_does_not_exist<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = CustomOf::<misdirected::Hooks>::custom(&ground.transport)?;
    let (world, heap) = (rank.size() as u64, ground.transport.link().layout().heap / 4);
    let wrong = [
        ("signal", world, world),
        ("signal", 4096, 8),
        ("wait", 4096, 8),
        ("put", heap + 1, heap + 1),
        ("put", world + 7, world),
        ("get", heap + 1, heap + 1),
        ("put", u64::MAX, heap + 1),
        ("get", u64::MAX, heap + 1),
        ("send_tile", world, world),
        ("recv_tile", world, world),
    ];
    for (which, (name, bad, bound)) in wrong.into_iter().enumerate() {
        let data = ground.device.buffer::<u32>(10)?;
        let mut output = ground.device.buffer::<u32>(10)?;
        let args = misdirected::Launch { what: which as u32, data: data.view(), output: output.view_mut() };
        launcher.launch(&ground.stream, 1, args)?;
        let fault = told(rank, &ground)?;
        let Operation::OutOfRange { what, given, limit, .. } = operation(&fault) else {
            panic!("{name} should be out of range: {fault}");
        };
        assert_eq!((*what, *given, *limit), (name, bad, bound), "{fault}");
        ground.transport.renew().map_err(Error::from)?;
    }
    works(rank, &ground)
}

/// A tile travels on a channel that there is. (Where that is its block's index, the launch is refused.)
pub fn more_blocks_than_channels<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let launcher = CustomOf::<halves::Hooks>::custom(&ground.transport)?;
    let n = 5000 * rank.size();
    let (own, mut got) = (ground.device.buffer::<u32>(n)?, ground.device.buffer::<u32>(n)?);
    launcher.launch(
        &ground.stream,
        10,
        halves::Launch { own: own.view(), got: got.view_mut(), by_ll128: 0 },
    )?;
    let fault = told(rank, &ground)?;
    let named = matches!(
        operation(&fault),
        Operation::OutOfRange {
            what: "send_tile" | "recv_tile",
            block: 4 | 9,
            bound: Bound::Channel,
            given: 4,
            limit: 4,
            ..
        }
    );
    assert!(named, "{fault}");
    says(&fault, &["there are 4 channels", "Options::channels"]);
    // The sender's number is that of the channel.
    let by_number = matches!(operation(&fault), Operation::OutOfRange { block: 4, .. });
    says(&fault, &[if by_number { "Launch 4 blocks at most" } else { "took channel 4" }]);
    mended(rank, &ground)
}

/// Results must not be taken from a buffer whose kernel faulted, whatever stream they are read on.
pub fn read_on_another_stream_reports<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let copier: Copier<X> = ground.transport.all_to_all()?;
    let (input, mut output) = buffers(rank, &ground, 90)?;
    let other = ground.device.stream()?;
    if rank.me() != 0 {
        let args = copy::Launch { input: input.view(), output: output.view_mut() };
        copier.launch_with(&ground.stream, args, &short())?;
        let read = output.read(&other);
        assert!(matches!(read, Err(Error::Fault(_))), "{:?}", read.map(drop));
        // The stream that ran the kernel reports it all the same.
        fault(&ground, KNOWN);
        // One that is gone cannot: the stream that reads does.
        let gone = ground.device.stream()?;
        let args = copy::Launch { input: input.view(), output: output.view_mut() };
        copier.launch_with(&gone, args, &short())?;
        drop(gone);
        let read = output.read(&other);
        assert!(matches!(read, Err(Error::Fault(_))), "{:?}", read.map(drop));
    }
    rank.world.barrier()?;
    mended(rank, &ground)
}
