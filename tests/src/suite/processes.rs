//! Cases in which a rank's process dies. They are run by a [`Fleet`](crate::fleet::Fleet).

use super::support::works;
use crate::kernels::hooks::chain;
use crate::{AllToAllOf, Case, Outcome, Rank, Subject};
use fusewire::Error;
use std::time::{Duration, Instant};

/// When the victim dies, after the ranks have begun to run kernels.
const RUNS: Duration = Duration::from_millis(150);

/// How soon after that everybody must know.
const KNOWN: Duration = Duration::from_secs(2);

/// The cases.
pub(super) fn cases<X: Subject>() -> Vec<Case<X>> {
    let case = |name, body| Case { name, ranks: 2..=16, body };
    vec![
        case("processes::last_rank_is_killed", |rank| dies_in_a_kernel(rank, rank.size() - 1, kill)),
        case("processes::rank_0_is_killed", |rank| dies_in_a_kernel(rank, 0, kill)),
        case("processes::a_rank_exits_early", |rank| {
            dies_in_a_kernel(rank, rank.size() - 1, || std::process::exit(0))
        }),
        case("processes::killed_before_a_launch", killed_before_a_launch),
    ]
}

/// Whether a case is one of these: ranks must be processes.
pub fn is_one(case: &str) -> bool {
    case.starts_with("processes::")
}

/// The rank that dies in a case, if one does.
pub fn victim(case: &str, size: usize) -> Option<usize> {
    match case {
        "processes::rank_0_is_killed" => Some(0),
        _ if is_one(case) => Some(size - 1),
        _ => None,
    }
}

fn kill() {
    // As the system's own killer does it: no destructor runs, no goodbye is said.
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
}

/// All ranks replay a graph without end; one dies.
fn dies_in_a_kernel<X: Subject>(rank: &Rank<X>, victim: usize, die: fn()) -> Outcome {
    let ground = rank.usual()?;
    let launcher = AllToAllOf::<chain::Hooks>::all_to_all(&ground.transport)?;
    let n = rank.size() * rank.scale.pick(5_000, 500_000);
    let input = ground.device.buffer::<u32>(n)?;
    let mut output = ground.device.buffer::<u32>(n)?;
    let graph = ground.stream.capture(|| {
        launcher.launch(&ground.stream, chain::Launch { input: input.view(), output: output.view_mut() })
    })?;
    works(rank, &ground)?;
    rank.world.barrier()?;
    let start = Instant::now();
    if rank.me() == victim {
        std::thread::spawn(move || {
            std::thread::sleep(RUNS);
            die();
        });
    }
    let error = loop {
        match graph.launch(&ground.stream).and_then(|()| ground.stream.synchronize()) {
            // What the victim's driver says while its process ends is nobody's concern.
            Err(_) if rank.me() == victim => std::thread::sleep(KNOWN),
            Ok(()) => assert!(start.elapsed() < RUNS + KNOWN, "nobody noticed that rank {victim} died"),
            Err(error) => break error,
        }
    };
    let took = start.elapsed();
    // The victim may have left the barrier a little before this rank did.
    assert!((RUNS / 2..RUNS + KNOWN).contains(&took), "known after {took:?}: {error}");
    assert!(matches!(error, Error::Lost { rank } if rank == victim), "rank {victim} died: {error:?}");
    // Later launches and replays end at once, with the same error; the transport cannot be renewed.
    graph.launch(&ground.stream)?;
    launcher.launch(&ground.stream, chain::Launch { input: input.view(), output: output.view_mut() })?;
    let again = ground.stream.synchronize();
    assert!(matches!(again, Err(Error::Lost { rank }) if rank == victim), "{again:?}");
    let renewed = ground.transport.renew().map_err(Error::from).expect_err("a rank is dead");
    crate::check::says(&renewed, &[&format!("rank {victim}")]);
    // Memory, streams and the device are as they were.
    assert_eq!(input.read(&ground.stream).map_err(drop), Ok(vec![0; n]));
    drop((graph, launcher, ground));
    let took = start.elapsed();
    assert!(took < RUNS + 3 * KNOWN, "tear-down without rank {victim} took until {took:?}");
    Ok(())
}

/// The death is known before the first launch.
fn killed_before_a_launch<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.usual()?;
    let launcher = AllToAllOf::<chain::Hooks>::all_to_all(&ground.transport)?;
    let victim = rank.size() - 1;
    rank.world.barrier()?;
    if rank.me() == victim {
        kill();
    }
    let start = Instant::now();
    while rank.world.lost().is_empty() {
        assert!(start.elapsed() < KNOWN, "nobody noticed that rank {victim} died");
        std::thread::sleep(Duration::from_millis(1));
    }
    let (input, mut output) =
        (ground.device.buffer::<u32>(64 * rank.size())?, ground.device.buffer(64 * rank.size())?);
    launcher.launch(&ground.stream, chain::Launch { input: input.view(), output: output.view_mut() })?;
    let result = ground.stream.synchronize();
    assert!(matches!(result, Err(Error::Lost { rank }) if rank == victim), "rank {victim} died: {result:?}");
    assert!(start.elapsed() < 2 * KNOWN, "it took {:?}", start.elapsed());
    Ok(())
}
