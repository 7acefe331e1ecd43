//! Ranks that share a GPU: each gets multiprocessors of its own.
//!
//! Kernels that wait for each other must run at the same time. On one GPU that is so when each rank's kernels have multiprocessors that no
//! other rank's can take: a part of the GPU ([`Context::partition`]) for each. Threads of one process get theirs so, and processes under MPS.
//! Where the driver gives no parts, the blocks of all ranks are counted together, and launches that do not fit are refused.

use super::{Error, Machine, Result};
use fusewire_driver::memory::release_dropped;
use fusewire_driver::{Context, DeviceAttribute, Driver};
use fusewire_world::{Rank, World};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Lets processes that share a GPU take turns, with the value `timeslice`.
const TURNS: &str = "FUSEWIRE_SHARE_GPU";
/// Leaves parts out, with the value `1`: blocks are counted instead.
const NO_PARTS: &str = "FUSEWIRE_NO_PARTITIONS";

/// What makes a process launch one kernel after the other: a variable in its environment, and who sets it.
const SERIAL: [(&str, &str); 3] = [
    ("CUDA_LAUNCH_BLOCKING", "CUDA_LAUNCH_BLOCKING"),
    ("NV_SANITIZER_INJECTION_PORT_BASE", "compute-sanitizer"),
    ("NV_NSIGHT_INJECTION_PORT_BASE", "Nsight Compute"),
];

/// Which part of how many.
type Part = (u32, u32);

/// A rank and its GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Card {
    /// None of a rank whose kernels run on CPU threads.
    gpu: Option<[u8; 16]>,
    process: u32,
    /// Served by MPS.
    mps: bool,
    /// What keeps its kernels from running beside others'.
    serial: Option<String>,
    takes_turns: bool,
    /// The part that it has already.
    has: Option<Part>,
    /// The part it would have if all ranks of the job on this host were dealt to its GPUs in turn.
    dealt: Option<Part>,
    wants_parts: bool,
    /// Hardware queues for all streams of its process.
    queues: u32,
}

/// The context of this rank's part, if ranks share its GPU; else the context. Collective over the ranks of a transport.
///
/// # Errors
/// [`Error::Misuse`] on all ranks if kernels of ranks that share a GPU cannot run at the same time; what the driver says.
pub fn share(world: &World, context: &Context) -> Result<Context> {
    match machine(world, Some(context))? {
        Machine::Cuda(context) => Ok(context),
        Machine::Host => unreachable!("a context is of a GPU"),
    }
}

/// As [`share`], for transports of which some ranks, without a context, run kernels on CPU threads. Collective over all of them.
///
/// # Errors
/// As for [`share`].
pub(crate) fn machine(world: &World, context: Option<&Context>) -> Result<Machine> {
    let own = context.map_or_else(Card::default, |context| Card::of(world, context));
    let cards: Vec<Card> = world.all_gather_as(&own)?;
    // All ranks are here: what runs was queued by all, and needs no launch that is to come.
    release_dropped();
    if let Some(why) = refusal(&cards) {
        return Err(Error::Misuse { what: why });
    }
    let parts = (0..cards.len()).map(|rank| part(&cards, rank)).collect::<Result<Vec<_>>>()?;
    if cards.iter().all(|card| card.has.is_some() || alone(&cards, card)) {
        return Ok(context.map_or(Machine::Host, |context| Machine::Cuda(context.clone())));
    }
    let made = match (context, parts[world.rank()]) {
        (Some(context), Some((place, of))) if own.wants_parts && own.has.is_none() => {
            context.partition(place, of).map(Some)
        }
        _ => Ok(context.cloned()),
    };
    let outcome = match &made {
        Ok(made) => Ok(made.as_ref().is_some_and(|context| context.place().is_some())),
        // In use beside another split: parts would overlap.
        Err(error @ fusewire_driver::Error::Misuse { .. }) => Err(error.to_string()),
        Err(_) => Ok(false),
    };
    let outcomes: Vec<std::result::Result<bool, String>> = world.all_gather_as(&outcome)?;
    if let Some((rank, why)) = outcomes.iter().enumerate().find_map(|(r, o)| Some((r, o.as_ref().err()?))) {
        return Err(Error::Misuse { what: format!("rank {rank} has no part of its GPU: {why}") });
    }
    // Of ranks on one GPU all have parts, or none.
    let all = on_the_gpu_of(&cards, &own).all(|(rank, _)| outcomes[rank] == Ok(true));
    let part = made.ok().flatten().filter(|_| all).or_else(|| context.cloned());
    Ok(part.map_or(Machine::Host, Machine::Cuda))
}

