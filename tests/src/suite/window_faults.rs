//! What goes wrong with windows while kernels run: every error names operation and line, and nothing else is touched.
//!
//! torchcomms' traps are here: rank range, self rank, `SET` over an adapter, signal and barrier range, unregistered source, timeout.

use super::support::{operation, works};
use crate::check::{same, says};
use crate::kernels::windows::{FIRST_CALL, misdirected_window, op};
use crate::windows::{Player, Windowed, step, windowed};
use crate::{CustomOf, Outcome, Rank, Stop, Subject};
use fusewire::device::window::LinkKind;
use fusewire::{Error, Fault, LaunchOptions, Operation, Refusal, WindowConfig};
use std::time::{Duration, Instant};

/// How long waits last where one is meant to expire.
const DEADLINE: Duration = Duration::from_millis(250);

/// By when everybody must know.
const KNOWN: Duration = Duration::from_secs(6);

/// 3 signals, 1 counter, 2 barriers, 64 words.
fn small<X: Subject>(rank: &Rank<X>) -> fusewire::Result<Windowed<X>> {
    let config = WindowConfig::default().signals(3).counters(1).barriers(2);
    let mut on = windowed(rank, config, 64)?;
    on.data.fill_from(&[77; 64])?;
    rank.world.barrier()?;
    Ok(on)
}

/// Every rank makes call `what`; the fault that is known to all.
fn misdirect<X: Subject>(
    rank: &Rank<X>,
    on: &Windowed<X>,
    what: u32,
    only: Option<usize>,
) -> Result<Fault, Stop> {
    let launcher = CustomOf::<misdirected_window::Hooks>::custom(&on.ground.transport)?;
    let input = on.ground.device.buffer_from(&[5u64; 8])?;
    let start = Instant::now();
    if only.is_none_or(|rank_| rank_ == rank.me()) {
        let args = misdirected_window::Launch { window: &on.window, input: input.view(), what };
        let options = LaunchOptions::default().deadline(DEADLINE);
        launcher.launch_with(&on.ground.stream, 1, args, &options)?;
    }
    match on.ground.stream.synchronize() {
        Ok(()) | Err(Error::Fault(_)) => rank.world.barrier()?,
        Err(other) => return Err(other.into()),
    }
    assert!(start.elapsed() < KNOWN, "call {what} took {:?}", start.elapsed());
    match on.ground.transport.check().map_err(Error::from) {
        Err(Error::Fault(fault)) => Ok(*fault),
        other => panic!("call {what} should be a fault: {other:?}"),
    }
}

#[track_caller]
fn at_line(fault: &Fault, what: u32) {
    let at = fault.at.as_ref().unwrap_or_else(|| panic!("the fault names no line: {fault}"));
    assert!(at.file.ends_with("kernels/windows.rs") && at.line == FIRST_CALL + what, "call {what}: {fault}");
    says(fault, &[&format!("windows.rs:{}", at.line), "renew"]);
}

/// No word of the window has changed, and it works.
fn unharmed<X: Subject>(rank: &Rank<X>, on: &Windowed<X>) -> Outcome {
    on.ground.transport.renew().map_err(Error::from)?;
    same("data after a fault", &on.data.read(&on.ground.stream)?, |_| 77);
    let player = Player::new(on)?;
    let mut steps: Vec<_> = (0..3).map(|id| step(op::READ_SIGNAL).id(id)).collect();
    steps.extend(rank.others().iter().map(|peer| step(op::READ_COUNTER).peer(*peer)));
    let seen = player.play(&steps)?;
    assert!((0..steps.len()).all(|k| seen.at(k) == 0), "a refused call left something in the window");
    player.play(&[step(op::BARRIER).id(0), step(op::BARRIER).id(1)])?;
    on.window.renew()?;
    Ok(())
}

