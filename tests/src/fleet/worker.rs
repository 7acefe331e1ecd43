//! One rank's process.

use super::{Answer, Order};
use crate::run::MEETING;
use crate::suite::processes;
use crate::{Meet, Rank, Scale, Stop};
use fusewire::world::Options as WorldOptions;
use fusewire::{UniqueId, World};
use std::io::Write;
use std::net::Ipv4Addr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;

/// The argument that makes a program of the suite a worker.
pub const ENTRY: &str = "--worker";

/// Runs what the fleet orders until it ends.
pub fn serve<X: Meet>(scale: Scale) {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let _ = serde_json::from_str::<Order>(&line).map(|order| sender.send(order));
        }
        // Nobody is there to hear an answer: whatever runs ends here.
        std::process::exit(0);
    });
    let cases = X::cases();
    for order in receiver {
        let answer = match order {
            Order::MakeId => match UniqueId::create_on(Ipv4Addr::LOCALHOST.into()) {
                Ok(id) => Answer::Id(id.to_string()),
                Err(error) => Answer::Failed(error.to_string()),
            },
            Order::Run { case, id, rank, size, seed } => {
                let outcome = || -> crate::Outcome {
                    let case = cases.iter().find(|c| c.name == case);
                    let case = case.ok_or_else(|| Stop::Failed("this worker has no such case".into()))?;
                    let options = WorldOptions::default().with_timeout(MEETING);
                    let world = World::connect(&id.parse()?, rank, size, &options)?;
                    let ended = (case.body)(&Rank::<X>::new(world.clone(), seed, scale));
                    // Rank 0 holds the store: it goes last.
                    if ended.is_ok() && !processes::is_one(case.name) {
                        world.teardown_barrier()?;
                    }
                    ended
                };
                match caught(outcome) {
                    Ok(()) => Answer::Passed,
                    Err(Stop::LeftOut(why)) => Answer::LeftOut(why),
                    Err(Stop::Failed(why)) => Answer::Failed(why),
                }
            }
        };
        let mut out = std::io::stdout().lock();
        let line = serde_json::to_string(&answer).unwrap_or_default();
        if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}

/// A panic is a failure.
pub(crate) fn caught(body: impl FnOnce() -> crate::Outcome) -> crate::Outcome {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        Err(Stop::Failed(text.unwrap_or_else(|| "it panicked".into())))
    })
}