impl Card {
    fn of(world: &World, context: &Context) -> Card {
        let set = |name: &str, value: &str| std::env::var(name).is_ok_and(|v| v == value);
        let device = context.device();
        let serial =
            SERIAL.iter().find(|(name, _)| std::env::var(name).is_ok_and(|v| !v.is_empty() && v != "0"));
        Card {
            gpu: Some(device.uuid()),
            process: std::process::id(),
            mps: device.attribute(DeviceAttribute::MpsEnabled).is_ok_and(|mps| mps == 1),
            serial: serial.map(|(_, who)| (*who).into()),
            takes_turns: set(TURNS, "timeslice"),
            has: context.place(),
            dealt: dealt(world, device.ordinal()),
            wants_parts: !set(NO_PARTS, "1"),
            queues: Driver::load().map_or(0, Driver::connections),
        }
    }
}

/// Which part of how many a rank has of device `ordinal` where a host's ranks take its devices in turn.
fn dealt(world: &World, ordinal: usize) -> Option<Part> {
    let whole = world.whole();
    let devices = Driver::load().and_then(Driver::device_count).ok()?;
    let (rank, ranks) = (whole.local_rank(), whole.local_size());
    let of = (ordinal..ranks).step_by(devices.max(1)).count();
    (rank % devices.max(1) == ordinal).then_some(((rank / devices.max(1)) as u32, of as u32))
}

/// The ranks on the GPU of `card`.
fn on_the_gpu_of<'c>(cards: &'c [Card], card: &'c Card) -> impl Iterator<Item = (Rank, &'c Card)> {
    cards.iter().enumerate().filter(|(_, other)| card.gpu.is_some() && other.gpu == card.gpu)
}

/// One rank's of each process.
fn card_of_each_process<'c>(here: &[(Rank, &'c Card)]) -> Vec<&'c Card> {
    let mut cards: Vec<&Card> = here.iter().map(|(_, card)| *card).collect();
    cards.sort_by_key(|card| card.process);
    cards.dedup_by_key(|card| card.process);
    cards
}

fn alone(cards: &[Card], card: &Card) -> bool {
    on_the_gpu_of(cards, card).count() <= 1
}

/// Why kernels of ranks on one GPU would not run at the same time. The same on all ranks.
fn refusal(cards: &[Card]) -> Option<String> {
    for card in cards.iter().filter(|card| !alone(cards, card)) {
        let here: Vec<(Rank, &Card)> = on_the_gpu_of(cards, card).collect();
        let ranks: Vec<Rank> = here.iter().map(|(rank, _)| *rank).collect();
        if let Some((rank, who)) = here.iter().find_map(|(rank, c)| Some((rank, c.serial.as_ref()?))) {
            return Some(format!(
                "ranks {ranks:?} share a GPU, and under {who} rank {rank} runs one kernel after the other: a kernel would wait for a \
                 peer's that cannot begin. Run without it, or give each rank a GPU"
            ));
        }
        for card in card_of_each_process(&here) {
            let ranks = here.iter().filter(|(_, c)| c.process == card.process).count() as u32;
            if 2 * ranks > card.queues {
                return Some(format!(
                    "{ranks} ranks of one process share a GPU with {} hardware queues: in one queue, a kernel could stand behind one that \
                     waits for it. Set {}={} before the program starts (two for each rank are needed)",
                    card.queues,
                    Driver::CONNECTIONS,
                    Driver::MOST_CONNECTIONS
                ));
            }
        }
        let processes: BTreeSet<u32> = here.iter().map(|(_, c)| c.process).collect();
        if processes.len() > 1 && !here.iter().all(|(_, c)| c.mps || c.takes_turns) {
            return Some(format!(
                "ranks {ranks:?} are {} processes that share a GPU without MPS: they take turns of some milliseconds, so that a wait for \
                 a peer takes a thousand times as long. Make them threads of one process (`World::threads`), or start the service first \
                 (`nvidia-cuda-mps-control -d`), or set {TURNS}=timeslice on every rank to have it so",
                processes.len()
            ));
        }
    }
    None
}

/// Which part of its GPU a rank has, if it shares it.
fn part(cards: &[Card], rank: Rank) -> Result<Option<Part>> {
    let here: Vec<(Rank, &Card)> = on_the_gpu_of(cards, &cards[rank]).collect();
    let ranks: Vec<Rank> = here.iter().map(|(rank, _)| *rank).collect();
    let turns = here.iter().any(|(_, card)| card.takes_turns && !card.mps);
    if turns || here.len() <= 1 && cards[rank].has.is_none() {
        return Ok(None);
    }
    let sets = [
        here.iter().map(|(_, card)| card.has).collect::<Option<Vec<_>>>(),
        here.iter().map(|(_, card)| card.dealt).collect::<Option<Vec<_>>>(),
    ];
    if sets[0].is_none() && here.iter().any(|(_, card)| card.has.is_some()) {
        return Err(Error::Misuse {
            what: format!(
                "of the ranks {ranks:?} on one GPU some have a part of it and some have not: make the transport of all ranks first, and \
                 this one on its context"
            ),
        });
    }
    let own = ranks.iter().position(|r| *r == rank).unwrap_or(0);
    let in_order = || (0..ranks.len()).map(|place| (place as u32, ranks.len() as u32)).collect::<Vec<_>>();
    let parts = sets.into_iter().flatten().find(|parts| apart(parts)).unwrap_or_else(in_order);
    Ok(Some(parts[own]))
}