pub fn calls_that_cannot_be<X: Subject>(rank: &Rank<X>) -> Outcome {
    let on = small(rank)?;
    let world = rank.size() as u64;
    let no_rank = |given| Refusal::NoSuchRank { world, given };
    let no_id = |limit, given| Refusal::NoSuchId { limit, given };
    let wrong: [(&str, Refusal); 25 - 4 + 2] = [
        ("signal_peer", no_rank(world)),
        ("signal_peer", Refusal::OwnRank),
        ("signal_peer", no_id(3, 3)),
        ("signal_all", no_id(3, 77)),
        ("wait_signal_from", no_rank(u64::MAX)),
        ("wait_signal_from", Refusal::OwnRank),
        ("wait_signal", no_id(3, 3)),
        ("wait_next_from", no_id(3, u64::MAX)),
        ("wait_next", no_id(3, 3)),
        ("read_signal", no_id(3, 3)),
        ("read_signal_from", Refusal::OwnRank),
        ("barrier", no_id(2, 2)),
        ("barrier_peer", Refusal::OwnRank),
        ("barrier_arrive_peer", no_rank(world)),
        ("barrier_wait", no_id(2, 1 << 40)),
        ("barrier_grid", no_id(2, 2)),
        ("wait_counter", no_id(1, 1)),
        ("read_counter", no_rank(world)),
        ("reset_counter", Refusal::OwnRank),
        ("put", no_id(0, 0)), // out of range: below
        ("put", Refusal::OwnRank),
        ("put_signal", no_id(0, 0)), // out of range: below
        ("put_signal", no_id(3, 3)),
    ];
    for (what, (name, why)) in wrong.into_iter().enumerate() {
        let fault = misdirect(rank, &on, what as u32, None)?;
        match operation(&fault) {
            Operation::Refused { what, why: said, .. } => assert_eq!((*what, said), (name, &why), "{fault}"),
            Operation::OutOfRange { what, given, limit, .. } => {
                let past = if name == "put" { 65 } else { u64::MAX };
                assert_eq!((*what, *given, *limit), (name, past, 65), "{fault}");
            }
            _ => panic!("call {what} should be refused: {fault}"),
        }
        at_line(&fault, what as u32);
        unharmed(rank, &on)?;
    }
    let fault = misdirect(rank, &on, 23, None)?;
    let refused = matches!(
        operation(&fault),
        Operation::Refused { what: "put_signal_counter", why: Refusal::NoSuchId { limit: 1, given: 1 }, .. }
    );
    assert!(refused, "{fault}");
    at_line(&fault, 23);
    unharmed(rank, &on)
}

/// Rank 0 alone waits; all are told, by the line.
pub fn waits_that_expire<X: Subject>(rank: &Rank<X>) -> Outcome {
    let on = small(rank)?;
    for (call, thing, expected) in [(24, "a signal", 1), (25, "the barrier", 1), (26, "a counter", 5)] {
        let fault = misdirect(rank, &on, call, Some(0))?;
        let Operation::Expired { what, expected: wanted, seen, waited, .. } = operation(&fault) else {
            panic!("a wait should have expired: {fault}");
        };
        assert_eq!((*what, *wanted, *seen, fault.rank), (thing, expected, 0, 0), "{fault}");
        assert!((DEADLINE..KNOWN).contains(waited), "{fault}");
        at_line(&fault, call);
        // A barrier that rank 0 alone came to is not in step: agree the window anew.
        on.ground.transport.renew().map_err(Error::from)?;
        on.window.renew()?;
        unharmed(rank, &on)?;
    }
    works(rank, &on.ground)
}

/// A window in the middle of a tile: a panic that names the line.
pub fn within_a_tile<X: Subject>(rank: &Rank<X>) -> Outcome {
    let on = small(rank)?;
    let fault = misdirect(rank, &on, 99, Some(0))?;
    let Operation::Panicked { file, line, .. } = operation(&fault) else { panic!("a panic: {fault}") };
    assert!(file.ends_with(".rs") && *line > 0, "{fault}");
    on.ground.transport.renew().map_err(Error::from)?;
    on.window.renew()?;
    unharmed(rank, &on)
}

/// After a fault nothing of a kernel goes out, and later kernels end at once, until both are renewed.
pub fn poisoned_until_renewed<X: Subject>(rank: &Rank<X>) -> Outcome {
    let on = small(rank)?;
    let player = Player::new(&on)?;
    misdirect(rank, &on, 24, Some(0))?;
    let start = Instant::now();
    let next = (rank.me() + 1) % rank.size();
    let result = player.play(&[step(op::SIGNAL_PEER).peer(next).value(1)]).map(|_| ());
    assert!(matches!(result, Err(Error::Fault(_))), "a poisoned transport: {result:?}");
    assert!(start.elapsed() < KNOWN);
    rank.world.barrier()?;
    unharmed(rank, &on)
}

/// What only an adapter refuses: a signal that is set, a source that is not registered.
pub fn over_an_adapter<X: Subject>(rank: &Rank<X>) -> Outcome {
    let on = small(rank)?;
    let far = on.window.topology().kind((rank.me() + 1) % rank.size()) == Some(LinkKind::Rdma);
    let far = rank.world.all_gather_as(&far)?;
    let Some(caller) = far.iter().position(|far| *far) else {
        return Err(Stop::LeftOut("no rank's next rank is reached by an adapter here".into()));
    };
    for (call, name) in [(27, "signal_peer"), (28, "put")] {
        let fault = misdirect(rank, &on, call, Some(caller))?;
        let Operation::Refused { what, why, .. } = operation(&fault) else { panic!("refused: {fault}") };
        let expected = match why {
            Refusal::Link => call == 27,
            Refusal::Unregistered { bytes: 32, .. } => call == 28,
            _ => false,
        };
        assert!(expected && (*what, fault.rank) == (name, caller), "{fault}");
        at_line(&fault, call);
        unharmed(rank, &on)?;
    }
    Ok(())
}