/// Whether these are different parts of one split.
fn apart(parts: &[Part]) -> bool {
    let places: BTreeSet<u32> = parts.iter().map(|(place, _)| *place).collect();
    places.len() == parts.len() && parts.iter().all(|(place, of)| *of == parts[0].1 && place < of)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(gpu: u8, process: u32) -> Card {
        Card {
            gpu: Some([gpu; 16]),
            process,
            mps: false,
            serial: None,
            takes_turns: false,
            has: None,
            dealt: None,
            wants_parts: true,
            queues: 8,
        }
    }

    fn parts(cards: &[Card]) -> Vec<Option<Part>> {
        (0..cards.len()).map(|rank| part(cards, rank).unwrap()).collect()
    }

    #[test]
    fn a_rank_alone_has_all_of_its_gpu() {
        assert_eq!(parts(&[card(0, 1), card(1, 1), card(2, 2)]), [None, None, None]);
        assert!(refusal(&[card(0, 1), card(1, 1)]).is_none());
        // Ranks on CPU threads share nothing, and other ranks' GPUs neither.
        let mixed = [Card::default(), card(0, 1), Card::default(), card(0, 1)];
        assert_eq!(parts(&mixed), [None, Some((0, 2)), None, Some((1, 2))]);
        assert!(refusal(&vec![Card::default(); 20]).is_none());
    }

    #[test]
    fn ranks_on_one_gpu_have_different_parts_of_it() {
        let cards = [card(0, 1), card(1, 1), card(0, 1), card(0, 1), card(1, 1)];
        assert_eq!(parts(&cards), [Some((0, 3)), Some((0, 2)), Some((1, 3)), Some((2, 3)), Some((1, 2))]);
    }

    #[test]
    fn groups_of_a_job_keep_to_its_split() {
        let mut cards = [card(0, 1), card(0, 1)];
        (cards[0].dealt, cards[1].dealt) = (Some((1, 4)), Some((3, 4)));
        assert_eq!(parts(&cards), [Some((1, 4)), Some((3, 4))]);
        // What they have comes first.
        (cards[0].has, cards[1].has) = (Some((5, 8)), Some((6, 8)));
        assert_eq!(parts(&cards), [Some((5, 8)), Some((6, 8))]);
        cards[1].has = None;
        assert!(part(&cards, 0).is_err() && part(&cards, 1).is_err());
        // Two on a GPU that was not dealt to both.
        let mut cards = [card(0, 1), card(0, 1)];
        (cards[0].dealt, cards[1].dealt) = (Some((0, 1)), None);
        assert_eq!(parts(&cards), [Some((0, 2)), Some((1, 2))]);
    }

    #[test]
    fn what_cannot_run_at_the_same_time_is_refused_on_every_rank() {
        let told = refusal(&[card(0, 1), card(1, 2), card(0, 3)]).unwrap();
        for part in [
            "ranks [0, 2] are 2 processes",
            "World::threads",
            "nvidia-cuda-mps-control -d",
            "FUSEWIRE_SHARE_GPU=timeslice",
        ] {
            assert!(told.contains(part), "{told}");
        }
        let served = |mut c: Card| (c.mps = true, c).1;
        assert!(refusal(&[served(card(0, 1)), served(card(0, 2))]).is_none());
        assert!(refusal(&[served(card(0, 1)), card(0, 2)]).is_some());
        let patient = |mut c: Card| (c.takes_turns = true, c).1;
        let both = [patient(card(0, 1)), patient(card(0, 2))];
        assert!(refusal(&both).is_none());
        assert_eq!(parts(&both), [None, None]);
        // No `mut` argument: without incremental compilation rustc 1.95 drops such a one twice (rust-lang/rust#155241).
        let slow = |c: Card| Card { serial: Some("compute-sanitizer".into()), ..c };
        let told = refusal(&[card(0, 1), slow(card(0, 1))]).unwrap();
        assert!(told.contains("under compute-sanitizer rank 1"), "{told}");
        assert!(refusal(&[slow(card(0, 1)), card(1, 1)]).is_none());
        let many = vec![card(0, 1); 5];
        let told = refusal(&many).unwrap();
        assert!(told.contains("5 ranks of one process share a GPU with 8 hardware queues"), "{told}");
        assert!(told.contains("CUDA_DEVICE_MAX_CONNECTIONS=32"), "{told}");
        assert!(refusal(&many[..4]).is_none());
    }
}
